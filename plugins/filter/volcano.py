# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: volcano
short_description: Generate Kubernetes objects for Volcano's numa-aware plugin
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Generates the configuration of Volcano's scheduler with the numa-aware plugin and its weight, a sample Deployment and a sample Volcano
    job with a topology policy, and the C(Numatopology) that the resource exporter would publish for every node.
  - Sends nothing to a cluster. With O(check), it checks your own manifest.
positional: cpus, npus, policy, replicas
options:
  _input:
    description: Topologies by name of the node. Hosts without a kubelet are left out.
    type: dict
    required: true
  cpus:
    description: Whole CPUs of a task. The plugin ignores fractions.
    type: int
    default: 1
  npus:
    description: NPUs of a task.
    type: int
    default: 0
  policy:
    description: Topology policy of the tasks.
    type: str
    default: single-numa-node
    choices: [none, best-effort, restricted, single-numa-node]
  replicas:
    description: Number of tasks.
    type: int
    default: 1
  name:
    description: Name of the samples.
    type: str
    default: sample
  image:
    description: Image of the samples.
    type: str
    default: ubuntu
  memory:
    description: Memory of a task. Without it a pod would not be Guaranteed.
    type: str
    default: 1Gi
  weight:
    description: Weight of the plugin.
    type: int
    default: 10
  cluster:
    description:
      - How Volcano was installed.
      - V(volcano) is its own installation, with C(volcano-scheduler.conf) in the namespace C(volcano-system).
      - V(cce) is the add-on of Huawei Cloud's CCE, with C(default-scheduler.conf) in C(kube-system), as described in its page "NUMA
        Affinity Scheduling". From version 1.7.1 of the add-on, set its parameters to RV(_value.addon) and do not edit the ConfigMap.
        Before 1.7.1, paste RV(_value.expert) into its expert mode to switch on the resource exporter.
      - The page's ConfigMap is for a cluster with a VPC network (C(NetworkType=vpc-router)). For another network, set O(plugins) with its
        type.
    type: str
    default: volcano
    choices: [volcano, cce]
  namespace:
    description: The namespace of the scheduler's ConfigMap. By default that of O(cluster).
    type: str
  plugins:
    description:
      - The plugins of the scheduler, a list for each tier. The default is the plugins of O(cluster).
      - A plugin is its name, or a dictionary of C(name), C(arguments) and switches of the scheduler such as C(enablePreemptable). Each
        plugin is in one tier.
      - A tier may also be a dictionary with C(plugins), as in the scheduler's own configuration.
      - If C(numa-aware) is missing, the filter adds it to the last tier. Its own C(weight) takes precedence over O(weight).
    type: list
    elements: raw
  resource:
    description:
      - The resource name of the NPUs. By default that of MindCluster's device plugin for their family.
    type: str
  template:
    description:
      - The template of a hard vNPU, such as V(vir05_1c_16g), which pods get in place of a whole NPU. O(npus) must be 1. The resource name
        is then that of MindCluster for it, such as C(huawei.com/Ascend910-5c.1cpu.16g).
      - C(npu-smi info -t template-info) lists the templates of the driver.
    type: str
    default: ''
  check:
    description:
      - "Your manifest to check: a Pod, a workload with a pod template such as a Deployment, or a Volcano job."
      - RV(_value.problems) lists what prevents its pods from getting exclusive CPUs on the right NUMA nodes. One of the nodes must have the
        static CPU manager and the topology policy of the pods.
    type: dict
seealso:
  - plugin: npu.affinity.place
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: The objects as files
  ansible.builtin.copy:
    content: "{{ objects[item] | to_nice_yaml }}"
    dest: "{{ item }}.yml"
    mode: "0644"
  loop: [scheduler, deployment, job]
  vars:
    objects: "{{ {inventory_hostname: ansible_facts['npu_affinity_topology']} | npu.affinity.volcano(cpus=24, npus=1) }}"
  delegate_to: localhost

- name: The ConfigMap of a managed cluster, with plugins of one's own
  ansible.builtin.debug:
    msg: >-
      {{ ({inventory_hostname: ansible_facts['npu_affinity_topology']}
          | npu.affinity.volcano(cluster='cce', plugins=[['priority', 'gang'], ['predicates', 'nodeorder', 'numa-aware']])).scheduler }}

- name: The ConfigMap of a managed cluster with another network
  ansible.builtin.debug:
    msg: "{{ (hosts | npu.affinity.volcano(cluster='cce', plugins=tiers)).scheduler }}"
  vars:
    hosts: "{{ {inventory_hostname: ansible_facts['npu_affinity_topology']} }}"
    tiers:
      - [priority, {name: gang, enablePreemptable: false}, conformance]
      - [overcommit, drf, predicates, nodeorder]
      - [nodelocalvolume, nodeemptydirvolume, nodeCSIscheduling, {name: networkresource, arguments: {NetworkType: eni}}]

- name: Show why the numa-aware plugin would ignore a manifest
  ansible.builtin.debug:
    msg: "{{ ({inventory_hostname: ansible_facts['npu_affinity_topology']} | npu.affinity.volcano(check=manifest)).problems }}"
  vars:
    manifest: "{{ lookup('ansible.builtin.file', 'llm.yml') | from_yaml }}"

- name: The ConfigMap in another namespace
  ansible.builtin.debug:
    msg: "{{ ({inventory_hostname: ansible_facts['npu_affinity_topology']} | npu.affinity.volcano(namespace='scheduling')).scheduler }}"
"""

RETURN = r"""
_value:
  description: The objects.
  type: dict
  contains:
    scheduler: {description: The ConfigMap of the scheduler., type: dict, sample: {kind: ConfigMap}}
    addon:
      description:
        - The parameter of the add-on from version 1.7.1 on, with the tiers that the page shows for it. They differ from those of
          RV(_value.scheduler), unless O(plugins) is given.
      returned: with O(cluster=cce)
      type: dict
      sample: {default_scheduler_conf: {actions: "allocate, backfill, preempt", tiers: []}}
    expert:
      description:
        - The settings of the add-on before 1.7.1 for its expert mode (Settings, Scheduling, Volcano). They switch on the resource exporter.
        - From 1.7.1 on, set the switch "NUMA Topology Scheduling" instead.
      returned: with O(cluster=cce)
      type: dict
      sample: {resource_exporter_enable: "true"}
    deployment: {description: A Deployment whose pods are annotated with the policy., type: dict, sample: {kind: Deployment}}
    job: {description: A Volcano job whose task has the policy., type: dict, sample: {kind: Job}}
    problems:
      description: A sentence for each problem of O(check). Empty without it.
      type: list
      elements: str
      sample:
        - >-
          Deployment llm, container llm: 1500m CPUs are not a whole number, and the kubelet gives CPUs of their own only to whole ones.
    numatopologies: {description: One object for every node., type: list, elements: dict, sample: [{kind: Numatopology}]}
"""

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import volcano as _volcano


@filter_errors
def volcano(
    hosts: Mapping[str, Topology],
    cpus: int = 1,
    npus: int = 0,
    policy: str = "single-numa-node",
    replicas: int = 1,
    *,
    check: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    problems = [] if check is None else _volcano.volcano_check(check, hosts)
    return _volcano.volcano(hosts, cpus, npus, policy, replicas, **options) | {"problems": problems}


FilterModule = filter_module(volcano)
