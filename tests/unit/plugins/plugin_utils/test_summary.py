# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary of a run: the result on each host, once for the whole fleet."""

from __future__ import annotations


import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._report import progress, summary, summary_text
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Typed
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ReadOnce, record

NPU = {"id": 0, "busy": False}
METHODS = [
    # the method of a host's desired state, its named services, whether running work is adopted, and how it is counted
    ("slices", [], False, "by slices"),
    ("services", [{"name": "a.service"}], False, "by CPUAffinity= of named services"),
    ("services", [{"name": "a.service"}], True, "by CPUAffinity= of named services and by adoption of running work"),
    ("services", [], True, "by adoption of running work"),
    ("services", [], False, "with none (needs cgroup v2 with cpusets, a named service or npu_affinity_adopt)"),
    ("none", [], False, "by the kubelet"),
]
PLAN = {
    "strategy": "topo_affinity",
    "housekeeping": "",
    "npus": [{"kind": "npu", "id": 0, "pool": "0-7"}, {"kind": "npu", "id": 1, "pool": "8-15"}, {"kind": "gpu", "id": 0, "pool": "16-23"}],
    "warnings": ["CPUs 3 are remote. [NPU_CPUS_REMOTE]"],
}
PLANNED = {"npu_affinity_topology": {"npus": [NPU], "problems": [], "applied": None}, "npu_affinity_plan": PLAN}
IN_FORCE = {"npu_affinity_topology": {"applied": PLAN}}
RESULT, GATHERED, REFUSED = "__npu_affinity_host_result", "__npu_affinity_gathered", "__npu_affinity_refused"
UNBOUND, FAILURE, MEASURED = "__npu_affinity_unbound", "__npu_affinity_failure", "__npu_affinity_measured"
AS_WANTED = {GATHERED: {"ready": False, "in_force": {"remarks": ["X moves IRQ 3."]}}}
CHOSEN = {GATHERED: {"entry": {"id": 1, "run": {"id": "R1"}}}, "__npu_affinity_resolved": {"to": "before:R2"}}
VERIFIED = "__npu_affinity_verified"
DRIFT = [
    {"code": "NPU_IRQBALANCE_ACTIVE", "cause": "irqbalance: it runs", "unit": None},
    {"code": "NPU_IRQBALANCE_ACTIVE", "cause": "irqbalance: it ran", "unit": None},
]
DRIFTED, AS_BOUND = {VERIFIED: {"drift": DRIFT}}, {VERIFIED: {"drift": [], "bound": True}}
LIKELY = ["differs from its plan, likely irqbalance [NPU_IRQBALANCE_ACTIVE]"]
BUSY = {"npu_affinity_topology": {"npus": [{"id": 3, "busy": True}]}, GATHERED: {"ready": False}}
AWAY = {"drift": [], "bound": True, "outside": [{"title": "a"}], "outside_sentence": "1 runs elsewhere"}
ADOPTED = {"name": "vllm.service", "kind": "service", "pids": [7], "state": "adopted"}
OUTSIDE = {
    "group": "/system.slice/vllm.service",
    "kind": "service",
    "unit": "vllm.service",
    "engine": None,
    "container": None,
    "name": "vllm.service",
    "devices": ["davinci0"],
    "npus": [{"kind": "npu", "id": 0}],
    "processes": [{"pid": 7, "start": 1, "command": "python3", "devices": ["davinci0"], "cpus": "0-7"}],
    "witness": "open",
}
WAITING = [{"cause": "not restarted: it runs in system.slice", "unit": "vllm@0.service"}]


def by_method(method, services, adopts=False):
    live = {"slices": {"method": method, "services": services}}
    state = {"live": {**live, "adopt": {"mode": "now"}} if adopts else live}
    return {**PLANNED, RESULT: {"changed": True}, "npu_affinity_state": state}


@pytest.mark.parametrize("playbook", ["plan", "bind"])
def test_hosts_are_counted_by_what_binds_their_workloads(playbook):
    hosts = {f"{method}{len(services)}{adopts}": by_method(method, services, adopts) for method, services, adopts, _text in METHODS}
    hosts |= {"more": by_method("slices", []), "off": {**PLANNED, RESULT: {"changed": True}, "npu_affinity_state": {"live": {}}}}
    hosts["bare"] = {**by_method("none", []), "npu_affinity_plan": {**PLAN, "npus": []}}
    hosts["refused"] = {**by_method("slices", []), REFUSED: ["No."]}
    found = summary.summary(hosts, playbook)
    assert [found["hosts"][name]["method"] for name in ("more", "off", "bare", "refused")] == ["by slices", "", "", ""]
    expected = ", ".join(f"{'2 hosts' if text == 'by slices' else 1} {text}" for *_host, text in METHODS)
    assert [line for line in summary_text.lines(found) if line.startswith("binding method")] == [f"binding method: {expected}"]
    assert not any(line.startswith("binding method") for line in summary_text.lines(summary.summary({"off": hosts["off"]}, playbook)))
    assert not any(host["method"] for host in summary.summary(hosts, "verify")["hosts"].values())


def test_one_machine_under_several_names_is_said_of_each():
    identities = {"a": "1f", "b": "1f", "c": "2e", "d": None, "e": None}
    hosts = {
        name: {**PLANNED, "npu_affinity_topology": {**PLANNED["npu_affinity_topology"], "machine": {"identity": found}}}
        for name, found in identities.items()
    }
    said = {
        name: [text for text in entry["remarks"] if "one machine" in text]
        for name, entry in summary.summary(hosts, "plan")["hosts"].items()
    }
    sentence = "a, b are one machine with one boot id: keep one of these names in the inventory. [NPU_ONE_MACHINE]"
    assert said == {"a": [sentence], "b": [sentence], "c": [], "d": [], "e": []}


def test_a_plan_lists_what_a_bind_costs_each_host():
    state = {"plan": {**PLAN, "quality": {"smallest": 8, "remote": 2}}, "difference": {"restart": []}}
    moves = {"room_mib": {}, "units": {"npu-0.slice": {"mems": "0-1", "mib": {"0": 1536, "1": 7}}}}
    moved = {
        **PLANNED,
        "npu_affinity_topology": {**PLANNED["npu_affinity_topology"], "memory": moves},
        "npu_affinity_state": {**state, "difference": {"restart": ["a.service"]}, "expected": [{"unit": "npu-0.slice", "mems": "1"}]},
    }
    same = {**PLANNED, "npu_affinity_state": state}
    silent = {**moves, "units": {"npu-0.slice": {"mems": "0-1", "mib": None}}}
    unknown = {**moved, "npu_affinity_topology": {**moved["npu_affinity_topology"], "memory": silent}}
    hosts = {"a": same, "b": same, "c": moved, "d": unknown, "refused": {**same, REFUSED: ["No."]}}
    found = summary.summary(hosts, "plan")
    assert found["hosts"]["c"]["cost"] == {"smallest": 8, "remote": 2, "memory_mib": 1536, "restart": ["a.service"]}
    assert [line for line in summary_text.lines(found) if line.startswith("cost")] == [
        "cost on a, b: smallest pool 8 CPUs, 2 remote CPUs, 0.0 GiB of memory to move, 0 units to restart",
        "cost on c: smallest pool 8 CPUs, 2 remote CPUs, 1.5 GiB of memory to move, 1 unit to restart",
        "cost on d: smallest pool 8 CPUs, 2 remote CPUs, memory to move not known, 1 unit to restart",
    ]
    assert found["hosts"]["refused"]["cost"] is None
    assert not any(host["cost"] for host in summary.summary(hosts, "bind")["hosts"].values())


def test_verify_lists_the_plans_in_force():
    other = {**PLANNED, "npu_affinity_plan": {**PLAN, "housekeeping": "0-7"}}
    topology = {**PLANNED["npu_affinity_topology"], "applied": {"npus": [{"kind": "npu", "id": 0, "pool": "8-15"}]}}
    bound = {**other, "npu_affinity_topology": topology, VERIFIED: {"drift": [], "bound": True}}
    found = summary.summary({"a": bound, "never": {**other, VERIFIED: {"drift": [], "bound": False}}}, "verify")
    assert found["plans"] == [{"strategy": "unknown strategy", "housekeeping": "", "pools": {"NPU 0": "8-15"}, "hosts": ["a"]}]


def adopting(*kinds, changed=True):
    users = [
        {"kind": kind, "state": state}
        for kind, state in [*((kind, "adopted") for kind in kinds), ("service", "inside"), ("other", "failed")]
    ]
    return {**PLANNED, RESULT: {"changed": changed, "adopt": {"changed": bool(kinds), "users": users}}}


@pytest.mark.parametrize(("check", "word"), [(False, "adopted"), (True, "would be adopted")])
@pytest.mark.parametrize("playbook", ["bind", "rollback"])
def test_adopted_work_is_counted_by_kind(playbook, check, word):
    history = {GATHERED: {"entry": {}}}
    hosts = {
        "a1": adopting("service", "service", "session"),
        "a2": adopting("service", "container", "other"),
        "a3": adopting(changed=False),
    }
    found = summary.summary({name: {**host, **history} for name, host in hosts.items()}, playbook, check)
    line = f"3 units, 1 container and 2 processes {word} on a1, a2"
    assert [text for text in summary_text.lines(found) if "adopted" in text] == [line]


@pytest.mark.parametrize("host", [{**adopting("service"), FAILURE: {"state": "failed", "reason": "No."}}, adopting()])
def test_hosts_that_failed_or_had_none_have_adopted_nothing(host):
    assert not any("adopted" in text for text in summary_text.lines(summary.summary({"a": host}, "bind")))


@pytest.mark.parametrize(
    ("playbook", "check", "left", "state", "reasons", "fails"),
    [
        ("bind", False, {**PLANNED, RESULT: {"changed": True}}, "changed", [], False),
        ("bind", True, {**PLANNED, RESULT: {"changed": True}}, "would change", [], False),
        ("bind", False, {**PLANNED, RESULT: {"changed": False}}, "unchanged", [], False),
        ("bind", False, {**PLANNED, GATHERED: {"ready": True}}, "untouched", [], False),
        ("bind", False, {**PLANNED, "npu_affinity_state": {"converged": True}, **AS_WANTED}, "unchanged", [], False),
        ("bind", False, {**PLANNED, "npu_affinity_plan": {**PLAN, "npus": []}}, "nothing to bind", [], False),
        ("bind", False, {}, "unreachable", ["it did not answer"], True),
        ("bind", False, {**PLANNED, RESULT: {"unreachable": True}}, "unreachable", ["it did not answer"], True),
        ("bind", False, BUSY, "skipped", ["processes use NPU 3"], False),
        ("bind", False, {REFUSED: ["Too few\nCPUs."]}, "refused", ["Too few CPUs. [NPU_SETTING_INVALID]"], True),
        ("bind", False, {**PLANNED, FAILURE: {"state": "failed", "reason": "x: y"}}, "failed", ["x: y"], True),
        ("plan", False, PLANNED, "planned", [], False),
        ("plan", False, {**PLANNED, REFUSED: ["No."]}, "refused", ["No. [NPU_SETTING_INVALID]"], True),
        ("verify", False, AS_BOUND, "as bound", [], False),
        ("verify", False, {VERIFIED: {"drift": [], "bound": False}}, "never bound", [], False),
        ("verify", False, {VERIFIED: AWAY}, "bound, workloads not", ["1 runs elsewhere"], False),
        ("verify", False, {VERIFIED: {**AWAY, "workloads_fail": True}}, "bound, workloads not", ["1 runs elsewhere"], True),
        ("report", False, {VERIFIED: {**AWAY, "workloads_fail": True}}, "bound, workloads not", ["1 runs elsewhere"], False),
        ("verify", False, {VERIFIED: {**AWAY, "drift": DRIFT}}, "drifted", LIKELY, True),
        ("verify", False, DRIFTED, "drifted", LIKELY, True),
        ("verify", False, {VERIFIED: {"drift": DRIFT, "drift_fails": False}}, "drifted", LIKELY, False),
        ("collect", False, {"__npu_affinity_packed": {"commands": []}}, "collected", [], False),
        ("inspect", False, {VERIFIED: {"msg": "the archive lacks it"}}, "not compared", ["the archive lacks it"], True),
        ("verify", False, {VERIFIED: {"lost": True, "msg": "no route"}}, "unreachable", ["no route"], True),
        ("verify", False, {VERIFIED: {"msg": "no JSON"}}, "not compared", ["no JSON"], True),
        ("report", False, {VERIFIED: {"msg": "no JSON"}}, "not compared", ["no JSON"], False),
        ("report", False, {}, "unreachable", ["it did not answer"], False),
        ("unbind", False, {UNBOUND: {"changed": True, "message": "Done."}}, "unbound", [], False),
        ("unbind", True, {UNBOUND: {"changed": True, "message": "Done."}}, "would be unbound", [], False),
        ("unbind", False, {UNBOUND: {"changed": True, "partly": True}}, "partly unbound", [], False),
        ("unbind", True, {UNBOUND: {"changed": True, "partly": True}}, "would be partly unbound", [], False),
        ("unbind", False, {UNBOUND: {"changed": False, "message": "Not bound."}}, "unchanged", [], False),
        ("unbind", False, {}, "untouched", [], False),
        ("rollback", False, {**PLANNED, **CHOSEN, RESULT: {"changed": True}}, "changed", [], False),
        ("rollback", True, {**PLANNED, **CHOSEN, RESULT: {"changed": True}}, "would change", [], False),
        ("rollback", False, {GATHERED: {"entry": None}}, "never bound", [], False),
        ("rollback", False, {GATHERED: {"entry": None, "stays": True}}, "unchanged", [], False),
        ("rollback", False, {GATHERED: {"lost": True, "msg": "No route."}}, "unreachable", ["No route."], True),
        ("rollback", False, {**CHOSEN, REFUSED: ["Too old."]}, "refused", ["Too old. [NPU_SETTING_INVALID]"], True),
        ("measure", False, {**PLANNED, MEASURED: {"workloads": []}}, "measured, not bound", [], False),
        ("measure", False, {**IN_FORCE, MEASURED: {"workloads": []}}, "measured", [], False),
        ("measure", False, {}, "unreachable", ["it did not answer"], True),
    ],
)
def test_the_state_of_a_host(playbook, check, left, state, reasons, fails):
    found = summary.summary({"a": left}, playbook, check)
    entry = found["hosts"]["a"]
    assert (entry["state"], entry["reasons"], entry["fails"]) == (state, reasons, fails)
    assert found["states"] == {state: ["a"]}


@pytest.mark.parametrize(
    ("playbook", "left", "said"),
    [
        ("plan", {}, True),
        ("bind", {RESULT: {"changed": True}}, True),
        ("bind", AS_WANTED, False),
        ("verify", AS_BOUND, False),
        ("report", AS_BOUND, False),
    ],
)
def test_what_a_bind_takes_is_no_remark_once_it_is_in_force(playbook, left, said):
    remark = "Huge pages of 2 MiB: 128 on node 0. [NPU_BIND_EFFECT]"
    state = {"npu_affinity_state": {"plan": PLAN, "remarks": [remark, "Another."], "muted": {}, "converged": left == AS_WANTED}}
    (host,) = summary.summary({"a": {**PLANNED, **state, **left}}, playbook)["hosts"].values()
    assert (remark in host["remarks"], "Another." in host["remarks"]) == (said, True)


def test_work_elsewhere_is_a_remark_unless_the_state_shows_it():
    bound = summary.summary({"a": {**PLANNED, RESULT: {"changed": True}, VERIFIED: AWAY}}, "bind")
    assert "1 runs elsewhere [NPU_WORK_OUTSIDE_POOL]" in bound["hosts"]["a"]["remarks"]
    assert summary.summary({"a": {VERIFIED: AWAY}}, "verify")["hosts"]["a"]["remarks"] == []


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({}, True),
        ({RESULT: {"changed": True, "adopt": {"users": [ADOPTED]}}}, False),
        ({RESULT: {"changed": True, "adopt": {"users": [{**ADOPTED, "state": "left"}]}}}, True),
        ({RESULT: {"changed": True, "adopt": {"users": [{**ADOPTED, "pids": [8]}]}}}, True),
        ({RESULT: {"changed": True}, VERIFIED: {"drift": [], "bound": True, "outside": []}}, False),
    ],
    ids=["nothing is done", "a bind would adopt it", "it is left alone", "another of its name is adopted", "compared since"],
)
def test_work_that_a_bind_adopts_does_not_run_elsewhere(later, said):
    plan = {**PLAN, "npus": [{"kind": "npu", "id": 0, "pool": "0-3", "slice": "npu-0.slice"}]}
    gathered = {"npu_affinity_topology": {"npus": [NPU], "problems": [], "applied": None, "users": [OUTSIDE]}}
    state = {"npu_affinity_state": {"plan": plan, "outside": ["vllm.service: runs on CPUs 0-7, pool 0-3"], "remarks": [], "muted": {}}}
    (host,) = summary.summary({"a": {**PLANNED, **gathered, **state, **later}}, "bind", check=True)["hosts"].values()
    sentence = "1 NPU process runs outside its pool: vllm.service (pid 7, NPU 0) on CPUs 0-7, pool 0-3 [NPU_WORK_OUTSIDE_POOL]"
    assert (sentence in host["remarks"]) == said


@pytest.mark.parametrize(("host", "steps"), [(PLANNED, ["bind", "measure"]), (IN_FORCE, ["measure"])])
def test_a_bound_host_need_not_be_bound_after_a_measurement(host, steps):
    found = summary.summary({"a": {**host, MEASURED: {"workloads": []}}}, "measure")
    assert [step["command"].rpartition(".")[2] for step in found["next"]] == steps


LIMITED = Typed(limit="npu_a", extra=(("npu_affinity_strategy", "even_split"), ("npu_affinity_to", "-1")))
AS_BEFORE = "--limit npu_a -e npu_affinity_strategy=even_split"
DONE = {**PLANNED, RESULT: {"changed": True}}
FAILED = {FAILURE: {"state": "failed", "reason": "x"}}
REBOUND = {
    **PLANNED,
    RESULT: {"changed": True, "history": 2},
    "npu_affinity_topology": {"npus": [NPU], "problems": [], "applied": PLAN},
}
AGAIN = "again, after you have corrected that; finished hosts do not change"


NOT_BINDABLE = {GATHERED: {"refusals": ["No. [NPU_SMI_UNAVAILABLE]"]}}
OFFERED = [
    ("the driver is not loaded", "verify", {"a": {**DRIFTED, **NOT_BINDABLE}}, [f"verify  # {summary.REFUSED_BIND}"]),
    (
        "one of several",
        "verify",
        {"a": DRIFTED, "b": {**DRIFTED, **NOT_BINDABLE}, "c": DRIFTED},
        ["bind --limit '!b'  # repair the drift", f"verify  # {summary.REFUSED_BIND}"],
    ),
    (
        "a refused plan",
        "plan",
        {"a": PLANNED, "b": {REFUSED: ["No."]}},
        ["bind --limit a  # bind; with --check --diff see what would change"],
    ),
    ("work outside", "verify", {"a": {VERIFIED: AWAY}}, [f"bind -e npu_affinity_adopt=now  # {summary.ADOPT}"]),
    ("work of a part", "verify", {"a": {VERIFIED: AWAY}, "b": AS_BOUND}, [f"bind --limit a -e npu_affinity_adopt=now  # {summary.ADOPT}"]),
    ("workers bind themselves", "verify", {"a": {VERIFIED: AWAY, "npu_affinity_bound_by": "workers"}}, []),
]


@pytest.mark.parametrize("playbook, hosts, lines", [row[1:] for row in OFFERED], ids=[row[0] for row in OFFERED])
def test_no_bind_is_offered_that_would_be_refused(playbook, hosts, lines):
    steps = summary.summary(hosts, playbook)["next"]
    assert [f"{step['command']}  # {step['purpose']}" for step in steps] == [f"ansible-playbook npu.affinity.{line}" for line in lines]


def test_a_comparison_names_work_outside_its_pool():
    for fails, rank in ((False, "to do"), (True, "error")):
        found = summary.summary(
            {"a": {VERIFIED: {**AWAY, "workloads_fail": fails}}, "b": {VERIFIED: {**AWAY, "workloads_fail": fails}}}, "verify"
        )
        assert f"{rank} on a, b: bound, workloads not: 1 runs elsewhere" in summary_text.lines(found)


@pytest.mark.parametrize(
    ("playbook", "check", "hosts", "lines"),
    [
        ("plan", False, {"a": PLANNED}, [f"bind {AS_BEFORE}  # bind; with --check --diff see what would change"]),
        (
            "plan",
            False,
            {"a": {**PLANNED, "npu_affinity_plan_file": "plans/fleet.md"}},
            [f"bind {AS_BEFORE} -e npu_affinity_reviewed=plans/fleet.json  # bind only the reviewed plans"],
        ),
        (
            "bind",
            False,
            {"a": DONE},
            [f"verify {AS_BEFORE}  # compare the plans with the kernels", f"unbind {AS_BEFORE}  # restore the original state"],
        ),
        ("bind", True, {"a": DONE}, [f"bind {AS_BEFORE}  # apply these changes"]),
        ("bind", True, {"a": {REFUSED: ["No."]}}, [f"bind --check {AS_BEFORE}  # {AGAIN}"]),
        (
            "bind",
            False,
            {"a": {**DONE, **FAILED}, "b": PLANNED},
            [
                "unbind --limit a -e npu_affinity_strategy=even_split  # restore the state before the first bind, which changed the host "
                "and then failed",
                f"bind --limit a -e npu_affinity_strategy=even_split  # {AGAIN}",
            ],
        ),
        (
            "bind",
            False,
            {"a": {**REBOUND, **FAILED}, "b": {**REBOUND, **FAILED}},
            [
                "rollback --limit a,b -e npu_affinity_strategy=even_split -e npu_affinity_to=before:R3  # go back to the state before "
                "this run, which changed the host and then failed",
                f"bind {AS_BEFORE}  # {AGAIN}",
            ],
        ),
        (
            "bind",
            False,
            {"a": {**REBOUND, FAILURE: {"state": "failed", "reason": "x", "check": True}}},
            [
                "rollback --limit a -e npu_affinity_strategy=even_split -e npu_affinity_to=before:R3 -e npu_affinity_health=  # go back to "
                "the state before this run, which changed the host and then failed",
                f"bind {AS_BEFORE}  # {AGAIN}",
            ],
        ),
        ("bind", False, {"a": {**REBOUND, **FAILED, RESULT: {"changed": True, "history": None}}}, [f"bind {AS_BEFORE}  # {AGAIN}"]),
        (
            "rollback",
            False,
            {"a": {**REBOUND, **CHOSEN, **FAILED}},
            [
                "rollback --limit a -e npu_affinity_strategy=even_split -e npu_affinity_to=before:R3  # go back to the state before this "
                "run, which changed the host and then failed",
                f"rollback {AS_BEFORE} -e npu_affinity_to=before:R2  # {AGAIN}",
            ],
        ),
        ("bind", False, {"a": {**PLANNED, **FAILED, RESULT: {"changed": False, "failed": True}}}, [f"bind {AS_BEFORE}  # {AGAIN}"]),
        ("bind", True, {"a": {**REBOUND, **FAILED}}, [f"bind --check {AS_BEFORE}  # {AGAIN}"]),
        ("rollback", True, {"a": {**DONE, **CHOSEN}}, [f"rollback {AS_BEFORE} -e npu_affinity_to=before:R2  # apply these changes"]),
        ("rollback", True, {"a": {REFUSED: ["No."]}}, [f"rollback --check {AS_BEFORE} -e npu_affinity_to=-1  # {AGAIN}"]),
        ("verify", False, {"a": DRIFTED}, [f"bind {AS_BEFORE}  # repair the drift"]),
        (
            "verify",
            False,
            {"a": DRIFTED, "b": AS_BOUND, "c": DRIFTED},
            ["bind --limit a,c -e npu_affinity_strategy=even_split  # repair the drift"],
        ),
        ("unbind", True, {"a": {UNBOUND: {"changed": True}}}, [f"unbind {AS_BEFORE}  # apply these changes"]),
    ],
)
def test_what_is_offered_next_is_for_the_same_hosts_and_settings(playbook, check, hosts, lines):
    found = summary_text.lines(summary.summary(hosts, playbook, check, typed=LIMITED, run="R3"))
    assert [line for line in found if line.startswith("next")] == [f"next: ansible-playbook npu.affinity.{line}" for line in lines]


def test_variables_that_are_not_repeated_are_named():
    (step,) = summary.summary({"a": PLANNED}, "plan", typed=Typed(withheld=("token",)))["next"]
    assert step["purpose"].endswith("; add -e for token, whose values are not repeated here")


def test_units_to_restart_come_from_bind_comparison_and_unbind():
    left = {RESULT: {"changed": True, "restart_needed": ["b.service"]}, VERIFIED: {"drift": WAITING}}
    assert summary.summary({"a": {**PLANNED, **left}}, "bind")["hosts"]["a"]["restart"] == ["b.service", "vllm@0.service"]


@pytest.mark.parametrize(
    ("unbound", "remarks"),
    [
        ({"changed": True, "message": "As before."}, []),
        ({"changed": True, "message": "irq only.", "partly": True}, ["irq only. [NPU_UNBIND_LEFT]"]),
        ({"changed": True, "message": "Share is left.", "kept": ["device_share"]}, ["Share is left. [NPU_UNBIND_LEFT]"]),
        ({"changed": False, "message": "Not bound."}, ["Not bound. [NPU_UNBIND_LEFT]"]),
    ],
)
def test_an_unbind_names_what_its_state_does_not_say(unbound, remarks):
    assert summary.summary({"a": {UNBOUND: unbound}}, "unbind")["hosts"]["a"]["remarks"] == remarks


NOTES = {"slices": ["By slices."], "irq": ["Others move interrupts."]}
BY_SLICES = "By slices. [NPU_WORKLOADS_BOUND]"


@pytest.mark.parametrize(
    ("left", "remarks"),
    [
        ({RESULT: {"changed": True, "remarks": ["IRQ 3 stays."]}}, [BY_SLICES, "Others move interrupts.", "IRQ 3 stays."]),
        ({RESULT: {"changed": False, "remarks": ["IRQ 3 stays."]}}, ["Others move interrupts.", "IRQ 3 stays."]),
        ({RESULT: {"changed": False, "restart_needed": ["a"], "remarks": []}}, [BY_SLICES, "Others move interrupts."]),
        ({RESULT: {"failed": True, "remarks": ["IRQ 3 stays."]}}, []),
        ({"npu_affinity_state": {"notes": NOTES, "converged": True}, **AS_WANTED}, ["Others move interrupts.", "X moves IRQ 3."]),
        ({"npu_affinity_plan": {**PLAN, "npus": [], "warnings": []}}, [BY_SLICES, "Others move interrupts."]),
        ({}, []),
    ],
)
def test_what_needs_attention_after_a_bind_is_a_remark(left, remarks):
    host = {**PLANNED, "npu_affinity_plan": {**PLAN, "warnings": []}, "npu_affinity_state": {"notes": NOTES}, **left}
    found = summary.summary({"a": host}, "bind")["hosts"]["a"]
    assert found["remarks"] == remarks
    assert summary.summary({"a": host}, "rollback")["hosts"]["a"]["remarks"] == []


LOST = {UNBOUND: {"lost": True}}


@pytest.mark.parametrize(
    ("playbook", "state", "left", "found"),
    [
        ("bind", "failed", {}, ("failed", ["Write files: No space."])),
        ("bind", "refused", {}, ("refused", ["No space. [NPU_NOT_GATHERED]"])),
        ("measure", "refused", {GATHERED: {"codes": {"NPU_NO_ENTRY": []}}}, ("refused", ["No space."])),
        ("collect", "failed", {}, ("failed", ["No space."])),
        ("unbind", "failed", LOST, ("unreachable", ["No space."])),
        ("bind", "failed", {RESULT: {"lost": True}}, ("unreachable", ["Write files: No space."])),
        ("inspect", "refused", AS_BOUND, ("as bound", [])),
    ],
)
def test_a_task_that_failed_is_the_reason(playbook, state, left, found):
    host = {FAILURE: {"state": state, "task": "Write files", "reason": "No space."}, **left}
    entry = summary.summary({"a": host}, playbook)["hosts"]["a"]
    assert (entry["state"], entry["reasons"]) == found


@pytest.mark.parametrize(
    ("left", "state", "reason"),
    [
        ({**PLANNED, RESULT: {"changed": True}}, "unreachable", "the tasks after it did not run"),
        ({**PLANNED, RESULT: {"changed": False}}, "unreachable", "the tasks after it did not run"),
        ({FAILURE: {"state": "failed", "task": "Write files", "reason": "No space."}}, "failed", "No space."),
        ({REFUSED: ["Too few CPUs."]}, "refused", "Too few CPUs."),
    ],
)
def test_a_host_that_ansible_gave_up_is_not_called_done(left, state, reason):
    entry = summary.summary({"a": left}, "bind", lost=["a"])["hosts"]["a"]
    assert (entry["state"], entry["fails"]) == (state, True) and reason in entry["reasons"][0]


def test_a_failure_without_a_message_names_the_task():
    host = {FAILURE: {"state": "failed", "task": "Write files", "reason": ""}}
    assert summary.summary({"a": host}, "collect")["hosts"]["a"]["reasons"] == ["task Write files failed"]
    assert summary.summary({"a": host}, "bind")["hosts"]["a"]["reasons"] == ["Write files: no message"]


def test_the_text_has_each_plan_sentence_and_unit_once():
    changed = {RESULT: {"changed": True, "restart_needed": ["vllm@0.service"]}, "npu_affinity_root": "/trees/x"}
    hosts = {f"node{number:02}": {**PLANNED, **changed} for number in range(1, 41)}
    hosts["node07"] = {REFUSED: ["Too few CPUs."]}
    hosts["odd"] = {**PLANNED, **changed, RESULT: {**changed[RESULT], "remarks": ["/trees/x/etc differs. [NPU_FACTS_INCOMPLETE]"]}}
    found = summary.summary(hosts, "bind", typed=Typed(made=True))
    note = "note on node[01:06], node[08:40], odd: CPUs 3 are remote. [NPU_CPUS_REMOTE]"
    assert [line for line in summary_text.lines(found, verbose=True) if "note" in line] == [note]
    assert summary_text.lines(found) == [
        "SUMMARY of bind, 41 hosts",
        "40 changed: node[01:06], node[08:40], odd",
        "1 refused: node07",
        "plan of node[01:06], node[08:40], odd (topo_affinity): NPU 0=0-7, 1=8-15; GPU 0=16-23",
        "error on node07: refused: Too few CPUs. [NPU_SETTING_INVALID]",
        "to do on node[01:06], node[08:40], odd: restart vllm@0.service",
        "to do on odd: /etc differs. [NPU_FACTS_INCOMPLETE]",
        "1 note; -v shows it",
        "next: make bind  # again, after you have corrected that; finished hosts do not change",
        "next: make verify  # compare the plans with the kernels",
        "next: make unbind  # restore the original state",
    ]


@pytest.mark.parametrize("code", ["NPU_KERNEL_ADVICE", "NPU_NIC_ADVICE"])
def test_what_a_setting_asks_for_is_shown_without_v(code):
    warnings = [f"Asked for. [{code}]", "Not asked for. [NPU_CPUS_REMOTE]", "Not asked for either. [NPU_CPUS_IDLE]"]
    found = summary.summary({"a": {**PLANNED, "npu_affinity_plan": {**PLAN, "warnings": warnings}}}, "plan")
    shown = [f"note on a: {warning}" for warning in warnings]
    said = [[line for line in summary_text.lines(found, verbose) if "note" in line] for verbose in (False, True)]
    assert said == [[shown[0], "2 notes; -v shows them"], shown]


def test_hosts_that_do_not_answer_are_one_line():
    said = "ssh: connect to host 10.0.0.{} port 22: Connection timed out"
    hosts = {f"n{number}": {GATHERED: {"lost": True, "msg": said.format(number)}} for number in (1, 2, 3)}
    alone = summary_text.lines(summary.summary({"n1": hosts["n1"]}, "plan"))
    assert alone[2] == f"error on n1: unreachable: {said.format(1)}"
    assert summary_text.lines(summary.summary(hosts, "plan")) == [
        "SUMMARY of plan, 3 hosts",
        "3 unreachable: n[1:3]",
        "error on n[1:3]: unreachable: ssh: connect to host … port 22: Connection timed out",
    ]


@pytest.mark.parametrize(
    "gathered, known", [({}, False), ({"lost": True, "msg": "no"}, False), ({"refusals": ["no"]}, False), ({"ansible_facts": {}}, True)]
)
def test_a_topology_of_an_earlier_run_is_not_that_of_this_one(gathered, known):
    variables = {GATHERED: gathered, "npu_affinity_topology": {"npus": []}}
    assert ("npu_affinity_topology" in ReadOnce(variables)) is known
    assert ReadOnce(variables).get("npu_affinity_topology") == ({"npus": []} if known else None)
    assert ("topology" in record("a", variables)) is (known or not gathered)


def test_what_hosts_say_alike_is_there_once():
    texts = {"n1": ["a", "b"], "n2": ["a", "b"], "odd": ["a"], "silent": []}
    assert summary_text.alike(texts) == ["n1, n2:", "a", "b", "odd:", "a"]
    assert summary_text.said(texts) == ["n1, n2, odd: a", "n1, n2: b"]
    many = {f"n{number}x": [str(number)] for number in range(40)}
    more = "and 28 other results; to see them, run again with -v or --limit"
    assert len(summary_text.alike(many)) == 80 and summary_text.alike(many, verbose=False)[-2:] == ["11", more]


def test_the_text_stays_short_when_all_hosts_differ():
    hosts = {
        f"h{name}x{name}y": {**PLANNED, RESULT: {"changed": False, "remarks": [f"note {name} [NPU_FACTS_INCOMPLETE]"]}}
        for name in "abcdefghijklmnopqr"
    }
    for number, host in enumerate(hosts.values()):
        host["npu_affinity_plan"] = {**PLAN, "npus": [{"kind": "npu", "id": 0, "pool": str(number)}]}
    lines = summary_text.lines(summary.summary(hosts, "bind"))
    assert lines[1].endswith(", hlxly and 6 more")
    more = "more; to see them, run again with --limit"
    assert f"and 6 plans {more}" in lines and f"and 6 sentences {more}" in lines
    assert len(lines) == 2 + 13 + 13 + 1 + 1


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a1", "a2"], "a1, a2"),
        (["n8", "n9", "n10", "n11", "n12"], "n8, n9, n[10:12]"),
        (["r1n1.x", "r1n2.x", "r1n3.x", "r2n4.x"], "r1n[1:3].x, r2n4.x"),
        (["10.0.0.7", "10.0.0.8", "10.0.0.9"], "10.0.0.[7:9]"),
    ],
)
def test_names_of_hosts_are_folded_as_an_inventory_has_them(names, text):
    assert summary_text.folded(names) == text


@pytest.mark.parametrize(
    ("hosts", "batches", "ends"),
    [
        (6, [1, "5%", "25%", "100%"], [1, 2, 3, 6]),
        (200, [1, "5%", "25%", "100%"], [1, 11, 61, 200]),
        (5, [2], [2, 4, 5]),
        (3, ["100%"], [3]),
    ],
)
def test_where_batches_end(hosts, batches, ends):
    """As Ansible counts them."""
    assert progress.ends(hosts, batches) == ends


def test_a_batch_with_lost_hosts_is_known_by_the_remaining_ones():
    names = [f"h{number}" for number in range(200)]
    at = progress.progress(names, names[3:7], [1, "5%", "25%", "100%"])
    assert at == {"batch": 2, "batches": 4, "begun": 1, "done": 11, "hosts": 200}
    assert progress.line(at, {"changed": 10, "failed": 1}) == "batch 2 of 4, 11 of 200 hosts: 10 changed, 1 failed"


def after(hosts, names, batch, before):
    return progress.after_batch(hosts, names, batch, {"playbook": "bind", "batches": [2], "before": before}, False)


def test_progress_looks_at_the_hosts_of_a_batch_once():
    """A fleet in batches of one size would cost the square of its size otherwise."""
    fleet = {f"h{number}": {**PLANNED, RESULT: {"changed": number % 2 == 0}} for number in range(6)}
    names, at = list(fleet), {}
    for start in (0, 2, 4):
        there = {name: fleet[name] for name in names[start : start + 2]}
        at = after(there, names, names[start : start + 2], at)
    assert at["line"] == "batch 3 of 3, 6 of 6 hosts: 3 changed, 3 unchanged"
    assert after(fleet, names, names[4:], {}) == at
    other = after(fleet, names, names[:2], {})
    assert after(fleet, names, names[4:], other) == at
    assert after(fleet, names, names[2:4], other | {"playbook": "rollback"})["line"].startswith("batch 2 of 3, 4 of 6 hosts: ")


def left(number):
    """What a bind left of a host of some fleet."""
    if number % 7 == 0:
        return {REFUSED: ["Too few CPUs."]}
    plan = {**PLAN, "housekeeping": str(number % 3)}
    return {
        **PLANNED,
        "npu_affinity_plan": plan,
        RESULT: {"changed": number % 2 == 0, "restart_needed": ["a.service"] if number % 5 == 0 else []},
    }
