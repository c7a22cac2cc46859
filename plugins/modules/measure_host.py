# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measure_host
short_description: Measure a host, and print the result next to an earlier one
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.measure_info) with the settings of the host. Run role P(npu.affinity.plan#role) first.
  - Saves the measurement in C(npu_affinity_measures) on the controller. It changes nothing on the host.
seealso:
  - module: npu.affinity.measure_info
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Gather and plan
  ansible.builtin.include_role:
    name: npu.affinity.plan

- name: Measure, and compare with the measurement before
  npu.affinity.measure_host:
"""

RETURN = r"""
lines:
  description: What was printed.
  returned: success
  type: list
  elements: str
  sample: ['a2-01:']
files:
  description: Paths of the files that were created or changed.
  returned: success
  type: list
  elements: str
  sample: [/home/alice/measures/a2-01/before.json]
workloads:
  description: As RV(npu.affinity.measure_info#module:workloads). The other values that M(npu.affinity.measure_info) returns are there, too.
  returned: success
  type: list
  elements: dict
  sample: []
"""
