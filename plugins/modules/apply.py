#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Apply the desired state of a host with its settings
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.host_files) with the settings of the host and the desired state from role P(npu.affinity.plan#role). Roles and
    playbooks use it to change hosts.
  - Copies missing files of the soft split to the host. Changes nothing if the node has to be drained first (RV(drain)).
  - With O(feature), prints the changes and what needs attention. Playbooks show this in their summary instead.
  - A task with O(feature) is skipped if the plan has no NPU.
options:
  feature:
    description: The feature to apply, by the name of its role. The others do not change. By default, all are applied.
    type: str
  state:
    description: The state to apply. The default is the fact C(npu_affinity_state).
    type: dict
  entry:
    description: An entry of the history to roll back to, as RV(npu.affinity.history_info#module:entry). It takes precedence over O(state).
    type: dict
  drained:
    description: Whether the node is drained, which allows the kubelet to restart.
    type: bool
    default: false
seealso:
  - module: npu.affinity.host_files
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Bind the interrupts
  npu.affinity.apply:
    feature: irq
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(lookup('npu.affinity.settings', features=true)) }}"
"""

RETURN = r"""
lines:
  description: What was printed, except before C(npu_affinity_before_host).
  returned: success
  type: list
  elements: str
  sample: ['a2-01: role irq changed nothing, the host matches its plan']
drain:
  description: Whether the node has to be drained, and the state then applied with O(drained). C(npu_affinity_kubelet_restart) allows it.
  returned: success
  type: bool
  sample: false
restart_needed:
  description: As RV(npu.affinity.host_files#module:restart_needed). The other values that M(npu.affinity.host_files) returns are there, too.
  returned: success
  type: list
  elements: str
  sample: [vllm@0.service]
"""
