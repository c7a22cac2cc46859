#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: show_plans
short_description: Print the plans of all hosts, and write them on the controller
version_added: 1.0.0
description:
  - Prints each different plan once as a table, with the hosts that have it. Run role P(npu.affinity.plan#role) first.
  - Writes files for review to C(npu_affinity_plan_file), if that is set.
  - Runs on the controller only. Run it once for all hosts of a play.
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Show the plans of all hosts of the play
  run_once: true
  npu.affinity.show_plans:
"""

RETURN = r"""
lines:
  description: What was printed.
  returned: always
  type: list
  elements: str
  sample: ['a2-01:']
written:
  description: Paths of the files that were created or changed.
  returned: always
  type: list
  elements: str
  sample: [/home/alice/fleet.json]
"""
