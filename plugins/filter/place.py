# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: place
short_description: Find hosts, chips, CPUs and NUMA nodes for a job
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Predicts for a whole fleet the decisions of MindCluster's scheduler, Volcano's numa-aware plugin and the kubelet's topology manager.
  - Ranks all hosts that can take a task, with the chips, CPUs and NUMA nodes that the task would get, and the score of each plugin. Returns
    the reason for all other hosts.
  - On a host with a kubelet, policies other than V(none) require the static CPU manager and the same topology policy. On other hosts,
    only the policy of the request counts.
  - Reserves nothing. A job without a placement is a result, not an error.
positional: request
options:
  _input:
    description:
      - The hosts by name. Each is the fact C(npu_affinity_topology), or a dictionary with C(topology) and C(labels), or CPUs by NUMA node
        in C(capacity) and C(free) with the C(policy) of the topology manager.
      - Labels are C(switch) (name), C(position) (on the switch, from 0), C(superpod) (number), C(rack) (number, on the Atlas 950), the
        labels of network trees, and C(product), a family of P(npu.affinity.select_npus#filter) for hosts whose facts leave their product
        open.
    type: dict
    required: true
  request:
    description: The request of the job.
    type: dict
    required: true
    suboptions:
      cpus:
        description: Whole CPUs of a task. With V(0), a task gets the CPUs that the plan in force gives its NPUs.
        type: int
        default: 0
      npus:
        description: NPUs of a task.
        type: int
        default: 0
      policy:
        description: Topology policy of the task.
        type: str
        default: none
        choices: [none, best-effort, restricted, single-numa-node]
      replicas:
        description: Number of tasks, which are placed one after the other. With more than one, the sizes of distributed jobs apply.
        type: int
        default: 1
      tasks:
        description:
          - Tasks of different kinds, each with its O(request.npus), O(request.cpus) and O(request.replicas), which are then not set for
            the job. They run together or not at all. Each may have a C(name) and its own O(request.policy), O(request.family) and
            O(request.mode).
          - The largest tasks are placed first. If some do not fit, the search continues in the given order, and then in any order on any
            hosts. RV(_value.message) reports that the job cannot run only if no placement exists. A search that reaches its limit reports
            the limit.
          - O(request.switch) and O(request.tree) require that all tasks are of the same kind.
          - With O(request.superpod), each entry with NPUs is an instance of an inference service, such as prefill or decode, and has
            C(instances), by default 1. An instance stays inside one SuperPod, and inside one rack of an Atlas 950.
        type: list
        elements: dict
      family:
        description:
          - The required product, as in P(npu.affinity.select_npus#filter). V(auto) accepts any.
          - It also determines the product of a host whose facts fit several products.
        type: str
        default: auto
      mode:
        description:
          - How to allocate chips of inference cards, as in P(npu.affinity.select_npus#filter). The default follows the name of
            O(request.family), or is V(chip).
          - V(card) and V(distributed) are for inference cards. Hosts with other products are refused.
        type: str
        choices: [chip, card, distributed]
      weight:
        description: Weight of the numa-aware plugin.
        type: int
        default: 1
      kubernetes:
        description: Refuse hosts without a kubelet, which a Kubernetes scheduler does not see.
        type: bool
        default: false
      limit:
        description: Number of ranked hosts that are returned.
        type: int
        default: 20
      switch:
        description:
          - Affinity to switches. Hosts of products whose network has none are refused, which is a rule of this filter. MindCluster's
            scheduler does not check the network. The same holds for O(request.superpod) and O(request.tree).
        type: dict
        suboptions:
          version:
            description: The rule.
            type: str
            default: "1.0"
            choices: ["1.0", "2.0", single_layer]
          schema:
            description: If the rule cannot be met, V(normal-schema) uses any hosts, and V(large-model-schema) uses none.
            type: str
            default: normal-schema
            choices: [normal-schema, large-model-schema]
          tor_count:
            description: Number of hosts of a switch. The default is that of the largest switch.
            type: int
          shared_switches:
            description: How many switches a large job may share with others, by rule 2.0.
            type: int
            default: 2
          states:
            description:
              - State of switches by name, with C(shared) (0 free, 1 shared, 2 exclusive), C(healthy) (0 healthy, 1 unhealthy) and
                C(spanned_by) (the schemas of jobs that also run on other switches).
            type: dict
            default: {}
      superpod:
        description: Affinity to logical SuperPods.
        type: dict
        suboptions:
          sp_block:
            description: NPUs of a block. The default is all NPUs of the job.
            type: int
          reserve_nodes:
            description: Hosts of every SuperPod to keep in reserve.
            type: int
            default: 0
          soft:
            description: Accept parts smaller than a block.
            type: bool
            default: false
          ra_block:
            description: NPUs of a job that stay in one rack, on the Atlas 950. A power of 2, up to 64.
            type: int
            default: 1
          super_pod_size:
            description: Hosts of a SuperPod as configured for the scheduler. Checked for the Atlas 950 only.
            type: int
          ub_memory:
            description: Whether the job shares memory over UnifiedBus, and so stays in 16 racks of an Atlas 950.
            type: bool
            default: false
          service:
            description:
              - The job is an instance of an inference service, such as prefill or decode. It runs in the SuperPods that run the service, or
                in those with the most free hosts. Its blocks stay in one rack on the Atlas 950. No hosts are kept in reserve.
            type: dict
            suboptions:
              id:
                description: Value of the label C(inferserviceid) of its jobs.
                type: str
                default: ""
              job:
                description: Name of the job itself, which does not count if it is in C(jobs).
                type: str
                default: ""
              jobs:
                description: Jobs of the cluster by name, each with its C(labels) and C(hosts).
                type: dict
                default: {}
      tree:
        description: Affinity to a network tree of any depth. Its tasks take whole hosts.
        type: dict
        suboptions:
          config:
            description: C(resource-level-config) of MindCluster, as JSON or as a dictionary. Its labels are those of the hosts.
            type: raw
            required: true
          levels:
            description: Hosts of a block on each level, as in the annotation C(huawei.com/affinity-config).
            type: str
            default: level1=1
seealso:
  - plugin: npu.affinity.select_npus
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Where can a task with two NPUs and 32 CPUs on one NUMA node run?
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.place(request)).table }}"
  vars:
    request: {npus: 2, cpus: 32, policy: single-numa-node}
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, ['ansible_facts', 'npu_affinity_topology']))) }}"

- name: A job of two prefill tasks, a decode task and a router, together or not at all
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.place(request)).message }}"
  vars:
    hosts: "{{ {inventory_hostname: ansible_facts['npu_affinity_topology']} }}"
    request:
      family: a2
      tasks:
        - {name: prefill, npus: 4, cpus: 40, replicas: 2}
        - {name: decode, npus: 8, policy: best-effort}
        - {name: router, cpus: 8}

- name: Hosts with Atlas 350 cards that are linked in meshes of four
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.place({'npus': 4, 'family': 'mesh4_8'})).table }}"
  vars:
    topologies: "{{ ansible_play_hosts | map('extract', hostvars, ['ansible_facts', 'npu_affinity_topology']) }}"
    hosts: "{{ dict(ansible_play_hosts | zip(topologies)) }}"

- name: Sixteen whole hosts in blocks of two, inside as few SuperPods as possible
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.place(request)).tasks | map(attribute='host') }}"
  vars:
    hosts: "{{ {inventory_hostname: {'topology': ansible_facts['npu_affinity_topology'], 'labels': npu_affinity_labels | default({})}} }}"
    request: {npus: 16, replicas: 16, superpod: {sp_block: 32, reserve_nodes: 2}}

- name: Eight whole hosts in pairs, and each two pairs in one group
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.place(request)).tasks | map(attribute='host') }}"
  vars:
    hosts: "{{ {inventory_hostname: {'topology': ansible_facts['npu_affinity_topology'], 'labels': npu_affinity_labels | default({})}} }}"
    request:
      npus: 16
      replicas: 8
      tree:
        levels: level1=2,level2=4
        config: {default: {level1: {label: huawei.com/topotree.superpodid, reservedNode: 1}, level2: {label: huawei.com/topotree.groupid}}}
"""

RETURN = r"""
_value:
  description: The answer.
  type: dict
  contains:
    request: {description: The request with its defaults., type: dict, sample: {npus: 2, cpus: 32, policy: single-numa-node, replicas: 1}}
    placed: {description: Whether all tasks can run at the same time., type: bool, sample: true}
    message: {description: The answer in words., type: str, sample: a task with 2 NPUs and 32 CPUs can run on a2-01.}
    tasks:
      description: The tasks with their host. Empty when not all of them have a place.
      type: list
      elements: dict
      contains:
        task: {description: Number of the task., type: int, sample: 0}
        name:
          description: The name of its shape, by default C(task) and its number in O(request.tasks).
          returned: with O(request.tasks), here and in RV(_value.hosts) and RV(_value.refused)
          type: str
          sample: prefill
        host: {description: Its host., type: str, sample: a2-01}
        score: {description: The sum of the scores by then., type: int, sample: 794}
        scores: {description: The scores by then., type: dict, sample: {numa: 0, npu: 794}}
        npus: {description: Logic ids of its NPUs., type: list, elements: int, sample: [2, 3]}
        cpus: {description: Its CPUs. Null on a host of which only numbers are known., type: str, sample: 96-127}
        numa:
          description:
            - The NUMA nodes of its CPUs, or of its NPUs when it has no CPUs. If the kernel knows no NUMA node of its NPUs, a policy admits
              all nodes of the host. Without a policy, the list is then empty.
          type: list
          elements: int
          sample: [4]
    hosts:
      description: The best hosts for a task, the best first. With O(request.tasks), those for each of them, as if nothing else ran.
      type: list
      elements: dict
      contains:
        host: {description: The host., type: str, sample: a2-01}
        score: {description: The sum of its scores., type: int, sample: 794}
        scores:
          description:
            - C(numa) is the score of Volcano's numa-aware plugin, C(npu) that of the product's rule, C(affinity) 100 for hosts that
              affinity to switches, SuperPods or a tree selects.
          type: dict
          sample: {numa: 0, npu: 794, affinity: 0}
        family: {description: The rule of its product. Null when no NPU is wanted., type: str, sample: a2}
        assumed:
          description:
            - The assumption about the product of the host, if its facts leave it open, and what MindCluster's documents do not confirm
              about its network. Otherwise empty.
          type: str
          sample: ""
        preferred:
          description: Whether the topology manager prefers this placement; only V(best-effort) accepts others.
          type: bool
          sample: true
        npus: {description: Logic ids of the NPUs., type: list, elements: int, sample: [2, 3]}
        cpus: {description: The CPUs. Null on a host of which only numbers are known., type: str, sample: 96-127}
        numa: {description: Their NUMA nodes., type: list, elements: int, sample: [4]}
    fitting:
      description: Number of hosts that can take a task. With O(request.tasks), a dictionary of numbers by name.
      type: raw
      sample: 17
    refused:
      description: The other hosts with the reason.
      type: list
      elements: dict
      contains:
        host: {description: The host., type: str, sample: a2-02}
        reason:
          description: Why it cannot take a task.
          type: str
          sample: "task topology policy[restricted] is different with node[best-effort]"
    table: {description: All of it as lines of a table., type: list, elements: str, sample: ["A task with 2 NPUs can run on a2-01."]}
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import job

place = filter_errors(job.place)
FilterModule = filter_module(place)
