# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: desired_state
short_description: Make the desired state of a host from its topology and settings
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Makes one document from a host's topology and the settings of the roles. It always contains all features.
  - The document has the plan, the files with their content and mode, the units, the CPU sets that the kernel must grant, the live values of
    every feature, and refusals, warnings and remarks.
  - Module P(npu.affinity.host_files#module) applies it. Role P(npu.affinity.plan#role) sets it as the fact C(npu_affinity_state).
positional: settings, plan, shown, in_force
options:
  _input:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  settings:
    description:
      - The settings of role C(plan) and of each feature, named as the variables of its role without their prefix, C(remarks) on them and
        the C(profile) that they are from.
        P(npu.affinity.settings#lookup) returns them with O(npu.affinity.settings#lookup:features=true).
      - A feature whose C(enabled) is false is absent, and its files are to be removed.
    type: dict
    required: true
  plan:
    description:
      - The plan to use, instead of a new one. With an empty plan, all features are absent.
      - It is never refused. The filter fails if the plan does not fit a feature.
    type: dict
  shown:
    description: Make the document for display only. CPUs of the plan that pods have are then no reason to refuse the host, and C(remarks)
      include interrupts of network and storage devices on pool CPUs.
    type: bool
    default: false
  in_force:
    description: RV(npu.affinity.topology_facts#module:in_force), if the host was compared when it was gathered.
    type: dict
"""

EXAMPLES = r"""
---
- name: Gather the topology, and what is in force
  npu.affinity.topology_facts:
    compare: true
  register: gathered

- name: Say whether a bind has anything to do
  vars:
    settings: "{{ lookup('npu.affinity.settings', features=true) }}"
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(settings, in_force=gathered.in_force) }}"
  ansible.builtin.debug:
    msg: "{{ 'as wanted' if state.converged else 'something differs' }}"

- name: Show why this host cannot be bound, or what a bind would move
  vars:
    settings: "{{ lookup('npu.affinity.settings', features=true) }}"
    state: "{{ ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(settings, shown=true) }}"
  ansible.builtin.debug:
    msg: "{{ state.refusals or state.remarks }}"

- name: Show the files of a plan that another program made
  vars:
    settings: "{{ lookup('npu.affinity.settings', features=true) }}"
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.desired_state(settings, plan=npu_affinity_plan)).files }}"
"""

RETURN = r"""
_value:
  description:
    - C(features) says whether each feature is V(present) or V(absent). The document of a refused host has none, and changes nothing.
    - C(plan) is what P(npu.affinity.plan#filter) returns, or null where no plan is possible.
    - C(hardware) says which machine it is for, by NPUs, CPUs and NUMA nodes.
    - C(files), C(owned), C(enabled), C(started), C(stopped), C(released), C(restarted), C(expected), C(programs) and C(runtime) are the
      files and units of all features together.
    - C(live) is what each feature wants of the running host, and C(notes) are sentences for the user, by feature.
    - C(refusals) has a sentence for every reason not to bind the host, and C(remarks) one for everything that a bind would move or that
      needs a look. C(codes) has the refusals by their code. A remark ends with its code. C(muted) says until when and why codes
      are muted. C(summary) says how workloads are bound.
    - C(difference) is the plan next to the plan in force. C(in_force) is whether there is one, C(slices) whether a bind writes slices.
      C(npus) has C(npu), C(pci), C(slice) and the pools C(now) and C(then) of every NPU of both plans, and the C(sentence) that says
      what moves. C(users) has C(user), C(npus), C(cpus), C(mems), C(slice) and C(now) of services, workloads and vNPUs. C(restart) are
      the services whose drop-in a bind writes or removes.
    - C(digest) is that of the state which module P(npu.affinity.host_files#module) would apply. C(converged) is whether O(in_force) says
      that the host is in that state already.
    - C(outside) has a line for everything that uses NPUs and runs on other CPUs than the plan gives these NPUs.
    - C(profile) is a sentence with the profile of the settings, and with those that replace settings of it. Empty without a profile.
    - C(processes) are those of each NPU, as O(npu.affinity.measure_info#module:processes).
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
