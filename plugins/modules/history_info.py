#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_info
short_description: List the states that were applied to a host
version_added: 1.0.0
description:
  - Lists the states in C(/etc/npu-affinity/history/) that binds, rollbacks and unbinds of single features applied to a host, with author,
    time, reason, and the difference from the previous state.
  - Returns one of these states for M(npu.affinity.host_files) to apply again.
options:
  entry:
    description:
      - The id of the entry to return in full as RV(entry). V(-1) is the one before the newest, V(-2) the one before that.
      - The module fails if a bound host has no such entry.
    type: int
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: What was applied to this host
  npu.affinity.history_info:

- name: The state before the last change
  npu.affinity.history_info:
    entry: -1
  register: history

- name: Apply it again
  npu.affinity.host_files:
    state: "{{ history.entry.state }}"
    action: rollback
    reason: Rollback to {{ history.entry.id }}
"""

RETURN = r"""
bound: {description: Whether there is a plan in force., returned: success, type: bool, sample: true}
entries:
  description: The history, newest first.
  returned: success
  type: list
  elements: dict
  contains:
    id: {description: The number of the entry on this host., type: int}
    time: {description: "When it was applied, in UTC.", type: str}
    action: {description: "One of V(bind), V(rollback) and V(unbind).", type: str}
    author: {description: Who started it on the controller., type: str}
    reason: {description: "The reason, if one was given.", type: str}
    run: {description: "The run of a playbook that applied it, with C(id), C(time) (when it began, in UTC) and C(inventory).", type: dict}
    version: {description: The version of the collection., type: str}
    features: {description: Which features were V(present) and which V(absent)., type: dict}
    difference: {description: A line for everything in which it differs from the entry before., type: list, elements: str}
  sample:
    - id: 7
      time: '2026-11-22T13:30:00Z'
      action: bind
      author: alice
      reason: More memory bandwidth for the second service
      run: {id: 20261122T132955-7f3a, time: '2026-11-22T13:29:55Z', inventory: hosts.yml}
      version: 1.0.0
      features: {slices: present, irq: present}
      difference: ["NPU 0 (0000:c1:00.0): CPUs 144-167 -> 144-165, main 146-165 -> 146-163"]
entry:
  description: The entry that O(entry) names, with its C(state); null without O(entry), and on a host without history that is not bound.
  returned: success
  type: dict
  contains:
    id: {description: The number of the entry on this host., type: int}
    time: {description: "When it was applied, in UTC.", type: str}
    state: {description: "The state, as O(npu.affinity.host_files#module:state).", type: dict}
"""


from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._state import plan_file
from ansible_collections.npu.affinity.plugins.module_utils._state import difference
from ansible_collections.npu.affinity.plugins.module_utils._state.history import chosen, readable
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host

ARGUMENTS = {"root": {"type": "path", "default": "/"}, "entry": {"type": "int"}}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    number = module.params["entry"]
    try:
        host = Host(module.params["root"])
        bound = host.exists(plan_file.PATH)
        entries, unreadable = readable(host)
        for sentence in unreadable:
            module.warn(sentence)
        entry = chosen(entries, number) if number is not None and (entries or bound) else None
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, bound=bound, entries=difference.rows(entries), entry=entry and entry._asdict())


if __name__ == "__main__":
    main()
