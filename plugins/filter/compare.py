# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: compare
short_description: Compare strategies on one host
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Plans a host by several strategies, each as published and repaired. Returns the measures of all of them, the NPUs whose CPUs differ, and
    the effect of the repair.
  - Changes nothing and ignores the plan in force.
positional: strategies, cpus, housekeeping, smt, min_cpus
options:
  _input:
    description: The fact C(npu_affinity_topology) of P(npu.affinity.topology_facts#module).
    type: dict
    required: true
  strategies:
    description: The strategies of P(npu.affinity.plan#filter) to compare.
    type: list
    elements: str
    default: [auto, even_split]
    choices: [auto, cluster, distributed, even_split, global_slice, packed, topo_affinity]
  cpus:
    description: The cpulist to divide. By default all online CPUs.
    type: str
  housekeeping:
    description: CPUs to keep for the system. Either a cpulist, or a number of whole cores of every NUMA node.
    type: raw
    default: ""
  smt:
    description: Divide whole cores (V(cores)), or single threads by number (V(threads)).
    type: str
    default: cores
    choices: [cores, threads]
  min_cpus:
    description: The smallest pool.
    type: int
    default: 5
seealso:
  - plugin: npu.affinity.plan
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Compare the strategy of the chip family with equal shares
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.compare).table }}"

- name: Compare two strategies with two cores of every NUMA node for the system
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.compare(strategies, housekeeping=2)).table }}"
  vars:
    strategies: [topo_affinity, even_split]

- name: Name the NPUs whose CPUs depend on the choice
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.compare).differences | map(attribute='name') | list }}"
"""

RETURN = r"""
_value:
  description: The comparison.
  type: dict
  contains:
    table: {description: All of it as lines to read. CPUs are shown as their number., type: list, elements: str}
    rules:
      description: For every strategy, the published result, then the repaired one.
      type: list
      elements: dict
      contains:
        label:
          description: A letter. Rules that give the same pools have the same one, a rule that refuses has none.
          type: str
          sample: a
        rule: {description: Name of the rule in the table., type: str, sample: "auto (topo_affinity), published"}
        requested: {description: The strategy that was asked for., type: str, sample: auto}
        strategy: {description: The strategy that was used. Null when it refuses., type: str, sample: topo_affinity}
        repair: {description: Whether the published result was repaired., type: bool, sample: false}
        refused: {description: Why there are no pools. Null when there are some., type: str}
        quality:
          description:
            - The measures of the pools. Null when the rule refuses.
            - Those that RV(npu.affinity.plan#filter:_value.quality) has, and the following ones.
          type: dict
          contains:
            overlap: {description: The CPUs in more than one pool., type: str, sample: 16-31}
            split_cores: {description: The number of cores of which a pool has some threads and not all., type: int, sample: 0}
            distance:
              description: The mean NUMA distance between NPUs and the CPUs of their pools. Null where no distance is known.
              type: float
              sample: 14.5
            caches: {description: The mean number of last-level caches of a pool. Null where no cache is known., type: float, sample: 1.5}
            unusable:
              description: The CPUs of pools that are offline, that O(cpus) leaves out, or that the kubelet gave to containers.
              type: str
              sample: ""
            missing: {description: The NPUs and GPUs without a pool., type: list, elements: str, sample: [NPU 2]}
            npus:
              description: All NPUs and GPUs of the host, ascending by id.
              type: list
              elements: dict
              contains:
                id: {description: The logic id., type: int, sample: 0}
                name: {description: Its name in sentences., type: str, sample: NPU 0}
                numa: {description: Its NUMA node. Null when the kernel knows none., type: int, sample: 0}
                pool: {description: The CPUs of its pool., type: str, sample: 0-31}
                cpus: {description: The number of these CPUs., type: int, sample: 32}
                local:
                  description: The share of them that are local to it. Null without a pool and where the NUMA node is not known.
                  type: float
                  sample: 0.75
                distance: {description: Their mean NUMA distance. Null where it is not known., type: float, sample: 14.5}
                caches: {description: The number of their last-level caches. Null where it is not known., type: int, sample: 2}
        repaired: {description: "Defects of the published rule on this host and their repair, in sentences.", type: list, elements: str}
        warnings: {description: "Warnings, in sentences.", type: list, elements: str}
    differences:
      description: The NPUs and GPUs whose pool is not the same by every rule.
      type: list
      elements: dict
      contains:
        name: {description: Its name in sentences., type: str, sample: NPU 0}
        numa: {description: Its NUMA node. Null when the kernel knows none., type: int, sample: 6}
        pools: {description: Its cpulist by the label of the rule., type: dict, sample: {a: 0-47, b: 144-167}}
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import comparison

compare = filter_errors(comparison.compare)
FilterModule = filter_module(compare)
