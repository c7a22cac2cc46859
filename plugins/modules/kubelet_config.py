#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_config
short_description: Configure the kubelet's CPU settings through a drop-in
version_added: 1.0.0
description:
  - Compares a drop-in of the kubelet's configuration with the host, and reports what would change for the kubelet, considering all files and
    flags.
  - Changes the host only with O(apply=true). It stops the kubelet, removes C(cpu_manager_state) and C(memory_manager_state) if they do not fit
    the change, writes the drop-in, starts the kubelet, and waits until it runs with the policy. If it does not, the module restores the
    previous drop-in and starts the kubelet with it.
  - The node must be drained first. The module does not contact Kubernetes.
  - With an O(root) other than V(/), the module changes files only.
  - Removes a drop-in that npu.affinity wrote to an earlier O(path) in the same steps.
  - If a run is killed before it starts the kubelet, the next run of this module with O(apply=true), of M(npu.affinity.host_files) or of
    M(npu.affinity.unbind) starts it. C(/etc/npu-affinity/previous.json) records which service was stopped.
  - Never writes the state files.
options:
  root:
    description: Root directory of the host's file tree.
    type: path
    default: /
  state:
    description: Whether the drop-in should exist. V(absent) removes the one that was written before, at any path.
    type: str
    choices: [present, absent]
    default: present
  path:
    description: The drop-in, in the folder that the kubelet reads (C(--config-dir)). Its name ends in C(.conf).
    type: path
  content:
    description: The whole text. Its first line marks the file as managed.
    type: str
  apply:
    description: Make the change. Otherwise, RV(pending) lists it.
    type: bool
    default: false
  wait:
    description: Seconds to wait for the kubelet to start.
    type: int
    default: 120
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 90
extends_documentation_fragment:
  - npu.affinity._attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: What would a static CPU manager change here?
  npu.affinity.kubelet_config:
    path: /etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf
    content: "{{ npu_affinity_plan | npu.affinity.kubelet_drop_in(ansible_facts['npu_affinity_topology']) }}"

- name: Take the drop-in away from a node that was drained
  npu.affinity.kubelet_config:
    state: absent
    apply: true
"""

RETURN = r"""
path:
  description: The drop-in. V(null) when there is none to remove.
  type: str
  returned: always
  sample: /etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf
pending:
  description: The settings that would change for the kubelet. Empty after the change.
  type: list
  elements: str
  returned: always
  sample: ["cpuManagerPolicy: none -> static", "reservedSystemCPUs: not set -> 0-3"]
removed:
  description: The state files that are removed along with the change.
  type: list
  elements: str
  returned: always
  sample: [/var/lib/kubelet/cpu_manager_state]
diff:
  description: The drop-in before and after.
  type: list
  elements: dict
  returned: always
  sample: []
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import drop_in
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "path": {"type": "path"},
        "content": {"type": "str"},
        "apply": {"type": "bool", "default": False},
        "wait": {"type": "int", "default": 120},
        "timeout": {"type": "int", "default": 90},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), required_if=[("state", "present", ["path", "content"])], supports_check_mode=True)
    params = module.params
    absent = params["state"] == "absent"
    try:
        host = Host(params["root"], params["timeout"])
        with changing(host, "module kubelet_config", module.check_mode or not params["apply"]):
            path = next(iter(drop_in.installed(host)), None) if absent else params["path"]
            if path is None:
                module.exit_json(changed=False, path=None, pending=[], removed=[], diff=[])
            change = drop_in.look(host, path, None if absent else params["content"])
            wanted = params["apply"] and change.needed
            if wanted and not module.check_mode:
                drop_in.apply(host, change, params["wait"])
    except (OSError, ValueError, CommandError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=wanted,
        path=path,
        pending=[] if wanted and not module.check_mode else change.differences,
        removed=change.removed,
        diff=[diffs.of_text(path, *states) for path, states in change.files.items() if wanted and states[0] != states[1]],
    )


if __name__ == "__main__":
    main()
