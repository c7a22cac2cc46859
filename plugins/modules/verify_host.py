#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: verify_host
short_description: Compare a host with its state in force, and report what differs
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.binding_info) with the settings of the host, and prints each difference.
  - Writes the reports of the host to C(npu_affinity_reports) on the controller, if that is set.
  - Fails a host that differs or cannot be compared, if C(npu_affinity_fail_on) has V(drift). Role P(npu.affinity.verify#role) uses it.
options:
  purpose:
    description:
      - Purpose of the comparison.
      - After a V(bind), it takes the comparison that was part of the change. Services that wait for a restart do not fail the host, and a
        host without differences prints nothing.
      - With V(compare), the module does not fail the host. The summary of the playbook does.
    type: str
    choices: [bind, compare, role]
    default: role
seealso:
  - module: npu.affinity.binding_info
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Compare the host, and print what differs
  npu.affinity.verify_host:
    purpose: compare
"""

RETURN = r"""
lines:
  description: What was printed.
  returned: always
  type: list
  elements: str
  sample: ['a2-01: 0 of 71 compared objects differ']
drift:
  description: As RV(npu.affinity.binding_info#module:drift). The other values that M(npu.affinity.binding_info) returns are there, too.
  returned: if the host could be compared
  type: list
  elements: dict
  sample: []
muted:
  description: Why findings do not fail the host, by their code, as C(npu_affinity_mute) has it.
  returned: always
  type: dict
  sample: {NPU_IRQ_MOVED: 'muted until 2026-12-01 00:00 UTC: vendor script, ticket 7'}
"""
