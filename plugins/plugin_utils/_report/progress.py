# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a run is in its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary import STATES, judged
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ReadOnce


def ends(hosts: int, batches: Sequence[int | str]) -> list[int]:
    """Return after how many hosts each batch ends. The last one that is given is repeated, and a percentage is at least one host."""
    found = [0]
    while found[-1] < hosts:
        batch = batches[min(len(found), len(batches)) - 1]
        size = int(int(batch[:-1]) * hosts / 100) or 1 if isinstance(batch, str) else batch
        found.append(min(hosts, found[-1] + size))
    return found[1:]


def progress(hosts: Sequence[str], batch: Iterable[str], batches: Sequence[int | str]) -> dict[str, Any]:
    """Return ``{batch, batches, begun, done, hosts}``: the number of the batch with these hosts, how many hosts were before it, and
    how many when it ends."""
    reached = max(map(hosts.index, batch)) + 1
    found = ends(len(hosts), batches)
    number = next(number for number, end in enumerate(found, 1) if end >= reached)
    begun = found[number - 2] if number > 1 else 0
    return {"batch": number, "batches": len(found), "begun": begun, "done": found[number - 1], "hosts": len(hosts)}


def line(at: Mapping[str, Any], states: Mapping[str, int]) -> str:
    """Return it as a line, with the states of the hosts so far."""
    so_far = ", ".join(f"{number} {state}" for state, number in states.items())
    return f"batch {at['batch']} of {at['batches']}, {at['done']} of {at['hosts']} hosts: {so_far}"


def after_batch(
    variables: Mapping[str, Mapping[str, Any]], names: Sequence[str], batch: Sequence[str], given: Mapping[str, Any], check: bool
) -> dict[str, Any]:
    """Return :func:`progress` with the ``states`` of the hosts so far, whether a host of this batch ``changed``, and a ``line``.

    ``given`` has the ``playbook``, its ``batches``, and what this function returned after the batch ``before``: its hosts are not looked at
    again.
    """
    playbook, before = given["playbook"], given.get("before") or {}
    at = {"playbook": playbook, **progress(names, batch, given["batches"])}
    follows = before and all(before[key] == at[key] for key in ("playbook", "hosts", "batches")) and before["done"] == at["begun"]
    now = {name: judged(ReadOnce(variables[name]), playbook, check)[0] for name in names[at["begun"] if follows else 0 : at["done"]]}
    found = Counter(before["states"] if follows else {}) + Counter(now.values())
    states = {state: found[state] for state in STATES if state in found}
    changed = {"changed", "unbound", "partly unbound"} & {now[name] for name in batch}
    return at | {"states": states, "changed": bool(changed), "line": line(at, states)}
