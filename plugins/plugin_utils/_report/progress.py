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
    ends = [0]
    while ends[-1] < hosts:
        batch = batches[min(len(ends), len(batches)) - 1]
        size = int(int(batch[:-1]) * hosts / 100) or 1 if isinstance(batch, str) else batch
        ends.append(min(hosts, ends[-1] + size))
    return ends[1:]


def progress(hosts: Sequence[str], batch: Iterable[str], batches: Sequence[int | str]) -> dict[str, Any]:
    """Return ``{batch, batches, begun, done, hosts}``: the number of the batch with these hosts, how many hosts were before it, and
    how many when it ends."""
    reached = max(map(hosts.index, batch)) + 1
    batch_ends = ends(len(hosts), batches)
    number = next(number for number, end in enumerate(batch_ends, 1) if end >= reached)
    begun = batch_ends[number - 2] if number > 1 else 0
    return {"batch": number, "batches": len(batch_ends), "begun": begun, "done": batch_ends[number - 1], "hosts": len(hosts)}


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
    counts = Counter(before["states"] if follows else {}) + Counter(now.values())
    states = {state: counts[state] for state in STATES if state in counts}
    changed = {"changed", "unbound", "partly unbound"} & {now[name] for name in batch}
    so_far = ", ".join(f"{number} {state}" for state, number in states.items())
    line = f"batch {at['batch']} of {at['batches']}, {at['done']} of {at['hosts']} hosts: {so_far}"
    return at | {"states": states, "changed": bool(changed), "line": line}
