# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SuperPods and racks give the hosts of a job, so that wide ones and reserved hosts stay for those who need them.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3/superpod/frame.go`` and the document "Logical SuperPod Affinity".

1. Every SuperPod is filed by the blocks that it can give without its reserve, and by the hosts that are left over then.
2. Best fit: few left over first, and no more blocks than are still needed. 3. Then wider SuperPods, the narrowest first.
4. Then the reserve is eaten: most left over first, the fullest first, one block each.
5. Only with soft affinity: pieces that are smaller than a block.

Instances of an inference service are placed by other rules (``internal/npu/base/inferservice`` and
``internal/npu/policy/chip8node8ra64sp/infer_service.go``). Jobs with the same label ``inferserviceid`` are instances of a service, and a
block has all NPUs of an instance. SuperPods that run the service come first, those with most free hosts first; racks that run it come
before others of their SuperPod. The reserve is not kept.

The Atlas 950 SuperPoD has rules of its own, too (``internal/npu/policy/chip8node8ra64sp``, job.go and schedule.go). A rack has 8 hosts. A
job of up to 8 tasks takes one rack, others one SuperPod in pieces of ``ra-block`` inside racks, then several SuperPods. A job with memory
shared over UnifiedBus stays inside a domain of 16 racks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

LABEL = "inferserviceid"
RACK_HOSTS = 8
"""Hosts of a rack of the Atlas 950."""
Rack = tuple[int, int]
"""A SuperPod and a rack in it; the rack is always 0 where the product has none."""
ATLAS_950 = "atlas950"
HOST_NPUS = 8
DOMAIN_RACKS = 16
DOMAIN_NPUS = 1024
MOST_RA = 64
MOST_HOSTS = 1024
Piece = tuple[Rack, int]
"""A rack, and hosts in it."""
GROUPS = ("same_rack", "same_superpod", "other_superpod")


@dataclass
class SuperPod:
    """``blocks`` and ``rest`` are what it is filed by; ``free`` goes down as blocks are taken."""

    id: int
    free: int
    blocks: int
    rest: int


def take_blocks(
    free_nodes: Mapping[Any, int], blocks_wanted: int, nodes_per_block: int, reserve_nodes: int = 0, soft: bool = False
) -> list[tuple[int, int]]:
    """Return ``(SuperPod, hosts)`` for every block, in the order in which they are taken.

    ``free_nodes`` are the hosts of each SuperPod that can take a task. Raises ``ValueError`` where there are too few blocks.
    """
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


def take_instances(free: Mapping[Rack, int], service_on: Iterable[Rack], blocks_wanted: int, nodes_per_block: int) -> list[Rack]:
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


def refusals_950(
    replicas: int, npus_per_task: int, sp_block: int, ra_block: int, super_pod_size: int | None, ub_memory: bool
) -> Iterator[str]:
    """Yield why the scheduler does not take a job of the Atlas 950, nothing where it does. ``super_pod_size`` are hosts."""
    npus, block, piece, pod = npus_per_task, sp_block, ra_block, super_pod_size
    total, hosts, ra_hosts = replicas * npus, block // HOST_NPUS, max(1, piece // HOST_NPUS)
    if hosts:
        if block % HOST_NPUS:
            yield f"Parameter sp-block({block}) is not multiple of node npu ({HOST_NPUS})"
        if replicas % hosts:
            yield f"job require total Pod({replicas}) should be multiple of a sp-block size {hosts}"
        if pod is not None and not 1 <= pod <= MOST_HOSTS:
            yield f"Parameter super-pod-size({pod}) in volcano.yaml is invalid which should be in range [1,{MOST_HOSTS}]"
        if pod is not None and hosts > pod:
            yield f"Parameter spBlock({block}/{HOST_NPUS}={hosts}) is bigger than size of super-pod-size({pod})"
        if not 1 <= piece <= MOST_RA:
            yield f"Parameter ra-block is invalid, it should be a number in the range from 1 to {MOST_RA}; got {piece}"
        if piece & (piece - 1):
            yield f"Parameter ra-block({piece}) must be the power of 2"
        if ra_hosts > hosts:
            yield f"Parameter ra-block({piece})/{HOST_NPUS} could not be bigger than sp-block({block})/{HOST_NPUS}"
        if replicas % ra_hosts or hosts % ra_hosts:
            yield f"number of tasks({replicas}) must be multiple of nodes occupied by ra-block({ra_hosts})"
    if replicas == 1:
        if not 1 <= npus <= HOST_NPUS:
            yield f"single super-pod job require npu [1, {HOST_NPUS}], instead of {npus}"
        if block != npus:
            yield f"single super-pod job sp-block annotation should equal require npu num; got {block} and {npus}"
        return
    if total % block:
        yield f"distributed super-pod job require npu should be multiple of sp-block, instead of {total}"
    if total % piece:
        yield f"distributed super-pod job require npu({total}) should be multiple of ra-block"
    if npus != HOST_NPUS:
        yield f"distributed job require npu {HOST_NPUS}, instead of {npus}"
    if ub_memory and total > DOMAIN_NPUS:
        first_beyond = (DOMAIN_NPUS // npus + 1) * npus
        yield f"in ubmem scene, task require npu nums should smaller than {DOMAIN_NPUS}, but recevice {first_beyond}"


def take_pieces(
    free: Mapping[Rack, int], replicas: int, nodes_per_block: int, nodes_per_piece: int, ub_memory: bool = False, soft: bool = False
) -> list[Piece]:
    """Return the hosts of a job by rack. ``free`` are the hosts of each rack that can take a task. Raises ``ValueError``: no place.

    With ``soft``, a job without place for its blocks takes the fullest racks of the fullest SuperPods.
    """
    try:
        return _strict(free, replicas, nodes_per_block, nodes_per_piece, ub_memory)
    except ValueError:
        if not soft or ub_memory:
            raise
    total = {pod: sum(count for rack, count in free.items() if rack[0] == pod) for pod, _rack in free}
    taken: list[Piece] = []
    for rack in sorted(free, key=lambda rack: (-total[rack[0]], rack[0], -free[rack], rack)):
        hosts = min(free[rack], replicas)
        replicas -= hosts
        taken.append((rack, hosts))
    return taken


def _strict(free: Mapping[Rack, int], replicas: int, nodes_per_block: int, nodes_per_piece: int, ub_memory: bool) -> list[Piece]:
    blocks = replicas // nodes_per_block
    smallest = _parts(free, lambda rack: rack[0])
    total = sum(sum(racks.values()) // nodes_per_block for racks in smallest)
    if total < blocks:
        raise ValueError(f"before scheduling, required sp-block count={blocks}, but total sp-block count={total}")
    if replicas <= RACK_HOSTS:
        for racks in smallest:
            if fitting := [(count, rack) for rack, count in racks.items() if count >= replicas]:
                return [(min(fitting)[1], replicas)]
        if replicas == nodes_per_piece:
            raise ValueError(f"not found the 1 count of ra-block: no rack has {replicas} free hosts; ask for a smaller ra-block")
    areas = smallest
    if ub_memory:
        areas = [domain for racks in smallest for domain in _parts(racks, lambda rack: rack[1] // DOMAIN_RACKS)]
    for area in areas:
        if _in_pieces(area, nodes_per_piece) >= replicas:
            return list(_blocks(area, blocks, nodes_per_block, nodes_per_piece))
    taken: list[Piece] = []
    for racks in () if ub_memory else reversed(smallest):
        fits = min(_in_pieces(racks, nodes_per_piece) // nodes_per_block, blocks)
        taken += _blocks(racks, fits, nodes_per_block, nodes_per_piece)
        blocks -= fits
    if not blocks:
        return taken
    rooms = ", ".join(f"{count} in SuperPod {pod} rack {rack}" for (pod, rack), count in sorted(free.items()))
    raise ValueError(
        f"scheduling failed in {'UBMemSchedule' if ub_memory else 'MulSuperPodsSchedule'} strategy: {blocks} blocks of {nodes_per_block} "
        f"hosts, in pieces of {nodes_per_piece} inside racks, have no place; free are {rooms}"
    )


def _parts(racks: Mapping[Rack, int], part_of: Callable[[Rack], int]) -> list[dict[Rack, int]]:
    """Return the racks of each SuperPod, or of each domain of UnifiedBus memory, that with the fewest hosts first."""
    parts: dict[int, dict[Rack, int]] = {}
    for rack, count in racks.items():
        parts.setdefault(part_of(rack), {})[rack] = count
    return sorted(parts.values(), key=lambda part: (sum(part.values()), min(part)))


def _in_pieces(racks: Mapping[Rack, int], piece: int) -> int:
    return sum(count // piece * piece for count in racks.values())


def _blocks(racks: Mapping[Rack, int], blocks: int, block: int, piece: int) -> Iterator[Piece]:
    """Yield pieces of blocks: from the smallest rack that holds the rest of a block, else from the fullest."""
    hosts_of = dict(racks)
    for _block in range(blocks):
        wanted = block
        while wanted:
            holding = [(count, rack) for rack, count in hosts_of.items() if count >= wanted]
            count, rack = min(holding) if holding else max((count, rack) for rack, count in hosts_of.items())
            hosts = min(wanted, count // piece * piece)
            hosts_of[rack] -= hosts
            wanted -= hosts
            yield rack, hosts
