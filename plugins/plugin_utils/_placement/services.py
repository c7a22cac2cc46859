# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the instances of an inference service run: in SuperPods, and in racks where the product has them.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/base/inferservice`` and ``internal/npu/policy/chip8node8ra64sp/infer_service.go``. Jobs
with the same label ``inferserviceid`` are instances of a service, and a block has all NPUs of an instance. SuperPods that run the service
come first, those with most free hosts first; racks that run it come before others of their SuperPod. The reserve is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LABEL = "inferserviceid"
RACK_HOSTS = 8
"""Hosts of a rack of the Atlas 950."""
Rack = tuple[int, int]
"""A SuperPod and a rack in it; the rack is always 0 where the product has none."""
GROUPS = ("same_rack", "same_superpod", "other_superpod")


def service_of(labels: Mapping[str, Any] | None) -> str:
    return str((labels or {}).get(LABEL) or "")


def running(service: str, job: str, jobs: Mapping[str, Mapping[str, Any]], places: str) -> list[Any]:
    """Return what the other jobs of a service have in ``places``, such as their hosts."""
    return [
        place
        for name, other in jobs.items()
        if service and name != job and service_of(other.get("labels")) == service
        for place in other.get(places) or ()
    ]


def take(free: Mapping[Rack, int], service_on: Iterable[Rack], blocks_wanted: int, nodes_per_block: int) -> list[Rack]:
    """Return the rack of every block. ``free`` are the hosts of each rack that can take a task. ``ValueError``: too few blocks."""
    if nodes_per_block < 1:
        raise ValueError(f"invalid spBlock {nodes_per_block} for infer service job; give 1 host or more")
    left = dict(free)
    used = set(service_on)
    taken: list[Rack] = []
    while len(taken) < blocks_wanted:
        fitting = [rack for rack, count in left.items() if count >= nodes_per_block]
        if not fitting:
            raise ValueError(
                f"infer service schedule failed, required {blocks_wanted} sp-block, got {len(taken)}: the "
                f"{nodes_per_block} hosts of a block are in one SuperPod, on the Atlas 950 in one rack; free are {_told(free)}"
            )
        best = min(fitting, key=lambda rack: (_order_of(rack, left, used), rack))
        left[best] -= nodes_per_block
        used.add(best)
        taken.append(best)
    return taken


def order(group: str, free: int, idle_racks: int = 0, total_free: int = 0) -> tuple[int, ...]:
    """Return the place of a rack in the order in which racks are taken; smaller ones come first."""
    number = GROUPS.index(group)
    return (number, -free) if number == 0 else (number, -idle_racks, -free, -total_free)


def _order_of(rack: Rack, left: Mapping[Rack, int], used: set[Rack]) -> tuple[int, ...]:
    siblings = [count for other, count in left.items() if other[0] == rack[0]]
    group = GROUPS[0 if rack in used else 1 if rack[0] in {pod for pod, _rack in used} else 2]
    return order(group, left[rack], sum(count >= RACK_HOSTS for count in siblings), sum(siblings))


def _told(free: Mapping[Rack, int]) -> str:
    racks = {pod for pod, rack in free if rack}
    names = {rack: f"SuperPod {rack[0]}" + (f" rack {rack[1]}" if rack[0] in racks else "") for rack in free}
    return ", ".join(f"{count} in {names[rack]}" for rack, count in sorted(free.items())) or "none"
