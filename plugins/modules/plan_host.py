#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_host
short_description: Gather the topology of a host and make its desired state
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.topology_facts) with the settings of the host, and then filter P(npu.affinity.desired_state#filter).
    Role P(npu.affinity.plan#role) uses it, and keeps the results as facts.
  - Nothing is changed on the host.
options:
  purpose:
    description:
      - Purpose of the state.
      - V(bind) also compares the host with its state in force, and refuses changes that C(npu_affinity_reviewed) does not cover.
      - V(plan) also gathers facts that only the plan shows.
      - With V(compare), a host that cannot be gathered is refused, and the task does not fail.
      - V(place) gathers the topology and makes no state.
      - V(rollback) makes no state either. It reads the entry C(npu_affinity_to) of the history, and refuses a host with other hardware.
    type: str
    choices: [bind, compare, place, plan, role, rollback]
    default: role
seealso:
  - module: npu.affinity.topology_facts
  - plugin: npu.affinity.desired_state
    plugin_type: filter
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Gather and plan
  npu.affinity.plan_host:
    purpose: bind
  register: planned

- name: Show why this host cannot be bound, or what would be bound
  ansible.builtin.debug:
    msg: "{{ planned.refusals or planned.state.plan }}"
"""

RETURN = r"""
ansible_facts:
  description: As RV(npu.affinity.topology_facts#module:ansible_facts).
  returned: if the host has a topology
  type: dict
  sample: {npu_affinity_topology: {schema: 1, npus: []}}
state:
  description: As P(npu.affinity.desired_state#filter) returns it.
  returned: if a state could be made
  type: dict
  sample: {features: {irq: present}, converged: false}
entry:
  description: As RV(npu.affinity.history_info#module:entry).
  returned: with O(purpose=rollback)
  type: dict
  sample: {id: 1, time: '2026-11-22T13:30:00Z', state: {}}
refusals:
  description: A sentence for every reason not to bind the host, with its code at the end.
  returned: if the host has a topology
  type: list
  elements: str
  sample: []
codes:
  description: The sentences of the state, or why the host is refused, by their code.
  returned: if the host has a topology
  type: dict
  sample: {NPU_TOO_FEW_CPUS: [NPU 0 has 2 CPUs.]}
ready:
  description: Whether a bind or rollback has something to do on this host and may do it.
  returned: with O(purpose=bind) and O(purpose=rollback)
  type: bool
  sample: true
in_force:
  description: As RV(npu.affinity.topology_facts#module:in_force).
  returned: with O(purpose=bind)
  type: dict
  sample: {converged: true}
"""
