#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
DOCUMENTATION = r"""
module: step
short_description: Run one step of a playbook of this collection
version_added: 1.0.0
description:
  - Internal to the playbooks and roles of this collection. Its steps and their options can change in any release. Run the playbooks, or the
    roles in a playbook of your own, instead.
  - Runs a function of the collection in the process of the task on the controller. The steps that need the host run one module there, with
    options taken from the settings of the host.
options:
  name:
    description: The step.
    type: str
    required: true
    choices:
      - apply
      - check_all_settings
      - check_health
      - check_request
      - check_settings
      - choose_entry
      - collect
      - compare
      - end
      - fail
      - gather
      - measure
      - open_archives
      - place
      - plan
      - plan_to_bind
      - plan_to_compare
      - plan_to_show
      - reach
      - read_history
      - resolve_run
      - say
      - show_history
      - show_measures
      - show_plans
      - show_progress
      - summarize
      - unbind
      - verify
      - verify_after_bind
      - write_report
  feature:
    description: The feature that C(apply) applies. By default, all.
    type: str
  entry:
    description: The entry of the history that C(apply) goes back to, as RV(npu.affinity.history_info#module:entry).
    type: dict
  drained:
    description: Whether the node is drained, which allows the kubelet to restart.
    type: bool
  msg:
    description: A text or a list of lines, for C(say) and C(fail).
    type: raw
  playbook:
    description: The playbook that runs, for C(show_progress) and C(summarize).
    type: str
  request:
    description: The job, for C(check_request) and C(place).
    type: raw
  state:
    description: The state of the host in the summary, for C(end).
    type: str
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Print the strategy of the plan
  npu.affinity.step:
    name: say
    msg: "{{ inventory_hostname }}: {{ npu_affinity_plan.strategy }}"
"""

RETURN = r"""
step: {description: The name of the step. The other values are those of the step., returned: always, type: str, sample: say}
"""
