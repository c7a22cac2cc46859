#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: progress
short_description: Print how far a playbook is through its batches
version_added: 1.0.0
description:
  - Prints the number of the batch, how many hosts are done, and their states. Prints nothing if there is only one batch.
  - Runs on the controller only. Run it once for all hosts of a batch.
options:
  playbook:
    description: The playbook that runs.
    type: str
    choices: [bind, inspect, report, rollback, unbind, verify]
    required: true
  before:
    description: RV(at) of the previous batch, whose hosts need not be counted again.
    type: dict
    default: {}
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Show the progress of the fleet
  run_once: true
  npu.affinity.progress:
    playbook: bind
"""

RETURN = r"""
at:
  description: The number of the C(batch) of all C(batches), how many of the C(hosts) are C(done), whether a host of this batch C(changed),
    and how far the fleet is as a C(line).
  returned: always
  type: dict
  sample:
    {batch: 2, batches: 5, begun: 1, done: 40, hosts: 200, playbook: bind, states: {changed: 40}, changed: true,
     line: "batch 2 of 5, 40 of 200 hosts: 40 changed"}
"""
