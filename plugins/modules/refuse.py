#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: refuse
short_description: Fail a host with a message, without showing the playbook's source
version_added: 1.0.0
description:
  - Fails the host with a message, like M(ansible.builtin.fail).
  - ansible-core 2.19 and newer add the source lines of the task to the message of M(ansible.builtin.fail). This action omits them, because
    they do not help to correct a setting.
  - Runs on the controller only.
options:
  msg:
    description: A sentence, or a list of sentences.
    type: raw
    required: true
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
# not run by the tests: it fails the host
- name: Refuse a host without NPUs
  when: ansible_facts['npu_affinity_topology'].npus | length == 0
  npu.affinity.refuse:
    msg: "Host {{ inventory_hostname }} has no NPU: remove it from group npu_hosts."
"""

RETURN = r"""
msg:
  description: The sentences.
  returned: always
  type: str
  sample: "Host a2-01 has no NPU: remove it from group npu_hosts."
"""
