# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
short_description: How far a playbook is in its batches
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns which of the batches this one is, how many hosts had their turn, and what became of them.
positional: names, batch, batches, playbook
options:
  _input:
    description: The variables of hosts by name, as C(hostvars).
    type: dict
    required: true
  names:
    description: All hosts of the play, as C(ansible_play_hosts_all).
    type: list
    elements: str
    required: true
  batch:
    description: Those of this batch, as C(ansible_play_batch).
    type: list
    elements: str
    required: true
  batches:
    description: The batches of the play, C(npu_affinity_batches).
    type: list
    elements: raw
    required: true
  playbook:
    description: The playbook that runs.
    type: str
    choices: [bind, report, rollback, unbind, verify]
    required: true
  check:
    description: Whether it runs in check mode.
    type: bool
    default: false
  before:
    description: What this filter returned after the batch before. Its hosts are not looked at again then.
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: Show the progress of the fleet
  run_once: true
  npu.affinity.say:
    msg: "{{ (hostvars | npu.affinity.progress(ansible_play_hosts_all, ansible_play_batch, [1, '100%'], 'bind')).line }}"
"""

RETURN = r"""
_value:
  description: The number of the C(batch) of all C(batches), how many of the C(hosts) are C(done), whether a host of this batch C(changed),
    and how far the fleet is as a C(line).
  type: dict
  sample:
    {batch: 2, batches: 5, begun: 1, done: 40, hosts: 200, playbook: bind, states: {changed: 40}, changed: true,
     line: "batch 2 of 5, 40 of 200 hosts: 40 changed"}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import progress as _progress
from ansible_collections.npu.affinity.plugins.plugin_utils._report import summary


@filter_errors
def progress(
    variables: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    batch: Sequence[str],
    batches: Sequence[int | str],
    playbook: str,
    check: bool = False,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    at = {"playbook": playbook, **_progress.progress(names, batch, batches)}
    follows = before and all(before[key] == at[key] for key in ("playbook", "hosts", "batches")) and before["done"] == at["begun"]
    found = summary.summary({name: variables[name] for name in names[at["begun"] if follows else 0 : at["done"]]}, playbook, check)
    states = _progress.together(before["states"] if before and follows else {}, found["states"])
    changed = {"changed", "unbound"} & {found["hosts"][name]["state"] for name in batch}
    return at | {"states": states, "changed": bool(changed), "line": _progress.line(at, states)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"progress": progress}
