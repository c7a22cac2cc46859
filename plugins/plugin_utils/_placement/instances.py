# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the instances of an inference service run together: each inside one SuperPod, and one rack of the Atlas 950.

First as the scheduler places them, one after the other. Where that leaves one out, every choice of racks is tried: a rack holds its
instances if :mod:`_placement.search` finds a place for all their tasks on its hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.npu.affinity.plugins.plugin_utils._placement import affinity, racks
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import fit
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.search import OutOfSteps, kind_of, search

MOST_STEPS = 2_000
"""So many racks are tried for instances at most."""
Counts = tuple[int, ...]
"""Instances of a rack, one number for each shape."""


class _Racks:
    """Racks with their hosts, and which instances they hold; racks with the same hosts are tried once."""

    def __init__(self, hosts: Mapping[str, Host], requests: Sequence[Request]) -> None:
        self.requests = requests
        members: dict[object, dict[str, Host]] = {}
        for name, host in sorted(hosts.items()):
            members.setdefault(_rack(host, requests), {})[name] = host
        self.hosts = list(members.values())
        self.outside = [rack is None for rack in members]
        self.kinds = [frozenset(Counter(map(kind_of, group.values())).items()) for group in self.hosts]
        self.known: dict[object, bool] = {}
        self.steps = MOST_STEPS

    def place(self, rack: int, counts: Counts) -> dict[str, tuple[int, ...]] | None:
        """Return the tasks of hosts in order, as places of their requests; None where the rack cannot hold these instances."""
        places = [place for place, count in enumerate(counts) if count]
        if self.outside[rack] and any(self.requests[place].superpod for place in places):
            return None
        self.steps -= 1
        if self.steps < 0:
            raise OutOfSteps
        wanted = [replace(self.requests[place], replicas=self.requests[place].replicas * counts[place]) for place in places]
        found = search(self.hosts[rack], wanted)
        return None if found is None else {name: tuple(places[place] for place in order) for name, order in found.items()}

    def holds(self, rack: int, counts: Counts) -> bool:
        key = self.kinds[rack], self.outside[rack], counts
        if key not in self.known:
            self.known[key] = self.place(rack, counts) is not None
        return self.known[key]


def _rack(host: Host, requests: Sequence[Request]) -> object:
    """Return the rack of a host, its SuperPod where racks do not count, None for a host outside of SuperPods."""
    if host.label("superpod") is None:
        return None
    for request in requests:
        try:
            return affinity.rack_of(host, fit(host, request).family == racks.FAMILY)
        except ValueError:
            continue
    return affinity.rack_of(host, False)


def anywhere(hosts: Mapping[str, Host], requests: Sequence[Request], instances: Sequence[int]) -> dict[str, tuple[int, ...]] | None:
    """Return the tasks of hosts in order, as places of their requests, for so many instances of each; None if there is no placement.

    A request without SuperPods has no instances: each of its tasks runs anywhere. Raises :class:`OutOfSteps`.
    """
    found = _Racks(hosts, requests)
    units = [place for place, count in enumerate(instances) for _unit in range(count)]
    units.sort(key=lambda place: (-requests[place].replicas, -requests[place].npus, -requests[place].cpus))
    counts = [(0,) * len(requests)] * len(found.hosts)
    if not _assigned(found, units, counts, set()):
        return None
    placed: dict[str, tuple[int, ...]] = {}
    for rack, own in enumerate(counts):
        placed |= (found.place(rack, own) or {}) if any(own) else {}
    return placed


def _assigned(found: _Racks, units: Sequence[int], counts: list[Counts], failed: set[object]) -> bool:
    """Assign the units that are left to racks, in ``counts``; say whether all have one."""
    if not units:
        return True
    state = len(units), frozenset(Counter(zip(found.kinds, found.outside, counts, strict=True)).items())
    if state in failed:
        return False
    tried = set()
    for rack, own in enumerate(counts):
        alike = found.kinds[rack], found.outside[rack], own
        more = tuple(count + (place == units[0]) for place, count in enumerate(own))
        if alike in tried or not found.holds(rack, more):
            continue
        tried.add(alike)
        counts[rack] = more
        if _assigned(found, units[1:], counts, failed):
            return True
        counts[rack] = own
    failed.add(state)
    return False
