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
  - Draws a table of the NPUs and their CPUs once for all hosts that have the same, next to the plan in force. Why the CPUs are divided so,
    what was repaired and what to look at follows. A sentence that holds for some hosts names them.
positional: names
options:
  _input:
    description:
      - The variables of hosts by name, as C(hostvars), each with the facts C(npu_affinity_state) and C(npu_affinity_topology). Hosts
        without a plan are left out.
    type: dict
    required: true
  names:
    description: The hosts to take.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
---
- name: Show the plans of all hosts of the play
  run_once: true
  ansible.builtin.debug:
    msg: "{{ hostvars | npu.affinity.plan_tables(ansible_play_hosts) }}"
"""

RETURN = r"""
_value:
  description: The lines of the tables.
  type: list
  elements: str
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import plans

SHOWN = ("plan", "summary", "remarks", "difference", "outside")


@filter_errors
def plan_tables(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    states = {name: variables[name].get("npu_affinity_state") or {} for name in names}
    return plans.plan_tables(
        {
            name: {key: state[key] for key in SHOWN} | {"topology": variables[name]["npu_affinity_topology"]}
            for name, state in states.items()
            if state.get("plan")
        }
    )


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_tables": plan_tables}
