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
  - Everything is checked before the first write. When a step fails all the same, all files, settings, chips and threads are restored, units
    that were stopped are started, and systemd is reloaded. A failure to bind interrupts does not trigger this, nor does memory that could
    not be moved after threads.
  - Reloads systemd only when a unit file changed, enables and starts units, and then reads back from the kernel which CPUs and
    memory nodes the units really have, because the exit status of C(systemctl) proves nothing.
  - What an earlier run did for a feature that is absent now is unbound first, as module P(npu.affinity.unbind#module) does it.
  - When an earlier run of the collection was killed after it had stopped a service for a moment, such as the kubelet, that service is
    started.
  - Files that the collection owns say so in their first line. Owned files that are no longer wanted are removed, after the live
    CPU set of their unit was widened. A removed slice is stopped when nothing needs it. Slices and services in use are never stopped.
  - Programs of the collection that units run are tried once when something was written, by the interpreter that the unit names.
    Units whose last run failed run again at the end; one that fails again is a warning.
  - Files and links of others that would be overwritten are kept in C(/etc/npu-affinity/previous.json), and so are the folders that are made.
  - When something changed, or O(state) has other features or wants something else of the running host, it is kept in
    C(/etc/npu-affinity/history/) with the time, the version of the collection, O(author) and O(reason), as far as it is not the state that was
    applied last. The newest 10 are kept, and module P(npu.affinity.history_info#module) lists them. The journal of systemd gets a line with
    fields such as C(NPU_AFFINITY_ACTION).
options:
  root:
    description:
      - Root directory of the host's file tree.
      - With any other value than V(/) the files are written there, units are enabled with C(systemctl --root), and nothing live is
        touched or read back.
    type: path
    default: /
  state:
    description: What filter P(npu.affinity.desired_state#filter) returns, or a state out of the history.
    type: dict
    required: true
  features:
    description: The features of O(state) that are applied. The others are left as they are. Empty means all.
    type: list
    elements: str
    choices: [adopt, device_share, hugepages, irq, kubelet, metrics, nic, slices, threads, tuning, vnpu]
    default: []
  irq_failure:
    description:
      - What to do when not all interrupts can be bound, for instance because the driver is not loaded or the kernel shows no
        interrupts of the functions. The files stay, and the boot units try again.
      - V(fail) fails the task with each of them. V(warn) warns.
    type: str
    choices: [fail, warn]
    default: fail
  move_memory:
    description:
      - Whether the memory nodes of a unit with running processes may be changed. The kernel then moves their pages, at hundreds of
        MB/s, and the processes stall.
      - A unit whose memory does not fit on the nodes that it keeps is refused either way, because the kernel would kill its processes.
    type: bool
    default: false
  action:
    description: What this is called in the history and in the journal.
    type: str
    choices: [bind, rollback]
    default: bind
  author:
    description: Author of the change, recorded in the history and the journal.
    type: str
    default: ''
  reason:
    description: Reason for the change, recorded in the history and the journal.
    type: str
    default: ''
  npu_smi:
    description: The C(npu-smi) command, for device share. By default it is searched where Ascend drivers install it.
    type: str
  kubelet_wait:
    description: Seconds that the kubelet of a drained node may take to start. Without it, the kubelet is not changed, and its change is in RV(kubelet).
    type: int
  waits_for:
    description:
      - Apply nothing while a change of one of these features would be pending, which is a restart of the kubelet, and for V(vnpu) a file
        that is missing.
    type: list
    elements: str
    choices: [kubelet, vnpu]
    default: []
  staged:
    description: Paths on the managed host, by their SHA-256, of files that the soft split of O(state) lacks and that are placed.
    type: dict
    default: {}
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Apply all that the settings want
  npu.affinity.host_files:
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"

- name: Apply host settings and interrupts alone, and say in the history who did it and why
  npu.affinity.host_files:
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"
    features: [irq, tuning]
    irq_failure: warn
    author: "{{ lookup('ansible.builtin.env', 'USER') }}"
    reason: More memory bandwidth for the second service

- name: Go back to an older state, in the tree of an image
  npu.affinity.host_files:
    root: /srv/images/node
    state: "{{ history.entry.state }}"
    action: rollback
    move_memory: false
    npu_smi: /usr/local/bin/npu-smi
"""

RETURN = r"""
files:
  description: Paths of the files that were written.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/npu-0.slice]
removed:
  description: Paths of the files that were removed.
  returned: success
  type: list
  elements: str
  sample: []
actions:
  description: What systemd was asked to do besides reloading.
  returned: success
  type: list
  elements: str
  sample: [enable npu.slice, start npu.slice]
interrupts:
  description:
    - What was found and done for the interrupts, workqueues and threads of each NPU, as RV(npu.affinity.irq_affinity#module:npus),
      RV(npu.affinity.irq_affinity#module:unchangeable) and RV(npu.affinity.irq_affinity#module:failures).
  returned: success, and when they could not be bound; null without the feature
  type: dict
  sample: {npus: [], unchangeable: [], failures: []}
vnpu:
  description:
    - What of the soft split of O(state) was made, as RV(npu.affinity.vnpu_layout#module:folders) and the like. Files that are neither on
      the host nor O(staged) are C(missing). Null without the feature.
  returned: success
  type: dict
  sample: {folders: [/usr/local/hami-shared-region], files: [], removed: [], missing: []}
device_share:
  description:
    - The state of the chips as RV(npu.affinity.device_share#module:chips), RV(npu.affinity.device_share#module:recover),
      RV(npu.affinity.device_share#module:busy) and RV(npu.affinity.device_share#module:failures). Null if O(state) does not have the feature.
  returned: success
  type: dict
  sample: {chips: [{card: 0, chip: 0, before: false, after: true, enabled: true}], recover: null, busy: [], failures: []}
adopt:
  description:
    - What holds NPUs, and what becomes of it. C(state) is V(inside) where it ran on the CPUs of its NPUs, V(adopted) where it was confined
      to them, V(refused) where this cannot be done while it runs, and V(failed). C(text) says why. Null if O(state) does not have the feature.
  returned: success
  type: dict
  sample:
    changed: true
    users:
      - {name: vllm.service, kind: service, npus: [NPU 1], before: 0-191, wanted: 24-47, after: 24-47, state: adopted, text: ''}
threads:
  description:
    - The threads of running processes as RV(npu.affinity.process_affinity#module:processes),
      RV(npu.affinity.process_affinity#module:failures), RV(npu.affinity.process_affinity#module:memory) and
      RV(npu.affinity.process_affinity#module:migration), and whether any was C(changed). Null if O(state) does not have the feature.
  returned: success
  type: dict
  sample: {changed: false, processes: [], failures: []}
kubelet:
  description:
    - What the kubelet of O(state) waits for, as RV(npu.affinity.kubelet_config#module:path), RV(npu.affinity.kubelet_config#module:pending) and
      RV(npu.affinity.kubelet_config#module:removed). The kubelet is changed with O(kubelet_wait) only, because it has to restart on a drained
      node. Null if O(state) does not have the feature and no drop-in is to be removed.
  returned: success
  type: dict
  sample: {path: /etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf, pending: ['cpuManagerPolicy: none -> static'], removed: []}
disruptive:
  description: Whether anything but the CPUs of running processes changed. If so, a play takes the host out of service first.
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
history:
  description: The id of the entry that the history got, or null.
  returned: success
  type: int
  sample: 7
remarks:
  description:
    - Sentences about interrupts that cannot be bound, values that could not be read, and huge pages that the kernel did not grant.
    - Below another O(root), also one for each interpreter of the collection's units, which only that machine itself can try.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._apply.apply import Application
from ansible_collections.npu.affinity.plugins.module_utils._features import parts
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "state": {"type": "dict", "required": True},
        "features": {"type": "list", "elements": "str", "default": [], "choices": sorted(FEATURES)},
        "irq_failure": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
        "move_memory": {"type": "bool", "default": False},
        "action": {"type": "str", "choices": ["bind", "rollback"], "default": "bind"},
        "author": {"type": "str", "default": ""},
        "reason": {"type": "str", "default": ""},
        "npu_smi": {"type": "str"},
        "kubelet_wait": {"type": "int"},
        "waits_for": {"type": "list", "elements": "str", "choices": ["kubelet", "vnpu"], "default": []},
        "staged": {"type": "dict", "default": {}},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    asked = {name: params[name] for name in Choices._fields if name in params}
    choices = Choices(tolerant=params["irq_failure"] == "warn", **asked)
    try:
        state = parts.applied(params["state"], params["features"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    applied = Application(Host(params["root"], 90), state, choices, module.check_mode).carry_out()
    for sentence in applied.sentences():
        module.warn(sentence)
    if applied.failure:
        module.fail_json(msg=applied.failure, **applied.result())
    module.exit_json(diff=applied.diff().document(), **applied.result())


if __name__ == "__main__":
    main()
