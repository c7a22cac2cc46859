# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host after a run: its variables, what a role did, and its comparison, as the page reads it and as text."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import NEVER_BOUND, OLD_PROCESS, SHORT_OF_MEMORY, coded
from ansible_collections.npu.affinity.plugins.module_utils._base.table import count
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import PLAN_OUTDATED, WORK_OUTSIDE_POOL
from ansible_collections.npu.affinity.plugins.module_utils._users.pools import with_remedies
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import BIND_EFFECT, problems, with_mutes, without
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import listed

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Comparison, Plan, Topology

    class Process(TypedDict, total=False):
        """``memory`` (or ``mib``) is in MiB by NUMA node; it belongs on the nodes ``wanted``."""

        pid: int
        name: str
        npu: int | None
        npus: list[int]
        wanted: str
        memory: dict[str, float]
        mib: dict[str, float]

    class Record(Comparison, total=False):
        """What playbook ``npu.affinity.verify`` keeps of a host; only ``host``, its name, must be there.

        ``msg`` is why it was not compared; ``muted``: until when and why, by code; ``plan`` is what a bind would now plan, or ``refused``,
        the sentence why it would not; ``unreachable``: why it did not answer; ``services`` and ``workloads`` are settings; ``groups`` those
        of the inventory that it is in.
        """

        host: str
        time: str
        msg: str
        muted: dict[str, str]
        topology: Topology
        plan: Plan
        refused: str
        unreachable: str
        services: list[dict[str, object]]
        workloads: list[dict[str, object]]
        groups: list[str]
        processes: list[Process]


OF_COMPARISON = ("bound", "checked", "drift", "outside", "outside_sentence", "remarks", "changes", "last_change", "msg", "muted")
OF_USER = ("services", "workloads")
"""Settings that the page shows."""
NAMED = 5
"""So many objects are named where a host fails after a bind."""
ARCHIVES = "npu_affinity_archives"
GATHERED, TOPOLOGY = "__npu_affinity_gathered", "npu_affinity_topology"
NO_GROUPS = {"ungrouped", ARCHIVES}
"""Groups that say nothing of a host: that of hosts without one, and that of archives."""


def now(form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime(form)


def record(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a host by its variables; one that never answered has a name and little else."""
    verified, gathered = (variables.get(f"__npu_affinity_{key}") or {} for key in ("verified", "gathered"))
    result = {"host": name, "time": now()} | {key: verified[key] for key in OF_COMPARISON if key in verified}
    for key in OF_USER if gathered and "ansible_facts" not in gathered else ("topology", *OF_USER):
        if (value := variables.get(f"npu_affinity_{key}")) is not None:
            result[key] = value
    if groups := [name for name in variables.get("group_names") or () if name not in NO_GROUPS]:
        result["groups"] = groups
    if why := " ".join(gathered.get("refusals") or ()):
        result["refused"] = why
    elif (gathered.get("state") or {}).get("plan"):
        result["plan"] = gathered["state"]["plan"]
    if gathered.get("lost"):
        result["unreachable"] = gathered["msg"]
    return result


def summary(verified: Mapping[str, Any]) -> str:
    """Return the result of the comparison of a host."""
    if "drift" not in verified:
        return str(verified["msg"])
    if not verified["bound"] and not verified["drift"]:
        return "never bound, so there is nothing to compare"
    muted = len(verified["drift"]) - len(unmuted(verified))
    return f"{len(verified['drift'])} of {sum(map(len, verified['checked'].values()))} compared objects differ" + (
        f", {muted} of them muted" if muted else ""
    )


def unmuted(verified: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the drift of a comparison that nobody muted."""
    muted = verified.get("muted") or {}
    return [entry for entry in verified["drift"] if entry.get("code") not in muted]


def drift_fails(verified: Mapping[str, Any], fail_on: Container[str]) -> bool:
    """Return whether a host fails on its drift; ``fail_on``: setting npu_affinity_fail_on, where unbound is of the host never bound."""
    never_bound = any(entry["cause"] == NEVER_BOUND for entry in verified.get("drift") or ())
    return "drift" in fail_on or (never_bound and "unbound" in fail_on)


def failure(verified: Mapping[str, Any], after_bind: bool) -> str:
    """Return why a host fails, or an empty text. After a bind, services run as they were started, and huge pages may need a reboot; what
    else differs is named, up to :data:`NAMED` objects."""
    expected = {OLD_PROCESS, SHORT_OF_MEMORY} if after_bind else set()
    if verified["drift_fails"] and "drift" not in verified:
        return summary(verified)
    if verified["drift_fails"] and {entry["cause"] for entry in unmuted(verified)} - expected:
        sentences = listed([entry["sentence"] for entry in unmuted(verified)], NAMED)
        return f"{summary(verified)}: {'; '.join(sentences)}" if after_bind else summary(verified)
    away = verified.get("outside") and WORK_OUTSIDE_POOL not in verified["muted"]
    return coded(WORK_OUTSIDE_POOL, [with_remedies(verified["outside"])])[0] if verified["workloads_fail"] and away else ""


def outdated(compared: Mapping[str, Any]) -> list[str]:
    """Return what a bind would now change, as a sentence without its article."""
    changes = compared.get("changes")
    return [f"bind would now change {'; '.join(changes)} [{PLAN_OUTDATED}]"] if changes else []


def sentences(verified: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a comparison found on a host."""
    yield summary(verified)
    ends = {code: f"; {why}" for code, why in (verified.get("muted") or {}).items()}
    yield from (entry["sentence"] + ends.get(entry.get("code"), "") for entry in verified.get("drift") or ())
    if verified.get("outside_sentence"):
        yield f"{verified['outside_sentence']} [{WORK_OUTSIDE_POOL}]{ends.get(WORK_OUTSIDE_POOL, '')}"


def remarks(verified: Mapping[str, Any], variables: Mapping[str, Any]) -> list[str]:
    """Return the remarks on a host that was compared, without its work outside pools: what a bind would now change, but not what it
    would move for that, and why it would be refused."""
    texts = [*problems(variables.get("npu_affinity_topology")), *(verified.get("remarks") or ())]
    refused = " ".join((variables.get("__npu_affinity_gathered") or {}).get("refusals") or ())
    if not refused:
        texts += without((variables.get("npu_affinity_state") or {}).get("remarks") or (), [BIND_EFFECT])
        texts += [f"A {sentence}" for sentence in outdated(verified)]
    shown = with_mutes(list(dict.fromkeys(texts)), verified.get("muted") or {})
    return [*shown, *([f"A bind would now be refused: {refused}"] if refused else [])]


def of_this_run(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a host without the topology that a fact cache has of an earlier run, if this one could not gather it."""
    gathered = variables.get(GATHERED)
    return {name: value for name, value in variables.items() if name != TOPOLOGY or not gathered or "ansible_facts" in gathered}


class ReadOnce(Mapping[str, Any]):
    """The variables of a host, with a topology only of this run. Each is read from ``hostvars`` once, which walks through all of a fact at
    every access."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self._values:
            self._values[name] = self._variables[name]
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._variables and (name != TOPOLOGY or "ansible_facts" in (self.get(GATHERED) or {}))

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, self._variables)

    def __len__(self) -> int:
        return sum(1 for _name in self)


LISTS = (("files", "file", "written"), ("removed", "file", "removed"), ("folders", "folder", "created"), ("missing", "file", "missing"))
"""Lists in results of modules, with words for their elements and for what was done."""


def role_line(role: str, host: str, result: Mapping[str, Any], check: bool) -> str:
    """Return a line such as ``a2-01: role slices changed the host: 12 files written, 1 file removed``."""
    if result.get("skipped"):
        return f"{host}: role {role} had nothing to do"
    if not result.get("changed"):
        return f"{host}: role {role} changed nothing, the host matches its plan"
    parts = [f"{count(len(result[key]), noun)} {done}" for key, noun, done in LISTS if result.get(key)]
    return f"{host}: role {role} {'would change' if check else 'changed'} the host{': ' if parts else ''}{', '.join(parts)}"


def lines_after(feature: str, notes: Mapping[str, Sequence[str]], result: Mapping[str, Any]) -> list[str]:
    """Return what a user needs to know after a feature was applied, next to what changed; ``notes`` are those of the desired state."""
    if feature != "slices":
        return [*result["remarks"], *notes[feature]]
    if result["changed"] or result["restart_needed"]:
        waiting = result["restart_needed"]
        restart = f"These services run as they were started until they are restarted: {', '.join(waiting)}"
        return [*notes["slices"], *([restart] if waiting else [])]
    return []
