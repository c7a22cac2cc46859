# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: workloads
short_description: Compute the CPUs and memory nodes of NPUs that serve one model
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the union of its NPUs' pools for every workload, and the CPUs of each of its processes.
positional: workloads, topology
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  workloads:
    description:
      - The variable C(npu_affinity_workloads), elements with C(name), C(npus), optionally C(units), C(share), C(engine) and C(roles).
    type: list
    elements: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology), which has the NUMA nodes.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: The CPUs of a model on five cards
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan | npu.affinity.workloads(models, ansible_facts['npu_affinity_topology']) }}"
  vars:
    models:
      - name: llm-a
        npus: [0, 1, 2, 4, 5]
"""

RETURN = r"""
_value:
  description:
    - One dictionary for each workload, with C(name), C(slice), C(npus), C(units), C(pool), C(mems) and C(memory_nodes)
      (cpulists, the unions; the nearest memory nodes, and those that may be used), C(cpus_per_node) and
      C(processes), the plan's entry of every NPU.
    - C(engine) is there where it was given.
  type: list
  elements: dict
"""

from collections.abc import Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import workloads as _workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import Workload


@filter_errors
def workloads(plan: Plan, workloads: Sequence[Workload], topology: Topology) -> list[dict[str, Any]]:
    return _workloads.workloads(plan, workloads, topology)


FilterModule = filter_module(workloads)
