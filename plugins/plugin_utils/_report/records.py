# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet as the data of its page. Machines and plans that several hosts share are held once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import WORK_OUTSIDE_POOL
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import problems, with_mutes, without
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import measured
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan as plan_of
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import outdated
from ansible_collections.npu.affinity.plugins.plugin_utils._report.scene import Npu, colours_of, cpus_of, nodes_of, npus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import (
    Key,
    View,
    holders_of,
    keys_of,
    marked,
    users_of,
    view_of_kernel,
    view_of_plan,
    with_lost_of,
)

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import LastChange, Plan, PlanEntry, Topology
    from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import Process, Record
    from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import Drift

    class Measured(TypedDict):
        """What playbook ``npu.affinity.measure`` keeps of a host."""

        host: str
        label: str
        measured_at: str
        workloads: list[dict[str, list[Process]]]


BOUND, OUTSIDE, WARNED, DRIFTED, REFUSED, UNBOUND, SILENT, NONE = STATES = (
    *("bound", "bound, workloads not", "bound with warnings", "drifted"),
    *("refused", "not bound", "no answer", "no accelerator"),
)
IN_FORCE, KERNEL, NOW = "plan in force", "kernel", "a bind now"
OPTIONS = ("cpus", "housekeeping", "smt", "min_cpus", "roles", "exclude_isolated")
"""Options of a plan that another strategy is tried with as well."""


class Shared:
    """Values that occur more than once, each held once; ``place`` says where. ``read`` is what hosts that are alike were read to be."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.read: dict[str, tuple[list[Npu], list[int | None], int]] = {}
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        text = json.dumps(value, sort_keys=True)
        if text not in self._places:
            self._places[text] = len(self.values)
            self.values.append(value)
        return self._places[text]


def fleet(
    records: Iterable[Record], earlier: Iterable[Record] = (), strategies: Sequence[str] = (), measures: Iterable[Measured] = ()
) -> dict[str, list[Any]]:
    """Return ``{hosts, machines, views}``.

    There can be any number of ``measures`` of a host. ``earlier`` are records of an earlier run, ``strategies`` those to plan every host
    with besides. Raises ``ValueError`` for a record without name, and for two of one name.
    """
    machines, views = Shared(), Shared()
    before = _by_name(earlier)
    counted: dict[str, list[Measured]] = {}
    for measure in sorted(measures, key=lambda measure: str(measure.get("measured_at"))):
        counted.setdefault(str(measure.get("host")), []).append(measure)
    read = [_Host(record, before.get(name), strategies, counted.get(name, ())) for name, record in _by_name(records).items()]
    return {"hosts": [host.data(machines, views) for host in read], "machines": machines.values, "views": views.values}


def _by_name(records: Iterable[Record]) -> dict[str, Record]:
    by_name: dict[str, Record] = {}
    for record in records:
        if not isinstance(record, Mapping) or not record.get("host"):
            raise ValueError(f"a record of a host has its name in 'host'; got {str(record)[:80]!r}")
        name = str(record["host"])
        if name in by_name:
            raise ValueError(f"host {name} has two records; give each folder or list one run of one fleet")
        by_name[name] = record
    return by_name


class _Host:
    """A host's record, read."""

    def __init__(self, record: Record, before: Record | None, strategies: Sequence[str], measures: Sequence[Measured]) -> None:
        self.record, self.before, self.strategies, self.measures = record, before, strategies, measures
        self.topology = record.get("topology") or cast("Topology", {})
        muted = record.get("muted") or {}
        self.drift: list[Drift] = [{**entry, "muted": muted.get(entry.get("code"), "")} for entry in record.get("drift") or ()]

    def data(self, machines: Shared, views: Shared) -> dict[str, object]:
        """Return what the page needs of the host, with its machine and views in the shared ones."""
        state, why = self._state()
        remarks = self._remarks()
        if self.record.get("refused") and self.record["refused"] != why:
            remarks.append(f"A bind would now be refused: {self.record['refused']}")
        data: dict[str, object] = {
            "name": str(self.record["host"]),
            "state": state,
            "why": why,
            "bound": bool(self.record.get("bound")),
            "since": _since(self.record, self.before),
            "users": [],
            "product": str((self.topology.get("machine") or {}).get("product") or ""),
            "facts": _facts(self.topology, self.record.get("last_change")),
            "compared": sum(len(objects) for objects in (self.record.get("checked") or {}).values()),
            "remarks": remarks,
            "holders": holders_of(self.record, None),
            "groups": [str(name) for name in self.record.get("groups") or ()],
            "drift": [],
            "npus": [],
            "views": [],
            "memory": list(self._memory()),
        }
        try:
            drawn = self._drawn(machines, views) if self.topology else {}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else f"has an unexpected form ({error})"
            drawn = {"remarks": [*remarks, f"This host cannot be drawn, because its record {why}. Verify or collect it again."]}
        return {**data, "drift": [_drift(entry, None) for entry in self.drift], **drawn}

    def _remarks(self) -> list[str]:
        changes = [] if self.record.get("refused") else [f"A {sentence}" for sentence in outdated(self.record)]
        shown = ["NPU_RANKS_PLACED"] if self.topology.get("users") else []  # by the table of what uses accelerators
        sentences = [*problems(self.topology), *without(self.record.get("remarks") or (), shown), *changes]
        return with_mutes(sentences, self.record.get("muted") or {})

    def _memory(self) -> Iterator[dict[str, object]]:
        """Yield processes with their memory by node, for every time that they were looked at."""
        if self.record.get("processes"):
            yield {"label": "", "processes": [_process(process) for process in self.record["processes"]]}
        for measure in self.measures:
            processes = [_process(entry) for workload in measure.get("workloads") or () for entry in workload.get("memory") or ()]
            label = ", ".join(str(text) for text in (measure.get("label"), measure.get("measured_at")) if text)
            if processes:
                yield {"label": label, "processes": processes}

    def _state(self) -> tuple[str, str]:
        if "drift" not in self.record:
            reason = str(self.record.get("msg") or self.record.get("refused") or "")
            if not self.topology and not reason:
                return SILENT, str(self.record.get("unreachable") or "no result was received")
            return (REFUSED, reason) if reason else (UNBOUND, "")
        causes = Counter(str(entry["cause"]) for entry in self.drift if not entry["muted"])
        why = ", ".join(cause if number == 1 else f"{cause} ({number})" for cause, number in causes.most_common())
        if self.record.get("bound"):
            if why:
                return DRIFTED, why
            if self.record.get("outside") and WORK_OUTSIDE_POOL not in (self.record.get("muted") or {}):
                return OUTSIDE, str(self.record.get("outside_sentence") or "")
            warnings = self._warnings()
            return (WARNED, " ".join(warnings)) if warnings else (BOUND, "")
        if self.record.get("refused"):
            return REFUSED, str(self.record["refused"])
        return (UNBOUND, why) if self.topology.get("npus") or not self.topology else (NONE, "")

    def _warnings(self) -> list[str]:
        """Return what is to be looked at on a host that is as planned: remote CPUs, and warnings of its plan."""
        in_force: Plan = self._in_force() or {}
        local = (in_force.get("quality") or {}).get("local")
        far = [f"{round(100 * (1 - local), 1):g} % of the CPUs are remote."] if local is not None and local < 1 else []
        return [str(sentence) for sentence in (*far, *(in_force.get("warnings") or ()))]

    def _in_force(self) -> Plan | None:
        """Return the plan in force, with the sentences of what a bind would plan now where that is the same, else with its own quality."""
        in_force, now = self.topology.get("applied"), self.record.get("plan")
        if not in_force or now and _same(in_force, now):
            return {**now, **in_force} if now and in_force else in_force
        try:
            return {"quality": measured(in_force, self.topology), **in_force}
        except (KeyError, TypeError, ValueError):
            return in_force  # its NPUs are not those of the topology

    def _drawn(self, machines: Shared, views: Shared) -> dict[str, object]:
        plans = dict(self._plans())
        entries: dict[Key, PlanEntry] = {}
        for plan in plans.values():
            if isinstance(plan, Mapping):
                given = with_lost_of(plan)
                entries = {**entries, **dict(zip(keys_of(given), given, strict=True)), **entries}
        indexes = {key: index for index, key in enumerate(dict.fromkeys([*keys_of(self.topology["npus"]), *entries]))}
        npus, colours, machine = _machine(self.topology, machines, entries)
        drifting = [self._npu_of(entry, indexes) for entry in self.drift]
        shown = []
        for label, plan in plans.items():
            view: View = {"label": label, "kind": "plan", "refused": plan}
            if isinstance(plan, Mapping):
                view = view_of_plan(label, plan, indexes)
            shown.append(view)
            if label == IN_FORCE and "drift" in self.record:
                shown.append(view_of_kernel(KERNEL, view, self.drift, drifting))
        return {
            "machine": machine,
            "views": [views.place(view) for view in shown],
            "holders": holders_of(self.record, self.topology),
            "users": users_of(self.record, self.topology.get("applied") or self.record.get("plan")),
            "npus": [_npu(npu, colour) for npu, colour in zip(npus, colours, strict=True)],
            "drift": [_drift(entry, index) for entry, index in zip(self.drift, drifting, strict=True)],
        }

    def _npu_of(self, entry: Drift, indexes: Mapping[Key, int]) -> int | None:
        """Return the index of the NPU that a drift belongs to; its logic id is that of the plan in force, or of an NPU that it lacks."""
        whose = (entry.get("npu"), entry.get("pci") or "", entry.get("device"))
        for entries in ((self.topology.get("applied") or {}).get("npus") or (), self.topology["npus"]):
            for key, npu in zip(keys_of(entries), entries, strict=True):
                if whose == (npu["id"], npu.get("pci") or "", key[0]):
                    return indexes[key]
        return None

    def _plans(self) -> Iterator[tuple[str, Plan | str]]:
        """Yield plans by label, or the sentence why there is none; the first one is what the picture shows at first."""
        in_force, now = self._in_force(), self.record.get("plan")
        if in_force:
            yield IN_FORCE, in_force
        if now and not (in_force and _same(in_force, now)):
            yield NOW, now
        elif self.record.get("refused") and not now:
            yield NOW, str(self.record["refused"])
        made_with = (now or in_force or cast("Plan", {})).get("options") or {}
        options = {name: value for name, value in made_with.items() if name in OPTIONS}
        for strategy in self.strategies:
            try:
                yield f"strategy {strategy}", plan_of(self.topology, strategy=strategy, replan=True, **options)
            except ValueError as error:
                yield f"strategy {strategy}", str(error)
        topology = self.before and self.before.get("topology")
        then = topology.get("applied") if topology else None
        if then:
            yield "earlier: plan in force", then
        elif self.before and self.before.get("plan"):
            yield "earlier: planned", self.before["plan"]


def _since(record: Record, earlier: Record | None) -> dict[str, list[str]] | None:
    """Return the objects that differ since the earlier run, that do so no more, and that still do; None where one run says nothing."""
    if earlier is None or "drift" not in earlier or "drift" not in record:
        return None
    now, then = (list(dict.fromkeys(str(entry["object"]) for entry in record["drift"])) for record in (record, earlier))
    return {
        "new": [name for name in now if name not in then],
        "fixed": [name for name in then if name not in now],
        "still": [name for name in now if name in then],
    }


def _machine(topology: Topology, machines: Shared, entries: Mapping[Key, PlanEntry]) -> tuple[list[Npu], list[int | None], int]:
    """Return the host's NPUs, their colours, and where its machine is held, once for all hosts that are alike: reading 640 CPUs takes its
    time."""
    alike = json.dumps([topology.get(part) for part in ("cpus", "numa", "npus")] + [list(entries.items())], sort_keys=True)
    if alike in machines.read:
        return machines.read[alike]
    npus = list(npus_of(topology, entries))
    nodes = list(nodes_of(topology, npus))
    machine = {
        "nodes": nodes,
        "cpus": sum(1 for node in nodes for _cpu in cpus_of(node)),
        "offline": str(topology["cpus"].get("offline") or ""),
    }
    machines.read[alike] = npus, colours_of(npus, nodes), machines.place(machine)
    return machines.read[alike]


def _same(one: Plan, other: Plan) -> bool:
    return all(one.get(key) == other.get(key) for key in ("strategy", "cpus", "housekeeping", "npus"))


def _npu(npu: Npu, colour: int | None) -> dict[str, object]:
    fields = {"label": npu.label, "badge": npu.badge, "name": npu.name, "pci": npu.pci, "node": npu.node, "colour": colour}
    facts = {key: npu.facts.get(key) for key in ("card", "busy")} if npu.facts else {"gone": True}
    return fields | {key: value for key, value in facts.items() if value is not None and value is not False}


def _drift(entry: Drift, npu: int | None) -> dict[str, object]:
    texts = {key: str(entry.get(key) or "") for key in ("code", "kind", "object", "expected", "found", "cause", "remark", "muted")}
    try:
        cpus = marked(entry)
    except ValueError:
        cpus = ""
    return {**texts, "npu": npu, "cpus": cpus}


def _process(given: Process) -> dict[str, object]:
    """Return a process as the page has it; modules name the NPUs of one ``npu`` or ``npus``, its memory ``memory`` or ``mib``."""
    npu = given.get("npu")
    memory = given.get("memory") or given.get("mib") or {}
    return {
        "pid": given.get("pid"),
        "name": str(given.get("name") or ""),
        "npus": [int(number) for number in given.get("npus") or ([] if npu is None else [npu])],
        "wanted": str(given.get("wanted") or ""),
        "memory": {str(node): round(float(mib), 1) for node, mib in memory.items()},
    }


def _facts(topology: Topology, change: LastChange | None) -> list[list[str]]:
    machine = topology.get("machine") or {}
    last = ""
    if change:
        who = f" by {change['author']}" if change["author"] else ""
        why = f": {change['reason']}" if change["reason"] else ""
        last = f"{change['action']} of {change['time']}{who}, run {change['run']['id']}{why}"
    pairs = (
        ("Last change", last),
        ("Kernel", machine.get("kernel")),
        ("Driver", (topology.get("driver") or {}).get("version")),
        ("systemd", machine.get("systemd")),
        ("cgroup", machine.get("cgroup")),
        ("kubelet", (topology.get("kubelet") or {}).get("policy")),
    )
    return [[name, str(value)] for name, value in pairs if value]
