#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: binding_info
short_description: Compare a host with the plan in force and list every drift
version_added: 1.0.0
description:
  - Compares a host with its desired state in force, and lists every difference with the expected and found value and the likely cause. It
    changes nothing, repairs nothing and does not reload systemd.
  - The state in force is the newest entry in the history of the host, which the last M(npu.affinity.host_files) applied. The command
    C(npu-affinity verify) on the host uses the same state.
  - Compares what the state contains of files, units, effective CPUs and memory nodes of slices, services and their processes, interrupts,
    workqueues, threads, host settings, device share and the soft split. Interrupts that the kernel manages itself are not drift.
  - If a host has a plan in force but no readable history, the module compares it with C(/etc/npu-affinity/plan.json) only, with a remark.
  - Drift is a result and does not fail the task. A host that was never bound has no drift.
  - With an O(root) other than V(/), there are no running units. The module then compares only files of that tree, such as units, links that
    start them at boot, and C(/proc/irq).
options:
  desired:
    description:
      - The fact C(npu_affinity_state) of role P(npu.affinity.plan#role). RV(changes) then lists what a bind would change.
      - It does not influence RV(drift).
    type: dict
  topology:
    description:
      - The fact C(npu_affinity_topology), or only its C(npus), C(silent) and C(users). NPUs that are not in the plan in force are drift.
      - With it, the module does not need to call C(npu-smi) or search for processes that use NPUs.
    type: dict
  must_be_bound:
    description: Whether to report a host that was never bound as drift.
    type: bool
    default: false
  host_code:
    description:
      - SHA-256 of the host code that a bind would install. Other host code is drift.
      - The action of this module sets it to that of the collection on the controller.
    type: str
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 60
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Compare the host with its state in force
  npu.affinity.binding_info:

- name: Report NPUs without CPUs and a host that is not bound as drift, too
  npu.affinity.binding_info:
    topology: "{{ ansible_facts['npu_affinity_topology'] }}"
    must_be_bound: true

- name: List what a bind would change
  npu.affinity.binding_info:
    desired: "{{ npu_affinity_state }}"
"""

RETURN = r"""
bound: {description: Whether the host was ever bound., returned: success, type: bool, sample: true}
last_change:
  description:
    - The newest entry of the history of the host, or null. It has the C(id), C(time), C(action), C(author), C(reason), C(run) and C(version) of
      RV(npu.affinity.history_info#module:entries).
  returned: success
  type: dict
  sample:
    id: 7
    time: "2026-11-22T13:30:00Z"
    action: bind
    author: alice
    reason: New cards
    run: {id: 20261122T132955-7f3a, time: "2026-11-22T13:29:55Z", inventory: hosts.yml}
    version: 1.0.0
changes:
  description: A line for everything that a bind of O(desired) would change of the state in force. Empty if the host has no state in force.
  returned: success
  type: list
  elements: str
  sample: ["feature threads: off -> on (places threads of workers by their role)", "file /etc/npu-affinity/threads.json: added"]
drift:
  description: Everything that is not as expected.
  returned: success
  type: list
  elements: dict
  contains:
    code: {description: "What it is, as a stable name. C(docs/troubleshooting.md) has a section for each.", type: str}
    kind:
      description: One of V(plan), V(npus), V(cpus), V(files), V(units), V(cpusets), V(services), V(processes), V(interrupts),
        V(workqueues), V(threads), V(device_share), V(tuning), V(hugepages) and V(hard_vnpu).
      type: str
    object:
      description: What differs. Names stay the same from one run to the next; numbers of interrupts are in RV(drift[].found).
      type: str
    expected: {description: "What it should be, as a short text.", type: str}
    found: {description: "What it is, as a short text.", type: str}
    expected_cpus: {description: "The CPUs that it should be on, or have, as a cpulist. Null where it is not about CPUs.", type: str}
    found_cpus:
      description: The CPUs that it is on, or has; those of all its interrupts together. Null where it is not about CPUs, or has no such set.
      type: str
    cause:
      description: The likely cause. One of V(irqbalance), V(in-process binding), V(driver reload), V(changed cpuset), V(offline CPU),
        V(manual change), V(lost card), V(new card), V(not restarted), V(changed settings), V(never bound), V(npu-smi), V(kernel),
        V(failed unit), V(fought over), V(memory shortage) and V(interrupted run).
      type: str
    remark: {description: "What more is to be said of the cause in this case, and what to do.", type: str}
    npu: {description: "The logic id of the NPU or GPU that it belongs to, or null.", type: int}
    device: {description: "Whether RV(drift[].npu) is an V(npu) or a V(gpu), or null.", type: str}
    pci: {description: "The PCI function of RV(drift[].npu), or null. Two chips of a card can share one.", type: str}
    unit: {description: "The systemd unit that it belongs to, or null.", type: str}
    sentence: {description: "All of this in one sentence, for people.", type: str}
  sample:
    - code: NPU_IRQBALANCE_ACTIVE
      kind: interrupts
      object: NPU 0 cq_update_irq
      expected: CPUs 145
      found: CPUs 0-191 (IRQ 2754-2769)
      expected_cpus: "145"
      found_cpus: 0-191
      cause: irqbalance
      remark: it runs without a policy for the NPUs
      npu: 0
      device: npu
      pci: "0000:c1:00.0"
      unit: null
      sentence: "NPU 0 cq_update_irq: expected CPUs 145, found CPUs 0-191 (IRQ 2754-2769); likely irqbalance: it runs, and nothing tells
        it to leave the NPUs alone [NPU_IRQBALANCE_ACTIVE]"
checked:
  description: The objects that were compared, those of RV(drift) included, by kind.
  returned: success
  type: dict
  sample:
    cpusets: [npu-0.slice CPUs, npu-0.slice memory nodes]
    interrupts: [NPU 0 cq_update_irq, NPU 0 sq_send_trigger_irq]
outside:
  description:
    - What uses NPUs and runs on other CPUs than the plan in force gives these NPUs, or has threads with fewer CPUs than their role. It
      is not drift. Pods are left to the kubelet.
    - A unit that is in RV(drift) is left out.
  returned: success
  type: list
  elements: dict
  contains:
    title: {description: "How sentences call it, with its processes and NPUs.", type: str}
    name: {description: "The container, the service, or else the command.", type: str}
    kind: {description: "One of V(service), V(container), V(session) and V(other).", type: str}
    unit: {description: "The service or scope, or null.", type: str}
    npus: {description: "The NPUs and GPUs that it uses, by C(kind) and C(id).", type: list, elements: dict}
    pids: {description: Its processes that use them., type: list, elements: int}
    cpus: {description: "The CPUs that the threads of these processes may use, all together.", type: str}
    pool: {description: The CPUs of its NPUs., type: str}
    next: {description: What puts it there., type: str}
    cause:
      description: Why threads inside the pool have fewer CPUs than their role, or which memory policy differs from the plan.
      returned: when all threads run inside the pool
      type: str
    memory_mib: {description: The memory of a service or container by NUMA node., returned: when the kernel reports it, type: dict}
    command: {description: "The command on the host that puts it there, empty where a command alone does not.", type: str}
    adoptable: {description: "Whether a bind with C(npu_affinity_adopt=now) puts it there.", type: bool}
  sample:
    - title: vllm.service (pid 21418, NPU 1)
      name: vllm.service
      kind: service
      unit: vllm.service
      npus: [{kind: npu, id: 1}]
      pids: [21418]
      cpus: 0-191
      pool: 24-47
      next: "bind with npu_affinity_adopt: now, or add {unit: vllm.service, npus: [1]} to npu_affinity_services, bind and restart it"
      command: ""
      adoptable: true
outside_sentence:
  description: RV(outside) in one sentence, empty where there is nothing.
  returned: success
  type: str
  sample: "1 NPU process runs outside its pool: vllm.service (pid 21418, NPU 1) on CPUs 0-191, pool 24-47"
remarks:
  description: A sentence for everything that is not where the plan wants it and cannot be, or is not yet, which is not drift.
  returned: success
  type: list
  elements: str
  sample: ["NPU 0 (0000:c1:00.0): IRQ 2754-2769 cq_update_irq is placed by the kernel itself and stays on CPUs 144-167"]
"""


from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare, comparison
from ansible_collections.npu.affinity.plugins.module_utils._state.host_code import compared_with
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule

ARGUMENTS = {
    "root": {"type": "path", "default": "/"},
    "desired": {"type": "dict"},
    "topology": {"type": "dict"},
    "must_be_bound": {"type": "bool", "default": False},
    "host_code": {"type": "str"},
    "timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        host = Host(params["root"], params["timeout"])
        compared = compare(host, params["topology"], params["must_be_bound"], compared_with(host, params["host_code"]))
        result = comparison(host, compared, params["desired"])
    except (OSError, ValueError, CommandError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
