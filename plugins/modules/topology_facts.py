#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: topology_facts
short_description: Gather the facts about a host that an NPU affinity plan needs
version_added: 1.0.0
description:
  - Reads CPUs, caches, NUMA nodes and PCI functions from sysfs, and accelerators from C(npu-smi) and C(nvidia-smi), in one pass. It changes
    nothing.
  - Runs C(npu-smi) three times in parallel for any number of NPUs (C(info), C(info -m) and C(info -t topo)), and once more for every chip whose
    PCI function or name is missing from the output.
  - Takes NUMA nodes and PCI functions of accelerators from sysfs. If C(npu-smi) contradicts sysfs, the module returns both values and
    reports the contradiction in RV(ansible_facts.npu_affinity_topology.problems).
  - Also reports there what it cannot read, and does not fail. A host without accelerators is not a problem.
attributes:
  diff_mode:
    support: N/A
    details:
      - This module does not modify the target.
  facts:
    description: Action returns an C(ansible_facts) dictionary that will update existing host facts.
    support: full
extends_documentation_fragment:
  - npu.affinity._attributes
  - npu.affinity._attributes.gathering
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Gather the topology of this host
  npu.affinity.topology_facts:

- name: Gather device share as well, from NPUs that answer slowly
  npu.affinity.topology_facts:
    device_share: true
    timeout: 120

- name: Gather the topology of a captured tree with a recorded npu-smi
  npu.affinity.topology_facts:
    root: /srv/captures/node-17
    npu_smi: /srv/captures/replay node-17
    nvidia_smi: /srv/captures/replay-gpu node-17

- name: Gather which services are not installed
  npu.affinity.topology_facts:
    units:
      - vllm@0.service

- name: Gather the interrupts of other devices as well
  npu.affinity.topology_facts:
    others: true

- name: Show what could not be read
  ansible.builtin.debug:
    msg: "{{ ansible_facts['npu_affinity_topology'].problems }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to those of the host.
  returned: always
  type: dict
  contains:
    npu_affinity_topology:
      description: The topology of the host. All sets of CPUs are cpulists in the kernel's notation.
      returned: always
      type: dict
      contains:
        schema: {description: Version of the shape of this fact., type: int, sample: 1}
        machine:
          description: The kind of machine. A value is V(null) when it is not known.
          type: dict
          contains:
            architecture: {description: Architecture as C(uname -m) prints it., type: str, sample: aarch64}
            kernel: {description: Release of the running kernel., type: str, sample: 5.10.0-182.0.0.95.oe2203sp3.aarch64}
            product: {description: Product name in the firmware., type: str, sample: Atlas 800I A2}
            systemd: {description: Installed major version of systemd., type: int, sample: 249}
            cgroup: {description: "The control group hierarchy, one of V(v1), V(v2) and V(hybrid).", type: str, sample: v2}
            cpusets: {description: Whether cgroup v2 has the controller C(cpuset). V(null) on other hosts., type: bool, sample: true}
            inside:
              description:
                - C(kind) is V(container), V(chroot) or V(virtual machine), C(why) is what tells it. V(null) on a machine.
                - A bind refuses containers and chroots.
              type: dict
              sample:
            identity:
              description: A digest that all inventory names of one running machine have in common. V(null) if unknown.
              type: str
              sample: 5f0e4c1a8b2d3e4f
        cpus:
          description: The CPUs, whatever the affinity of the session that asks.
          type: dict
          contains:
            online: {description: CPUs that can be divided., type: str, sample: 0-191}
            offline: {description: CPUs that are present and switched off., type: str, sample: ""}
            isolated: {description: CPUs that the kernel's command line isolates from load balancing., type: str, sample: ""}
            workqueues:
              description:
                - CPUs on which the kernel runs unbound workqueues, as those of NPU drivers are. Empty where it does not report them.
                - V(isolcpus) and V(nohz_full) on its command line leave some out.
              type: str
              sample: 0-191
            siblings: {description: The cores with more than one online thread., type: list, elements: str, sample: []}
            caches:
              description:
                - CPUs that share a last-level cache.
                - Where the kernel reports clusters that are larger than a core and smaller than that cache, the clusters.
              type: list
              elements: str
              sample: [0-23, 24-47]
            sockets:
              description: CPUs of each physical package. Empty where the kernel does not report them.
              type: list
              elements: str
              sample: [0-47]
        numa:
          description: The NUMA nodes, ascending by id.
          type: list
          elements: dict
          contains:
            id: {description: Number of the node. There can be gaps., type: int, sample: 0}
            cpus: {description: Its online CPUs. It can be empty., type: str, sample: 0-23}
            memory_mib: {description: "Its memory in MiB. It can be 0, and V(null) when it is not known.", type: int, sample: 65536}
            distances:
              description: Relative distances to the nodes. The keys are the nodes' ids as text.
              type: dict
              sample: {"0": 10, "1": 12}
            owner:
              description:
                - Whose its memory is. C(socket) is a place in RV(ansible_facts.npu_affinity_topology.cpus.sockets), C(gpu) a PCI function.
                - V(null) for memory without CPUs that is as near to several sockets, and for nodes without CPUs and memory.
              type: dict
              sample: {"socket": 0}
        npus:
          description: The NPUs ascending by logic id, then the GPUs ascending by index. Ids of the two kinds can coincide.
          type: list
          elements: dict
          contains:
            kind: {description: One of V(npu) and V(gpu)., type: str, sample: npu}
            id: {description: "Chip logic id of an NPU, index of a GPU.", type: int, sample: 0}
            card: {description: "NPU ID, the argument of C(npu-smi -i). It is neither an index nor without gaps.", type: int, sample: 0}
            chip: {description: Number of the chip on its card., type: int, sample: 0}
            phy_id:
              description: Physical id of an NPU, the number of its device file. V(null) for a GPU, and where the number is not known.
              type: int
              sample: 0
            name: {description: Name of the chip as printed., type: str, sample: 910B3}
            family:
              description: One of V(a2), V(a3), V(a5), V(310p), V(310), V(910) and V(gpu), or V(null) when not known.
              type: str
              sample: a2
            pci:
              description: PCI function in the kernel's form, or V(null) for an NPU without one. The chips of a 300I Duo card share it.
              type: str
              sample: "0000:c1:00.0"
            numa:
              description: NUMA node of the PCI function in sysfs, or V(null) when the kernel does not know it and several nodes have CPUs.
              type: int
              sample: 6
            affinity: {description: "CPU affinity as C(npu-smi) prints it, or V(null) when it prints none.", type: str, sample: 144-167}
            memory_mib: {description: Device memory in MiB., type: int, sample: 65536}
            device_share:
              description: Whether containers can share the chip. V(null) when not asked for with O(device_share), or not supported.
              type: bool
              sample: false
            mig:
              description: UUIDs of the MIG devices of a GPU. Programs name these, not the GPU.
              returned: for a GPU in MIG mode
              type: list
              elements: str
              sample: [MIG-5f0e4c1a-0000-4000-8001-000000000000]
            busy:
              description: Whether C(npu-smi) shows a process on the chip, or V(null) when it shows nothing at all.
              type: bool
              sample: false
            device:
              description:
                - The device file. Where nothing tells its C(number), that and C(file) are V(null), unless the files of all NPUs (or GPUs)
                  count up from 0 as their logic ids do.
                - C(known_by) says what tells the number. One of V(npu-smi), V(sysfs), V(interrupts) and V(unknown).
              type: dict
              sample: {number: 0, file: /dev/davinci0, known_by: interrupts}
            driver: {description: "The driver that is bound to the PCI function, or V(null).", type: str, sample: devdrv_device_driver}
            parts:
              description: The hard vNPUs of the NPU. C(template) is V(null) where C(npu-smi) does not tell it.
              type: list
              elements: dict
              sample: [{id: 100, file: /dev/vdavinci100, template: vir05_1c_16g}]
        hugepages:
          description: The huge pages of each NUMA node that the kernel offers, by their size in KiB and by node. Empty without huge pages.
          returned: always
          type: dict
          sample: {"2048": {"0": 0, "1": 20480}}
        adopt:
          description: How running work is adopted by the state in force, its C(mode), C(move_memory) and C(pods).
          returned: if it is
          type: dict
        hugepages_before:
          description: In the same form, the numbers that binds have changed, as they were before the first of them.
          returned: on a host where a bind has changed some
          type: dict
          sample: {"2048": {"1": 0}}
        isolation:
          description:
            - What sets CPUs apart. A key is there only where something does.
            - C(isolcpus), C(nohz_full), C(rcu_nocbs) and C(irqaffinity) are the parameters of the kernel command line, as cpulists; C(flags)
              are those of C(isolcpus).
            - C(partitions) are the cpuset partitions of cgroup v2 at the top and among the slices of NPUs, with C(group), C(kind) (V(root) or
              V(isolated)), C(valid) and C(cpus).
          returned: always
          type: dict
          sample: {isolcpus: 2-5, flags: [managed_irq], nohz_full: 2-5}
        silent:
          description:
            - Why C(npu-smi) or C(nvidia-smi) does not tell all accelerators that the PCI bus has, by their kind, V(npu) or V(gpu).
            - A host that is bound is then not planned again, and its comparison reports it.
          returned: if there are any
          type: dict
          sample: {"gpu": "'/usr/bin/nvidia-smi' did not answer within 30 s."}
        guests:
          description: Accelerators that a driver such as C(vfio-pci) holds for a guest, with C(pci), C(family) and C(driver).
          returned: if there are any
          type: list
          elements: dict
          sample: [{"pci": "0000:81:00.0", "family": "gpu", "driver": "vfio-pci"}]
        vnpus:
          description:
            - Into what the driver can split NPUs, by names of chips, with C(templates) and the C(ai_cores) of a whole chip.
            - C(recover) is whether the driver restores hard vNPUs after a reboot, or V(null) where that is not known.
          returned: with O(vnpus), if C(npu-smi) answers
          type: dict
          sample: {templates: {910B3: [{name: vir05_1c_16g, aicore: 5, memory_gib: 16, aicpu: 1}]}, ai_cores: {910B3: 20}, recover: true}
        unlisted:
          description: NPUs on the PCI bus that C(npu-smi) does not list, with C(pci), C(family) and C(numa).
          returned: always
          type: list
          elements: dict
          sample: [{pci: "0000:41:00.0", family: a2, numa: 1}]
        nics:
          description:
            - Network functions that have a driver, except virtual functions.
            - C(distances) has the ids of NPUs by their NUMA distance to the function. C(numa) has the meaning of
              RV(ansible_facts.npu_affinity_topology.npus[].numa).
            - C(rdma) has the names of its RDMA devices, and C(near) the NPUs and GPUs that have no nearer function, by NUMA distance and
              then by PCI bridges. If any function has RDMA, only those with RDMA count.
          returned: always
          type: list
          elements: dict
          sample:
            - {pci: "0000:7d:00.0", name: eth0, driver: hns3, numa: 0, distances: {"10": "0-1", "20": "2-7"}, rdma: [hns_0], near: [npu-0, npu-1]}
        driver:
          description: Versions of the NPU driver.
          type: dict
          contains:
            version: {description: "Version of the driver, or V(null) without one.", type: str, sample: 25.5.1}
            npu_smi: {description: "Version of C(npu-smi), or V(null) when it does not answer.", type: str, sample: 25.5.1}
            path:
              description: Path of C(npu-smi). Units of the host then name it.
              returned: if only E(PATH) of the session leads to it
              type: str
              sample: /opt/ascend/bin/npu-smi
        irqbalance:
          description: The irqbalance service.
          type: dict
          contains:
            installed: {description: Whether it has a unit., type: bool, sample: true}
            active: {description: Whether it runs., type: bool, sample: true}
            argument_key:
              description: The variable from which the unit's command line takes arguments, or V(null).
              type: str
              sample: OPTIONS
            arguments:
              description:
                - The value of that variable by the unit, its drop-ins and their environment files, without the collection's own.
                - A policy script is left out.
              type: str
              sample: ""
            policy: {description: The policy script that irqbalance already has; empty when there is none., type: str, sample: ""}
            policy_place:
              description: Where a policy script of the collection has to lie, which SELinux can prescribe.
              type: str
              sample: /usr/local/lib/npu-affinity/irqbalance-policy
            refusal: {description: Why irqbalance cannot be given a policy script; empty when it can., type: str, sample: ""}
        kubelet:
          description: The kubelet's CPU manager, or V(null) on a host without kubelet files.
          type: dict
          contains:
            version: {description: "The release of the installed kubelet, or V(null) when it is not known.", type: str, sample: 1.36.2}
            policy: {description: CPU manager policy., type: str, sample: static}
            policy_without:
              description: CPU manager policy that the kubelet would have without the drop-in of role C(kubelet).
              type: str
              sample: none
            options: {description: Options of the CPU manager policy., type: dict, sample: {full-pcpus-only: "true"}}
            topology_policy: {description: Topology manager policy., type: str, sample: none}
            topology_options: {description: Options of the topology manager policy., type: dict, sample: {}}
            topology_scope: {description: Whether containers or pods are aligned., type: str, sample: container}
            feature_gates: {description: Feature gates that the configuration sets., type: dict, sample: {}}
            fail_cgroup_v1:
              description: Whether the kubelet refuses cgroup v1 (C(failCgroupV1)), or V(null) when that is not set.
              type: str
              sample: "false"
            reserved_cpus: {description: "CPUs that are reserved by number, or V(null) when none are.", type: str, sample: 0-1}
            reserved_millicpus:
              description: CPUs that C(kubeReserved) and C(systemReserved) keep together, in thousandths.
              type: int
              sample: 0
            config: {description: The configuration file., type: str, sample: /var/lib/kubelet/config.yaml}
            config_dir:
              description: The folder of drop-ins, or V(null) when the kubelet has none (C(--config-dir)).
              type: str
              sample: /etc/kubernetes/kubelet.conf.d
            sources:
              description: The files that have settings, in the order in which they count, and C(flags) when the command line has some.
              type: list
              elements: str
              sample: [/var/lib/kubelet/config.yaml]
            default_cpus: {description: "CPUs of the shared pool, or V(null) when they cannot be read.", type: str, sample: "0,10-15,25-31"}
            exclusive:
              description: CPUs given to one container each, by pod and container, and those that the others of a pod share, by pod.
              type: dict
              sample: {"777870b5/container-1": "16-24"}
            warnings: {description: What does not fit together in the kubelet's files., type: list, elements: str, sample: []}
        applied:
          description:
            - The plan in force, as far as a later plan needs it, or V(null) when there is none.
            - The values are those of the plan.
          type: dict
          sample: {"strategy": "topo_affinity", "npus": [{"id": 0, "pci": "0000:c1:00.0", "pool": "144-167", "slice": "npu-0.slice"}]}
        users:
          description:
            - Who uses accelerators, by cgroup. An open device file tells, which root alone can see of all processes.
            - C(kind) is one of V(service), V(container), V(pod), V(session) and V(other), C(engine) one of V(docker), V(podman),
              V(containerd), V(crio) and an empty text.
            - C(witness) is V(open) for open device files, V(tool) where C(npu-smi) alone lists a process, and V(allowed) for a container
              that was given a device and has not opened it.
            - C(unassigned), if present, lists devices that belong to no NPU of the result. C(memory_mib), if present, is the memory of a
              service or container by NUMA node, and C(around) the CPUs that the group around it grants, if these are not all CPUs.
            - C(cpus) and C(mems) are those that the cgroup grants. A process has those that its threads may use, all together.
          type: list
          elements: dict
          sample:
            - group: /system.slice/vllm.service
              kind: service
              unit: vllm.service
              engine: ""
              container: null
              name: vllm.service
              devices: [davinci0]
              npus: [{kind: npu, id: 0}]
              processes: [{pid: 4711, start: 81422, command: python3, devices: [davinci0], cpus: 0-191}]
              cpus: 0-191
              mems: 0-7
              witness: open
        problems:
          description: Sentences about everything that could not be read or does not fit together.
          type: list
          elements: str
          sample: []
        drop_ins:
          description: The text of each drop-in that a bind has given a service.
          returned: always
          type: dict
          sample: {"tp.service": "# Managed by npu.affinity: changes are overwritten.\\n[Service]\\nSlice=npu-0.slice"}
        programs:
          description:
            - Where the host has the programs that units and udev rules of the collection name, or V(null) for one that it does not have.
            - Below another O(root) those that are not found are left out.
          returned: always
          type: dict
          sample: {"python3": /usr/bin/python3, "systemctl": /usr/bin/systemctl}
        missing_units:
          description: Those of O(units) without a unit file, each with the nearest name that the host has, or an empty string.
          returned: with O(units)
          type: dict
          sample: {"vlm@0.service": vllm@.service}
        unit_environment:
          description:
            - What files other than the collection's drop-in set of E(ASCEND_RT_VISIBLE_DEVICES), E(CUDA_VISIBLE_DEVICES),
              E(CUDA_DEVICE_ORDER), the variables that switch in-process binding off, E(OMP_NUM_THREADS), E(TASK_QUEUE_ENABLE),
              E(LD_PRELOAD), E(OMP_PLACES), E(GOMP_CPU_AFFINITY) and E(KMP_AFFINITY), for those of O(units) that set any.
            - C(wins) is whether systemd takes it although the drop-in says something else.
          returned: with O(units)
          type: dict
          sample: {"tp.service": {"ASCEND_RT_VISIBLE_DEVICES": {"value": "3", "file": "/etc/systemd/system/tp.service", "wins": false}}}
        allocator:
          description: The library of jemalloc or tcmalloc that the host has, or V(null).
          returned: always
          type: str
          sample: /usr/lib64/libjemalloc.so.2
        others:
          description:
            - Network and storage functions with interrupts. C(name) is that of the interface or disk, C(irqs) the number of interrupts.
            - Of these, C(shared) may each run on several CPUs (by cpulist), and C(single) are cpulists with an interrupt for each CPU.
          returned: with O(others)
          type: list
          elements: dict
          sample: [{pci: "0000:7d:00.0", name: eth0, driver: hns3, numa: 0, irqs: 65, shared: {"0-23": 1}, single: [0-63]}]
        memory:
          description:
            - The memory of slices of NPUs and of O(units). C(units) has the memory nodes that each may use (C(mems)) and where its memory
              lies (C(mib), by node; null where a kernel before 5.10 does not tell). C(room_mib) is what each node can still hold; nodes of
              which that is not known are left out.
          returned: when one of them, or of C(users), holds memory
          type: dict
          sample: {room_mib: {"6": 41210, "7": 98304}, units: {npu-0.slice: {mems: 6-7, mib: {"6": 80120}}}}
"""

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import ARGUMENTS, gathered


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        _host, topology = gathered(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, ansible_facts={"npu_affinity_topology": topology})


if __name__ == "__main__":
    main()
