# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tasks of a job have a place at all, whichever host takes which of them, and in whichever order.

Which chips and CPUs a task gets on a host is not searched: the product's rule and the kubelet decide that from what earlier tasks left.
Hosts do not depend on each other. So every kind of host is tried once, with tasks in every order and all numbers of tasks that it can
take together. Then the hosts are filled one after the other. Steps are counted in both parts, and a search that needs more than
:data:`LIMIT` proves nothing.

Instances of an inference service run inside one SuperPod, and one rack of the Atlas 950. There, every choice of racks is tried: a rack
holds its instances if the search finds a place for all their tasks on its hosts.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import add, mul, sub
from typing import cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import in_force
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import affinity, superpods
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import cpus_of, fit, use
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request

LIMIT = 100_000
"""So many steps are taken at most, which takes some seconds: one for numbers of tasks that are looked at, ``TRY`` for a task on a host."""
TRY = 10
MOST_RACKS = 2_000
"""So many racks are tried for instances at most."""

Counts = tuple[int, ...]
"""Numbers of tasks or instances, one for each request."""
Kind = tuple[bool, frozenset[object]]
"""Whether hosts are outside of SuperPods, and how many there are of each kind; racks of one kind are tried once."""
Orders = dict[Counts, tuple[int, ...]]
"""The numbers of tasks that a host can take together, each with an order in which it can: the indices of their requests."""


class OutOfSteps(Exception):
    """The limit was reached. There may be a place for the tasks, or none."""


class _Steps:
    def __init__(self, limit: int) -> None:
        self.remaining = limit

    def take(self, count: int = 1) -> None:
        self.remaining -= count
        if self.remaining < 0:
            raise OutOfSteps


def search(hosts: Mapping[str, Host], requests: Sequence[Request], limit: int = LIMIT) -> dict[str, tuple[int, ...]] | None:
    """Return the tasks of hosts in order, as indices of requests; None if there is no such placement.

    Hosts are not changed. Raises :class:`OutOfSteps`.
    """
    if sum(request.npus * request.replicas for request in requests) > sum(len(host.chips) for host in hosts.values()):
        return None
    if sum(request.cpus * request.replicas for request in requests) > sum(sum(host.free) for host in hosts.values()):
        return None
    steps = _Steps(limit)
    kinds: dict[object, Orders] = {}
    orders: dict[str, Orders] = {}
    for name, host in sorted(hosts.items()):
        kind = _kind_of(host)
        if kind not in kinds:
            kinds[kind] = _orders(host, requests, steps)
        if len(kinds[kind]) > 1:
            orders[name] = kinds[kind]
    chosen = _filled(list(orders.values()), requests, steps)
    return None if chosen is None else {name: orders[name][counts] for name, counts in zip(orders, chosen, strict=False) if any(counts)}


def _kind_of(host: Host) -> object:
    """Return what decides which tasks a host can take; hosts of one kind are tried once."""
    topology = cast("Topology", host.topology or {})
    npus = [(npu["id"], npu.get("kind"), npu.get("family"), npu.get("chip"), npu.get("phy_id")) for npu in topology.get("npus") or ()]
    pools = [(npu["id"], entry["pool"]) for npu, entry in in_force(topology)] if topology.get("applied") else []
    nodes = host.ids, host.capacity, list(host.chip_node.items()), host.healthy
    kubelet = host.policy, host.cpu_policy, repr(host.options), repr(host.distances)
    return *_state(host), json.dumps([nodes, kubelet, topology.get("cpus"), topology.get("numa"), npus, pools])


def _state(host: Host) -> tuple[object, ...]:
    return tuple(host.chips.items()), host.free_cpus, tuple(host.free)


def _orders(host: Host, requests: Sequence[Request], steps: _Steps) -> Orders:
    """Return all numbers of tasks that a host can take together."""
    nothing = (0,) * len(requests)
    orders: Orders = {nothing: ()}
    tried: dict[tuple[object, int], Host | None] = {}
    seen: set[tuple[Counts, object]] = set()
    todo: deque[tuple[Counts, tuple[int, ...], Host]] = deque([(nothing, (), host)])
    while todo:
        counts, order, before = todo.popleft()
        for index, request in enumerate(requests):
            if counts[index] == request.replicas:
                continue
            steps.take()
            key = _state(before), index
            if key not in tried:
                steps.take(TRY)
                tried[key] = _with(before, request)
            after = tried[key]
            more = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
            if after is not None and (more, _state(after)) not in seen:
                seen.add((more, _state(after)))
                orders.setdefault(more, (*order, index))
                todo.append((more, (*order, index), after))
    return orders


def _with(host: Host, request: Request) -> Host | None:
    """Return a host with one more task; None if there is no room for it."""
    after = copy.copy(host)
    after.chips, after.free = dict(host.chips), list(host.free)
    try:
        fitting = fit(after, request)
        use(fitting, cpus_of(fitting, request), request)
    except ValueError:
        return None
    return after


def _filled(orders: list[Orders], requests: Sequence[Request], steps: _Steps) -> list[Counts] | None:
    """Return the numbers of tasks for hosts in turn, so that together they take all; None where no choice does.

    At each host those come first that use most of it. A choice is given up when the hosts that are left cannot take the rest, which
    bounds on every request, on NPUs and on CPUs tell, or when the same rest has failed there before.
    """
    indices = range(len(requests))
    units = [tuple(int(index == other) for other in indices) for index in indices]
    weights = [tuple(request.npus for request in requests), tuple(request.cpus for request in requests), *units]
    room = [(0,) * len(weights)]  # how much of each weight every host and those after it can take at most; nothing after the last
    for of_host in reversed(orders):
        most = (max(_weighed(weight, counts) for counts in of_host) for weight in weights)
        room.insert(0, tuple(map(add, room[0], most)))
    options = [sorted(of_host, key=lambda counts: [-_weighed(weight, counts) for weight in weights]) for of_host in orders]
    wanted = tuple(request.replicas for request in requests)

    def is_open(host: int, rest: Counts) -> bool:
        return all(_weighed(weight, rest) <= most for weight, most in zip(weights, room[host], strict=True))

    if not is_open(0, wanted):
        return None
    failed: set[tuple[int, Counts]] = set()
    rests: list[Counts] = [wanted]
    chosen: list[Counts] = []
    turns = [iter(options[0])]
    while turns:
        host = len(turns)
        for counts in turns[-1]:
            steps.take()
            rest = tuple(map(sub, rests[-1], counts))
            if min(rest) < 0 or (host, rest) in failed or not is_open(host, rest):
                continue
            chosen.append(counts)
            if not any(rest):
                return chosen
            rests.append(rest)
            turns.append(iter(options[host]))
            break
        else:
            turns.pop()
            failed.add((host - 1, rests.pop()))
            del chosen[-1:]
    return None


def _weighed(weight: Counts, counts: Counts) -> int:
    return sum(map(mul, weight, counts))


def _rack(host: Host, requests: Sequence[Request]) -> object:
    """Return the rack of a host, its SuperPod where racks do not count, None for a host outside of SuperPods."""
    if host.label("superpod") is None:
        return None
    for request in requests:
        try:
            return affinity.rack_of(host, fit(host, request).family == superpods.ATLAS_950)
        except ValueError:
            continue
    return affinity.rack_of(host, False)


def anywhere(hosts: Mapping[str, Host], requests: Sequence[Request], instances: Sequence[int]) -> dict[str, tuple[int, ...]] | None:
    """Return the tasks of hosts in order, as indices of requests, for so many instances of each; None if there is no placement.

    A request without SuperPods has no instances: each of its tasks runs anywhere. Raises :class:`OutOfSteps`.
    """
    members: dict[object, dict[str, Host]] = {}
    for name, host in sorted(hosts.items()):
        members.setdefault(_rack(host, requests), {})[name] = host
    racks = list(members.values())
    kinds: list[Kind] = [(rack is None, frozenset(Counter(map(_kind_of, group.values())).items())) for rack, group in members.items()]
    steps = _Steps(MOST_RACKS)

    def place(rack: int, counts: Counts) -> dict[str, tuple[int, ...]] | None:
        """Return the tasks of the hosts of a rack; None where it cannot hold these instances."""
        indices = [index for index, count in enumerate(counts) if count]
        outside = kinds[rack][0]
        if outside and any(requests[index].superpod for index in indices):
            return None
        steps.take()
        wanted = [replace(requests[index], replicas=requests[index].replicas * counts[index]) for index in indices]
        orders = search(racks[rack], wanted)
        return None if orders is None else {name: tuple(indices[index] for index in order) for name, order in orders.items()}

    @cache
    def holds(kind: Kind, counts: Counts) -> bool:
        return place(kinds.index(kind), counts) is not None

    units = [index for index, count in enumerate(instances) for _unit in range(count)]
    units.sort(key=lambda index: (-requests[index].replicas, -requests[index].npus, -requests[index].cpus))
    counts = [(0,) * len(requests)] * len(racks)
    if not _assigned(kinds, holds, units, counts, set()):
        return None
    placed: dict[str, tuple[int, ...]] = {}
    for rack, of_rack in enumerate(counts):
        placed |= (place(rack, of_rack) or {}) if any(of_rack) else {}
    return placed


def _assigned(
    kinds: Sequence[Kind], holds: Callable[[Kind, Counts], bool], units: Sequence[int], counts: list[Counts], failed: set[object]
) -> bool:
    """Assign the units that are left to racks, in ``counts``; say whether all have one."""
    if not units:
        return True
    state = len(units), frozenset(Counter(zip(kinds, counts, strict=True)).items())
    if state in failed:
        return False
    tried = set()
    for rack, of_rack in enumerate(counts):
        alike = kinds[rack], of_rack
        more = tuple(count + (index == units[0]) for index, count in enumerate(of_rack))
        if alike in tried or not holds(kinds[rack], more):
            continue
        tried.add(alike)
        counts[rack] = more
        if _assigned(kinds, holds, units[1:], counts, failed):
            return True
        counts[rack] = of_rack
    failed.add(state)
    return False
