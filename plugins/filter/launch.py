# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: launch
short_description: Generate the command or file that starts a workload on the CPUs of its NPUs
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the command or file that starts a program on the CPUs, memory nodes and devices of an NPU, or of a workload with several NPUs.
  - Comments above the text list further requirements. A request that cannot work is refused.
  - Commands are quoted for a shell. V(IMAGE), V(COMMAND), V(MEMORY) and V(RESOURCE) are placeholders for options that were not given.
positional: form
options:
  _input:
    description:
      - An element of C(npus) of a plan, or of the list that P(npu.affinity.workloads#filter) returns.
      - Or a dictionary with C(name), C(npus) (logic ids) or C(devices) (device nodes such as C(/dev/davinci0)), C(pool) or C(cpus) (a
        cpulist), C(mems) (memory nodes) and C(slice).
      - Without C(slice), only the program itself is bound.
    type: dict
    required: true
  form:
    description:
      - How to start the workload.
      - V(docker), V(podman), V(nerdctl) and V(ctr) are commands that run a container. The engine must use the systemd cgroup driver.
      - V(compose) is a service of a Compose file.
      - V(quadlet) is a container unit of Podman.
      - V(systemd) is a drop-in of a service.
      - V(systemd_run) is a command that runs in its own scope.
      - V(taskset) and V(numactl) are commands that bind one program.
      - V(torch_npu) is an environment file, with which torch_npu places the threads of its process on the CPUs of the plan.
      - V(kubernetes) is a pod that requests as many CPUs as the pool has outside interrupts. The kubelet chooses them.
      - V(dra) is a claim on the NPUs for Ascend's DRA driver, a claim on the CPUs of the pool outside interrupts for the DRA CPU driver,
        and the pod that has both.
      - V(balloons) is a policy for NRI balloons, which are placed near the NPUs of their pods, with a pod that requests as many CPUs as
        the pool has outside interrupts.
      - V(kubelet) is a part of a kubelet configuration that keeps pods off the CPUs of a workload outside Kubernetes.
      - V(slurm) is a line of C(gres.conf) for each NPU, with the matching lines of C(slurm.conf) in a comment. Requires O(topology).
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
    description: Name of the container, service, scope, pod or, with O(form=slurm), node. Default is the name of the workload.
    type: str
  topology:
    description:
      - The fact C(npu_affinity_topology) of the host. Always pass it.
      - It provides the device files. A form that needs one that is not known is refused.
      - CPUs and memory nodes that the host does not have, or whose CPUs its
        kubelet has assigned, are refused.
    type: dict
  binding:
    description:
      - The rule of vLLM-Ascend by which the workload binds itself (C(enable_cpu_binding)). By default, the host binds it.
      - V(global_slice) divides the CPUs by the number of all NPUs in O(total_npus), and needs at least five CPUs for each.
      - Only for NPUs on Arm, where vLLM-Ascend's workers bind themselves. Other workloads and hosts are refused.
    type: str
    choices: [global_slice, topo_affinity, cluster]
  total_npus:
    description: With O(binding), the number of NPUs that C(npu-smi) lists in the workload. Default is the number in O(topology).
    type: int
  notes:
    description: Whether to write comments above the text. Set V(false) if a module runs the command.
    type: bool
    default: true
  image:
    description:
      - Image of the container, for V(docker), V(podman), V(nerdctl), V(ctr), V(compose), V(quadlet), V(kubernetes), V(dra) and V(balloons).
      - V(ctr) needs the full name, such as V(docker.io/library/busybox:latest).
    type: str
    default: IMAGE
  command:
    description:
      - The program with its arguments, as a list, or as text that is split like shell words. No shell runs it.
      - For all forms except V(systemd), V(kubelet), V(slurm) and V(torch_npu).
    type: raw
  arguments:
    description: Further arguments of the engine, for V(docker), V(podman), V(nerdctl), V(ctr) and V(quadlet).
    type: raw
  devices:
    description:
      - Whether the container gets the devices of its NPUs and the files of their driver.
      - Not allowed with O(form=balloons), whose balloons follow the devices.
    type: bool
    default: true
  ascend_runtime:
    description:
      - Whether to use the Ascend Docker Runtime, with variables instead of devices and mounts.
      - For V(docker), V(nerdctl) and V(compose).
    type: bool
    default: false
  vnpu:
    description: With O(ascend_runtime=true), the template that splits the NPU.
    type: str
  npu_smi:
    description: Path of C(npu-smi) on the host.
    type: str
    default: /usr/local/bin/npu-smi
  library:
    description:
      - Folder of the host code, from which the container gets the command C(npu-affinity), so that C(npu-affinity exec) works in it.
      - It is mounted read-only, with C(plan.json), where O(topology) shows a plan in force. Give the value of C(npu_affinity_library).
    type: str
    default: /usr/local/lib/npu-affinity
  memory:
    description: Memory limit of a pod. The kubelet assigns exclusive CPUs only to pods that have one.
    type: str
    default: MEMORY
  environment:
    description:
      - Variables that fit the program to its CPUs, as role P(npu.affinity.plan#role) takes them in C(npu_affinity_environment).
      - V(true) sets all of them.
      - Containers get no E(LD_PRELOAD), because the files of their image are not known.
      - For all forms except V(slurm) and those for Kubernetes.
    type: raw
  visible_devices:
    description:
      - Whether to set C(ASCEND_RT_VISIBLE_DEVICES), or for GPUs C(CUDA_VISIBLE_DEVICES) in the order of the PCI bus. Without it, a
        program with the CPUs of NPU 2 computes on NPU 0.
      - Outside containers, and in privileged ones, the values are the logic ids of the host. In a container with its own devices they count
        from 0. With O(devices=false), a container gets no variable.
      - For all forms except V(slurm) and those for Kubernetes, where Slurm or the device plugin sets it.
    type: bool
    default: true
  resource:
    description:
      - For pods, the resource name of the device plugin. With O(form=dra), it gives the NPUs in place of a claim.
      - With O(topology), the default is the name that MindCluster's device plugin uses, V(huawei.com/Ascend910), V(huawei.com/npu) for
        Ascend 950, V(huawei.com/Ascend310P) for 310P and V(huawei.com/Ascend310) for 310. For GPUs it is V(nvidia.com/gpu).
    type: str
  one_claim:
    description:
      - With O(form=dra), one claim on the NPUs and on a share of the CPUs of their NUMA node, instead of two claims with the CPUs of the
        plan.
      - An alpha feature of Kubernetes 1.37.
    type: bool
    default: false
  node:
    description: With O(form=dra) and O(form=balloons), the Kubernetes name of the node.
    type: str
    default: NODE
  plan:
    description:
      - With O(form=dra) and O(form=balloons), the fact C(npu_affinity_plan). Requires O(topology).
      - It provides the CPUs for interrupts of all NPUs and for housekeeping, which pods do not get.
    type: dict
  containerd_version:
    description:
      - With O(form=ctr), the version of containerd.
      - Before 2.0, C(ctr) has no options for CPU sets, so the workload must have a slice.
    type: str
    default: '1.7'
  slurm_version:
    description:
      - With O(form=slurm), the version of Slurm.
      - Versions after 22.05 drain a node unless C(Cores=) names all cores of its NUMA nodes. NPUs of one NUMA node then share its cores.
      - Up to 22.05, each NPU has the cores of its own CPUs.
    type: str
    default: '24.11'
  slurm_sockets:
    description:
      - With O(form=slurm), what Slurm takes as a socket. C(Cores=) names all cores of a socket.
      - V(numa) means NUMA nodes (C(numa_node_as_socket)), V(l3) the CPUs of each L3 cache (C(l3cache_as_socket)). Use the same value for
        all NPUs of a host.
    type: str
    choices: [numa, l3]
    default: numa
  torch_npu_version:
    description:
      - With O(form=torch_npu), the version of torch_npu.
      - Versions before 26.1.0 take one range of CPUs for each NPU, and pools with gaps are refused.
    type: str
    default: '7.3'
  engine:
    description:
      - The program that the workload runs. The text then sets the variables that disable its own CPU binding, and a comment lists the
        arguments to change.
      - V(vllm) on GPUs gets arguments instead, by which each worker starts on the pool of its GPU.
      - Default is the C(engine) of the workload (C(npu_affinity_workloads)). Cannot be combined with O(binding).
      - For all forms except V(kubelet) and V(slurm), which start no program.
    type: str
    choices: [dynamo, mindie, mindspore, nemo_rl, sglang, tensorrt_llm, verl, vllm, vllm_ascend]
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

- name: Set the name of the container, and arguments of the engine and the program
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', name='qwen', image='vllm-ascend',
         arguments=['--detach', '--shm-size=16g'],
         command=['vllm', 'serve', '/models/Qwen3-8B', '--additional-config', '{"enable_cpu_binding": false}']) }}

- name: Use the Ascend Docker Runtime and a quarter of the NPU
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', ascend_runtime=true, vnpu='vir05_1c_16g') }}"

- name: Start ranks in a container on the CPUs of their NPUs, with the host code in another folder
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', image='train', library='/var/lib/npu-affinity',
         command=['npu-affinity', 'exec', '--', 'python3', 'train.py'], topology=ansible_facts['npu_affinity_topology']) }}

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

- name: Run a benchmark on the CPUs and memory nodes of an NPU
  ansible.builtin.command:
    cmd: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('numactl', command='python3 benchmark.py', notes=false) }}"
  changed_when: true

- name: Let workers bind themselves, in one slice and on the same CPUs
  ansible.builtin.debug:
    msg: >-
      {{ all_npus | npu.affinity.launch('docker', binding='topo_affinity', total_npus=2, topology=ansible_facts['npu_affinity_topology']) }}
  vars:
    all_npus:
      name: tp2
      npus: [0, 1]
      pool: "{{ npu_affinity_plan.npus | map(attribute='pool') | join(',') }}"
      slice: npu.slice

- name: Run a container with containerd 2
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('ctr', image='docker.io/library/infer:latest', containerd_version='2.1') }}"

- name: Run SGLang without its own CPU binding, with as many OpenMP threads as its pool has CPUs
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', image='sglang', engine='sglang', environment={'openmp': true}) }}"

- name: Bind a container that gets no devices, or one whose program chooses its devices itself and whose npu-smi is elsewhere
  ansible.builtin.debug:
    msg:
      - "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('docker', devices=false) }}"
      - "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('nerdctl', visible_devices=false, npu_smi='/usr/local/sbin/npu-smi') }}"

- name: Write gres.conf for a node whose L3 caches are sockets
  ansible.builtin.debug:
    msg: >-
      {{ npu_affinity_plan.npus[0]
         | npu.affinity.launch('slurm', topology=ansible_facts['npu_affinity_topology'], slurm_version='26.05', slurm_sockets='l3') }}

- name: Let torch_npu place the threads of a training process
  ansible.builtin.copy:
    content: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('torch_npu', torch_npu_version='26.1.0') }}"
    dest: /etc/train.env
    mode: "0644"

- name: Request exclusive CPUs in Kubernetes
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('kubernetes', memory='64Gi', resource='huawei.com/Ascend910B3') }}"

- name: Claim the CPUs of the plan in Kubernetes
  ansible.builtin.copy:
    content: >-
      {{ npu_affinity_plan.npus[0] | npu.affinity.launch('dra', name='infer', image='vllm-ascend', memory='64Gi', node='worker-1',
         topology=ansible_facts['npu_affinity_topology'], plan=npu_affinity_plan) }}
    dest: infer.yaml
    mode: "0644"

- name: Claim NPUs and CPUs of one NUMA node in Kubernetes 1.37
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0] | npu.affinity.launch('dra', topology=ansible_facts['npu_affinity_topology'], one_claim=true) }}"
"""

RETURN = r"""
_value:
  description: The text, without a final newline for commands.
  type: str
  sample: numactl --physcpubind=144-167 --membind=6 -- python3 benchmark.py
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import forms

launch = filter_errors(forms.launch)
FilterModule = filter_module(launch)
