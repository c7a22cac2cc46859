#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Apply the desired state of a host as one transaction
version_added: 1.0.0
description:
  - Compares a desired state with the host and changes only what differs, in one module call and one transaction.
  - Checks everything before the first write. If a step fails anyway, the module restores all files, settings, chips and threads, starts the
    units that it stopped, and reloads systemd. A failure to bind interrupts does not trigger this. Neither does memory that could not be moved
    after threads.
  - Reloads systemd only if a unit file changed. Then it enables and starts units, and reads from the kernel which CPUs and memory nodes the
    units have, because the exit status of C(systemctl) does not show this.
  - First unbinds features that an earlier run applied and that are now absent, like module P(npu.affinity.unbind#module).
  - Starts a service, such as the kubelet, that an earlier run had stopped before it was killed.
  - Marks the files that it manages in their first line. It widens the live CPU set of a unit before it removes a managed file that O(state)
    does not contain. It stops a removed slice if nothing uses it, and never stops slices and services in use.
  - After a write, runs each program of the collection once with the interpreter that its unit names. Units whose last run failed run again
    at the end. If one fails again, the module warns.
  - Saves files and links that it overwrites, and records folders that it creates, in C(/etc/npu-affinity/previous.json).
  - Adds O(state) to C(/etc/npu-affinity/history/) with the time, the version of the collection, O(author), O(reason) and O(run), if something
    changed or if its features or live settings differ from the newest entry. The history has the newest 10 entries, which module
    P(npu.affinity.history_info#module) lists. The systemd journal gets a line with fields such as C(NPU_AFFINITY_ACTION).
options:
  root:
    description:
      - Root directory of the host's file tree.
      - With any value other than V(/), the module writes files there and enables units with C(systemctl --root). It neither changes nor reads
        the running system.
    type: path
    default: /
  state:
    description:
      - The fact C(npu_affinity_state) of role P(npu.affinity.plan#role), or a state from the history.
      - C(features) says whether each feature is V(present) or V(absent), C(hardware) which machine the state is for, and C(plan) which CPUs
        each NPU has.
      - C(files), C(owned), C(enabled), C(started), C(stopped), C(released), C(restarted), C(expected), C(programs) and C(runtime) are the
        files and units of all features. C(live) is what each feature wants of the running host.
      - C(refusals) has a sentence for every reason not to bind the host, and C(remarks) one for everything that a bind would move or that
        needs a look. C(codes) has both by their code.
    type: dict
    required: true
  features:
    description: The features of O(state) to apply, by the names of their roles. The others do not change. Empty means all.
    type: list
    elements: str
    default: []
  move_memory:
    description:
      - Whether the memory nodes of a unit with running processes, and of adopted work, may be changed. Their pages then move, at hundreds of
        MB/s, and the processes stall.
      - C(migratepages) of numactl moves pages that the kernel leaves behind, such as those of slices before Linux 5.15.
      - A unit whose memory does not fit on the nodes that it keeps is refused either way, because the kernel would kill its processes.
    type: bool
    default: false
  action:
    description: Name of the action in the history and the journal.
    type: str
    choices: [bind, rollback]
    default: bind
  kubelet_wait:
    description:
      - Seconds to wait for the kubelet of a drained node to start. Without it, the module does not change the kubelet, and returns RV(kubelet).
      - With V(0), it applies nothing while the kubelet has to restart. The node can then be drained first.
    type: int
  compare:
    description: After a change, compare the host with its state in force, like module P(npu.affinity.binding_info#module).
    type: dict
    suboptions:
      topology:
        description: As O(npu.affinity.binding_info#module:topology).
        type: dict
      must_be_bound:
        description: As O(npu.affinity.binding_info#module:must_be_bound).
        type: bool
        default: false
      timeout:
        description: Seconds that each command of the comparison may take.
        type: int
        default: 60
extends_documentation_fragment:
  - npu.affinity._attributes
  - npu.affinity._attributes.author
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Apply all that the settings want
  npu.affinity.host_files:
    state: "{{ npu_affinity_state }}"

- name: Apply host settings and interrupts alone, and say in the history who did it and why
  npu.affinity.host_files:
    state: "{{ npu_affinity_state }}"
    features: [irq, tuning]
    author: "{{ lookup('ansible.builtin.env', 'USER') }}"
    reason: More memory bandwidth for the second service
    compare:
      topology: "{{ ansible_facts['npu_affinity_topology'] }}"
      must_be_bound: true
      timeout: 30

- name: Go back to an older state, in the tree of an image
  npu.affinity.host_files:
    root: /srv/images/node
    state: "{{ history.entry.state }}"
    action: rollback
    move_memory: false
"""

RETURN = r"""
files:
  description: Paths of the files that were written.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/npu-0.slice]
removed: {description: Paths of the files that were removed., returned: success, type: list, elements: str, sample: []}
actions:
  description: What systemd was asked to do besides reloading.
  returned: success
  type: list
  elements: str
  sample: [enable npu.slice, start npu.slice]
interrupts:
  description:
    - What was found and done for the interrupts, workqueues and kernel threads of the NPUs.
    - C(npus) has an entry for each NPU of the plan. If the plan has CPUs for poll threads, a last entry with C(id) null has these.
      Interrupts that differ only in their number are one entry with the numbers in C(irqs). C(before), C(wanted) and C(after) are cpulists.
    - C(state) is V(bound) (already as wanted), V(changed), V(pending) (effective when the interrupt fires), V(managed) (placed by the kernel
      itself), V(full) (the wanted CPU has no interrupt vectors left), V(stuck) (the interrupt fired elsewhere), V(replaced) (a workqueue
      whose CPUs are isolated), V(busy) or V(failed).
    - C(unchangeable) has a sentence for each that cannot be bound, which is no failure, and C(failures) for each that failed.
  returned: with the feature, also when they could not be bound
  type: dict
  sample:
    npus:
      - id: 0
        pci: "0000:c1:00.0"
        device: 0
        text: ""
        interrupts:
          - {name: sq_send_trigger_irq, irqs: '2753', before: 144-167, wanted: '144', after: '144', state: changed, text: ''}
        workqueues:
          - {name: dev0_sq_send_wq, before: 0-191, wanted: '144', after: '144', state: changed, text: ''}
        threads:
          - {name: dev0_sq_task, before: 0-191, wanted: '144', after: '144', state: changed, text: ''}
    unchangeable: []
    failures: []
vnpu:
  description:
    - The C(folders) of the soft split that were created or whose permissions changed, the C(files) that were written or C(removed), and
      the files that are C(missing) because the controller does not have them.
  returned: with the feature
  type: dict
  sample: {folders: [/usr/local/hami-shared-region], files: [], removed: [], missing: []}
device_share:
  description:
    - The state of every queried chip C(before) and C(after) the change, null if C(npu-smi) did not report it. C(enabled) is the wanted
      state, or null.
    - C(busy) lists cards that could not be changed because a container has them open. C(failures) has a sentence for each card that is not
      as wanted.
  returned: with the feature
  type: dict
  sample: {chips: [{card: 0, chip: 0, before: false, after: true, enabled: true}], busy: [], failures: []}
adopt:
  description:
    - What holds NPUs, and what becomes of it. C(state) is V(inside) where it ran on the CPUs of its NPUs, V(adopted) where it was confined
      to them, V(refused) where this cannot be done while it runs, and V(failed). C(text) says why.
  returned: with the feature
  type: dict
  sample:
    changed: true
    users:
      - {name: vllm.service, kind: service, pids: [21418], npus: [NPU 1], before: 0-191, wanted: 24-47, after: 24-47, mems_before: 0-3,
         mems_after: 0-3, variables_before: {}, variables_after: {OMP_NUM_THREADS: '24'}, state: adopted, text: ''}
threads:
  description:
    - The threads of running processes, and whether any was C(changed). Threads of a process in the same state are one entry with their
      C(names), C(tids) (in the notation of cpulists) and number (C(threads)).
    - C(state) is V(placed) (already as wanted), V(moved), V(left) (by a pattern), V(gone) (it ended), V(refused) (by its cpuset) or V(failed).
      C(failures) has a sentence for each that could not be placed.
    - With C(npu_affinity_threads_memory_limit), C(memory) has the MiB of each process by NUMA node, and C(migration) what was moved.
  returned: with the feature
  type: dict
  sample:
    changed: true
    processes:
      - pid: 4711
        name: VLLM::Worker
        npus: [0]
        found_by: npu-0.slice
        threads:
          - {role: acl, threads: 1, tids: '4923', names: [acl_thread], before: 144-167, wanted: '166', after: '166', state: moved, text: ''}
    failures: []
kubelet:
  description:
    - The C(path) of the drop-in, the settings that would change (C(pending), empty after the change), and the state files that are removed
      along with it (C(removed)). The kubelet is changed with O(kubelet_wait) only, because it has to restart on a drained node.
  returned: with the feature, and if its drop-in is to be removed
  type: dict
  sample: {path: /etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf, pending: ['cpuManagerPolicy: none -> static'], removed: []}
disruptive:
  description:
    - Whether what changed can disturb workloads. If so, a play takes the host out of service first. New host code, a plan with the same CPUs
      and other CPUs of running processes do not count.
  returned: always
  type: bool
  sample: true
settings:
  description: The host settings that were changed.
  returned: success
  type: list
  elements: dict
  sample: [{path: /proc/sys/vm/swappiness, before: '60', after: '0'}]
restart_needed:
  description:
    - Running services whose unit changed, and units that run in a slice that was removed. They follow only when they are started again.
    - They are not restarted here.
  returned: success
  type: list
  elements: str
  sample: [vllm@0.service]
history: {description: "The id of the entry that the history got, or null.", returned: success, type: int, sample: 7}
remarks:
  description:
    - Sentences about interrupts that cannot be bound, values that could not be read, and huge pages that the kernel did not grant.
    - Below another O(root), also one for each interpreter of the collection's units, which only that machine itself can try.
  returned: success
  type: list
  elements: str
  sample: []
compared:
  description:
    - The comparison after a change, as module P(npu.affinity.binding_info#module) returns it, or its C(msg) if the host could not be compared.
    - Null without O(compare), in check mode, and if nothing changed.
  returned: success
  type: dict
  sample: {bound: true, drift: [], changes: [], outside: [], remarks: []}
"""

import os
from typing import Any, Mapping

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AUTHORED, AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._apply.apply import Application
from ansible_collections.npu.affinity.plugins.module_utils._features import parts
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host

ARGUMENTS = {
    "root": {"type": "path", "default": "/"},
    "state": {"type": "dict", "required": True},
    "features": {"type": "list", "elements": "str", "default": []},
    "move_memory": {"type": "bool", "default": False},
    "action": {"type": "str", "choices": ["bind", "rollback"], "default": "bind"},
    **AUTHORED,
    "kubelet_wait": {"type": "int"},
    "compare": {
        "type": "dict",
        "options": {
            "topology": {"type": "dict"},
            "must_be_bound": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 60},
        },
    },
}


def staged(module: AnsibleModule) -> dict[str, str]:
    """Return where the controller has put files of the soft split, by their SHA-256: in the temporary folder of this module."""
    files = (module.params["state"]["live"].get("vnpu") or {}).get("files") or ()
    places = {file["sha256"]: os.path.join(module.tmpdir, file["sha256"]) for file in files if not module.check_mode}
    return {digest: path for digest, path in places.items() if os.path.exists(path)}


def compared(params: dict[str, Any]) -> Mapping[str, Any]:
    """Return how the host compares with what was applied. A change that was made is not failed by this."""
    from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import (
        compare,
        comparison,
    )  # not needed where nothing changed

    asked, desired = params["compare"], params["state"] if params["action"] == "bind" else None
    try:
        host = Host(params["root"], asked["timeout"])
        return comparison(host, compare(host, asked["topology"], asked["must_be_bound"], runtime.files_of), desired)
    except (OSError, ValueError, CommandError) as error:
        return {"msg": str(error)}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    try:
        state = parts.applied(params["state"], params["features"])
        choices = Choices(staged=staged(module), **{name: params[name] for name in Choices._fields if name in params})
    except ValueError as error:
        module.fail_json(msg=str(error))
    applied = Application(Host(params["root"], 90), state, choices, runtime.files_of, module.check_mode).carry_out()
    for sentence in applied.sentences():
        module.warn(sentence)
    if applied.failure:
        module.fail_json(msg=applied.failure, **applied.result())
    wanted = params["compare"] and applied.changed and not module.check_mode
    module.exit_json(diff=applied.diff().document(), compared=compared(params) if wanted else None, **applied.result())


if __name__ == "__main__":
    main()
