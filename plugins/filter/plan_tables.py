# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_tables
short_description: The plans of a fleet as tables to read, each once
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Draws the table of P(npu.affinity.plan_table#filter) once for all hosts that have the same. A sentence that holds for some of them names
    these.
options:
  _input:
    description:
      - For each host, by its name, the options C(plan), C(topology), C(summary), C(remarks) and C(difference) of
        P(npu.affinity.plan_table#filter).
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show the plan of two hosts
  ansible.builtin.debug:
    msg: "{{ {'node01': found, 'node02': found} | npu.affinity.plan_tables }}"
  vars:
    found:
      plan: "{{ npu_affinity_plan }}"
      topology: "{{ ansible_facts['npu_affinity_topology'] }}"
      summary: ''
      remarks: []
      difference: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.difference(npu_affinity_plan) }}"
"""

RETURN = r"""
_value:
  description: The lines of the tables.
  type: list
  elements: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import plans

plan_tables = filter_errors(plans.plan_tables)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_tables": plan_tables}
