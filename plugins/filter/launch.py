# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: launch
short_description: What to type or paste so that a workload runs on the CPUs of its NPUs
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Writes an NPU's entry of a plan, or a workload of several NPUs, as a command or as the part of a file that each way of starting
    a program understands.
  - What its user has to know stands above the text in comments. What cannot work is refused with a sentence.
  - Commands are quoted for a shell. V(IMAGE), V(COMMAND), V(MEMORY) and V(RESOURCE) stand for what was not given, and nothing accepts them
    as they are.
positional: form
options:
  _input:
    description:
      - An element of C(npus) of a plan, or an element of what P(npu.affinity.workloads#filter) returns.
      - Or a dictionary of C(name), C(npus) (logic ids), C(pool) (a cpulist), C(mems) (memory nodes) and C(slice). C(pool) may be called
        C(cpus). In place of C(npus), C(devices) lists device nodes such as C(/dev/davinci0).
      - Without C(slice), only the program itself is bound.
    type: dict
    required: true
  form:
    description:
      - How the workload is started.
      - V(docker), V(podman), V(nerdctl) and V(ctr) are commands that run a container, with the engine's systemd cgroup driver.
      - V(compose) is a service of a Compose file, V(quadlet) a container unit of Podman.
      - V(systemd) is a drop-in of a service, V(systemd_run) a command in a scope of its own.
      - V(taskset) and V(numactl) are commands that bind one program.
      - V(torch_npu) are lines of an environment file, by which torch_npu places the threads of its process on the CPUs of the plan.
      - V(kubernetes) is a pod with the number of CPUs that the pool has. Which CPUs it gets, the kubelet decides.
      - V(dra) is a claim on exactly the CPUs of the pool outside interrupts, for the CPU driver of DRA, with its pod.
      - V(balloons) is a configuration of NRI's balloons policy, whose balloons lie close to the NPUs that their pods get, with a pod that
        asks for as many CPUs as the pool has outside interrupts.
      - V(kubelet) is the part of a kubelet configuration that keeps pods off the CPUs of a workload beside Kubernetes.
      - V(slurm) are lines of C(gres.conf), one for each NPU, and in a comment the node's line of C(slurm.conf) that fits them. It needs
        O(topology).
    type: str
    required: true
    choices:
      - balloons
      - compose
      - ctr
      - docker
      - dra
      - kubelet
      - kubernetes
      - nerdctl
      - numactl
      - podman
      - quadlet
      - slurm
      - systemd
      - systemd_run
      - taskset
      - torch_npu
  name:
    description: The name of the container, service, scope or pod; with O(form=slurm) that of the node. By default that of the workload.
    type: str
  topology:
    description:
      - The fact C(npu_affinity_topology) of the host.
      - It brings the physical ids by which device nodes are numbered, and what the host does with CPU sets. CPUs and memory nodes that
        the host does not have are refused, and CPUs that its kubelet has given away.
    type: dict
  binding:
    description:
      - The rule by which the workload binds itself (C(enable_cpu_binding) of vLLM-Ascend). By default the host binds it.
      - V(global_slice) divides the CPUs by the number of all NPUs that it lists, and is refused with less than five CPUs for each.
      - vLLM-Ascend's workers bind themselves to NPUs on Arm only. Workloads with GPUs, and hosts that O(topology) shows to be of another
        architecture, are refused.
    type: str
    choices: [global_slice, topo_affinity, cluster]
  total_npus:
    description: With O(binding), how many NPUs C(npu-smi) lists inside the workload. By default as many as O(topology) has.
    type: int
  notes:
    description: Whether to write comments above the text. Switch it off where a module runs the command.
    type: bool
    default: true
  image:
    description:
      - The image of the container.
      - Taken by V(docker), V(podman), V(nerdctl), V(ctr), V(compose), V(quadlet), V(kubernetes), V(dra) and V(balloons).
      - For V(ctr) its full name, such as V(docker.io/library/busybox:latest).
    type: str
    default: IMAGE
  command:
    description:
      - The program with its arguments, as a list, or as a text to split into words as a shell does. No shell runs it.
      - Taken by all forms but V(systemd), V(kubelet), V(slurm) and V(torch_npu).
    type: raw
  arguments:
    description: Further arguments of the engine. Taken by V(docker), V(podman), V(nerdctl), V(ctr) and V(quadlet).
    type: raw
  devices:
    description:
      - Whether the container gets the devices of its NPUs and the files of their driver.
      - Not with O(form=balloons), whose balloons follow the devices.
    type: bool
    default: true
  ascend_runtime:
    description:
      - Whether the Ascend Docker Runtime is installed, so that variables take the place of devices and mounts.
      - Taken by V(docker), V(nerdctl) and V(compose).
    type: bool
    default: false
  vnpu:
    description: With O(ascend_runtime=true), the template by which the NPU is split.
    type: str
  npu_smi:
    description: Where C(npu-smi) lies on the host.
    type: str
    default: /usr/local/bin/npu-smi
  memory:
    description: For pods, their memory. Exclusive CPUs of the kubelet go only to those with a limit for it.
    type: str
    default: MEMORY
  visible_devices:
    description:
      - Whether the program gets the ids of its devices, by C(ASCEND_RT_VISIBLE_DEVICES) or, for GPUs, C(CUDA_VISIBLE_DEVICES) in the order
        of the PCI bus. Without it a program with the CPUs of NPU 2 computes on NPU 0.
      - The ids are those that the program sees. Outside containers these are the logic ids of the host; in a container with its own
        devices they count from 0.
      - Taken by all forms but V(slurm) and those for Kubernetes, where Slurm or the device plugin does this. In a container with
        O(devices=false) there is none.
    type: bool
    default: true
  resource:
    description:
      - For pods, the name under which the device plugin offers the NPUs.
      - By default the name that MindCluster's device plugin gives the family of the NPUs, which O(topology) tells. That is
        V(huawei.com/Ascend910), for Ascend 950 V(huawei.com/npu), for 310P V(huawei.com/Ascend310P) and for 310 V(huawei.com/Ascend310).
        For GPUs it is V(nvidia.com/gpu).
      - Without O(topology), V(RESOURCE) stands for it.
    type: str
  node:
    description: With O(form=dra) and O(form=balloons), the name of the node in Kubernetes.
    type: str
    default: NODE
  plan:
    description:
      - With O(form=dra) and O(form=balloons), the fact C(npu_affinity_plan). It needs O(topology).
      - It brings the CPUs for interrupts of all NPUs and those of housekeeping, which no pod may have.
    type: dict
  containerd_version:
    description:
      - With O(form=ctr), the release of containerd, as text.
      - Before 2.0 C(ctr) has no flags for CPU sets. The slice of the workload then holds them, and a workload without one is refused.
    type: str
    default: '1.7'
  slurm_version:
    description:
      - With O(form=slurm), the release of Slurm, such as V(24.11), as text.
      - Releases after 22.05 drain a node whose C(Cores=) are not all cores of its NUMA nodes. NPUs of one NUMA node then share its cores.
      - Up to 22.05 each NPU has the cores of its own CPUs.
    type: str
    default: '24.11'
  slurm_sockets:
    description:
      - With O(form=slurm), what stands for a socket, of which C(Cores=) names all cores.
      - V(numa) are NUMA nodes (C(numa_node_as_socket)), V(l3) the CPUs of each L3 cache (C(l3cache_as_socket)). All NPUs of a host have
        the same.
    type: str
    choices: [numa, l3]
    default: numa
  torch_npu_version:
    description:
      - With O(form=torch_npu), the release of torch_npu, as text.
      - Before 26.1.0 it takes one range of CPUs for each NPU, and pools with gaps are refused.
    type: str
    default: '7.3'
  engine:
    description:
      - What the workload runs. The text then has the variables that switch its own binding to CPUs off, and a comment says what to type
        where an argument does it.
      - By default that of the workload (C(npu_affinity_workloads)). Not together with O(binding).
      - Taken by all forms but V(kubelet) and V(slurm), which start no program.
    type: str
    choices: [sglang, vllm, vllm_ascend, mindie, verl]
seealso:
  - plugin: npu.affinity.plan
    plugin_type: filter
  - plugin: npu.affinity.workloads
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show how to run a container on the first NPU
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', image='quay.io/ascend/vllm-ascend:v0.11.0') }}"

- name: Be sure of device numbers, and of what the host does with CPU sets
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('podman', topology=ansible_facts['npu_affinity_topology']) }}"

- name: Name the container, and give the engine and the program arguments
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', name='qwen', image='vllm-ascend',
         arguments=['--detach', '--shm-size=16g'],
         command=['vllm', 'serve', '/models/Qwen3-8B', '--additional-config', '{"enable_cpu_binding": false}']) }}

- name: Have devices and mounts from the Ascend Docker Runtime, and a quarter of the NPU
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', ascend_runtime=true, vnpu='vir05_1c_16g') }}"

- name: Mount an npu-smi that lies elsewhere
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('nerdctl', npu_smi='/usr/local/sbin/npu-smi') }}"

- name: Leave ASCEND_RT_VISIBLE_DEVICES to the program
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('numactl', command='serve --device 0', visible_devices=false) }}"

- name: Bind a container that uses no device
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', devices=false) }}"

- name: Write a Compose file
  ansible.builtin.copy:
    content: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('compose', name='infer', image='vllm-ascend') }}"
    dest: compose.yaml
    mode: "0644"

- name: Write a container unit for two NPUs that serve one model
  ansible.builtin.copy:
    content: "{{ pair | npu.affinity.launch('quadlet', image='vllm-ascend', topology=ansible_facts['npu_affinity_topology']) }}"
    dest: /etc/containers/systemd/pair.container
    mode: "0644"
  vars:
    pair: >-
      {{ (npu_affinity_plan | npu.affinity.workloads([{'name': 'pair', 'npus': [0, 1]}], ansible_facts['npu_affinity_topology']))[0] }}

- name: Run a benchmark on the CPUs and the memory of an NPU
  ansible.builtin.command:
    cmd: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('numactl', command='python3 benchmark.py', notes=false) }}"
  changed_when: true

- name: Let workers bind themselves, all within one slice and the same CPUs
  ansible.builtin.debug:
    msg: "{{ all_npus | npu.affinity.launch('docker', binding='topo_affinity', total_npus=2) }}"
  vars:
    all_npus:
      name: tp2
      npus: [0, 1]
      pool: "{{ npu_affinity_plan.npus | map(attribute='pool') | join(',') }}"
      slice: npu.slice

- name: Run a container by ctr of containerd 2
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('ctr', image='docker.io/library/infer:latest', containerd_version='2.1') }}"

- name: Write gres.conf of a node with an old Slurm
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0]
         | npu.affinity.launch('slurm', topology=ansible_facts['npu_affinity_topology'], slurm_version='22.05') }}

- name: Run SGLang on the CPUs of an NPU, and keep it from choosing others
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', image='sglang', engine='sglang') }}"

- name: Write gres.conf of a node where L3 caches are sockets of Slurm
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0]
         | npu.affinity.launch('slurm', topology=ansible_facts['npu_affinity_topology'], slurm_sockets='l3') }}

- name: Let torch_npu place the threads of a training process
  ansible.builtin.copy:
    content: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('torch_npu', torch_npu_version='26.1.0') }}"
    dest: /etc/train.env
    mode: "0644"

- name: Ask for as many exclusive CPUs in Kubernetes
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('kubernetes', memory='64Gi', resource='huawei.com/Ascend910B3') }}"

- name: Claim exactly these CPUs in Kubernetes
  ansible.builtin.copy:
    content: >-
      {{ npu_affinity_plan.npus[0] | npu.affinity.launch('dra', name='infer', image='vllm-ascend', memory='64Gi', node='worker-1',
         topology=ansible_facts['npu_affinity_topology'], plan=npu_affinity_plan) }}
    dest: infer.yaml
    mode: "0644"

- name: Make balloons of the plan for the NRI plugin
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0]
         | npu.affinity.launch('balloons', node='worker-1', memory='64Gi', topology=ansible_facts['npu_affinity_topology'],
                               plan=npu_affinity_plan) }}
"""

RETURN = r"""
_value:
  description: The text. Commands are one line below their comments, without a newline at the end.
  type: str
  sample: numactl --physcpubind=144-167 --membind=6 -- python3 benchmark.py
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import recipes

launch = filter_errors(recipes.launch)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"launch": launch}
