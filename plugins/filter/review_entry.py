# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: review_entry
short_description: What is reviewed of a host before a bind
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Reduces topology, plan and desired state of a host to what a bind applies, without times and without what the host is doing at the
    moment. Entries of an unchanged host are equal.
  - Playbooks C(plan) and C(bind) make them. P(npu.affinity.review_file#filter) writes them, and P(npu.affinity.review_refusals#filter)
    compares them with what was written.
positional: topology, plan, settings
options:
  _input:
    description: The desired state that P(npu.affinity.desired_state#filter) returns. Not read where the plan has no NPU.
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  plan:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  settings:
    description: The settings that change what a bind does, C(applied) of P(npu.affinity.settings#lookup).
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: See whether something changed since the last look
  ansible.builtin.debug:
    msg: >-
      {{ state | npu.affinity.review_entry(ansible_facts['npu_affinity_topology'], npu_affinity_plan, settings=applied) == last_time }}
  vars:
    applied: "{{ lookup('npu.affinity.settings').applied }}"
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(npu_affinity_plan, {'tuning': tuning}) }}"
    tuning: {enabled: true, governor: performance, numa_balancing: 0, transparent_hugepages: '', swappiness: '', python: /usr/bin/python3}
    last_time: "{{ lookup('ansible.builtin.file', 'last_time.json') | from_json }}"
"""

RETURN = r"""
_value:
  description:
    - C(machine) has CPUs, NUMA nodes and PCI functions of NPUs, C(in_force) and C(plan) what the two plans decide, and C(state) the
      features, with digests of files, units, live settings and of every setting that changes what a bind does.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._review import entry


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"review_entry": filter_errors(entry.review_entry)}
