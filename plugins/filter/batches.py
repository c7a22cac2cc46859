# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: batches
short_description: Check the batches in which a playbook walks through a fleet
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns what belongs in C(serial) of a play, and refuses what would run on no host, or not on those that were meant.
  - C(serial) is templated once, in the process from which Ansible forks a worker for every host and task. This filter loads the code that
    plans there, so that the workers have it; Ansible compiles a collection's code anew in every process that loads it.
positional: setting
options:
  _input:
    description: A number of hosts, a percentage of the fleet such as V(25%), or a list of these.
    type: raw
    required: true
  setting:
    description: The variable that it comes from, for messages.
    type: str
    default: npu_affinity_batches
"""

EXAMPLES = r"""
---
- name: A canary, then the others
  hosts: npu_hosts
  serial: "{{ [1, '100%'] | npu.affinity.batches }}"
  gather_facts: false
  roles:
    - role: npu.affinity.plan
"""

RETURN = r"""
_value:
  description: The batches.
  type: list
  elements: raw
  sample: [1, 25%, 100%]
"""

import importlib
from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.batches import checked

PLANNING = ("_plan.planner", "_desired.binding", "_vnpu.vnpus", "_desired.workloads")
for name in PLANNING:
    importlib.import_module(f"ansible_collections.npu.affinity.plugins.plugin_utils.{name}")


@filter_errors
def batches(value: Any, setting: str = "npu_affinity_batches") -> list[Any]:
    return checked(value, setting)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"batches": batches}
