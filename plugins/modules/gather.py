#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gather
short_description: Gather the topology of a host, and compare it with states of its history
version_added: 1.0.0
description:
  - Internal to the playbooks and roles of this collection. Its options can change in any release. Use M(npu.affinity.topology_facts) for facts.
  - Returns the facts of M(npu.affinity.topology_facts), and on request how the host differs from its state in force. If the desired state has
    the same digest and the host does not differ, a playbook runs no other module there.
options:
  host_code:
    description:
      - SHA-256 of the host code that a bind would install. With it, the module runs that code on the host to compare the host with its state
        in force. Other code is a difference.
    type: str
  applied_state:
    description: Whether to return the newest entry of the history as RV(entry).
    type: bool
    default: false
  entry:
    description: The id of an entry of the history, which the module returns and compares the hardware with.
    type: int
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
  - npu.affinity._attributes.gathering
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Read the state before the last change, and see whether it still fits the host
  npu.affinity.gather:
    entry: -1
"""

RETURN = r"""
ansible_facts:
  description: As RV(npu.affinity.topology_facts#module:ansible_facts).
  returned: always
  type: dict
  sample: {npu_affinity_topology: {schema: 1, npus: []}}
in_force:
  description:
    - The state in force by the history of the host, with its C(digest), and the C(id), C(time) and C(author) of its entry. V(null) without one.
    - C(differs) has a line for everything that applying it once more would change or waits for, or why that could not be found out.
      C(remarks) are what cannot be bound, or has no effect on this host. C(compared) is the result of M(npu.affinity.binding_info) for a
      host that applying does not change and that is still not as it was, and only its C(msg) if that failed.
  returned: with O(host_code)
  type: dict
  sample:
    {digest: 5f1c2a3b, id: 7, time: '2026-09-01T12:00:00Z', author: operator, differs: [start npu-0.slice], remarks: [], compared: null}
entry:
  description: The entry of the history, as RV(npu.affinity.history_info#module:entry). V(null) with O(applied_state) and without a history.
  returned: with O(entry) or O(applied_state)
  type: dict
  sample: {id: 7, time: '2026-09-01T12:00:00Z', state: {schema: 1}}
hardware_changes:
  description: One sentence for everything in which the host differs from the hardware of that entry.
  returned: with O(entry)
  type: list
  elements: str
  sample: ["the accelerator at 0000:c1:00.0 is missing", "the CPUs online were 0-191 and are 0-190"]
"""

import hashlib
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._base import zipped
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import ARGUMENTS, gathered

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
    from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
    from ansible_collections.npu.affinity.plugins.module_utils._state.history import Entry


def earlier(host: Host, number: int, topology: Topology) -> dict[str, Any]:
    """Return an entry of the history, and how the host differs from its hardware. Raises ``ValueError`` where that cannot be said."""
    from ansible_collections.npu.affinity.plugins.module_utils._state.history import chosen, readable
    from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import changes, hardware

    entry = chosen(readable(host)[0], number)
    try:
        return {"entry": entry._asdict(), "hardware_changes": changes(entry.state["hardware"], hardware(topology))}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("hardware of entry %d has an unexpected form (%s: %s)" % (entry.id, type(error).__name__, error))


def of_newest(module: AnsibleModule, host: Host, topology: Topology) -> dict[str, Any]:
    """Return the newest entry of the history and the state in force, as far as the options want them."""
    from ansible_collections.npu.affinity.plugins.module_utils._state.history import newest

    entry, result = newest(host), {}
    if module.params["applied_state"]:
        result["entry"] = entry._asdict() if entry else None
    if module.params["host_code"]:
        result["in_force"] = in_force(module, host, topology, entry) if entry else None
    return result


def in_force(module: AnsibleModule, host: Host, topology: Topology, entry: Entry) -> dict[str, Any]:
    """Return the state in force, and what applying it once more would change. Its warnings are those of the module.

    The code for that is on the host, where a bind installed it. If that is other code, this is all that differs.
    """
    from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE, code_folder, relocated
    from ansible_collections.npu.affinity.plugins.module_utils._state.history import digest

    result: dict[str, Any] = {"digest": digest(entry.state), "id": entry.id, "time": entry.time, "author": entry.author}
    path = relocated(ARCHIVE, code_folder(entry.state))
    archive = host.content(path) or b""
    if hashlib.sha256(archive).hexdigest() != module.params["host_code"]:
        return {**result, "differs": ["%s is missing, or not the host code of this collection" % path], "compared": None, "remarks": []}
    dry_run = zipped.imported("_apply.apply", host.path(path)).dry_run
    differing, warnings = dry_run(module.params["root"], entry.state, topology, archive)
    for sentence in warnings:
        module.warn(sentence)
    return {**result, **differing}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "host_code": {"type": "str"},
            "applied_state": {"type": "bool", "default": False},
            "entry": {"type": "int"},
            **ARGUMENTS,
        },
        supports_check_mode=True,
    )
    result: dict[str, Any] = {}
    try:
        host, topology = gathered(module.params)
        if module.params["entry"] is not None:
            result.update(earlier(host, module.params["entry"], topology))
        if module.params["applied_state"] or module.params["host_code"]:
            result.update(of_newest(module, host, topology))
    except ValueError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, ansible_facts={"npu_affinity_topology": topology}, **result)


if __name__ == "__main__":
    main()
