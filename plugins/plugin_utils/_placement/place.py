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
from typing import Any, NotRequired, TypedDict

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.table import columns, count
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import affinity
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fit import Fit, cpus_of, fit, use
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import Host, read
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.request import Request, checked

SELECTED = 100
"""The score of hosts that affinity between hosts selects (``halfTorAffinityNodeScore``)."""
SHOWN = 3
"""So many hosts are named for a reason of refusal in the table."""


class Entry(TypedDict):
    """What a task gets on a host. ``name`` is that of its shape, ``task`` its number; ranked hosts have what follows."""

    host: str
    score: int
    scores: dict[str, int]
    npus: list[int]
    cpus: str | None
    numa: list[int]
    name: NotRequired[str]
    task: NotRequired[int]
    preferred: NotRequired[bool]
    family: NotRequired[str | None]
    assumed: NotRequired[str]


class Refusal(TypedDict):
    host: str
    reason: str
    name: NotRequired[str]


@dataclass(eq=False)
class Ranking:
    """Hosts that fit. ``most`` is the largest number of NUMA nodes that a task uses on one of them."""

    request: Request
    fits: dict[str, Fit]
    most: int = 0

    def scores(self, fitting: Fit) -> dict[str, int]:
        numa = 0 if self.request.policy == "none" else numa_score(fitting.nodes_used, self.most, self.request.weight)
        return {"numa": numa, "npu": fitting.npu_score}

    def key(self, fitting: Fit) -> tuple[int, str]:
        return -sum(self.scores(fitting).values()), fitting.host.name

    def ordered(self) -> list[Fit]:
        return sorted(self.fits.values(), key=self.key)


def numa_score(used: int, most: int, weight: int) -> int:
    """Return Volcano's score of a host on which a task uses so many NUMA nodes, ``most`` being the largest number on any host.

    Where the task uses none on any host, all have the full score, as the scheduler's reversed normalization gives it.
    """
    return weight * (100 - 100 * used // most if most else 100)


def place(hosts: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the tasks of a job can run: ``{request, placed, message, tasks, hosts, fitting, refused, table}``.

    ``hosts`` maps names to what :func:`_placement.host.read` takes. ``ValueError``: a request that makes no sense; a job that finds no
    place is not an error.
    """
    wanted = checked(request)
    readable, refused = read_all(hosts)
    ranking, unfit = ranked(readable, wanted)
    refused += unfit
    while True:  # hosts that fit no more can change what affinity selects
        order, message = None, ""
        try:
            order = affinity.hosts_for(readable, ranking.ordered(), wanted)
        except ValueError as error:
            message = str(error)
        entries, no_cpus = details(ranking, order or ())
        refused += no_cpus
        if not no_cpus:
            break
    tasks = tasks_of(ranking) if order is None and not message else []
    for fitting in (ranking.fits[name] for name in order or ()):  # which have one task each
        tasks.append({"task": len(tasks), **_entry(fitting, cpus_of(fitting, wanted), ranking)})
    placed = len(tasks) == wanted.replicas
    if placed:
        message = f"{tasks_by_name(wanted)} can run on {hosts_by_name(tasks)}."
    elif tasks:
        message = f"{tasks_by_name(wanted)} cannot all run at once: the hosts that fit have room for {len(tasks)}"
    elif not message:
        reason = "every host is refused, with its reason in refused"
        if wanted.policy != "none":
            reason = f"none admits it by policy {wanted.policy}"
        message = f"No host can take {tasks_by_name(wanted)}: {reason}"
    tasks = tasks if placed else []
    refused.sort(key=lambda refusal: str(refusal["host"]))
    table = [message[0].upper() + message[1:], *(task_lines(tasks, "task", "host") if wanted.replicas > 1 else ())]
    return {
        "request": wanted.as_data(),
        "placed": placed,
        "message": message,
        "tasks": tasks,
        "hosts": entries,
        "fitting": len(ranking.fits),
        "refused": refused,
        "table": [*table, *ranking_lines(entries, len(ranking.fits), refused)],
    }


def read_all(hosts: Mapping[str, Any]) -> tuple[dict[str, Host], list[Refusal]]:
    """Return the hosts by name, and those that cannot be read with the reason."""
    if not isinstance(hosts, Mapping):
        raise ValueError(f"hosts: expected a dictionary of hosts by name; got {type(hosts).__name__}")
    readable: dict[str, Host] = {}
    refused: list[Refusal] = []
    for name, given in hosts.items():
        try:
            readable[name] = read(name, given)
        except ValueError as error:
            refused.append({"host": name, "reason": str(error).removeprefix(f"{name}: ")})
    return readable, refused


def ranked(hosts: Mapping[str, Host], request: Request) -> tuple[Ranking, list[Refusal]]:
    """Return the hosts that can take a task, and the others with the reason."""
    fits: dict[str, Fit] = {}
    refused: list[Refusal] = []
    for name, host in hosts.items():
        try:
            fits[name] = fit(host, request)
        except ValueError as error:
            refused.append({"host": name, "reason": str(error).removeprefix(f"{name}: ")})
    return Ranking(request, fits, max((fitting.nodes_used for fitting in fits.values()), default=0)), refused


def details(ranking: Ranking, selected: Collection[str]) -> tuple[list[Entry], list[Refusal]]:
    """Return the entries of the best hosts, the best first, and those that fail when their CPUs are chosen: they fit no more.

    CPUs are chosen of the selected hosts, and of others up to the limit of the request.
    """
    entries: list[Entry] = []
    refused: list[Refusal] = []
    bonus = dict.fromkeys(selected, SELECTED)

    def key(fitting: Fit) -> tuple[int, str]:
        score, name = ranking.key(fitting)
        return score - bonus.get(name, 0), name

    for fitting in sorted(ranking.fits.values(), key=key):
        if len(entries) >= ranking.request.limit and fitting.host.name not in bonus:
            continue
        try:
            entry = _entry(fitting, cpus_of(fitting, ranking.request), ranking)
        except ValueError as error:
            refused.append({"host": fitting.host.name, "reason": str(error)})
            continue
        entry["scores"]["affinity"] = bonus.get(fitting.host.name, 0)
        entry["score"] = sum(entry["scores"].values())
        entries.append({**entry, "preferred": fitting.hint.preferred, "family": fitting.family, "assumed": fitting.assumed})
    for refusal in refused:
        del ranking.fits[refusal["host"]]
    return entries[: ranking.request.limit], refused


def _entry(fitting: Fit, cpus: int | None, ranking: Ranking) -> Entry:
    host = fitting.host
    nodes = sorted({host.ids[host.chip_node[npu]] for npu in fitting.npus if npu in host.chip_node})
    if fitting.hint.nodes is not None:
        nodes = host.numbers(fitting.hint.nodes)
    elif ranking.request.policy != "none":
        nodes = list(host.ids)  # a hint without nodes admits any
    if cpus:
        nodes = [number for number, on_node in zip(host.ids, host.node_cpus, strict=True) if cpus & on_node]
    scores = ranking.scores(fitting)
    return {
        "host": host.name,
        "score": sum(scores.values()),
        "scores": scores,
        "npus": fitting.npus,
        "cpus": None if cpus is None else text_of(cpus),
        "numa": nodes,
    }


def tasks_of(ranking: Ranking) -> list[Entry]:
    """Return the tasks one after the other, each on the host that is best by then: as many as have a place.

    What tasks get is taken away from their hosts.
    """
    tasks: list[Entry] = []
    queue = [(*ranking.key(fitting), 0) for fitting in ranking.fits.values()]
    heapq.heapify(queue)
    while queue and len(tasks) < ranking.request.replicas:
        name = heapq.heappop(queue)[1]
        try:
            tasks.append({"task": len(tasks), **put(ranking.fits[name], ranking)})
            ranking.fits[name] = fit(ranking.fits[name].host, ranking.request)
        except ValueError:
            continue
        heapq.heappush(queue, (*ranking.key(ranking.fits[name]), len(tasks)))
    return tasks


def put(fitting: Fit, ranking: Ranking) -> Entry:
    """Return a task on a host, and take away from the host what the task gets. ``ValueError``: it has no room."""
    cpus = cpus_of(fitting, ranking.request)
    entry = _entry(fitting, cpus, ranking)
    use(fitting, cpus, ranking.request)
    return entry


def tasks_by_name(request: Request, name: str = "") -> str:
    each = " and ".join(count(number, word) for number, word in ((request.npus, "NPU"), (request.cpus, "CPU")) if number)
    name = f" {name}" if name else ""
    return f"a task{name} with {each}" if request.replicas == 1 else f"{request.replicas} tasks{name} with {each} each"


def hosts_by_name(tasks: list[Entry]) -> str:
    names = list(dict.fromkeys(task["host"] for task in tasks))
    return ", ".join(names[:SHOWN]) + (f" and {count(len(names) - SHOWN, 'more host')}" if len(names) > SHOWN else "")


def task_lines(tasks: list[Entry], *keys: str) -> list[str]:
    """Return an empty line and a table of the tasks by these keys and by what they get; nothing without tasks."""
    rows = [(*(str(dict(task)[key]) for key in keys), *_cells(task)) for task in tasks]
    return ["", *columns([(*keys, "NPUs", "CPUs", "NUMA"), *rows])] if rows else []


def ranking_lines(hosts: Sequence[Entry], fitting: int, refused: Iterable[Refusal]) -> Iterator[str]:
    """Yield the ranked hosts and the reasons of refused ones."""
    if hosts:
        yield ""
        rows: list[tuple[str, ...]] = [("rank", "host", "score", "numa", "npu", "affinity", "NPUs", "CPUs", "NUMA")]
        for rank, entry in enumerate(hosts, 1):
            scores = (str(entry["scores"][name]) for name in ("numa", "npu", "affinity"))
            rows.append((str(rank), entry["host"], str(entry["score"]), *scores, *_cells(entry)))
        yield from columns(rows)
        if fitting > len(hosts):
            yield f"… and {count(fitting - len(hosts), 'more host')} that fit"
    assumed = [(entry["host"], entry["assumed"]) for entry in hosts if entry["assumed"]]
    for verb, reasons in (("assumed for", assumed), ("refused", [(refusal["host"], refusal["reason"]) for refusal in refused])):
        by_reason: dict[str, list[str]] = {}
        for host, reason in reasons:
            by_reason.setdefault(reason, []).append(host)
        yield from [""] if by_reason else []
        for reason, names in by_reason.items():
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield f"{verb} {', '.join(names[:SHOWN])}{more}: {reason}"


def _cells(entry: Entry) -> tuple[str, str, str]:
    cpus = "?" if entry["cpus"] is None else entry["cpus"] or "-"
    return compress(entry["npus"]) or "-", cpus, ",".join(map(str, entry["numa"])) or "-"
