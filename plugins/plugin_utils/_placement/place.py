# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts can take the tasks of a job, the best first, and why the others cannot. Serves the filter ``place``.

Scores are added as Volcano adds those of its plugins: numa-aware (``weight * (100 - 100 * nodes // most nodes)``), MindCluster's score of
the product, and 100 for hosts that affinity to switches, SuperPods or trees selects.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import affinity
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import Fit, Refused, cpus_of, fit, nodes_of, use
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import counted
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host, read
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request, checked
from ansible_collections.npu.affinity.plugins.module_utils._base.table import columns

SELECTED = 100
"""The score of hosts that affinity between hosts selects (``halfTorAffinityNodeScore``)."""
TOLD = 3
"""So many hosts are named for a reason of refusal in the table."""

Entry = dict[str, Any]


@dataclass(eq=False)
class Ranking:
    """Hosts that fit. ``most`` is the largest number of NUMA nodes that a task uses on one of them."""

    request: Request
    fits: dict[str, Fit]
    most: int = 0

    def scores(self, found: Fit) -> dict[str, int]:
        return {"numa": self._numa(found.nodes_used), "npu": found.npu_score}

    def _numa(self, used: int) -> int:
        if self.request.policy == "none":
            return 0
        return numa_score(used, self.most, self.request.weight)

    def key(self, found: Fit) -> tuple[int, str]:
        return -sum(self.scores(found).values()), found.host.name

    def ordered(self) -> list[Fit]:
        return sorted(self.fits.values(), key=self.key)


def numa_score(used: int, most: int, weight: int) -> int:
    """Return Volcano's score of a host on which a task uses so many NUMA nodes, ``most`` being the largest number on any host.

    Where the task uses none on any host, all have the full score, as the scheduler's reversed normalization gives it.
    """
    return weight * (100 - 100 * used // most if most else 100)


def place(hosts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the tasks of a job can run: ``{request, placed, message, tasks, hosts, fitting, refused, table}``.

    ``hosts`` maps names to topologies, to ``{topology, labels}`` or to ``{policy, capacity, free}``. Raises ``ValueError`` for a request
    or a host that is none; a job that finds no place is not an error.
    """
    wanted = checked(request)
    known, refused = read_all(hosts)
    ranking, unfit = ranked(known, wanted)
    refused += unfit
    while True:
        order, message = _selected(known, ranking)
        entries, no_cpus = details(ranking, order or ())
        if not no_cpus:
            break
        refused += no_cpus
    tasks = [] if message else tasks_of(ranking, order)
    if not message and len(tasks) < wanted.replicas:
        message = _too_few(wanted, len(tasks))
    result = {
        "request": wanted.as_data(),
        "placed": not message,
        "message": message or f"{tasks_by_name(wanted)} can run on {hosts_by_name(tasks)}.",
        "tasks": [] if message else tasks,
        "hosts": entries,
        "fitting": len(ranking.fits),
        "refused": sorted(refused, key=lambda entry: str(entry["host"])),
    }
    return {**result, "table": list(_lines(result))}


def read_all(hosts: Mapping[str, Any]) -> tuple[dict[str, Host], list[Entry]]:
    """Return the hosts by name, and those that cannot be read with the reason."""
    if not isinstance(hosts, Mapping):
        raise ValueError(f"hosts: expected a dictionary of hosts by name; got {type(hosts).__name__}")
    known: dict[str, Host] = {}
    refused: list[Entry] = []
    for name, given in hosts.items():
        try:
            known[name] = read(name, given)
        except ValueError as error:
            refused.append({"host": name, "reason": str(error).removeprefix(f"{name}: ")})
    return known, refused


def ranked(known: Mapping[str, Host], request: Request) -> tuple[Ranking, list[Entry]]:
    """Return the hosts that can take a task, and the others with the reason."""
    fits: dict[str, Fit] = {}
    refused: list[Entry] = []
    for name, host in known.items():
        try:
            fits[name] = fit(host, request)
        except ValueError as error:
            refused.append({"host": name, "reason": str(error).removeprefix(f"{name}: ")})
    return Ranking(request, fits, max((found.nodes_used for found in fits.values()), default=0)), refused


def details(ranking: Ranking, selected: Collection[str]) -> tuple[list[Entry], list[Entry]]:
    """Return the entries of the best hosts, the best first, and those that fail when their CPUs are chosen: they fit no more."""
    entries: list[Entry] = []
    refused: list[Entry] = []
    chosen = frozenset(selected)

    def key(found: Fit) -> tuple[int, str]:
        score, name = ranking.key(found)
        return score - SELECTED * (name in chosen), name

    for found in sorted(ranking.fits.values(), key=key):
        if len(entries) == ranking.request.limit:
            break
        try:
            entry = _entry(found, cpus_of(found, ranking.request), ranking)
        except Refused as reason:
            refused.append({"host": found.host.name, "reason": str(reason)})
            continue
        entry["scores"]["affinity"] = SELECTED if found.host.name in chosen else 0
        entry["score"] = sum(entry["scores"].values())
        entries.append({**entry, "preferred": found.hint.preferred, "family": found.family, "assumed": found.assumed})
    for entry in refused:
        del ranking.fits[entry["host"]]
    return entries, refused


def _entry(found: Fit, cpus: int | None, ranking: Ranking) -> Entry:
    host = found.host
    nodes = sorted({host.ids[host.chip_node[npu]] for npu in found.npus if npu in host.chip_node})
    if found.hint.nodes is not None:
        nodes = host.numbers(found.hint.nodes)
    elif ranking.request.policy != "none":
        nodes = list(host.ids)  # a hint without nodes admits any
    if cpus:
        nodes = nodes_of(host, cpus)
    scores = ranking.scores(found)
    return {
        "host": host.name,
        "score": sum(scores.values()),
        "scores": scores,
        "npus": found.npus,
        "cpus": None if cpus is None else text_of(cpus),
        "numa": nodes,
    }


def tasks_of(ranking: Ranking, order: list[str] | None = None) -> list[Entry]:
    """Return the tasks one after the other, each on the host that is best by then or that was selected for it: as many as have a place.

    What tasks get that are not on selected hosts is taken away from their hosts.
    """
    request = ranking.request
    tasks: list[Entry] = []
    queue = [(*ranking.key(found), 0) for found in ranking.fits.values()]
    heapq.heapify(queue)
    selected = iter(order or ())
    while len(tasks) < request.replicas:
        if order is not None:
            name = next(selected)
        elif queue:
            name = heapq.heappop(queue)[1]
        else:
            break
        found = ranking.fits[name]
        try:
            cpus = cpus_of(found, request)
        except Refused:
            if order is None:
                continue
            raise
        tasks.append({"task": len(tasks), **_entry(found, cpus, ranking)})
        if order is None:
            use(found, cpus, request)
            try:
                again = fit(found.host, request)
            except Refused:
                continue
            ranking.fits[name] = again
            heapq.heappush(queue, (*ranking.key(again), len(tasks)))
    return tasks


def put(host: Host, ranking: Ranking) -> Entry:
    """Return a task on a host, and take away from the host what the task gets. Raises :class:`Refused`."""
    found = fit(host, ranking.request)
    cpus = cpus_of(found, ranking.request)
    entry = _entry(found, cpus, ranking)
    use(found, cpus, ranking.request)
    return entry


def _too_few(request: Request, placed: int) -> str:
    if placed:
        return f"{tasks_by_name(request)} cannot all run at once: the hosts that fit have room for {placed}"
    return f"No host can take {tasks_by_name(request)}: {_reasons_told(request)}"


def _selected(known: Mapping[str, Host], ranking: Ranking) -> tuple[list[str] | None, str]:
    """Return the hosts for each task by affinity between hosts, None without such; or why there are none."""
    try:
        return affinity.hosts_for(known, ranking.ordered(), ranking.request), ""
    except ValueError as refused:
        return [], str(refused)


def tasks_by_name(request: Request, name: str = "") -> str:
    parts = [counted(request.npus, "NPU") if request.npus else "", counted(request.cpus, "CPU") if request.cpus else ""]
    each = " and ".join(part for part in parts if part)
    name = f" {name}" if name else ""
    return f"a task{name} with {each}" if request.replicas == 1 else f"{request.replicas} tasks{name} with {each} each"


def _reasons_told(request: Request) -> str:
    return "every host is refused, with its reason in refused" if request.policy == "none" else f"none admits it by policy {request.policy}"


def hosts_by_name(tasks: list[Entry]) -> str:
    names = list(dict.fromkeys(task["host"] for task in tasks))
    return ", ".join(names[:TOLD]) + (f" and {counted(len(names) - TOLD, 'more host')}" if len(names) > TOLD else "")


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the answer, the ranked hosts and the reasons of refused ones as a table."""
    yield result["message"][0].upper() + result["message"][1:]
    if result["tasks"] and result["request"]["replicas"] > 1:
        yield ""
        rows = [("task", "host", "NPUs", "CPUs", "NUMA")]
        rows += [(str(task["task"]), task["host"], *cells(task)) for task in result["tasks"]]
        yield from columns(rows)
    yield from ranking_lines(result["hosts"], result["fitting"], result["refused"])


def ranking_lines(hosts: Sequence[Entry], fitting: int, refused: Iterable[Entry]) -> Iterator[str]:
    """Yield the ranked hosts and the reasons of refused ones."""
    if hosts:
        yield ""
        heads = [("rank", "host", "score", "numa", "npu", "affinity", "NPUs", "CPUs", "NUMA")]
        for rank, entry in enumerate(hosts, 1):
            scores = (str(entry["scores"][name]) for name in ("numa", "npu", "affinity"))
            heads.append((str(rank), entry["host"], str(entry["score"]), *scores, *cells(entry)))
        yield from columns(heads)
        if fitting > len(hosts):
            yield f"… and {counted(fitting - len(hosts), 'more host')} that fit"
    yield from _by_reason("assumed for", ((entry["assumed"], entry["host"]) for entry in hosts if entry["assumed"]))
    yield from _by_reason("refused", ((entry["reason"], entry["host"]) for entry in refused))


def _by_reason(verb: str, hosts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield an empty line and a line for each reason, with some of its hosts."""
    reasons: dict[str, list[str]] = {}
    for reason, name in hosts:
        reasons.setdefault(reason, []).append(name)
    if reasons:
        yield ""
    for reason, names in reasons.items():
        more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
        yield f"{verb} {', '.join(names[:TOLD])}{more}: {reason}"


def cells(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    npus = str(compress(entry["npus"]))
    return npus or "-", "?" if entry["cpus"] is None else entry["cpus"] or "-", ",".join(str(node) for node in entry["numa"]) or "-"
