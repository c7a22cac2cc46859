# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SuperPods give the blocks of a job, so that wide ones and reserved hosts stay for those who need them.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3/superpod/frame.go`` and the document "Logical SuperPod Affinity".

1. Every SuperPod is filed by the blocks that it can give without its reserve, and by the hosts that are left over then.
2. Best fit: few left over first, and no more blocks than are still needed. 3. Then wider SuperPods, the narrowest first.
4. Then the reserve is eaten: most left over first, the fullest first, one block each.
5. Only with soft affinity: pieces that are smaller than a block.

Instances of an inference service are placed by other rules (``internal/npu/base/inferservice`` and
``internal/npu/policy/chip8node8ra64sp/infer_service.go``). Jobs with the same label ``inferserviceid`` are instances of a service, and a
block has all NPUs of an instance. SuperPods that run the service come first, those with most free hosts first; racks that run it come
before others of their SuperPod. The reserve is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

LABEL = "inferserviceid"
RACK_HOSTS = 8
"""Hosts of a rack of the Atlas 950."""
Rack = tuple[int, int]
"""A SuperPod and a rack in it; the rack is always 0 where the product has none."""
GROUPS = ("same_rack", "same_superpod", "other_superpod")


@dataclass
class SuperPod:
    """``blocks`` and ``rest`` are what it is filed by; ``free`` goes down as blocks are taken."""

    id: int
    free: int
    blocks: int
    rest: int


def take(
    free_nodes: Mapping[Any, int], blocks_wanted: int, nodes_per_block: int, reserve_nodes: int = 0, soft: bool = False
) -> list[tuple[int, int]]:
    """Return ``(SuperPod, hosts)`` for every block, in the order in which they are taken.

    ``free_nodes`` are the hosts of each SuperPod that can take a task. Raises ``ValueError`` where there are too few blocks.
    """
    if blocks_wanted < 1 or nodes_per_block < 1 or reserve_nodes < 0:
        raise ValueError(
            f"blocks_wanted, nodes_per_block and reserve_nodes: expected 1, 1 and 0 or more; "
            f"got {blocks_wanted}, {nodes_per_block} and {reserve_nodes}"
        )
    pods = []
    for number, free in sorted((int(number), free) for number, free in free_nodes.items()):
        if soft or free >= nodes_per_block:
            blocks, rest = divmod(free - reserve_nodes, nodes_per_block) if free >= reserve_nodes else (0, free % nodes_per_block)
            pods.append(SuperPod(number, free, blocks, rest))
    total = sum(pod.free // nodes_per_block for pod in pods)
    if total < blocks_wanted and not soft:
        raise ValueError(
            f"select super pod failed, required {blocks_wanted}, total {total}: blocks of {nodes_per_block} hosts are wanted, and free are "
            + (", ".join(f"{count} in SuperPod {number}" for number, count in free_nodes.items()) or "none")
        )
    taken: list[tuple[int, int]] = []
    for pod, limit in _visits(pods, blocks_wanted, nodes_per_block, taken):
        least = nodes_per_block if limit == 1 else nodes_per_block + reserve_nodes
        while limit and pod.free >= least and len(taken) < blocks_wanted:
            pod.free -= nodes_per_block
            taken.append((pod.id, nodes_per_block))
            limit -= 1
    if soft:
        taken += _pieces(pods, (blocks_wanted - len(taken)) * nodes_per_block, nodes_per_block, reserve_nodes)
    return taken


def _visits(pods: list[SuperPod], wanted: int, block: int, taken: list[tuple[int, int]]) -> Iterator[tuple[SuperPod, int]]:
    """Yield SuperPods in the order of the steps; with limit 1 one block may be taken, and its reserve may be eaten.

    SuperPods that are filed alike are visited together, even if the first of them leaves fewer blocks to find than the others have.
    """

    def file(pod: SuperPod) -> tuple[int, int]:
        return pod.rest, pod.blocks

    for (_rest, blocks), alike in groupby(sorted(pods, key=file), key=file):
        if 1 <= blocks <= wanted - len(taken):
            yield from ((pod, wanted + 1) for pod in alike)
    needed = wanted - len(taken)
    for pod in sorted(pods, key=lambda pod: (pod.blocks, pod.rest)):
        if pod.blocks > needed:
            yield pod, wanted + 1
    while any(pod.free >= block for pod in pods) and len(taken) < wanted:
        for pod in sorted(pods, key=lambda pod: (-pod.rest, pod.blocks, -pod.free)):
            yield pod, 1


def _pieces(pods: list[SuperPod], hosts: int, block: int, reserve: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of less than a block: of SuperPods with more left over than the reserve first, largest first."""
    for rest in (*range(block - 1, reserve - 1, -1), *range(min(block, reserve))):
        for pod in sorted((pod for pod in pods if pod.rest == rest), key=lambda pod: (pod.blocks, -pod.free)):
            size = min(pod.free, block, hosts)
            if size:
                pod.free -= size
                hosts -= size
                yield pod.id, size


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


def take_racks(free: Mapping[Rack, int], service_on: Iterable[Rack], blocks_wanted: int, nodes_per_block: int) -> list[Rack]:
    """Return the rack of every instance. ``free`` are the hosts of each rack that can take a task. ``ValueError``: too few blocks."""
    if nodes_per_block < 1:
        raise ValueError(f"invalid spBlock {nodes_per_block} for infer service job; give 1 host or more")
    hosts = dict(free)
    used = set(service_on)

    def key(rack: Rack) -> tuple[tuple[int, ...], Rack]:
        siblings = [count for other, count in hosts.items() if other[0] == rack[0]]
        group = GROUPS[0 if rack in used else 1 if rack[0] in {pod for pod, _rack in used} else 2]
        return order(group, hosts[rack], sum(count >= RACK_HOSTS for count in siblings), sum(siblings)), rack

    taken: list[Rack] = []
    while len(taken) < blocks_wanted:
        fitting = [rack for rack, count in hosts.items() if count >= nodes_per_block]
        if not fitting:
            racked = {pod for pod, rack in free if rack}
            names = {rack: f"SuperPod {rack[0]}" + (f" rack {rack[1]}" if rack[0] in racked else "") for rack in free}
            raise ValueError(
                f"infer service schedule failed, required {blocks_wanted} sp-block, got {len(taken)}: the "
                f"{nodes_per_block} hosts of a block are in one SuperPod, on the Atlas 950 in one rack; free are "
                + (", ".join(f"{count} in {names[rack]}" for rack, count in sorted(free.items())) or "none")
            )
        best = min(fitting, key=key)
        hosts[best] -= nodes_per_block
        used.add(best)
        taken.append(best)
    return taken


def order(group: str, free: int, idle_racks: int = 0, total_free: int = 0) -> tuple[int, ...]:
    """Return the place of a rack in the order in which racks are taken; smaller ones come first."""
    number = GROUPS.index(group)
    return (number, -free) if number == 0 else (number, -idle_racks, -free, -total_free)
