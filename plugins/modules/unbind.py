#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: unbind
short_description: Restore the state of a host before the first bind
version_added: 1.0.0
description:
  - Restores the original state from C(/etc/npu-affinity/previous.json) in one module call. This includes affinities of interrupts, workqueues
    and kernel threads, host settings, overwritten files, a stopped irqbalance, and the device share of every chip.
  - Removes all files, units and folders of the collection. It widens live CPU sets first, because removing a setting does not reliably widen
    them.
  - Never stops or restarts a workload. Slices in use lose their limits immediately, and exist until their processes are restarted. The module
    returns these units.
  - Does nothing on a host that was never bound.
  - If a step fails, such as starting a unit that is now masked, the module continues with the others. It fails at the end with a sentence for
    each failed step, and keeps their record (RV(kept)).
  - With some O(features), it adds an entry to the history (module P(npu.affinity.history_info#module)). With all, it removes the history.
  - Removes the record last. If a run is killed or a step fails, the next run completes it.
options:
  root:
    description:
      - Root directory of the host's file tree. With any value other than V(/), the module changes only files of that tree.
    type: path
    default: /
  features:
    description:
      - The features to unbind, by the names of their roles. The default is all. With some features, the module removes only their files, units
        and settings, and keeps the plan, the host code and the record of the others.
      - The next bind applies the features again, unless their roles are disabled.
    type: list
    elements: str
  device_share:
    description:
      - Restore device share as well. With V(false), device share and its record stay for a later run.
    type: bool
    default: true
  ignore_busy:
    description: Report cards that a container has open and leave them for a later run, instead of failing the task.
    type: bool
    default: false
  move_memory:
    description:
      - Allow changes of the memory nodes of a unit with running processes, which move their pages. This matters only if an overwritten unit
        file sets memory nodes.
    type: bool
    default: false
  npu_smi:
    description: The C(npu-smi) command. By default, the module searches where Ascend drivers install it.
    type: str
  kubelet_wait:
    description:
      - Seconds to wait for the kubelet of a drained node to start. Without it, the kubelet does not change, and RV(pending) has the change.
      - With V(0), the module changes nothing while the kubelet has to restart. The node can then be drained first.
    type: int
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 90
extends_documentation_fragment:
  - npu.affinity._attributes
  - npu.affinity._attributes.author
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Everything as it was before the first bind
  npu.affinity.unbind:

- name: The same, and leave device share of cards in use for a later run
  npu.affinity.unbind:
    ignore_busy: true
    timeout: 90

- name: Restore interrupts only
  npu.affinity.unbind:
    features: [irq]
    author: "{{ lookup('ansible.builtin.env', 'USER') }}"
    reason: The vendor's tool moves interrupts on these hosts

- name: Everything but device share
  npu.affinity.unbind:
    device_share: false

- name: Write a slice of others back whose processes then get other memory nodes
  npu.affinity.unbind:
    move_memory: true

- name: The tree of a simulated host
  npu.affinity.unbind:
    root: /srv/simulated/node1
    npu_smi: /srv/simulated/node1/usr/local/Ascend/driver/tools/npu-smi
"""

RETURN = r"""
bound: {description: Whether there was anything to unbind., returned: success, type: bool, sample: true}
partly:
  description: Whether O(features) selected only some features. The host then stays bound.
  returned: success
  type: bool
  sample: false
message: {description: The result in one sentence., returned: success, type: str, sample: This host is as it was before the first bind.}
files:
  description: Paths of the overwritten files and links that were restored.
  returned: success
  type: list
  elements: str
  sample: [/etc/systemd/system/multi-user.target.wants/irqbalance.service]
removed:
  description: Paths of the files that were removed.
  returned: success
  type: list
  elements: str
  sample: [/etc/npu-affinity/plan.json, /etc/systemd/system/npu.slice, /etc/npu-affinity/previous.json]
actions:
  description: What systemd was asked to do besides reloading.
  returned: success
  type: list
  elements: str
  sample: [stop npu-affinity-irq.timer, widen npu-0.slice, stop npu-1.slice, restart irqbalance.service]
interrupts:
  description:
    - Interrupts, workqueues and kernel threads that were restored, as in RV(npu.affinity.host_files#module:interrupts), with C(npus) by PCI
      function.
  returned: with the feature
  type: dict
  sample:
    npus:
      - id: null
        pci: "0000:c1:00.0"
        device: null
        text: ""
        interrupts:
          - {name: sq_send_trigger_irq, irqs: '2753', before: '144', wanted: 144-167, after: 144-167, state: changed, text: ''}
        workqueues: []
        threads: []
    unchangeable: []
    failures: []
settings:
  description: Settings of the host that were restored.
  returned: success
  type: list
  elements: dict
  sample: [{path: /proc/sys/vm/swappiness, before: '0', after: '60'}]
device_share:
  description: The chips whose device share was recorded, as in RV(npu.affinity.host_files#module:device_share).
  returned: with the feature
  type: dict
  sample: {chips: [{card: 0, chip: 0, before: true, after: false, enabled: false}], busy: [], failures: []}
restart_needed:
  description: Running services and scopes that keep their limits until you restart them.
  returned: success
  type: list
  elements: str
  sample: [vllm@0.service]
slices_left:
  description:
    - Slices without a file and without limits that still contain processes.
    - They are empty after these are restarted. C(systemctl stop) or the next boot then removes them.
  returned: success
  type: list
  elements: str
  sample: [npu.slice, npu-0.slice]
kept:
  description: What is left for a later run, by sections of C(/etc/npu-affinity/previous.json).
  returned: success
  type: list
  elements: str
  sample: []
pending:
  description: Why the drop-in of the kubelet stays until the node is drained.
  returned: success
  type: list
  elements: str
  sample: []
failures: {description: Sentences about what could not be restored., returned: success, type: list, elements: str, sample: []}
"""

from typing import Any, Mapping, Sequence

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AUTHORED, AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import without
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES, require_known
from ansible_collections.npu.affinity.plugins.module_utils._state.history import Applied, keep, newest
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._state import diffs
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._state.log import log_change
from ansible_collections.npu.affinity.plugins.module_utils._state.step import Options
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import Report, unbind

ARGUMENTS = {
    "root": {"type": "path", "default": "/"},
    "features": {"type": "list", "elements": "str"},
    "device_share": {"type": "bool", "default": True},
    "ignore_busy": {"type": "bool", "default": False},
    "move_memory": {"type": "bool", "default": False},
    **AUTHORED,
    "npu_smi": {"type": "str"},
    "kubelet_wait": {"type": "int"},
    "timeout": {"type": "int", "default": 90},
}


def message_of(report: Report, features: Sequence[str], check: bool) -> str:
    """Return the result for the host, in one sentence; ``features`` are those that were selected, unless it was all."""
    if not report.bound:
        return "This host is not bound: there is nothing to unbind."
    if report.kept:
        return "What is left is in /etc/npu-affinity/previous.json (%s), for a later run." % ", ".join(sorted(report.kept))
    if features and report.changed:
        return "Only these features %s removed from this host: %s." % ("would be" if check else "were", ", ".join(features))
    if features:
        return "This host has nothing of these features to remove: %s." % ", ".join(features)
    if check and report.changed:
        return "This host would be restored to its state before the first bind."
    return "This host is as it was before the first bind."


def log(host: Host, params: Mapping[str, Any], report: Report) -> None:
    """Write what was unbound to the journal of the host. Add single features to its history, and remove it after all of them."""
    unbound, number = [name for name in params["features"] or FEATURES if name not in report.pending], None
    last = newest(host)
    if last:
        number = keep(host, Applied("unbind", without(last.state, unbound), params["author"], params["reason"], params["run"]))
    changes = ["restore or remove " + path for path in report.changes] + report.actions
    log_change(host, "unbind", params["author"], ", ".join(unbound), changes, params["reason"], number, params["run"])


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    options = Options(**{name: params[name] for name in Options._fields})
    features = params["features"] or tuple(FEATURES)
    partly = set(features) != set(FEATURES)
    try:
        require_known(features)
    except ValueError as error:
        module.fail_json(msg=str(error))
    try:
        host = Host(params["root"], params["timeout"])
        with changing(host, "module unbind", module.check_mode):
            report = Report({})
            if params["kubelet_wait"] == 0 and not module.check_mode:
                report = unbind(host, options, True, features)
            waits = bool(report.pending)
            if not waits:
                report = unbind(host, options, module.check_mode, features)
            if report.changed and not module.check_mode and not waits:
                log(host, params, report)
    except (OSError, ValueError, CommandError) as error:
        module.fail_json(msg="%s. Run it again when that is settled; it continues from here" % error)
    pending = list(report.pending.values())
    if waits:
        module.exit_json(changed=False, bound=True, message=pending[0], pending=pending)
    parts = report.restored.values()
    for sentence in [*report.warnings, *pending, *(sentence for part in parts for sentence in part.warnings)]:
        module.warn(sentence)
    result: dict[str, Any] = {
        "changed": report.changed,
        "bound": report.bound,
        "message": message_of(report, features if partly else (), module.check_mode),
        "partly": partly,
        "files": [path for path, (before, after) in report.changes.items() if after.text is not None],
        "removed": [path for path, (before, after) in report.changes.items() if after.text is None],
        "actions": report.actions,
        **{part.key: part.result() for part in parts if part.key},
        "settings": report.settings(),
        "restart_needed": report.restart_needed,
        "slices_left": report.slices_left,
        "kept": sorted(report.kept),
        "pending": pending,
        "failures": report.failed,
        "diff": diffs.Diff().add_unbind(report).document(),
    }
    if report.failed:
        module.fail_json(msg="not everything could be restored: " + "; ".join(report.failed), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
