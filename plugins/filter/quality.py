# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: quality
short_description: Rate CPU pools of any origin
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Measures a plan, or CPU pools from another source such as a running service or another tool, against a topology.
  - Returns numbers, without a verdict.
positional: topology, cpus
options:
  _input:
    description:
      - A plan of P(npu.affinity.plan#filter), or a dictionary of cpulists by logic id.
      - On a host with NPUs and GPUs, keys such as V(npu-0) and V(gpu-0) tell them apart.
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology) of P(npu.affinity.topology_facts#module).
    type: dict
    required: true
  cpus:
    description:
      - The cpulist that could be divided. Its CPUs that are in no pool are idle.
      - The default for a plan is the CPUs that it divided. For other pools, it is all online CPUs except those that the kubelet gave to
        containers.
    type: str
seealso:
  - plugin: npu.affinity.compare
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show how good a plan is, NPU by NPU
  ansible.builtin.debug:
    msg: "{{ (npu_affinity_plan | npu.affinity.quality(ansible_facts['npu_affinity_topology'])).npus }}"

- name: Measure what two services were given by hand
  ansible.builtin.debug:
    msg: "{{ {'0': '0-31', '1': '16-47'} | npu.affinity.quality(ansible_facts['npu_affinity_topology']) }}"

- name: Refuse pools that overlap
  ansible.builtin.assert:
    that: (pools | npu.affinity.quality(ansible_facts['npu_affinity_topology'], cpus='0-95')).disjoint
  vars:
    pools: {"0": 0-47, "1": 48-95}
"""

RETURN = r"""
_value:
  description: The measures.
  type: dict
  contains:
    disjoint:
      description: Whether no CPU is in two pools.
      type: bool
      sample: false
    overlap:
      description: The CPUs in more than one pool.
      type: str
      sample: 16-31
    whole_cores:
      description: Whether every pool has all threads of its cores that can be divided.
      type: bool
      sample: true
    split_cores:
      description: The number of cores of which a pool has some threads and not all.
      type: int
      sample: 0
    local:
      description:
        - The share of pool CPUs that are local to their NPU, which means on its own NUMA node, or on a node without NPUs to which no
          other NPU is nearer.
        - A CPU on the NUMA node of another NPU is never local, even if none of the NPU's own may be divided.
      type: float
      sample: 0.75
    own_node:
      description: The share of pool CPUs that are on the NPU's own NUMA node.
      type: float
      sample: 0.5
    remote:
      description: The number of pool CPUs that are not local to their NPU.
      type: int
      sample: 0
    distance:
      description: The mean NUMA distance between NPUs and the CPUs of their pools. Null where no distance is known.
      type: float
      sample: 14.5
    caches:
      description: The mean number of last-level caches of a pool. Null where no cache is known.
      type: float
      sample: 1.5
    balance:
      description: By how many CPUs the largest pool is larger than the smallest.
      type: int
      sample: 0
    smallest:
      description: The number of CPUs of the smallest pool. The NPUs of one job wait for the slowest.
      type: int
      sample: 24
    idle:
      description: The CPUs in no pool.
      type: str
      sample: 48-191
    optimal:
      description:
        - Whether no division with as large a smallest pool is nearer to the NPUs.
        - Null where that is not known, for example because pools overlap.
      type: bool
      sample: true
    gap:
      description: How far the pools are from the best possible. Empty where RV(_value.optimal) is not false.
      type: dict
      contains:
        remote:
          description: How many more CPUs are remote.
          type: int
          sample: 2
        distance:
          description: By how much the sum of the NUMA distances of remote CPUs is larger.
          type: int
          sample: 40
    unusable:
      description: The CPUs of pools that are offline, that O(cpus) leaves out, or that the kubelet gave to containers.
      type: str
      sample: ""
    missing:
      description: The NPUs and GPUs without a pool.
      type: list
      elements: str
      sample: [NPU 2]
    npus:
      description: All NPUs and GPUs of the host, ascending by id.
      type: list
      elements: dict
      contains:
        id:
          description: The logic id.
          type: int
          sample: 0
        name:
          description: Its name in sentences.
          type: str
          sample: NPU 0
        numa:
          description: Its NUMA node. Null when the kernel knows none.
          type: int
          sample: 0
        pool:
          description: The CPUs of its pool.
          type: str
          sample: 0-31
        cpus:
          description: The number of these CPUs.
          type: int
          sample: 32
        local:
          description: The share of them that are local to it. Null without a pool and where the NUMA node is not known.
          type: float
          sample: 0.75
        distance:
          description: Their mean NUMA distance. Null where it is not known.
          type: float
          sample: 14.5
        caches:
          description: The number of their last-level caches. Null where it is not known.
          type: int
          sample: 2
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import measures

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology


@filter_errors
def quality(pools: object, topology: Topology, cpus: object = None) -> dict[str, Any]:
    return measures.measured(pools, topology, cpus)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"quality": quality}
