# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on the Atlas 950 SuperPoD: which sizes its scheduler takes, and which racks of SuperPods give the hosts.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip8node8ra64sp`` (job.go, schedule.go). A rack has 8 hosts. A job of up to 8
tasks takes one rack, others one SuperPod in pieces of ``ra-block`` inside racks, then several SuperPods. A job with memory shared over
UnifiedBus stays inside a domain of 16 racks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.superpods import Rack, RACK_HOSTS

FAMILY = "atlas950"
HOST_NPUS = 8
DOMAIN_RACKS = 16
DOMAIN_NPUS = 1024
MOST_RA = 64
MOST_HOSTS = 1024
Piece = tuple[int, int, int]
"""A SuperPod, a rack, and hosts in it."""


def refusals(replicas: int, npus_per_task: int, sp_block: int, ra_block: int, super_pod_size: int | None, ub_memory: bool) -> Iterator[str]:
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


def take(
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
        taken.append((*rack, hosts))
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
                return [(*min(fitting)[1], replicas)]
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
            yield (*rack, hosts)
