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
  - Compares what a host should have with what the kernel, systemd and the driver really do, and says of every difference what was
    expected, what was found, and the likely cause. Reads only; nothing is repaired, and systemd is not asked to reload.
  - By the plan alone it compares the NPUs with the PCI bus, their CPUs with those that are online, and their interrupts, workqueues and
    kernel threads with the CPUs of the plan. Interrupts that the kernel manages itself are not drift.
  - With O(files) it compares files to the letter, with O(binding) the effective CPUs and memory nodes of slices and services and of
    the processes in them, with O(device_share) the state of every chip. The playbook C(npu.affinity.verify) gives all of these.
  - Drift is a result and not a failure of the task. A host that was never bound has none.
  - Below another O(root) than V(/) there are no running units. Files, links to what starts at boot, C(/proc/irq) and so on of that tree
    are compared.
options:
  root:
    description: Root directory of the host's file tree.
    type: path
    default: /
  plan:
    description: The plan to compare with. By default the one in force, C(/etc/npu-affinity/plan.json) of the host.
    type: dict
  state:
    description:
      - What filter P(npu.affinity.desired_state#filter) returns. The other options add to it, and it says which features are looked at.
    type: dict
  files:
    description: The files that the host should have, as for M(npu.affinity.host_files).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path on the machine.
        type: path
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      mode:
        description: Permission bits in octal.
        type: str
        default: '0644'
  owned:
    description:
      - Shell patterns of absolute paths. A file that matches, is marked as the collection's own and is not in O(files) is drift.
    type: list
    elements: str
    default: []
  runtime:
    description: Whether the host code, with the command C(npu-affinity), is compared with that of this version of the collection.
    type: bool
    default: false
  binding:
    description: What systemd must have, as C(live.slices) of a desired state has it.
    type: dict
    default: {}
  enabled:
    description: Further units that must start at boot, as their C(WantedBy=) says.
    type: list
    elements: str
    default: []
  started:
    description: Further units that must be active. Ignored below another O(root).
    type: list
    elements: str
    default: []
  stopped:
    description: Units that must be neither active nor enabled.
    type: list
    elements: str
    default: []
  interrupts:
    description: Whether interrupts, workqueues and kernel threads are compared.
    type: bool
    default: true
  irq_failure:
    description: Whether interrupts that could not be bound are drift (V(fail)) or a remark (V(warn)). Those that were moved are drift.
    type: str
    choices: [fail, warn]
    default: fail
  device_share:
    description: What the device share of the chips should be. Without it C(npu-smi) is not called.
    type: dict
    suboptions:
      enabled:
        description: Whether containers may share the chips.
        type: bool
        required: true
      npus:
        description: The cards to look at, as for M(npu.affinity.device_share). Empty means all.
        type: list
        elements: raw
        default: []
      only_ours:
        description: With O(device_share.enabled=false), whether chips may be on that this collection did not switch on.
        type: bool
        default: true
      recover:
        description: The driver's own recovery of device share after a reboot. V(leave) does not look at it.
        type: str
        choices: [leave, 'on', 'off']
        default: leave
  threads:
    description:
      - Whose threads are compared with the CPUs of their roles, with C(processes) and C(patterns) as M(npu.affinity.process_affinity) has
        them. Without it none.
    type: dict
    suboptions:
      processes:
        description: The processes. By default those in the slices of the plan's NPUs.
        type: list
        elements: dict
        default: []
        suboptions:
          npus:
            description: Logic ids.
            type: list
            elements: int
            default: []
          slice:
            description: A slice in which the processes run.
            type: str
          unit:
            description: A service in which the processes run.
            type: str
          pids:
            description: Numbers of processes.
            type: list
            elements: int
          devices:
            description: Whether processes with the device of one of the NPUs open are meant.
            type: bool
            default: false
      patterns:
        description: Shell patterns of the names of threads, by role.
        type: dict
        suboptions:
          acl:
            description: Threads of role acl.
            type: list
            elements: str
          release:
            description: Threads of role release.
            type: list
            elements: str
          kv:
            description: Threads of role kv.
            type: list
            elements: str
          leave:
            description: Threads that are not looked at.
            type: list
            elements: str
  vnpu_layout:
    description: The directories and files for soft split of NPUs, as for M(npu.affinity.vnpu_layout). Without it they are not looked at.
    type: dict
    suboptions:
      folder:
        description: The directory of hami-vnpu-core.
        type: path
        default: /usr/local/hami-vnpu-core
      shared_region:
        description: The directory in which the containers of all NPUs coordinate.
        type: path
        default: /usr/local/hami-shared-region
      shared_mode:
        description: Permission bits of O(vnpu_layout.shared_region).
        type: str
        choices: ['1777', '0777']
        default: '1777'
      files:
        description: The files that O(vnpu_layout.folder) should have.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Path below O(vnpu_layout.folder).
            type: str
            required: true
          sha256:
            description: SHA-256 of the file in hexadecimal.
            type: str
            required: true
  tuning:
    description: The settings that the host should have, as for M(npu.affinity.host_files). One that it does not support is a remark.
    type: dict
    suboptions:
      governor:
        description: The CPU frequency governor of every policy.
        type: str
      numa_balancing:
        description: C(kernel.numa_balancing).
        type: int
      transparent_hugepages:
        description: When the kernel uses huge pages by itself.
        type: str
        choices: [always, madvise, never]
      swappiness:
        description: C(vm.swappiness).
        type: int
  topology:
    description:
      - The fact C(npu_affinity_topology), or its C(npus) alone. NPUs that the plan in force does not have are drift.
      - It saves asking C(npu-smi) for the cards.
    type: dict
  programs:
    description: Paths of programs that units start. One that is not on the host is drift.
    type: list
    elements: str
    default: []
  soft_split:
    description:
      - The directory of hami-vnpu-core, where containers of the host share NPUs.
      - Its library and preload file must be there when O(binding) has vNPUs. Every process with an NPU open that is in the slice of a vNPU,
        or that has C(NPU_MEM_QUOTA), must have loaded the library, and one in the slice of a vNPU must have its limiter beside it.
    type: path
  must_be_bound:
    description: Whether it is drift that a host was never bound.
    type: bool
    default: false
  npu_smi:
    description: The C(npu-smi) command. By default it is looked for where Ascend drivers put it.
    type: str
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 60
extends_documentation_fragment:
  - npu.affinity._attributes
attributes:
  diff_mode:
    support: none
    details:
      - This module does not modify the target.
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Look at interrupts, threads, CPUs and the PCI bus, by the plan in force
  npu.affinity.binding_info:

- name: Look at the slices and at what containers may share, too
  npu.affinity.binding_info:
    binding: {services: [], workloads: [], vnpus: [], bound_by: host}
    topology: "{{ ansible_facts['npu_affinity_topology'] }}"
    device_share:
      enabled: true

- name: Look at the settings of the host, too
  npu.affinity.binding_info:
    tuning:
      governor: performance
      swappiness: 0

- name: Look at all that the settings of some roles want
  npu.affinity.binding_info:
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"

- name: Look at one file to the letter, on a host that must be bound
  npu.affinity.binding_info:
    files:
      - path: /etc/systemd/system/npu-0.slice
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Slice]
          AllowedCPUs=144-167
    owned:
      - /etc/systemd/system/npu-*.slice
    interrupts: false
    irq_failure: warn
    vnpu_layout:
      shared_mode: '1777'
    must_be_bound: true

- name: Look at the threads of one service, too
  npu.affinity.binding_info:
    threads:
      processes:
        - unit: vllm@0.service
          npus: [0]
    programs: [/usr/local/hami-vnpu-core/limiter]
    soft_split: /usr/local/hami-vnpu-core
"""

RETURN = r"""
bound:
  description: Whether the host was ever bound.
  returned: success
  type: bool
  sample: true
last_change:
  description:
    - The newest entry of the history of the host, or null. It has the C(id), C(time), C(action), C(author), C(reason) and C(version) of
      RV(npu.affinity.history_info#module:entries).
  returned: success
  type: dict
  sample: {id: 7, time: '2026-11-22T13:30:00Z', action: bind, author: alice, reason: New cards, version: 1.0.0}
drift:
  description: Everything that is not as expected.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: One of V(plan), V(npus), V(cpus), V(files), V(units), V(cpusets), V(services), V(processes), V(interrupts),
        V(workqueues), V(threads), V(device_share) and V(tuning).
      type: str
    object:
      description: What differs. Names stay the same from one run to the next; numbers of interrupts are in RV(drift[].found).
      type: str
    expected:
      description: What it should be, as a short text.
      type: str
    found:
      description: What it is, as a short text.
      type: str
    expected_cpus:
      description: The CPUs that it should be on, or have, as a cpulist. Null where it is not about CPUs.
      type: str
    found_cpus:
      description: The CPUs that it is on, or has; those of all its interrupts together. Null where it is not about CPUs, or has no such set.
      type: str
    cause:
      description: The likely cause. One of V(irqbalance), V(in-process binding), V(driver reload), V(changed cpuset), V(offline CPU),
        V(manual change), V(lost card), V(new card), V(not restarted), V(changed settings), V(never bound), V(npu-smi), V(kernel),
        V(failed unit) and V(fought over).
      type: str
    remark:
      description: What more is to be said of the cause in this case, and what to do.
      type: str
    npu:
      description: The logic id of the NPU or GPU that it belongs to, or null.
      type: int
    device:
      description: Whether RV(drift[].npu) is an V(npu) or a V(gpu), or null.
      type: str
    pci:
      description: The PCI function of RV(drift[].npu), or null. Two chips of a card can share one.
      type: str
    unit:
      description: The systemd unit that it belongs to, or null.
      type: str
    sentence:
      description: All of this in one sentence, for people.
      type: str
  sample:
    - kind: interrupts
      object: NPU 0 cq_update_irq
      expected: CPUs 145
      found: CPUs 0-191 (IRQ 2754-2769)
      expected_cpus: "145"
      found_cpus: 0-191
      cause: irqbalance
      remark: it runs, and nothing tells it to leave the NPUs alone
      npu: 0
      device: npu
      pci: "0000:c1:00.0"
      unit: null
      sentence: "NPU 0 cq_update_irq: expected CPUs 145, found CPUs 0-191 (IRQ 2754-2769); likely irqbalance: it runs, and nothing tells
        it to leave the NPUs alone"
checked:
  description: The objects that were compared, those of RV(drift) included, by kind.
  returned: success
  type: dict
  sample:
    cpusets: [npu-0.slice CPUs, npu-0.slice memory nodes]
    interrupts: [NPU 0 cq_update_irq, NPU 0 sq_send_trigger_irq]
remarks:
  description: A sentence for everything that is not where the plan wants it and cannot be, or is not yet, which is not drift.
  returned: success
  type: list
  elements: str
  sample: ["NPU 0 (0000:c1:00.0): IRQ 2754-2769 cq_update_irq is placed by the kernel itself and stays on CPUs 144-167"]
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils import _runtime
from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._device_share.switching import RECOVER
from ansible_collections.npu.affinity.plugins.module_utils._drift.sentences import result_of
from ansible_collections.npu.affinity.plugins.module_utils._drift.unknown import leave_out_unknown
from ansible_collections.npu.affinity.plugins.module_utils._drift.verify import verify
from ansible_collections.npu.affinity.plugins.module_utils._drift.wanted import wanted_by
from ansible_collections.npu.affinity.plugins.module_utils._history.entries import newest
from ansible_collections.npu.affinity.plugins.module_utils._host import CommandError
from ansible_collections.npu.affinity.plugins.module_utils._module.arguments import (
    FILES,
    PATTERNS,
    PROCESSES,
    STRINGS,
    TUNING,
    VNPU_LAYOUT,
)
from ansible_collections.npu.affinity.plugins.module_utils._recorded import host_at


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "plan": {"type": "dict"},
        "state": {"type": "dict"},
        "files": FILES,
        "owned": STRINGS,
        "runtime": {"type": "bool", "default": False},
        "binding": {"type": "dict", "default": {}},
        "enabled": STRINGS,
        "started": STRINGS,
        "stopped": STRINGS,
        "interrupts": {"type": "bool", "default": True},
        "irq_failure": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
        "device_share": {
            "type": "dict",
            "options": {
                "enabled": {"type": "bool", "required": True},
                "npus": {"type": "list", "elements": "raw", "default": []},
                "only_ours": {"type": "bool", "default": True},
                "recover": {"type": "str", "choices": list(RECOVER), "default": "leave"},
            },
        },
        "threads": {"type": "dict", "options": {"processes": PROCESSES, "patterns": PATTERNS}},
        "vnpu_layout": {"type": "dict", "options": VNPU_LAYOUT},
        "tuning": TUNING,
        "topology": {"type": "dict"},
        "programs": STRINGS,
        "soft_split": {"type": "path"},
        "must_be_bound": {"type": "bool", "default": False},
        "npu_smi": {"type": "str"},
        "timeout": {"type": "int", "default": 60},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = dict(module.params)
    state = params["state"]
    runtime = params["runtime"] or bool(state and state["runtime"])
    if runtime:
        params["files"] = params["files"] + _runtime.files_of(state)
    wanted = wanted_by(state, params)
    try:
        host = host_at(params["root"], params["timeout"])
        bound, findings = verify(host, wanted, params["plan"])
        leave_out_unknown(host, findings)
        last = newest(host)
    except (OSError, ValueError, CommandError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=False,
        bound=bound,
        drift=[result_of(finding) for finding in findings.drift],
        checked=findings.checked,
        remarks=findings.remarks,
        last_change=last.header() if last else None,
    )


if __name__ == "__main__":
    main()
