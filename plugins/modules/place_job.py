#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: place_job
short_description: Determine which hosts can take a job
version_added: 1.0.0
description:
  - Returns what the filter P(npu.affinity.place#filter) returns for the hosts that P(npu.affinity.fleet#filter) describes.
  - Fails with a sentence, without showing the playbook's source, if the request is wrong.
  - Runs on the controller only.
options:
  request:
    description: The job, as described for P(npu.affinity.place#filter).
    type: dict
    required: true
  hosts:
    description: Names of hosts whose topology was gathered in this run.
    type: list
    elements: str
    default: []
  files:
    description: Saved facts, one file for each host, in place of O(hosts).
    type: list
    elements: path
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Where can a task with two NPUs run?
  npu.affinity.place_job:
    hosts: "{{ ansible_play_hosts_all }}"
    request: {npus: 2}
"""

RETURN = r"""
placement:
  description: The answer, as described for P(npu.affinity.place#filter).
  returned: success
  type: dict
  sample: {"placed": true, "message": "a task with 2 NPUs can run on a2-01."}
"""
