#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: save
short_description: Write small files on the controller
version_added: 1.0.0
description:
  - Writes text files on the controller atomically, with mode 0644, and creates missing folders.
  - Runs on the controller only, without a module. M(ansible.builtin.copy) runs two or three modules for each file, which takes long for
    the reports of thousands of hosts.
  - The files belong to the user who runs C(ansible-playbook).
options:
  files:
    description: Texts by the absolute paths of their files.
    type: dict
    required: true
extends_documentation_fragment:
  - npu.affinity._attributes
attributes:
  diff_mode:
    support: none
    details:
      - Differences between reports are not differences of a host.
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Keep what was gathered
  npu.affinity.save:
    files: "{{ {'/tmp/npu-affinity/' ~ inventory_hostname ~ '.json': ansible_facts['npu_affinity_topology'] | to_nice_json} }}"
"""

RETURN = r"""
written:
  description: Paths of the files that were created or changed.
  returned: always
  type: list
  elements: str
  sample: [/tmp/npu-affinity/node001.json]
"""
