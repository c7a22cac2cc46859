# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_table
short_description: A plan as a table to read
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Draws one line for every NPU, and below them why the strategy was chosen, what was repaired and what to look at.
positional: topology, summary, remarks, difference
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology), for names and NUMA nodes.
    type: dict
    required: true
  summary:
    description: A further sentence, such as C(summary) of filter P(npu.affinity.desired_state#filter).
    type: str
    default: ""
  remarks:
    description: Further sentences, such as C(remarks) of the same filter.
    type: list
    elements: str
    default: []
  difference:
    description: C(difference) of the same filter, for services and workloads, and the plan in force next to this one.
    type: dict
    version_added: 1.0.0
"""

EXAMPLES = r"""
---
- name: Show the plan of a host
  ansible.builtin.debug:
    msg: >-
      {{ state.plan | npu.affinity.plan_table(ansible_facts['npu_affinity_topology'], summary=state.summary, remarks=state.remarks,
                                              difference=state.difference) }}
  vars:
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"
"""

RETURN = r"""
_value:
  description: The lines of the table.
  type: list
  elements: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils import _table
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

plan_table = filter_errors(_table.plan_table)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_table": plan_table}
