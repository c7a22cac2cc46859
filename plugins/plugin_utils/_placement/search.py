# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the tasks of a job have a place at all, whichever host takes which of them, and in whichever order.

Which chips and CPUs a task gets on a host is not searched: the product's rule and the kubelet decide that from what earlier tasks left.
Hosts do not depend on each other. So every kind of host is tried once, with tasks in every order and all numbers of tasks that it can
take together. Then the hosts are filled one after the other. Steps are counted in both parts, and a search that needs more than
:data:`LIMIT` proves nothing.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from operator import add, sub
from typing import TYPE_CHECKING, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._entries import in_force
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import cpus_of, fit, use
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

LIMIT = 100_000
"""So many steps are taken at most, which takes some seconds: one for numbers of tasks that are looked at, ``TRY`` for a task on a host."""
TRY = 10

Counts = tuple[int, ...]
"""Numbers of tasks, one for each request."""
Orders = dict[Counts, tuple[int, ...]]
"""The numbers of tasks that a host can take together, each with an order in which it can: the places of their requests."""


class OutOfSteps(Exception):
    """The limit was reached. There may be a place for the tasks, or none."""


class _Steps:
    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise OutOfSteps


def search(hosts: Mapping[str, Host], requests: Sequence[Request], limit: int = LIMIT) -> dict[str, tuple[int, ...]] | None:
    """Return the tasks of hosts in order, as places of their requests; None if there is no such placement.

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
        kind = kind_of(host)
        if kind not in kinds:
            kinds[kind] = _orders(host, requests, steps)
        if len(kinds[kind]) > 1:
            orders[name] = kinds[kind]
    chosen = _filled(list(orders.values()), requests, steps)
    return None if chosen is None else {name: orders[name][counts] for name, counts in zip(orders, chosen, strict=False) if any(counts)}


def kind_of(host: Host) -> object:
    """Return what decides which tasks a host can take; hosts of one kind are tried once."""
    topology = cast("Topology", host.topology or {})
    npus = [(npu["id"], npu.get("kind"), npu.get("family"), npu.get("chip"), npu.get("phy_id")) for npu in topology.get("npus") or ()]
    pools = [(npu["id"], entry["pool"]) for npu, entry in in_force(topology)] if topology.get("applied") else []
    parts = [topology.get("cpus"), topology.get("numa"), npus, pools]
    of_kubelet = host.policy, host.cpu_policy, repr(host.options), repr(host.distances)
    return (
        *_state(host),
        tuple(host.ids),
        tuple(host.capacity),
        tuple(host.chip_node.items()),
        host.healthy,
        *of_kubelet,
        json.dumps(parts),
    )


def _state(host: Host) -> tuple[object, ...]:
    return tuple(host.chips.items()), host.free_cpus, tuple(host.free)


def _orders(host: Host, requests: Sequence[Request], steps: _Steps) -> Orders:
    """Return all numbers of tasks that a host can take together."""
    nothing = (0,) * len(requests)
    found: Orders = {nothing: ()}
    tried: dict[tuple[object, int], Host | None] = {}
    seen: set[tuple[Counts, object]] = set()
    todo: deque[tuple[Counts, tuple[int, ...], Host]] = deque([(nothing, (), host)])
    while todo:
        counts, order, before = todo.popleft()
        for place, request in enumerate(requests):
            if counts[place] == request.replicas:
                continue
            steps.take()
            key = _state(before), place
            if key not in tried:
                steps.take(TRY)
                tried[key] = _with(before, request)
            after = tried[key]
            more = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if after is not None and (more, _state(after)) not in seen:
                seen.add((more, _state(after)))
                found.setdefault(more, (*order, place))
                todo.append((more, (*order, place), after))
    return found


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
    weights = [tuple(request.npus for request in requests), tuple(request.cpus for request in requests), *_units(len(requests))]
    room = _room(orders, weights)
    options = [sorted(found, key=lambda counts: [-_weighed(weight, counts) for weight in weights]) for found in orders]
    wanted = tuple(request.replicas for request in requests)

    def is_open(place: int, rest: Counts) -> bool:
        return all(_weighed(weight, rest) <= most for weight, most in zip(weights, room[place], strict=True))

    if not is_open(0, wanted):
        return None
    failed: set[tuple[int, Counts]] = set()
    rests: list[Counts] = [wanted]
    chosen: list[Counts] = []
    turns = [iter(options[0])]
    while turns:
        place = len(turns)
        for counts in turns[-1]:
            steps.take()
            rest = tuple(map(sub, rests[-1], counts))
            if min(rest) < 0 or (place, rest) in failed or not is_open(place, rest):
                continue
            chosen.append(counts)
            if not any(rest):
                return chosen
            rests.append(rest)
            turns.append(iter(options[place]))
            break
        else:
            turns.pop()
            failed.add((place - 1, rests.pop()))
            if chosen:
                chosen.pop()
    return None


def _units(count: int) -> Iterator[Counts]:
    for place in range(count):
        yield tuple(int(place == other) for other in range(count))


def _weighed(weight: Counts, counts: Counts) -> int:
    return sum(each * count for each, count in zip(weight, counts, strict=True))


def _room(orders: list[Orders], weights: Sequence[Counts]) -> list[Counts]:
    """Return for every host how much of each weight it and those after it can take at most; nothing after the last."""
    room = [(0,) * len(weights)]
    for found in reversed(orders):
        most = (max(_weighed(weight, counts) for counts in found) for weight in weights)
        room.append(tuple(map(add, room[-1], most)))
    return room[::-1]
