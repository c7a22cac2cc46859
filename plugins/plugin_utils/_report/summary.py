# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Summarize the result of a playbook for every host from the variables of the run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import coded
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import PLAN_OUTDATED, WORK_OUTSIDE_POOL
from ansible_collections.npu.affinity.plugins.module_utils._users import pools
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import BIND_EFFECT, code_of, problems, with_mutes, without
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import moved_mib
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import TO, Start
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import outdated, unmuted
from ansible_collections.npu.affinity.plugins.plugin_utils._report.runs import BEFORE
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import SHOWN

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import (
        Cost,
        NextStep,
        NpuUser,
        OutsideUser,
        Summary,
        SummaryOfHost,
        SummaryOfPlan,
    )

QUERYING = ("reached", "gathered", "verified", "measured", "packed")
"""What the tasks register that look at a host."""
INCOMPLETE = "a task failed or lost the connection, and the tasks after it did not run. Run again when the host answers."
BATCHED = ("bind", "rollback")
OUTSIDE = "bound, workloads not"
"""The host is as bound, and what uses its NPUs runs on other CPUs."""
STATES = (
    *("changed", "would change", "unbound", "would be unbound", "partly unbound", "would be partly unbound", "unchanged"),
    *("planned", "as bound", OUTSIDE, "measured", "measured, not bound", "collected"),
    *("never bound", "nothing to bind", "nothing to unbind", "skipped"),
    *("drifted", "not compared", "refused", "failed", "unreachable", "untouched"),
)
"""In the order in which they are shown."""
DIFFERING = {"drifted", "not compared"}
FAILURES = DIFFERING | {"refused", "failed", "unreachable"}
UNPLANNED = {"refused", "failed", "unreachable", "untouched", "skipped", "not compared"}
"""Whose plan is not in force after the run."""
NOT_RESTARTED = "not restarted"
ADOPTED = {"service": "unit", "container": "container"}
"""How a summary counts running work that was adopted, by the kind of a user of NPUs; others are processes."""
METHODS = {"slices": "by slices", "services": "by CPUAffinity= of named services", "none": "by the kubelet"}
"""What binds workloads, by the method of a desired state."""

ADOPT = "confine the running work to its pools, without a restart"
CHANGING, LOOKING = {"bind", "rollback", "unbind"}, {"plan", "verify", "report", "measure", "collect"}
CORRECTED = "again, after you have corrected that"
NO_ENTRY = "see the runs, and name one of them with npu_affinity_to"

NEXT: tuple[tuple[str, set[str], set[str], str], ...] = (
    ("", CHANGING, {"refused", "failed", "unreachable", "untouched"}, f"{CORRECTED}; finished hosts do not change"),
    ("", LOOKING, {"refused", "failed", "unreachable", "not compared"}, CORRECTED),
    ("", CHANGING, {"would change", "would be unbound", "would be partly unbound"}, "apply these changes"),
    ("history", {"rollback"}, {"changed", "unchanged"}, "see what was applied to each host"),
    ("bind", {"rollback"}, {"changed"}, "follow the inventory again"),
    ("bind", {"verify", "report"}, {"drifted"}, "repair the drift"),
    ("bind", {"bind", "verify", "report", "measure"}, {OUTSIDE, "changed", "unchanged", "failed", "drifted", "measured"}, ADOPT),
    ("verify", {"bind"}, {"changed", "unchanged"}, "compare the plans with the kernels"),
    ("unbind", {"bind"}, {"changed"}, "restore the original state"),
    ("bind", {"plan"}, {"planned"}, "bind; with --check --diff see what would change"),
    ("bind", {"verify", "report", "measure"}, {"never bound", "measured, not bound"}, "bind"),
    ("measure", {"measure"}, {"measured", "measured, not bound"}, "measure again and compare, after what you change"),
)
"""The command to run next: the playbook, the same one where it is empty; after which playbooks; when a host has which states; why."""
UNDO = {
    "rollback": "go back to the state before this run, which changed the host and then failed",
    "unbind": "restore the state before the first bind, which changed the host and then failed",
}
"""The command for a host that failed after it was changed, by whether it was bound before."""
REVIEWED = "bind only the reviewed plans"
HEALTH = "npu_affinity_health"

Host = Mapping[str, Any]
Judged = tuple[str, list[str]]


def _registered(host: Host, name: str) -> Mapping[str, Any]:
    """Return what a task registered on a host, nothing in it where it did not run."""
    return host.get(f"__npu_affinity_{name}") or {}


def _fact(host: Host, name: str) -> Mapping[str, Any]:
    return host.get(f"npu_affinity_{name}") or {}


def summary(
    hosts: Mapping[str, Host],
    playbook: str,
    check: bool = False,
    stopped: str = "",
    start: Start | None = None,
    lost: Collection[str] = (),
    run: str = "",
) -> Summary:
    """Return the summary of a run as plain data.

    ``hosts`` are the variables of each host, ``stopped`` is why the run ended before its end, ``start`` is how it was started, and ``lost``
    are the hosts that Ansible gave up on the way, and ``run`` is the id of the run.
    """
    entries = {name: _entry(name, host, playbook, check, name in lost) for name, host in hosts.items()}
    for sentence, names in _one_machine(hosts):
        for name in names:
            entries[name]["remarks"].append(sentence)
    states = {state: [name for name, entry in entries.items() if entry["state"] == state] for state in STATES}
    document: Summary = {
        "playbook": playbook,
        "check": check,
        "stopped": stopped,
        "states": {state: names for state, names in states.items() if names},
        "plans": _plans(hosts, entries, playbook == "verify") if playbook in ("bind", "rollback", "verify") else [],
        "hosts": entries,
        "next": [],
    }
    document["next"] += _next(document, hosts, start or Start(), run)
    return document


def _one_machine(hosts: Mapping[str, Host]) -> Iterator[tuple[str, list[str]]]:
    """Yield a sentence for each machine that has several names in the inventory, with these."""
    machines: dict[str, list[str]] = {}
    for name, host in hosts.items():
        identity = (_fact(host, "topology").get("machine") or {}).get("identity")
        if identity:
            machines.setdefault(identity, []).append(name)
    for names in machines.values():
        if len(names) > 1:
            sentence = f"{', '.join(names)} are one machine with one boot id: keep one of these names in the inventory."
            yield coded("NPU_ONE_MACHINE", [sentence])[0], names


def judged(host: Host, playbook: str, check: bool) -> Judged:
    """Return the state of a host with its reasons."""
    verdict = _failed_or_refused(host, playbook)
    return verdict or (_lost(host) if any(_registered(host, name).get("lost") for name in QUERYING) else JUDGES[playbook](host, check))


def _entry(name: str, host: Host, playbook: str, check: bool, lost: bool) -> SummaryOfHost:
    state, reasons = judged(host, playbook, check)
    if lost and state not in FAILURES:
        state, reasons = "unreachable", [INCOMPLETE]
    verified = _registered(host, "verified")
    lenient = playbook == "report" or (state in DIFFERING and not verified.get("drift_fails", True))
    must = {OUTSIDE} if verified.get("workloads_fail") else set()
    remarks = [] if state == "refused" else list(_remarks(host, playbook, state))
    entry = _registered(host, "gathered").get("entry")
    would_be_refused = _refusals(host) if playbook == "verify" else ()
    muted = {**(_fact(host, "state").get("muted") or {}), **(verified.get("muted") or {})}
    return {
        "state": state,
        "reasons": [text.removeprefix(f"Host {name}: ").replace(f"Host {name} ", "this host ") for text in _sentences(reasons)],
        "codes": {code: muted.get(code, "") for code in sorted(_codes(host, state) | {*filter(None, map(code_of, remarks))})},
        "remarks": _sentences(
            [*with_mutes(remarks, muted, _code_counts(verified)), *(f"A bind would now be refused: {why}" for why in would_be_refused)],
            str(host.get("npu_affinity_root") or "/"),
        ),
        "restart": _restart(host),
        "adopted": dict(Counter(ADOPTED.get(user["kind"], "process") for user in ([] if state in FAILURES else _adopted_users(host)))),
        "method": _method(host) if playbook in ("plan", "bind") and state not in UNPLANNED else "",
        "cost": _cost(host) if playbook == "plan" and state not in UNPLANNED else None,
        "run": str(entry["run"]["id"]) if entry and playbook == "rollback" and state not in UNPLANNED else "",
        "fails": state in FAILURES | must and not lenient,
    }


def _failed_or_refused(host: Host, playbook: str) -> Judged | None:
    """Return what a task noted because it failed, or why the host is refused; None for a host that got through."""
    refused = [f"{sentence} [NPU_SETTING_INVALID]" for sentence in host.get("__npu_affinity_refused") or ()]
    failure = host.get("__npu_affinity_failure")
    compared = JUDGES[playbook] is _compared
    if failure and not (compared and host.get("__npu_affinity_verified")):
        return _failed(host, failure, playbook)
    if not refused and playbook in ("bind", "plan", "measure", "rollback"):
        refused = _refusals(host)
    return ("refused", refused) if refused else None


def _refusals(host: Host) -> list[str]:
    """Return why a bind of a host is refused, or would be."""
    return list(_registered(host, "gathered").get("refusals") or ())


def _codes(host: Host, state: str) -> set[str]:
    """Return the codes of findings and refusals."""
    verified, gathered = (_registered(host, name) for name in ("verified", "gathered"))
    codes = {*_code_counts(verified), *(gathered.get("codes") or ())}
    if state == "refused" and not gathered.get("codes"):
        codes.add("NPU_SETTING_INVALID" if host.get("__npu_affinity_refused") else "NPU_NOT_GATHERED")
    return codes


def _code_counts(verified: Mapping[str, Any]) -> Counter[str]:
    """Return how often a comparison found what has a code."""
    counts = Counter(str(entry["code"]) for entry in verified.get("drift") or () if "code" in entry)
    return +(counts | Counter({WORK_OUTSIDE_POOL: len(verified.get("outside") or ()), PLAN_OUTDATED: len(verified.get("changes") or ())}))


def _failed(host: Host, failure: Mapping[str, Any], playbook: str) -> Judged:
    """Return the state and the reason of a host on which a task failed; batches of changes name the task."""
    lost = any(_registered(host, name).get("lost") for name in ("host_result", "unbound"))
    task, reason = failure.get("task"), failure["reason"]
    if task and playbook in BATCHED and failure["state"] == "failed":
        reason = f"{task}: {reason or 'no message'}"
    reason = reason or f"task {task} failed"
    if failure["state"] == "refused" and not _registered(host, "gathered").get("codes"):
        reason = f"{reason} [NPU_NOT_GATHERED]"
    return "unreachable" if lost else failure["state"], [reason]


def _notes(host: Host) -> list[str]:
    """Return what there is to say after a bind: how workloads are bound if that changed, and what moves interrupts or cannot be bound."""
    result, desired = _registered(host, "host_result"), _fact(host, "state")
    notes: dict[str, list[str]] = {**(desired.get("notes") or {})}
    gone = not _fact(host, "plan").get("npus", True) and _fact(host, "topology").get("applied")
    sentences = notes.get("slices", ())
    notes["slices"] = coded("NPU_SMI_UNAVAILABLE", sentences) if gone else coded("NPU_WORKLOADS_BOUND", sentences)
    if not _fact(host, "plan").get("npus", True):
        return [sentence for sentences in notes.values() for sentence in sentences]
    if "remarks" in result and not result.get("failed"):
        follow = ("slices", "irq") if result.get("changed") or result.get("restart_needed") else ("irq",)
        return [sentence for feature in follow for sentence in notes.get(feature, ())] + list(result["remarks"])
    if desired.get("converged"):
        in_force = _registered(host, "gathered").get("in_force") or {}
        return [*notes.get("irq", ()), *in_force.get("remarks", ())]
    return []


def _sentences(texts: Iterable[Any], root: str = "/") -> list[str]:
    """Return each text once, on one line, with the paths below ``root`` as the host has them."""
    lines = (" ".join(str(text).split()).removeprefix("Task failed: ") for text in texts)
    return list(dict.fromkeys(text.replace(f"{root}/", "/").replace(root, "its root") if root != "/" else text for text in lines))


def _remarks(host: Host, playbook: str, state: str) -> Iterable[str]:
    """Yield what there is to look at. What a bind takes is listed until it is in force. A measurement reads settings of threads itself."""
    yield from problems(host.get("npu_affinity_topology"))
    yield from _fact(host, "plan").get("warnings") or ()
    if playbook != "measure":
        in_force = playbook in ("verify", "report") or state == "unchanged"
        sentences = _fact(host, "state").get("remarks") or ()
        yield from without(sentences, [BIND_EFFECT] if in_force else ())
    if playbook == "bind":
        yield from _notes(host)
    results = [_registered(host, name) for name in ("verified", "measured")]
    yield from (remark for result in results for remark in result.get("remarks") or ())
    if playbook == "verify":
        yield from (f"A {sentence}" for sentence in outdated(results[0]))
    if state != OUTSIDE and not _registered(host, "gathered").get("failing"):
        yield from _outside(host, playbook)
    unbound = _registered(host, "unbound")
    needs_message = unbound.get("kept") or unbound.get("pending") or (unbound.get("changed") and unbound.get("partly"))
    remains = list(dict.fromkeys([*(unbound.get("pending") or ()), unbound["message"]])) if needs_message else []  # else the state says it
    remains += [
        f"{slice} has no limits any more; after its processes have been restarted, stop it, or wait for the next boot."
        for slice in unbound.get("slices_left") or ()
    ]
    yield from coded("NPU_UNBIND_LEFT", remains)


def _work_outside(host: Host, playbook: str) -> tuple[list[OutsideUser], list[str]]:
    """Return what runs outside its pool, as compared, or as gathered less what a bind would adopt, with sentences on other such work."""
    results = [_registered(host, name) for name in ("verified", "measured")]
    outside: list[OutsideUser] = next((result["outside"] for result in results if result.get("outside")), [])
    state = _fact(host, "state")
    if outside or playbook != "bind" or not state.get("outside") or "drift" in results[0]:
        return outside, []
    adopted = {pid for user in _adopted_users(host) for pid in user["pids"]}
    users: list[NpuUser] = [user.copy() for user in host["npu_affinity_topology"].get("users") or ()]
    for user in users:
        user["processes"] = [process for process in user["processes"] if process["pid"] not in adopted]
    adopts = (state.get("live") or {}).get("adopt") or {}
    placement = pools.placement(users, state["plan"], pods=bool(adopts.get("pods")))
    return placement.outside, placement.remarks()


def _outside(host: Host, playbook: str) -> list[str]:
    """Return sentences on what runs outside its pool, with what puts that there which no bind adopts."""
    outside, others = _work_outside(host, playbook)
    return coded(WORK_OUTSIDE_POOL, filter(None, [pools.with_remedies(outside), *others]))


def _is_adoptable(host: Host, playbook: str, entry: SummaryOfHost) -> bool:
    """Whether to offer a bind that adopts what runs outside its pool: not if that is muted, this run has tried, or a service does it."""
    adopts = (_fact(host, "state").get("live") or {}).get("adopt") or {}
    tried = adopts and (playbook == "bind" or adopts.get("mode") == "always")
    return not (tried or entry["codes"].get(WORK_OUTSIDE_POOL)) and any(user["adoptable"] for user in _work_outside(host, playbook)[0])


def _method(host: Host) -> str:
    """Return what binds the workloads of a host, as words of a summary; '' where role slices is off, or there is nothing to bind."""
    live = _fact(host, "state").get("live") or {}
    slices = live.get("slices") or {}
    if not _fact(host, "plan").get("npus"):
        return ""
    if slices.get("method") != "services":
        return METHODS.get(slices.get("method") or "", "")
    methods = [METHODS["services"]] if slices["services"] else []
    methods += ["by adoption of running work"] if live.get("adopt") else []
    return " and ".join(methods) or "with none (needs cgroup v2 with cpusets, a named service or npu_affinity_adopt)"


def _cost(host: Host) -> Cost | None:
    state = _fact(host, "state")
    if not state.get("difference") or not state["plan"]["npus"]:
        return None
    quality = state["plan"]["quality"]
    return {
        "smallest": quality["smallest"],
        "remote": quality["remote"],
        "memory_mib": moved_mib(host["npu_affinity_topology"], state),
        "restart": state["difference"]["restart"],
    }


def _restart(host: Host) -> list[str]:
    """Return the units that run as they were started until somebody restarts them."""
    units = [unit for name in ("host_result", "unbound") for unit in _registered(host, name).get("restart_needed") or ()]
    drift = _registered(host, "verified").get("drift") or ()
    units += [entry["unit"] for entry in drift if entry["cause"].startswith(NOT_RESTARTED) and entry.get("unit")]
    return sorted(set(units))


def _adopted_users(host: Host) -> list[Mapping[str, Any]]:
    users = (_registered(host, "host_result").get("adopt") or {}).get("users") or ()
    return [user for user in users if user["state"] == "adopted"]


def _lost(host: Host) -> Judged:
    results = [_registered(host, name) for name in QUERYING]
    return "unreachable", [next((result["msg"] for result in results if result.get("lost")), "it did not answer")]


def _bound(host: Host, check: bool) -> Judged:
    result, topology = _registered(host, "host_result"), _fact(host, "topology")
    if result.get("changed") and not result.get("unreachable"):
        return "would change" if check else "changed", []
    if result and not (result.get("skipped") or result.get("unreachable")):
        return "unchanged", []
    if result.get("unreachable") or not topology:
        return _lost(host)
    if not _fact(host, "plan").get("npus", True):
        return "nothing to bind", []
    if _fact(host, "state").get("converged"):
        return "unchanged", []
    if _registered(host, "gathered").get("ready"):
        return "untouched", []
    return "skipped", [f"processes use NPU {', '.join(str(npu['id']) for npu in topology['npus'] if npu['busy'])}"]


def _rolled_back(host: Host, check: bool) -> Judged:
    chosen = _registered(host, "gathered")
    if "entry" not in chosen:
        return _lost(host)
    if chosen["entry"] is None:
        return ("unchanged" if chosen.get("stays") else "never bound"), []
    return _bound(host, check)


def _planned(host: Host, check: bool) -> Judged:
    plan = host.get("npu_affinity_plan")
    return _lost(host) if plan is None else ("planned" if plan["npus"] else "nothing to bind", [])


def _compared(host: Host, check: bool) -> Judged:
    verified = host.get("__npu_affinity_verified")
    if not verified or verified.get("skipped"):
        return _lost(host)
    drift = verified.get("drift")
    if drift is None:
        return "not compared", [verified["msg"]]
    unmuted_drift = unmuted(verified)
    if not unmuted_drift and verified.get("outside") and WORK_OUTSIDE_POOL not in (verified.get("muted") or {}):
        return OUTSIDE, _outside(host, "verify")
    if not unmuted_drift:
        return "as bound" if verified["bound"] else "never bound", []
    causes = {entry["cause"].partition(":")[0] for entry in unmuted_drift}
    codes = {entry["code"] for entry in unmuted_drift}
    return "drifted", [f"differs from its plan, likely {', '.join(sorted(causes))} [{', '.join(sorted(codes))}]"]


def _unbound(host: Host, check: bool) -> Judged:
    result = host.get("__npu_affinity_unbound")
    if not result:
        return _lost(host) if _registered(host, "reached").get("lost") else ("untouched", [])
    if result.get("changed"):
        return f"{'would be ' if check else ''}{'partly ' if result.get('partly') else ''}unbound", []
    return "unchanged" if result.get("kept") or result.get("pending") else "nothing to unbind", []


def _measured(host: Host, check: bool) -> Judged:
    if not host.get("__npu_affinity_measured"):
        return _lost(host)
    return "measured" if host["npu_affinity_topology"]["applied"] else "measured, not bound", []


def _collected(host: Host, check: bool) -> Judged:
    result = host.get("__npu_affinity_packed")
    if result and "commands" in result:
        return "collected", []
    return ("untouched", []) if check and host.get("npu_affinity_topology") else _lost(host)


JUDGES: dict[str, Callable[[Host, bool], Judged]] = {
    "bind": _bound,
    "rollback": _rolled_back,
    "plan": _planned,
    "verify": _compared,
    "report": _compared,
    "unbind": _unbound,
    "measure": _measured,
    "collect": _collected,
    "inspect": _compared,
}


def _plans(hosts: Mapping[str, Host], entries: Mapping[str, SummaryOfHost], compared: bool) -> list[SummaryOfPlan]:
    """Return the distinct plans, each with the hosts that have it: those in force where hosts were compared with them."""
    plans: dict[str, SummaryOfPlan] = {}
    for name, host in hosts.items():
        plan = _fact(host, "topology").get("applied") if compared else host.get("npu_affinity_plan")
        if entries[name]["state"] in UNPLANNED or not plan or not plan["npus"]:
            continue
        pools = {f"{entry['kind'].upper()} {entry['id']}": entry["pool"] for entry in plan["npus"]}
        shown: SummaryOfPlan = {
            "strategy": plan.get("strategy", "unknown strategy"),
            "housekeeping": plan.get("housekeeping", ""),
            "pools": pools,
            "hosts": [],
        }
        plans.setdefault(repr(shown), shown)["hosts"].append(name)
    return list(plans.values())


def _next(document: Summary, hosts: Mapping[str, Host], start: Start, run: str) -> Iterable[NextStep]:
    """Yield what to run next, and what for. A rollback names the run, because -1 means another one later."""
    playbook, check = document["playbook"], document["check"]
    for undo, names in _undo_of_failed(document, hosts).items():
        settings = {TO: f"{BEFORE}{run}"}
        if any(_registered(hosts[name], "failure").get("check") for name in names):  # the user's check of its health
            settings[HEALTH] = ""
        yield _step(start, start.line(undo, limit=",".join(names), settings=settings), UNDO[undo])
    meant = next((to for host in hosts.values() if (to := _registered(host, "resolved").get("to"))), "")
    lacking = [name for name, host in hosts.items() if playbook == "rollback" and _lacks_entry(host)]
    if lacking and not (meant and all(_registered(hosts[name], "history").get("entries") == [] for name in lacking)):
        yield _step(start, start.line("history", _limit(lacking, hosts, start)), NO_ENTRY)
    file = next((str(host["npu_affinity_plan_file"]) for host in hosts.values() if host.get("npu_affinity_plan_file")), "")
    reviewed = f"{file.removesuffix('.json').removesuffix('.md')}.json" if file and playbook == "plan" else ""
    unbindable = {name for name, host in hosts.items() if document["hosts"][name]["state"] == "refused" or _refusals(host)}
    predicted = any(state.startswith("would") for state in document["states"])
    corrected = _without_refused(document, hosts, start, meant)
    for to_run, after, wanted, purpose in NEXT:
        waiting = unbindable if purpose == CORRECTED and playbook == "verify" else ()
        names = [name for name, entry in document["hosts"].items() if (entry["state"] in wanted or name in waiting) and name not in lacking]
        given = {"npu_affinity_reviewed": reviewed} if to_run == "bind" and reviewed else {TO: meant} if meant else {}
        if purpose == ADOPT:
            given = {"npu_affinity_adopt": "now"}
            names = [name for name in names if _is_adoptable(hosts[name], playbook, document["hosts"][name])]
        if to_run == "bind":
            names = [name for name in names if name not in unbindable]
        if playbook not in after or not names or (to_run and predicted):
            continue
        is_part = start.limit or purpose == ADOPT or (unbindable if to_run == "bind" else not to_run and (lacking or corrected != start))
        if purpose == CORRECTED:  # a page and a file for review are of all hosts
            is_part = not (file or playbook == "report")
        limit = _limit(names, hosts, start, SHOWN if purpose == CORRECTED else len(hosts)) if is_part else ""
        again = check and not to_run and "would change" not in wanted
        offered = corrected if purpose.startswith(CORRECTED) else start
        yield _step(offered, offered.line(to_run or playbook, limit, again, given), REVIEWED if reviewed and given else purpose)


def _limit(names: Sequence[str], hosts: Collection[str], start: Start, most: int = SHOWN) -> str:
    """Return the shorter pattern of these hosts, '' for all, and for more than ``most`` names, where the whole run does no harm."""
    others = [f"!{name}" for name in hosts if name not in names]
    shown = names if start.limit or len(names) <= len(others) else others
    return ",".join(shown) if others and len(shown) <= most else ""


def _lacks_entry(host: Host) -> bool:
    """Whether npu_affinity_to means nothing in the history of a host. Where the last run is not known, other hosts need correction."""
    resolved, gathered = _registered(host, "resolved"), _registered(host, "gathered")
    if resolved.get("refusal"):
        return not resolved["to"]
    return "NPU_NO_ENTRY" in (gathered.get("codes") or ()) and not _registered(host, "history").get("why")


def _without_refused(document: Summary, hosts: Mapping[str, Host], start: Start, to: str) -> Start:
    """Return how the run was started without the settings that a refusal names; ``to``: what npu_affinity_to was resolved to."""
    reasons = [why for entry in document["hosts"].values() if entry["state"] == "refused" for why in entry["reasons"]]
    words = set(re.findall(r"\w+", " ".join([*reasons, *(why for host in hosts.values() for why in _refusals(host))])))
    refused = {name for name, _value in start.extra if name in words and not (name == TO and to)}
    kept = tuple(pair for pair in start.extra if pair[0] not in refused)
    return start._replace(extra=kept, withheld=(*start.withheld, *sorted(refused)))


def _step(start: Start, command: str, purpose: str) -> NextStep:
    names = ", ".join(start.withheld)
    return {"command": command, "purpose": f"{purpose}; add -e for {names}, whose values are not repeated here" if names else purpose}


def _undo_of_failed(document: Summary, hosts: Mapping[str, Host]) -> dict[str, list[str]]:
    """Return the hosts that failed after a bind or a rollback had changed them, by the playbook that undoes that. Where their state
    was only repaired, the history has no other."""
    names: dict[str, list[str]] = {}
    for name in document["states"].get("failed", ()) if not document["check"] else ():
        result = _registered(hosts[name], "host_result")
        if result.get("changed"):
            if not _fact(hosts[name], "topology").get("applied"):
                names.setdefault("unbind", []).append(name)
            elif result.get("history"):
                names.setdefault("rollback", []).append(name)
    return dict(sorted(names.items()))
