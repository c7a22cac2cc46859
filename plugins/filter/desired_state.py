# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: desired_state
short_description: What a host should be, by topology, plan and settings
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Makes one document of a host's topology, its plan and the settings of the roles.
  - It has the files with their content and mode, the units, the CPU sets that the kernel must grant, and what every feature wants of the
    running host.
  - Module P(npu.affinity.host_files#module) applies it, and module P(npu.affinity.binding_info#module) compares the host with it.
positional: plan, settings, only
options:
  _input:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  plan:
    description: The fact C(npu_affinity_plan). Without a plan nothing is wanted.
    type: dict
    required: true
  settings:
    description:
      - The settings of each feature, named as the variables of its role without their prefix. The features are C(vnpu), C(slices), C(irq),
        C(device_share), C(threads), C(tuning), C(metrics) and C(kubelet). P(npu.affinity.settings#lookup) returns them.
      - With C(enabled) false a feature is absent, which means that its files are owned and not wanted.
    type: dict
    required: true
  only:
    description: The features of the document. The others are left alone. By default all of O(settings).
    type: list
    elements: str
"""

EXAMPLES = r"""
---
- name: Show the files that keep the settings of a host at boot
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(npu_affinity_plan, settings)).files }}"
  vars:
    settings:
      tuning:
        enabled: true
        governor: performance
        numa_balancing: 0
        transparent_hugepages: ''
        swappiness: ''
        python: /usr/bin/python3

- name: What the settings of this host want of its interrupts
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts['npu_affinity_topology']
         | npu.affinity.desired_state(npu_affinity_plan, lookup('npu.affinity.settings', features=true), only=['irq']) }}
"""

RETURN = r"""
_value:
  description:
    - C(features) says whether each feature is V(present) or V(absent). C(plan) is the plan for C(/etc/npu-affinity/plan.json), or null.
    - C(hardware) says which machine it is for, by NPUs, CPUs and NUMA nodes; P(npu.affinity.hardware_changes#filter) reads it.
    - C(files), C(owned), C(enabled), C(started), C(stopped), C(released), C(restarted), C(expected), C(programs) and C(runtime) are the
      options of P(npu.affinity.host_files#module), those of all features together.
    - C(live) is what each feature wants of the running host. C(notes) are sentences for the user.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import state
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

desired_state = filter_errors(state.desired_state)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"desired_state": desired_state}
