# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of every host in a run of a playbook, out of the variables that the run left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import TO, Typed

RESULTS = (
    "__npu_affinity_vnpu_result",
    "__npu_affinity_host_result",
    "__npu_affinity_kubelet_result",
)
"""What the tasks of a bind register."""
OUTSIDE = "bound, workloads not"
"""The host is as bound, and what uses its NPUs runs on other CPUs."""
STATES = (
    "changed",
    "would change",
    "unbound",
    "would be unbound",
    "unchanged",
    "planned",
    "as bound",
    OUTSIDE,
    "measured",
    "measured, not bound",
    "collected",
    "never bound",
    "nothing to bind",
    "skipped",
    "drifted",
    "not compared",
    "refused",
    "failed",
    "unreachable",
    "untouched",
)
"""In the order in which they are shown."""
DIFFERING = {"drifted", "not compared"}
FAILURES = DIFFERING | {"refused", "failed", "unreachable"}
UNPLANNED = {"refused", "failed", "unreachable", "untouched", "skipped", "not compared"}
"""Whose plan is not in force after the run."""
NOT_RESTARTED = "not restarted"
WAYS = {"slices": "slices", "services": "CPUAffinity of named services", "none": "the kubelet"}
"""What binds workloads, by the method of a desired state."""

NEXT: tuple[tuple[str, set[str], set[str], str], ...] = (
    (
        "",
        {"bind", "rollback", "unbind"},
        {"refused", "failed", "unreachable", "untouched"},
        "again, once that is corrected; hosts that are done stay as they are",
    ),
    ("", {"bind", "rollback", "unbind"}, {"would change", "would be unbound"}, "without --check it is done"),
    ("history", {"rollback"}, {"changed", "unchanged"}, "see what was applied to each host"),
    ("bind", {"rollback"}, {"changed"}, "follow the inventory again"),
    ("verify", {"bind"}, {"changed", "unchanged"}, "compare the plans with the kernels"),
    ("unbind", {"bind"}, {"changed"}, "put everything back"),
    ("bind", {"plan"}, {"planned"}, "bind; with --check --diff see what would change"),
    ("bind", {"verify", "report"}, {"drifted"}, "put it right"),
    ("bind", {"verify", "report", "measure"}, {"never bound", "measured, not bound"}, "bind"),
    ("measure", {"measure"}, {"measured", "measured, not bound"}, "measure again and compare, after what you change"),
)
"""The command to run next: the playbook, the same one where it is empty; after which playbooks; when a host has which states; why."""
BACK = {
    "rollback": "go back to the state before this run, which changed the host and then failed",
    "unbind": "restore the state before the first bind, which changed the host and then failed",
}
"""The command for a host that failed after it was changed, by whether it was bound before."""
REVIEWED = "bind what was reviewed, and nothing else"
PURPOSES = [*BACK.values(), *(purpose for *_when, purpose in NEXT), REVIEWED]
"""In the order in which they are shown."""

Host = Mapping[str, Any]
Judged = tuple[str, list[str]]


def summary(hosts: Mapping[str, Host], playbook: str, check: bool = False, stopped: str = "", typed: Typed | None = None) -> dict[str, Any]:
    """Return the summary of a run as plain data.

    ``hosts`` are the variables of each host, ``stopped`` is why the run ended before its end, and ``typed`` is how it was started.
    """
    entries = {name: _entry(name, host, playbook, check) for name, host in hosts.items()}
    states = {state: [name for name, entry in entries.items() if entry["state"] == state] for state in STATES}
    found = {
        "playbook": playbook,
        "check": check,
        "stopped": stopped,
        "states": {state: names for state, names in states.items() if names},
        "plans": _plans(hosts, entries) if playbook in ("bind", "rollback", "verify") else [],
        "hosts": entries,
    }
    return found | {"next": list(_next(found, hosts, typed or Typed()))}


def _entry(name: str, host: Host, playbook: str, check: bool) -> dict[str, Any]:
    noted = host.get("__npu_affinity_failure")
    refused = list(host.get("__npu_affinity_refused") or ())
    state, reasons = (noted["state"], [noted["reason"]]) if noted else ("refused", refused) if refused else JUDGES[playbook](host, check)
    lenient = playbook == "report" or (state in DIFFERING and not host.get("__npu_affinity_drift_fails", True))
    must = {OUTSIDE} if host.get("__npu_affinity_workloads_fail") else set()
    return {
        "state": state,
        "reasons": [text.removeprefix(f"Host {name}: ").replace(f"Host {name} ", "this host ") for text in _sentences(reasons)],
        "remarks": _sentences(_remarks(host, playbook, state), str(host.get("npu_affinity_root") or "/")) if state != "refused" else [],
        "restart": _restart(host),
        "method": _method(host) if playbook in ("plan", "bind") and state not in UNPLANNED else "",
        "fails": state in FAILURES | must and not lenient,
    }


def _sentences(texts: Iterable[Any], root: str = "/") -> list[str]:
    """Return each text once, on one line, with the paths below ``root`` as the host has them."""
    found = (" ".join(str(text).split()).removeprefix("Task failed: ") for text in texts)
    return list(dict.fromkeys(text.replace(f"{root}/", "/").replace(root, "its root") if root != "/" else text for text in found))


def _remarks(host: Host, playbook: str, state: str) -> Iterable[str]:
    """Yield what there is to look at. What a bind would do is nothing for a measurement, which reads settings of threads by itself."""
    yield from (host.get("npu_affinity_topology") or {}).get("problems") or ()
    yield from (host.get("npu_affinity_plan") or {}).get("warnings") or ()
    if playbook != "measure":
        yield from (host.get("npu_affinity_state") or {}).get("remarks") or ()
    yield from host.get("__npu_affinity_notes") or ()
    results = [host.get(name) or {} for name in ("__npu_affinity_verified", "__npu_affinity_measured")]
    yield from (remark for result in results for remark in result.get("remarks") or ())
    if state != OUTSIDE:
        yield from (result["outside_sentence"] for result in results if result.get("outside"))
    unbound = host.get("__npu_affinity_unbound") or {}
    yield from [unbound["message"]] if unbound.get("message") else []
    for slice in unbound.get("slices_left") or ():
        yield f"{slice} has no limits any more; once what runs in it was restarted, stop it or leave it to the next boot."


def _method(host: Host) -> str:
    """Return what binds the workloads of a host, as words of a summary; '' where role slices is off, or there is nothing to bind."""
    slices = ((host.get("npu_affinity_state") or {}).get("live") or {}).get("slices") or {}
    if slices.get("method") == "services" and not slices["services"]:
        return "nothing, because it needs cgroup v2 or a named service"
    return WAYS.get(slices.get("method") or "", "") if (host.get("npu_affinity_plan") or {}).get("npus") else ""


def _restart(host: Host) -> list[str]:
    """Return the units that run as they were started until somebody restarts them."""
    found = [unit for name in (*RESULTS, "__npu_affinity_unbound") for unit in (host.get(name) or {}).get("restart_needed") or ()]
    drift = (host.get("__npu_affinity_verified") or {}).get("drift") or ()
    found += [entry["unit"] for entry in drift if entry["cause"].startswith(NOT_RESTARTED) and entry.get("unit")]
    return sorted(set(found))


def _results(host: Host) -> list[Mapping[str, Any]]:
    return [result for result in map(host.get, RESULTS) if result]


def _lost(host: Host, asked: str = "__npu_affinity_gathered") -> Judged:
    return "unreachable", [(host.get(asked) or {}).get("msg") or "it did not answer"]


def _bound(host: Host, check: bool) -> Judged:
    results = _results(host)
    topology = host.get("npu_affinity_topology")
    if any(result.get("unreachable") for result in results):
        return _lost(host)
    if any(result.get("changed") for result in results):
        return "would change" if check else "changed", []
    if any(not result.get("skipped") for result in results):
        return "unchanged", []
    if not topology:
        return _lost(host)
    if not (host.get("npu_affinity_plan") or {}).get("npus", True):
        return "nothing to bind", []
    if results and (host.get("npu_affinity_state") or {}).get("converged"):
        return "unchanged", []
    if results:
        return "skipped", [f"processes use NPU {', '.join(str(npu['id']) for npu in topology['npus'] if npu['busy'])}"]
    return "untouched", []


def _rolled_back(host: Host, check: bool) -> Judged:
    history = host.get("__npu_affinity_history")
    if not history or "entry" not in history:
        return _lost(host, "__npu_affinity_history")
    return ("never bound", []) if history["entry"] is None else _bound(host, check)


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
    if not drift and verified.get("outside"):
        return OUTSIDE, [verified["outside_sentence"]]
    if not drift:
        return "as bound" if verified["bound"] else "never bound", []
    causes = {entry["cause"].partition(":")[0] for entry in drift}
    return "drifted", [f"differs from its plan, likely {', '.join(sorted(causes))}"]


def _unbound(host: Host, check: bool) -> Judged:
    result = host.get("__npu_affinity_unbound")
    if not result:
        return "untouched", []
    if result.get("unreachable"):
        return _lost(host)
    if result.get("changed"):
        return "would be unbound" if check else "unbound", []
    return "unchanged", []


def _measured(host: Host, check: bool) -> Judged:
    result = host.get("__npu_affinity_measured")
    if not result or result.get("unreachable"):
        return _lost(host)
    return "measured" if host["npu_affinity_topology"]["applied"] else "measured, not bound", []


def _collected(host: Host, check: bool) -> Judged:
    result = host.get("__npu_affinity_packed")
    if result and "files" in result:
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


def _plans(hosts: Mapping[str, Host], entries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the distinct plans, each with the hosts that have it."""
    found: dict[str, dict[str, Any]] = {}
    for name, host in hosts.items():
        plan = host.get("npu_affinity_plan")
        if entries[name]["state"] in UNPLANNED or not plan or not plan["npus"]:
            continue
        pools = {f"{entry['kind'].upper()} {entry['id']}": entry["pool"] for entry in plan["npus"]}
        shown = {"strategy": plan["strategy"], "housekeeping": plan["housekeeping"], "pools": pools}
        found.setdefault(repr(shown), {**shown, "hosts": []})["hosts"].append(name)
    return list(found.values())


def _next(found: Mapping[str, Any], hosts: Mapping[str, Host], typed: Typed) -> Iterable[dict[str, str]]:
    """Yield what to run next, and what for."""
    playbook, check, states = found["playbook"], found["check"], set(found["states"])
    for back, names in _to_take_back(found, hosts).items():
        yield _step(typed, typed.line(back, limit=",".join(names), settings={TO: "-1"}), BACK[back])
    reviewed = _plan_file(hosts) if playbook == "plan" else ""
    for own, of, wanted, purpose in NEXT:
        if playbook in of and states & wanted:
            again = check and not own and "would change" not in wanted
            given = {"npu_affinity_reviewed": reviewed} if own == "bind" and reviewed else {}
            yield _step(typed, typed.line(own or playbook, check=again, settings=given), REVIEWED if given else purpose)


def _step(typed: Typed, command: str, purpose: str) -> dict[str, str]:
    names = ", ".join(typed.withheld)
    return {"command": command, "purpose": f"{purpose}; add -e for {names}, whose values are not repeated here" if names else purpose}


def _to_take_back(found: Mapping[str, Any], hosts: Mapping[str, Host]) -> dict[str, list[str]]:
    """Return the hosts that failed after a bind or a rollback had changed them, by the playbook that takes that back."""
    names: dict[str, list[str]] = {}
    for name in found["states"].get("failed", ()) if not found["check"] else ():
        result = hosts[name].get("__npu_affinity_host_result") or {}
        if result.get("changed"):
            bound = (hosts[name].get("npu_affinity_topology") or {}).get("applied")
            names.setdefault("rollback" if bound else "unbind", []).append(name)
    return dict(sorted(names.items()))


def _plan_file(hosts: Mapping[str, Host]) -> str:
    """Return the file of plans that this run wrote, or an empty string."""
    given = next((str(host["npu_affinity_plan_file"]) for host in hosts.values() if host.get("npu_affinity_plan_file")), "")
    return f"{given.removesuffix('.json').removesuffix('.md')}.json" if given else ""


def merged(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of runs over parts of one fleet, such as the slices of a job, as if it had been one run.

    Raises ``ValueError`` for none, for those of different playbooks, and for a host that is in more than one.
    """
    parts = list(summaries)
    kinds = sorted({f"{part['playbook']}{', check mode' if part['check'] else ''}" for part in parts})
    if len(kinds) != 1:
        raise ValueError(f"expected summaries of one playbook, and got {' and '.join(kinds) or 'none'}")
    hosts: dict[str, Any] = {}
    plans: dict[str, dict[str, Any]] = {}
    states: dict[str, list[str]] = {state: [] for state in STATES}
    for part in parts:
        if twice := sorted(hosts.keys() & part["hosts"].keys()):
            raise ValueError(f"{twice[0]} is in more than one summary (hosts: {len(twice)}); give each part of the fleet once")
        hosts |= part["hosts"]
        for state, names in part["states"].items():
            states[state] += names
        for plan in part["plans"]:
            shown = {key: value for key, value in plan.items() if key != "hosts"}
            plans.setdefault(repr(shown), {**shown, "hosts": []})["hosts"].extend(plan["hosts"])
    steps = {step["command"]: step for part in parts for step in part["next"]}
    return {
        "playbook": parts[0]["playbook"],
        "check": parts[0]["check"],
        "stopped": " ".join(dict.fromkeys(part["stopped"] for part in parts if part["stopped"])),
        "states": {state: names for state, names in states.items() if names},
        "plans": list(plans.values()),
        "hosts": hosts,
        "next": sorted(steps.values(), key=lambda step: PURPOSES.index(step["purpose"].partition("; add -e")[0])),
    }
