#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Write a set of host files and make systemd follow, or leave everything as it was
version_added: 1.0.0
description:
  - Compares a whole set of files with the host and writes only those that differ, atomically, in one module call.
  - Reloads systemd only when a unit file changed, enables and starts units, and then reads back from the kernel which CPUs and
    memory nodes the units really have, because the exit status of C(systemctl) proves nothing.
  - Everything is looked at and checked before the first write, files, units, memory, O(tuning), device share and threads alike. When a step fails
    all the same, all files, settings, chips and threads are restored, units that were stopped are started, and systemd is reloaded. A
    failure to bind O(interrupts) does not trigger this, nor does memory that could not be moved after threads.
  - When an earlier run of the collection was killed after it had stopped a service for a moment, such as the kubelet, that service is
    started.
  - Files that the collection owns say so in their first line. Owned files that are no longer wanted are removed, after the live
    CPU set of their unit was widened.
  - Programs of the collection that units run are tried once when something was written, by the interpreter that the unit names.
    Units whose last run failed run again at the end; one that fails again is a warning.
  - Files and links of others that would be overwritten are kept in C(/etc/npu-affinity/previous.json), and so are the folders that are made.
  - A removed slice is stopped when nothing needs it. Slices and services in use are never stopped.
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
    description:
      - What filter P(npu.affinity.desired_state#filter) returns. The other options add to it.
      - What an earlier run did for a feature that is absent is unbound first, as module P(npu.affinity.unbind#module) does it, with its files,
        its units and what it set on the running host. Where that or a later step fails, the feature is in force as before.
    type: dict
  features:
    description: The features of O(state) that are applied. The others are left as they are. Empty means all.
    type: list
    elements: str
    choices: [device_share, irq, kubelet, metrics, slices, threads, tuning, vnpu]
    default: []
  files:
    description: The files that the host should have.
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
  plan:
    description:
      - The plan in force (the fact C(npu_affinity_plan)), which belongs to the files as C(/etc/npu-affinity/plan.json).
      - The next gathering of facts and the boot units read it there.
    type: dict
  interrupts:
    description:
      - A plan whose interrupts, workqueues and kernel threads are bound when the files are there, as P(npu.affinity.irq_affinity#module)
        does it.
      - One module call then serves the units that bind them at boot, and what they would do now. Where some cannot be bound, the files stay,
        so that the units try again, and the task fails with each of them, unless O(irq_failure=warn).
    type: dict
  irq_failure:
    description:
      - What to do when not all of O(interrupts) can be bound, for instance because the driver is not loaded or the kernel shows no
        interrupts of the functions.
      - V(fail) fails the task. V(warn) warns with each of them.
    type: str
    choices: [fail, warn]
    default: fail
  tuning:
    description:
      - Settings of the whole host, set at once and kept in C(/etc/npu-affinity/tuning.json), from where the host code sets them at boot.
      - Only those that are given are touched. One that was given before and is not any more goes back to what it was before the first
        change, which C(/etc/npu-affinity/previous.json) holds. Without this option nothing is looked at.
      - A setting that the host does not support is a warning. A value that it refuses is a failure, and nothing is changed.
    type: dict
    suboptions:
      governor:
        description: The CPU frequency governor of every policy, such as V(performance).
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
  owned:
    description:
      - Shell patterns of absolute paths. A file that matches, is marked as the collection's own and is not in O(files) is removed.
    type: list
    elements: str
    default: []
  runtime:
    description:
      - Whether the collection's host code belongs to the files, as the archive
        C(/usr/local/lib/npu-affinity/npu_affinity.zip). The boot units run it, and so does the command C(npu-affinity), which comes with it.
    type: bool
    default: false
  python:
    description: The Python of the host, 3.7 or newer, that runs the command. O(state) names its own.
    type: str
    default: /usr/bin/python3
  enabled:
    description: Units that must start at boot, as their C(WantedBy=) says.
    type: list
    elements: str
    default: []
  started:
    description: Units that must be active. Ignored below another O(root).
    type: list
    elements: str
    default: []
  stopped:
    description: Units that must be neither active nor enabled. What they were, and the links that enabled them, is recorded once.
    type: list
    elements: str
    default: []
  released:
    description: Units that go back to what they were when an earlier run stopped them by O(stopped). Without a record of that nothing is done.
    type: list
    elements: str
    default: []
  restarted:
    description: Units to restart when one of the named files changed and the unit is active.
    type: list
    elements: dict
    default: []
    suboptions:
      unit:
        description: The unit's name.
        type: str
        required: true
      files:
        description: Paths of the files that it reads at start.
        type: list
        elements: path
        required: true
  expected:
    description: What the kernel must grant afterwards. Ignored below another O(root).
    type: list
    elements: dict
    default: []
    suboptions:
      unit:
        description: The unit's name.
        type: str
        required: true
      cpus:
        description: CPUs as a cpulist; empty means that they are not checked.
        type: str
        default: ''
      mems:
        description: Memory nodes as a list in the same notation; empty means that they are not checked.
        type: str
        default: ''
  programs:
    description: Paths of programs that the units start. Where one is not on the host, nothing is written.
    type: list
    elements: str
    default: []
  soft_split:
    description:
      - The directory of hami-vnpu-core, where containers of the host share NPUs. Where its library or its preload file is not there, nothing
        is written.
    type: path
  textfile:
    description:
      - The file that units write for Prometheus' node exporter. An empty text means the folder that the node exporter of the host reads.
      - Where there is no such folder, RV(untried) says so, and the units write no metrics.
    type: path
  move_memory:
    description:
      - Whether the memory nodes of a unit with running processes may be changed. The kernel then moves their pages, at hundreds of
        MB/s, and the processes stall.
    type: bool
    default: false
  action:
    description: What this is called in the history and in the journal.
    type: str
    choices: [bind, rollback]
    default: bind
  author:
    description: Who applies O(state), for the history and the journal.
    type: str
    default: ''
  reason:
    description: Why O(state) is applied, for the history and the journal.
    type: str
    default: ''
  npu_smi:
    description: The C(npu-smi) command, for device share. By default it is searched where Ascend drivers install it.
    type: str
  timeout:
    description: Seconds that each C(systemctl) call may take.
    type: int
    default: 90
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: One slice with the CPUs and the memory of NPU 0, read back from the kernel
  npu.affinity.host_files:
    plan: "{{ npu_affinity_plan }}"
    files:
      - path: /etc/systemd/system/npu-0.slice
        mode: '0644'
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Slice]
          AllowedCPUs=144-167
          AllowedMemoryNodes=6
    owned:
      - /etc/systemd/system/npu-*.slice
    started:
      - npu-0.slice
    expected:
      - unit: npu-0.slice
        cpus: 144-167
        mems: '6'
    programs: [/usr/local/hami-vnpu-core/limiter]
    soft_split: /usr/local/hami-vnpu-core
    textfile: /var/lib/prometheus/node-exporter/npu_affinity.prom
    move_memory: false
    timeout: 90

- name: The host code and a unit that runs it at boot, in the tree of an image
  npu.affinity.host_files:
    root: /srv/images/node
    runtime: true
    files:
      - path: /etc/systemd/system/npu-affinity-irq.service
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Service]
          Type=oneshot
          Environment=PYTHONPATH=/usr/local/lib/npu-affinity/npu_affinity.zip
          ExecStart=/usr/bin/python3 -m npu_affinity irq
          [Install]
          WantedBy=multi-user.target
    enabled:
      - npu-affinity-irq.service

- name: An irqbalance that reads its policy again when it changed
  npu.affinity.host_files:
    files:
      - path: /etc/systemd/system/irqbalance.service.d/50-npu-affinity.conf
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Service]
          EnvironmentFile=/etc/npu-affinity/irqbalance.env
    restarted:
      - unit: irqbalance.service
        files:
          - /etc/systemd/system/irqbalance.service.d/50-npu-affinity.conf

- name: The interrupts of all NPUs now, and at every boot
  npu.affinity.host_files:
    interrupts: "{{ npu_affinity_plan }}"
    irq_failure: warn
    runtime: true
    files:
      - path: /etc/systemd/system/npu-affinity-irq.service
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Service]
          Type=oneshot
          Environment=PYTHONPATH=/usr/local/lib/npu-affinity/npu_affinity.zip
          ExecStart=/usr/bin/python3 -m npu_affinity irq --plan /etc/npu-affinity/plan.json

- name: All CPUs at their full frequency, and no pages moved behind the back of their processes
  npu.affinity.host_files:
    runtime: true
    tuning:
      governor: performance
      numa_balancing: 0
    files:
      - path: /etc/systemd/system/npu-affinity-tuning.service
        content: |
          # Managed by npu.affinity: changes are overwritten.
          [Service]
          Type=oneshot
          Environment=PYTHONPATH=/usr/local/lib/npu-affinity/npu_affinity.zip
          ExecStart=/usr/bin/python3 -m npu_affinity tuning
          [Install]
          WantedBy=multi-user.target
    enabled:
      - npu-affinity-tuning.service

- name: What the settings want of host settings and interrupts, in one transaction
  npu.affinity.host_files:
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"
    features: [irq, tuning]
    action: bind
    author: "{{ lookup('ansible.builtin.env', 'USER') }}"
    reason: More memory bandwidth for the second service

- name: No irqbalance at all
  npu.affinity.host_files:
    stopped:
      - irqbalance.service

- name: An irqbalance again, where the task above stopped one
  npu.affinity.host_files:
    released:
      - irqbalance.service
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
  returned: success, and when they could not be bound; none without O(interrupts)
  type: dict
  sample: {npus: [], unchangeable: [], failures: []}
vnpu:
  description: What of the soft split of O(state) was made, as RV(npu.affinity.vnpu_layout#module:folders) and the like. Null without the feature.
  returned: success
  type: dict
  sample: {folders: [/usr/local/hami-shared-region], files: [], removed: []}
device_share:
  description:
    - The state of the chips as RV(npu.affinity.device_share#module:chips), RV(npu.affinity.device_share#module:recover),
      RV(npu.affinity.device_share#module:busy) and RV(npu.affinity.device_share#module:failures). Null if O(state) does not have the feature.
  returned: success
  type: dict
  sample: {chips: [{card: 0, chip: 0, before: false, after: true, enabled: true}], recover: null, busy: [], failures: []}
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
      RV(npu.affinity.kubelet_config#module:removed). Nothing is written, because the kubelet has to restart on a drained node, which module
      M(npu.affinity.kubelet_config) does. Null if O(state) does not have the feature and no drop-in is to be removed.
  returned: success
  type: dict
  sample: {path: /etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf, pending: ['cpuManagerPolicy: none -> static'], removed: []}
disruptive:
  description: Whether anything but threads of running processes changed. If so, a play takes the host out of service first.
  returned: always
  type: bool
  sample: true
settings:
  description: The settings that O(tuning) changed.
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
untried:
  description: Below another O(root), a sentence for each interpreter of the collection's units, which only that machine itself can try.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import TYPE_CHECKING, Any, Mapping

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._features import register
from ansible_collections.npu.affinity.plugins.module_utils import _installed, _runtime
from ansible_collections.npu.affinity.plugins.module_utils._features.metrics import textfile
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning import host_settings
from ansible_collections.npu.affinity.plugins.module_utils._drift import soft_split
from ansible_collections.npu.affinity.plugins.module_utils._history.entries import Applied, differ, newest
from ansible_collections.npu.affinity.plugins.module_utils._host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._module import interrupts
from ansible_collections.npu.affinity.plugins.module_utils._module.arguments import FILES, STRINGS, TUNING
from ansible_collections.npu.affinity.plugins.module_utils._plan_file import PATH as PLAN
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._state.log import log_change
from ansible_collections.npu.affinity.plugins.module_utils._table import count
from ansible_collections.npu.affinity.plugins.module_utils._transaction import programs
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Report as Files
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import (
    INTERRUPTED,
    Request,
    TakenBack,
    apply,
    compare,
    require_programs,
)

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._state.step import LiveStep
    from ansible_collections.npu.affinity.plugins.module_utils._unbind import Report as Unbound
    from ansible_collections.npu.affinity.plugins.module_utils._unbind import SwitchedOff

LISTS = ("files", "owned", "enabled", "started", "stopped", "released", "restarted", "expected", "programs")
NEED_RUNTIME = {"slices", "irq", "threads", "tuning", "metrics", "device_share"}
"""The features with which a host gets the host code: that of their units, or the command alone."""
BEFORE = {"vnpu"}
"""The features whose step comes before the files, because units need what it makes."""
PLAN_ABOUT = MARKER + ": the plan in force. Changes are overwritten."


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "state": {"type": "dict"},
        "features": dict(STRINGS, choices=sorted(register.FEATURES)),
        "files": FILES,
        "plan": {"type": "dict"},
        "interrupts": {"type": "dict"},
        "irq_failure": {"type": "str", "choices": ["fail", "warn"], "default": "fail"},
        "tuning": TUNING,
        "owned": STRINGS,
        "runtime": {"type": "bool", "default": False},
        "python": {"type": "str", "default": _runtime.PYTHON},
        "enabled": STRINGS,
        "started": STRINGS,
        "stopped": STRINGS,
        "released": STRINGS,
        "restarted": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "unit": {"type": "str", "required": True},
                "files": {"type": "list", "elements": "path", "required": True},
            },
        },
        "expected": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "unit": {"type": "str", "required": True},
                "cpus": {"type": "str", "default": ""},
                "mems": {"type": "str", "default": ""},
            },
        },
        "programs": STRINGS,
        "soft_split": {"type": "path"},
        "textfile": {"type": "path"},
        "move_memory": {"type": "bool", "default": False},
        "action": {"type": "str", "choices": ["bind", "rollback"], "default": "bind"},
        "author": {"type": "str", "default": ""},
        "reason": {"type": "str", "default": ""},
        "npu_smi": {"type": "str"},
        "timeout": {"type": "int", "default": 90},
    }


def with_state(params: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what the desired state adds to them. Raises ``ValueError`` for one that must not be applied."""
    if not params["state"]:
        return params
    state = register.applied(params["state"], params["features"])
    undone = {pattern for traces in state["absent"].values() for pattern in traces["owned"]}
    added = {key: params[key] + state[key] for key in LISTS}
    added["owned"] = [pattern for pattern in added["owned"] if pattern not in undone]
    live = state["live"]
    return dict(
        params,
        state=state,
        plan=params["plan"] or state["plan"],
        interrupts=params["interrupts"] or (state["plan"] if live.get("irq") else None),
        tuning=live.get("tuning") if params["tuning"] is None else params["tuning"],
        runtime=params["runtime"] or state["runtime"],
        python=state.get("python") or params["python"],
        soft_split=params["soft_split"] or (state["soft_split"] if (live.get("slices") or {}).get("vnpus") else ""),
        textfile=live.get("metrics") if params["textfile"] is None else params["textfile"],
        **added,
    )


def placed_before(params: Mapping[str, Any]) -> set[str]:
    """Return the files of soft split, which role vnpu places before this module runs, except in check mode."""
    layout = params["state"]["live"].get("vnpu") if params["state"] else None
    return {"%s/%s" % (layout["folder"], file["name"]) for file in layout["files"]} if layout else set()


def absent_features(host: Host, state: Mapping[str, Any]) -> list[str]:
    """Return the features that are absent and have left something on the host, or that a killed run has begun to undo.

    The drop-in of the kubelet is not among them, because it is removed from a drained node only.
    """
    recorded = previous.recorded(host)
    begun = recorded.get(INTERRUPTED, [])
    absent = {name: traces for name, traces in sorted(state["absent"].items()) if name != "kubelet"}
    looked = {name: (traces["sections"], Request(owned=traces["owned"])) for name, traces in absent.items()}
    return [
        name
        for name, (sections, request) in looked.items()
        if any(section in recorded for section in sections) or any(map(request.concerns, begun)) or compare(host, request)
    ]


def switched_off(host: Host, params: Mapping[str, Any]) -> SwitchedOff | None:
    """Return what undoes the features that the desired state no longer has; None where nothing of them is left."""
    features = absent_features(host, params["state"]) if params["state"] else []
    if not features:
        return None
    from ansible_collections.npu.affinity.plugins.module_utils._unbind import SwitchedOff  # its imports cost a host more than the rest

    return SwitchedOff(host, params["npu_smi"], params["move_memory"], features)


def kubelet_concerned(host: Host, state: Mapping[str, Any] | None) -> bool:
    """Return whether the kubelet gets a drop-in, or an earlier one is to be removed."""
    features = state["features"] if state else {}
    return features.get("kubelet") == "present" or (features.get("kubelet") == "absent" and "kubelet" in previous.recorded(host))


def live_steps(host: Host, params: Mapping[str, Any]) -> dict[str, LiveStep]:
    """Return the steps that set what the desired state wants of the running host, by feature, in their order."""
    live = params["state"]["live"] if params["state"] else {}
    steps: dict[str, LiveStep] = {}
    if live.get("vnpu"):
        from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.layout import SoftSplit  # only where it is wanted

        steps["vnpu"] = SoftSplit(host, live["vnpu"])
    if live.get("device_share"):
        from ansible_collections.npu.affinity.plugins.module_utils._features.device_share.step import DeviceShare

        steps["device_share"] = DeviceShare(host, live["device_share"], params["npu_smi"])
    if live.get("threads"):
        from ansible_collections.npu.affinity.plugins.module_utils._features.threads.step import Threads

        steps["threads"] = Threads(host, params["plan"], live["threads"])
    if kubelet_concerned(host, params["state"]):
        from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.step import Kubelet

        steps["kubelet"] = Kubelet(host, live.get("kubelet"), "kubelet" not in params["state"]["absent"])
    return steps


def with_our_own(params: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str], dict[str, Any] | None]:
    """Return the files and patterns that are asked for with those that the collection adds, and the settings of the host or None.

    What units read and run comes before them: where power fails in between, the boot meets no unit that cannot run.
    """
    files, owned, tuning = [], list(params["owned"]), params["tuning"]
    if params["plan"]:
        files.append({"path": PLAN, "content": previous.dump(PLAN_ABOUT, params["plan"])})
    if params["runtime"]:
        files += _runtime.files(params["python"])
    if params["runtime"] or (params["state"] and set(params["state"]["features"]) >= NEED_RUNTIME):
        owned += _installed.OWNED + (_installed.COMMAND, _installed.COMPLETION)
    if tuning is not None:
        owned.append(host_settings.FILE)
        tuning = {name: value for name, value in tuning.items() if value is not None}
    if tuning:
        files.append({"path": host_settings.FILE, "content": host_settings.text(tuning)})
    return files + params["files"], owned, tuning


def applied_state(host: Host, params: Mapping[str, Any]) -> Applied | None:
    """Return what the history is given of this run, or None without a state: the whole state that is in force afterwards."""
    if not params["state"]:
        return None
    state, last = dict(params["state"], plan=params["plan"]), newest(host)
    new = False
    if last:
        state = register.beside(state, last.state)
        new = differ(last.state, state)
    return Applied(params["action"], state, params["author"], params["reason"], new)


def add_live(done: dict[str, Any], diff: diffs.Diff, live: Mapping[str, LiveStep]) -> list[str]:
    """Add what the steps did to the running host, and return their lines for the journal."""
    for feature, step in live.items():
        done[feature] = step.result()
        for title, lines in step.lines().items():
            diff.add(title, lines)
    done["disruptive"] = done["changed"] or any(step.changed for feature, step in live.items() if feature != "threads")
    done["changed"] = done["disruptive"] or bool(done["threads"] and done["threads"]["changed"])
    return [line for step in live.values() for lines in step.lines().values() for line in lines]


def log(host: Host, params: Mapping[str, Any], done: Mapping[str, Any], live: list[str]) -> None:
    """Report in the journal of the host what was changed; ``live`` has what was set on the running host."""
    moved = (done["interrupts"] or {}).get("npus", [])
    changes = ["write " + path for path in done["files"]] + ["remove " + path for path in done["removed"]] + done["actions"]
    changes += ["%(path)s: %(before)s -> %(after)s" % step for step in done["settings"]]
    changes += binding.moves(moved)
    changes += live
    log_change(host, params["action"], params["author"], count(len(changes), "change"), changes, params["reason"], done["history"])


def done_to_files(report: Files | Unbound) -> dict[str, Any]:
    return {
        "files": [path for path, (before, after) in report.changes.items() if after.text is not None],
        "removed": [path for path, (before, after) in report.changes.items() if after.text is None],
        "actions": report.actions,
        "restart_needed": report.restart_needed,
        "settings": report.settings,
    }


def joined(done: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lists of what was done, one after the other."""
    return {key: done.get(key, []) + value for key, value in more.items()}


def log_failure(host: Host, params: Mapping[str, Any], error: TakenBack) -> None:
    """Say in the journal of the host that a change was taken back."""
    log_change(host, params["action"], params["author"], "failed, %s" % error, reason=params["reason"])


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        params = with_state(module.params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    check, plan = module.check_mode, params["interrupts"]
    wanted = {key: params[key] for key in ("enabled", "started", "stopped", "released", "restarted", "expected", "move_memory")}
    files, owned, tuning = with_our_own(params)
    done: dict[str, Any] = dict(
        {"changed": False, "settings": []}, **dict.fromkeys(("interrupts", "vnpu", "device_share", "threads", "kubelet", "history"))
    )
    diff = diffs.Diff()
    warnings: list[str] = []
    failure = ""
    finished: dict[str, LiveStep] = {}
    new_state = False
    try:
        host = Host(params["root"], params["timeout"])
        later = placed_before(params) if check else set()
        require_programs(host, [path for path in params["programs"] if path not in later])
        if params["soft_split"] and not later:
            soft_split.require(host, params["soft_split"])
        unread = textfile.place(host, params["textfile"])[1] if params["textfile"] is not None else ""
        with changing(host, "module host_files", check):
            off, live = switched_off(host, params), live_steps(host, params)
            looked = interrupts.look(host, plan, check=check) if plan else None
            applied = applied_state(host, params)
            request = Request(files=files, owned=owned, previous=looked[1] if looked else {}, tuning=tuning, applied=applied, **wanted)
            first = [step for feature, step in live.items() if feature in BEFORE]
            after = [step for feature, step in live.items() if feature not in BEFORE]
            report = apply(host, request, check, [*([off] if off else []), *first], after)
            finished, new_state = live, applied is not None and applied.new
            if off:
                done.update(done_to_files(off.report), changed=off.changed)
                warnings += off.report.warnings + (off.report.share.warnings if off.report.share else [])
                diffs.add_unbind(diff, off.report)
            untried = report.untried + [unread][: bool(unread)]
            done = {**done, **joined(done, done_to_files(report)), "untried": untried, "history": report.history}
            done["changed"] = done["changed"] or report.changed
            diff.add(diffs.SETTINGS, diffs.settings(report.settings))
            diff.add_files(report.changes, report.actions, report.restart_needed)
            warnings += report.warnings + report.not_started + report.unfinished + (host_settings.missing(host, tuning) if tuning else [])
            if looked:
                bound, done["interrupts"], remarks, lines = interrupts.bind(
                    host, plan, looked, check, tolerant=params["irq_failure"] == "warn"
                )
                done["changed"] = done["changed"] or bound
                diff.add(diffs.INTERRUPTS, lines)
                warnings += remarks
        if not check:
            warnings += programs.run_again(host, report.failed_units)
            for step in live.values():
                step.complete()
    except interrupts.Unbound as error:
        done.update(interrupts=error.result, changed=done["changed"] or error.result["changed"])
        failure = str(error)
    except (OSError, ValueError, CommandError) as error:
        failure = str(error)
        if isinstance(error, TakenBack):
            log_failure(host, params, error)
    moved = add_live(done, diff, finished)
    done["changed"] = done["changed"] or new_state
    if done["changed"] and not check:
        log(host, params, done, moved)
    for sentence in dict.fromkeys(warnings + [sentence for step in finished.values() for sentence in step.warnings]):
        module.warn(sentence)
    if failure:
        module.fail_json(msg=failure, **done)
    module.exit_json(diff=diff.document(), **done)


if __name__ == "__main__":
    main()
