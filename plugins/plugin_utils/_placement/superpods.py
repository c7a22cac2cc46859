# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SuperPods give the blocks of a job, so that wide ones and reserved hosts stay for those who need them.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3/superpod/frame.go`` and the document "Logical SuperPod Affinity".

1. Every SuperPod is filed by the blocks that it can give without its reserve, and by the hosts that are left over then.
2. Best fit: few left over first, and no more blocks than are still needed. 3. Then wider SuperPods, the narrowest first.
4. Then the reserve is eaten: most left over first, the fullest first, one block each.
5. Only with soft affinity: pieces that are smaller than a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any


@dataclass
class SuperPod:
    """``blocks`` and ``left`` are what it is filed by; ``free`` goes down as blocks of ``size`` hosts are taken."""

    id: int
    free: int
    size: int
    blocks: int
    left: int


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
    pods = [
        _filed(int(number), count, nodes_per_block, reserve_nodes)
        for number, count in sorted(free_nodes.items(), key=lambda item: int(item[0]))
        if soft or count >= nodes_per_block
    ]
    total = sum(pod.free // nodes_per_block for pod in pods)
    if total < blocks_wanted and not soft:
        raise ValueError(
            f"select super pod failed, required {blocks_wanted}, total {total}: blocks of {nodes_per_block} hosts are wanted, and free are "
            + (", ".join(f"{count} in SuperPod {number}" for number, count in free_nodes.items()) or "none")
        )
    taken: list[tuple[int, int]] = []
    for pod, limit in _visits(pods, blocks_wanted, taken):
        least = nodes_per_block if limit == 1 else nodes_per_block + reserve_nodes
        while limit and pod.free >= least and len(taken) < blocks_wanted:
            pod.free -= nodes_per_block
            taken.append((pod.id, nodes_per_block))
            limit -= 1
    if soft:
        taken += _pieces(pods, (blocks_wanted - len(taken)) * nodes_per_block, nodes_per_block, reserve_nodes)
    return taken


def _filed(number: int, free: int, block: int, reserve: int) -> SuperPod:
    blocks, left = divmod(free - reserve, block) if free >= reserve else (0, free % block)
    return SuperPod(number, free, block, blocks, left)


def _visits(pods: list[SuperPod], wanted: int, taken: list[tuple[int, int]]) -> Iterator[tuple[SuperPod, int]]:
    """Yield SuperPods in the order of the steps; with limit 1 one block may be taken, and its reserve may be eaten.

    SuperPods that are filed alike are visited together, even if the first of them leaves fewer blocks to find than the others have.
    """
    for (_left, blocks), alike in groupby(sorted(pods, key=_file), key=_file):
        if 1 <= blocks <= wanted - len(taken):
            yield from ((pod, wanted + 1) for pod in alike)
    needed = wanted - len(taken)
    for pod in sorted(pods, key=lambda pod: (pod.blocks, pod.left)):
        if pod.blocks > needed:
            yield pod, wanted + 1
    while any(pod.free >= pod.size for pod in pods) and len(taken) < wanted:
        for pod in sorted(pods, key=lambda pod: (-pod.left, pod.blocks, -pod.free)):
            yield pod, 1


def _file(pod: SuperPod) -> tuple[int, int]:
    return pod.left, pod.blocks


def _pieces(pods: list[SuperPod], hosts: int, block: int, reserve: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of less than a block: of SuperPods with more left over than the reserve first, largest first."""
    order = [number for number in range(block - 1, -1, -1) if number >= reserve]
    order += range(min(block, reserve))
    for left in order:
        for pod in sorted((pod for pod in pods if pod.left == left), key=lambda pod: (pod.blocks, -pod.free)):
            size = min(pod.free, block, hosts)
            if size:
                pod.free -= size
                hosts -= size
                yield pod.id, size
