# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan
short_description: Divide the CPUs of a host over its NPUs
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Makes a plan from a topology. The plan assigns CPUs and memory nodes to each NPU, and its CPUs to interrupts and the threads of its
    worker.
  - Neither reads from nor writes to a host. The same topology and options always give the same plan.
  - GPUs are planned as well. Their pool has no roles, because the roles stand for interrupts and threads that only NPUs have.
    On a host with NPUs and GPUs, V(auto) gives every card an equal share of its NUMA node.
  - CPUs that the kubelet has assigned to containers can be planned. Role P(npu.affinity.plan#role) refuses to take them from
    containers. Isolated CPUs are used unless O(exclude_isolated=true).
  - If cards of the plan in force are missing, the others keep their pools and slices (see O(replan)).
positional: >-
  strategy, cpus, housekeeping, npus, smt, min_cpus, repair, replan, roles, exclude_isolated, bound_by, visible_npus, workloads, memory,
  engine_version
options:
  _input:
    description: The fact C(npu_affinity_topology) of P(npu.affinity.topology_facts#module).
    type: dict
    required: true
  strategy:
    description:
      - The rule that divides the CPUs.
      - V(auto) uses V(global_slice) for A3, V(cluster) for A5, V(even_split) for GPUs and V(topo_affinity) for all others. If another
        division gives NPUs fewer remote CPUs, V(auto) uses that, unless the smallest pool would shrink, or with O(repair=false) or
        O(bound_by=workers). RV(_value.reason) has the numbers.
      - V(global_slice) is the rule of vLLM-Ascend for A3. NPU n gets the n-th slice of all CPUs.
      - V(topo_affinity) is its rule for A2 and 310P. NPUs divide the CPUs that npu-smi prints for them and those of the next NUMA node.
        If npu-smi prints none, O(repair=true) uses those of the node that the kernel reports. If that is unknown as well, the rule is
        V(global_slice).
      - V(cluster) is its rule for A5. Each NPU gets eight cores of its NUMA node, without roles.
      - V(even_split) gives every card the same number of whole cores of its own NUMA node.
      - V(packed) and V(distributed) are what the kubelet's static CPU manager would give to one container for each card, whichever
        NUMA node the card is on. Use them for comparison only.
    type: str
    default: auto
    choices: [auto, cluster, distributed, even_split, global_slice, packed, topo_affinity]
  cpus:
    description:
      - The cpulist to divide. By default all online CPUs.
      - NPUs on a NUMA node without such CPUs are left out, and requesting them is an error. Only O(strategy=global_slice) gives them CPUs
        of another node.
    type: str
  housekeeping:
    description:
      - CPUs to keep for the system. Either a cpulist, or a number of whole cores of every NUMA node, starting with the lowest.
      - With O(smt=cores), a listed CPU includes its whole core.
      - V(5) is a number of cores. For CPU 5 only, set the range V(5-5). The text V("0") is CPU 0.
      - V(follow) keeps one core of every NUMA node, V(follow:2) two. RV(_value.follow) is then true.
    type: raw
    default: ""
  npus:
    description:
      - The logic ids to return in RV(_value.npus). The default is all. On a host with NPUs and GPUs, an id selects both.
      - While cards of the plan in force are missing, these are the ids of that plan, which are the numbers of its slices.
      - This option does not change pools. Other NPUs of the host keep their CPUs.
    type: list
    elements: int
  smt:
    description: Divide whole cores (V(cores)), or single threads by number (V(threads)).
    type: str
    default: cores
    choices: [cores, threads]
  min_cpus:
    description:
      - The smallest pool. With the default of O(roles), pools of less than five CPUs are possible. Their roles share CPUs.
    type: int
    default: 5
  repair:
    description:
      - Whether to repair defects of the rule on this host. A published result without defects does not change.
      - A repaired plan has disjoint pools of whole cores, equal within a NUMA node, each near its NPU. See RV(_value.repaired).
      - NPUs whose NUMA nodes have too few CPUs get whole cores of the nearest nodes that can spare them. This does not apply to
        O(strategy=even_split), except if V(auto) selects it.
      - Pools of the plan in force stay if they are as good as new ones and O(replan=false).
      - With V(false), the plan is the published one, and RV(_value.violations) lists its defects.
    type: bool
    default: true
  replan:
    description:
      - Whether to plan again if cards of the plan in force are missing. Otherwise the remaining cards, identified by PCI function and chip,
        keep their pools. Offline CPUs of these pools are left out until they are online again.
      - If pools cannot be kept, because options changed, a card was added, or too few CPUs of a pool are online, they are planned again.
        The slices keep their names.
    type: bool
    default: false
  roles:
    description:
      - Number of CPUs of a pool for interrupts (C(irq)), C(acl_thread) (C(acl)), C(release_thread) (C(release)) and the threads that
        transfer KV caches (C(kv)). The worker (main) has the others, and at least one. Missing keys keep their defaults.
      - The CPUs of C(kv) precede that of C(acl). By default there are none, and these threads run on the CPUs of the worker.
      - The default is what vLLM-Ascend publishes. Larger roles are for hosts with CPUs to spare. Another size needs O(repair=true), and
        a pool then has at least one CPU more than these roles, whatever O(min_cpus) allows.
      - The interrupt of the submission queue (SQ) is bound to the first CPU of C(irq), those of the completion queues (CQ) to the
        others in turn. With one CPU they share it.
      - On hosts with SMT and with O(smt=cores), every CPU of these roles has its own core, whose other threads belong to the worker. If a
        pool has too few cores, CPUs of the same role share cores first.
      - GPUs and A5 have no roles.
    type: dict
    default: {irq: 2, acl: 1, release: 1, kv: 0}
  exclude_isolated:
    description:
      - Whether to leave out CPUs that are isolated from the scheduler (C(isolcpus)). They are then neither divided nor kept for the
        system.
      - The scheduler does not move threads between isolated CPUs. The threads of a worker therefore crowd on a few of them.
        RV(_value.warnings) reports isolated CPUs in pools.
    type: bool
    default: false
  bound_by:
    description:
      - Who places the threads of workers. With V(workers), interrupts must match the pools that vLLM-Ascend's workers choose. The plan
        then has the published pools regardless of O(repair), and RV(_value.warnings) lists their defects.
      - With V(workers), an O(strategy) other than that of the chip family and O(roles) are refused, as is a host where the published rule
        fails.
      - On hosts where workers do not bind themselves (x86_64, GPUs), V(workers) has no effect on the plan.
    type: str
    choices: [host, workers]
    default: host
  engine_version:
    description:
      - With O(bound_by=workers), the release of vLLM-Ascend. The plan follows the rule of that release, and RV(_value.warnings) lists the
        pools of the local ranks of each workload that take a pool other than that of their NPU.
      - The default is the rule of the newest releases.
    type: str
    default: ''
  visible_npus:
    description:
      - The logic ids of the NPUs that C(npu-smi) lists for the workers, for example in a container with only these devices. The default
        is all NPUs of the host.
      - The plan has these NPUs, with the pools that such workers take. Workers count and number only the NPUs that they see.
      - E(ASCEND_RT_VISIBLE_DEVICES) does not change pools, because C(npu-smi) still lists all NPUs. In this case, use O(npus).
      - Only with O(bound_by=workers), and on hosts where workers bind themselves.
    type: list
    elements: int
  workloads:
    description:
      - The variable C(npu_affinity_workloads). The NPUs of a workload with C(roles) have roles of these sizes. Missing keys are those of
        O(roles).
      - Workloads that share an NPU but set different roles are refused.
    type: list
    elements: dict
  memory:
    description:
      - The NUMA nodes that the memory of an NPU's workload may use, RV(_value.npus[].memory_nodes). This option does not change pools.
      - V(wide) allows all nodes with memory that are no farther than the nodes of the NPU's socket are from each other. The kernel
        allocates on the node where a thread runs, and uses another one if that node is full.
      - V(strict) allows only the nearest node with memory. If that node is full, the kernel kills processes although other nodes have free
        memory.
      - V(none) does not restrict memory.
    type: str
    choices: [wide, strict, none]
    default: wide
  fail:
    description:
      - Fail if no plan is possible. With V(false), the filter returns only C(refused), a sentence with the reason.
    type: bool
    default: true
    version_added: 1.0.0
seealso:
  - module: npu.affinity.topology_facts
"""

EXAMPLES = r"""
---
- name: Plan by the rule of the chip family
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan }}"

- name: Give every NPU an equal share of its own NUMA node
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(strategy='even_split') }}"

- name: Divide a part of the machine only
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(cpus='8-95,104-191') }}"

- name: Keep two cores of every NUMA node for the system
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(housekeeping=2) }}"

- name: Show what two NPUs get
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.plan(npus=[0, 2])).npus }}"

- name: Divide threads by number, as where SMT siblings do not matter
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(smt='threads') }}"

- name: Refuse pools of less than sixteen CPUs
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(min_cpus=16) }}"

- name: See what vLLM-Ascend would do by itself, and what is wrong with it
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.plan(repair=false)).violations }}"

- name: Give interrupts four CPUs of every NPU, where there are CPUs to spare
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(roles={'irq': 4}) }}"

- name: Leave isolated CPUs to what they are isolated for
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(exclude_isolated=true) }}"

- name: Bind interrupts to what workers take by themselves
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(bound_by='workers') }}"

- name: See what workers take in a container with the devices of four NPUs
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.plan(bound_by='workers', visible_npus=[0, 1, 2, 3])).npus }}"

- name: Plan again after a card was removed permanently
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(replan=true) }}"

- name: Leave the memory of workloads alone
  ansible.builtin.set_fact:
    npu_affinity_plan: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(memory='none') }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    schema: {description: The version of this structure., type: int, sample: 1}
    strategy: {description: The strategy that was used., type: str, sample: topo_affinity}
    requested: {description: The requested strategy., type: str, sample: auto}
    reason:
      description: Why RV(_value.strategy) was used, in one sentence.
      type: str
      sample: topo_affinity is the rule for the family a2.
    cpus: {description: The CPUs that were divided., type: str, sample: 0-191}
    housekeeping: {description: The CPUs that are kept for the system., type: str, sample: ""}
    follow:
      description: Whether the system also gets the CPUs of pools that no workload uses.
      returned: with O(housekeeping=follow)
      type: bool
      sample: true
    npus:
      description: The requested NPUs and GPUs, ascending by id.
      type: list
      elements: dict
      contains:
        kind: {description: Whether it is an NPU or a GPU., type: str, sample: npu}
        id: {description: The logic id., type: int, sample: 0}
        card: {description: "The NPU ID of its card, or null.", type: int, sample: 0}
        chip: {description: The chip of its card; chips of a card can share a PCI function., type: int, sample: 0}
        phy_id:
          description: The physical id, which is the number of the device file, or null where that is not known.
          type: int
          sample: 0
        pci: {description: The PCI function., type: str, sample: "0000:c1:00.0"}
        pool:
          description: All CPUs of the NPU. With O(repair=false) their order is that of the published rule.
          type: str
          sample: 144-167
        irq:
          description: The CPU for the interrupt of the submission queue, then those for the completion queues.
          type: str
          sample: 144-145
        main: {description: The CPUs of the worker., type: str, sample: 146-165}
        kv:
          description: The CPUs of the threads that transfer KV caches.
          returned: when O(roles) or the NPU's workload ask for some
          type: str
          sample: 164-165
        acl: {description: The CPUs of the thread C(acl_thread)., type: str, sample: "166"}
        release: {description: The CPUs of the thread C(release_thread)., type: str, sample: "167"}
        mems: {description: The nearest memory nodes., type: str, sample: "6"}
        memory_nodes:
          description: The memory nodes that its workload may use, by O(memory). Empty if memory is not restricted.
          type: str
          sample: 6-7
        slice:
          description: The systemd slice. While cards of the plan in force are missing, its number is the logic id in that plan.
          type: str
          sample: npu-0.slice
        offline: {description: CPUs of a kept pool that are offline., returned: when there are such, type: str, sample: 150-151}
    repaired: {description: "Defects of the published rule on this host and their repair, in sentences.", type: list, elements: str}
    warnings: {description: "Warnings, and options that could only be met in part, in sentences.", type: list, elements: str}
    quality:
      description: How good the pools of all NPUs of the host are.
      type: dict
      contains:
        disjoint: {description: Whether no CPU is in two pools., type: bool}
        whole_cores: {description: Whether every pool has all threads of its cores that can be divided., type: bool}
        local:
          description:
            - The share of pool CPUs that are local to their NPU, which means on its own NUMA node, or on a node without NPUs to which no
              other NPU is nearer.
            - A CPU on the NUMA node of another NPU is never local, even if none of the NPU's own may be divided.
            - Null where the NUMA node of no NPU is known.
          type: float
          sample: 1.0
        own_node:
          description: The share of pool CPUs that are on the NPU's own NUMA node. Null as RV(_value.quality.local).
          type: float
          sample: 1.0
        remote:
          description: The number of pool CPUs that are not local to their NPU. Null as RV(_value.quality.local).
          type: int
          sample: 0
        balance: {description: By how many CPUs the largest pool is larger than the smallest., type: int, sample: 0}
        smallest: {description: The number of CPUs of the smallest pool. The NPUs of one job wait for the slowest., type: int, sample: 24}
        idle: {description: The CPUs in no pool., type: str, sample: ""}
        nearest:
          description: Whether no division has fewer remote CPUs, each weighted by its NUMA distance. Null where that is not known.
          type: bool
          sample: true
        smallest_possible:
          description: The number of CPUs of the smallest pool of the best division. Null where that is not known.
          type: int
          sample: 24
        evenness:
          description: The sum of what the largest pool of each NUMA node with NPUs has more than the smallest, in CPUs.
          type: int
          sample: 0
        idle_near: {description: The idle CPUs that are local to an NPU., type: str, sample: ""}
        optimal:
          description:
            - Whether no division is better by the goals of a plan in their order, without that of keeping running work where it is.
            - Null where that is not known, for example because pools overlap or the NUMA node of an NPU is not known.
          type: bool
          sample: true
        gap:
          description: How far the pools are from the best possible. Empty where RV(_value.quality.optimal) is not false.
          type: dict
          contains:
            remote: {description: How many more CPUs are remote., type: int, sample: 2}
            distance: {description: By how much the sum of the NUMA distances of remote CPUs is larger., type: int, sample: 40}
            smallest: {description: How many CPUs the smallest pool lacks of RV(_value.quality.smallest_possible)., type: int, sample: 1}
            idle_near: {description: How many idle CPUs are local to an NPU., type: int, sample: 4}
            evenness:
              description: By how many CPUs pools are more uneven than necessary. The other values have no gap then.
              type: int
              sample: 2
            split_cores: {description: The number of cores of which a pool has some threads and not all., type: int, sample: 1}
    options: {description: "The arguments of the plan. If they change, a plan in force is not kept when cards are missing.", type: dict}
    poll:
      description: The CPUs of the kernel's poll threads (C(uvb_poll_window)), those of node 0 that are in no pool, without CPU 0.
      returned: for hosts with Ascend 950
      type: str
      sample: 65-127
    lost:
      description:
        - The entries of cards that were there when the plan in force was applied. Their pools stay reserved.
        - If the others were planned again, the pools are empty, and C(released) says why.
        - Also the NPUs on the PCI bus that C(npu-smi) does not list, with C(unlisted). They take part from the first plan on, with
          O(repair=true), and the others keep their CPUs when they are listed.
      type: list
      elements: dict
    violations:
      description: Defects of the plan, in sentences. Always empty with O(repair=true), which refuses instead.
      type: list
      elements: str
"""

import inspect
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import planner
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.options import Given

OPTIONS = inspect.signature(Given)


def plan(topology: Topology, *args: Any, fail: bool = True, **options: Any) -> Plan:
    OPTIONS.bind(*args, **options)
    try:
        made = planner.plan(topology, *args, **options)
    except ValueError as error:
        if fail:
            raise
        return {"refused": str(error)}
    return {**made, "warnings": list(map(str, made["warnings"]))}


FilterModule = filter_module(filter_errors(plan))
