# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary of a run: the result on each host, once for the whole fleet."""

import itertools
import pathlib

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._report import progress, summary, summary_text
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Start
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ReadOnce, record

CASES = yaml.safe_load((pathlib.Path(__file__).parent / "summaries.yml").read_text())
PLAN, PLANNED, AS_WANTED, SPLIT, AS_BOUND = (CASES["parts"][name] for name in ("plan", "planned", "as_wanted", "split", "as_bound"))
TOPOLOGY, (ELSEWHERE,) = PLANNED["npu_affinity_topology"], CASES["parts"]["elsewhere"]
RESULT, GATHERED, REFUSED = "__npu_affinity_host_result", "__npu_affinity_gathered", "__npu_affinity_refused"
FAILURE, VERIFIED = "__npu_affinity_failure", "__npu_affinity_verified"
DONE, CHANGED = CASES["parts"]["done"], {"changed": True}
METHODS = [
    # the method of a host's desired state, its named services, whether running work is adopted, and how it is counted
    ("slices", [], False, "by slices"),
    ("services", [{"name": "a.service"}], False, "by CPUAffinity= of named services"),
    ("services", [{"name": "a.service"}], True, "by CPUAffinity= of named services and by adoption of running work"),
    ("services", [], True, "by adoption of running work"),
    ("services", [], False, "with none (needs cgroup v2 with cpusets, a named service or npu_affinity_adopt)"),
    ("none", [], False, "by the kubelet"),
]
ADOPTED = {"name": "vllm.service", "kind": "service", "pids": [7], "state": "adopted"}
OUTSIDE = {"group": "/system.slice/vllm.service", "kind": "service", "unit": "vllm.service", "engine": None, "container": None}
OUTSIDE |= {"name": "vllm.service", "devices": ["davinci0"], "npus": [{"kind": "npu", "id": 0}], "witness": "open"}
OUTSIDE |= {"processes": [{"pid": 7, "start": 1, "command": "python3", "devices": ["davinci0"], "cpus": "0-7"}]}
POOL = {**PLAN, "npus": [{"kind": "npu", "id": 0, "pool": "0-3", "slice": "npu-0.slice"}]}


def summed(hosts, command, **options):
    """Return the summary of a playbook, with ``--check`` or without."""
    playbook, _space, check = command.partition(" ")
    return summary.summary(hosts, playbook, bool(check), **options)


def said(hosts, command, beginning="", verbose=False, **options):
    """Return the lines of a summary that begin so."""
    return [line for line in summary_text.lines(summed(hosts, command, **options), verbose) if line.startswith(beginning)]


def only(left, command):
    return summed({"a": left}, command)["hosts"]["a"]


@pytest.mark.parametrize("case", CASES["states"], ids=lambda case: f"{case['run']}, {case['state']}")
def test_the_state_of_a_host(case):
    found = summed({"a": case["left"]}, case["run"], lost=["a"] * case.get("lost", 0))
    entry = found["hosts"]["a"]
    assert (entry["state"], entry["reasons"], entry["fails"]) == (case["state"], case.get("reasons", []), case.get("fails", False))
    assert found["states"] == {case["state"]: ["a"]}


@pytest.mark.parametrize("case", CASES["remarks"], ids=lambda case: case["run"])
def test_what_needs_attention_is_a_remark(case):
    assert only(case["left"], case["run"])["remarks"] == case["remarks"]


def steps(found):
    return [f"{step['command']}  # {step['purpose']}".removeprefix("ansible-playbook npu.affinity.") for step in found["next"]]


@pytest.mark.parametrize("case", CASES["next"], ids=lambda case: case["what"])
def test_what_is_offered_next(case):
    start = case.get("typed", {})
    start = Start(limit=start.get("limit", ""), extra=tuple(start.get("extra", {}).items()), withheld=tuple(start.get("withheld", ())))
    found = steps(summed(case["hosts"], case["run"], start=start, run="R3"))
    for step, line in itertools.zip_longest(found, case["next"]):
        command, _mark, purpose = line.partition(" # ")
        key, _more, names = purpose.partition("; add -e for ")
        why = CASES["purposes"][key] + (f"; add -e for {names}, whose values are not repeated here" if names else "")
        assert step == f"{command}  # {why}"


def test_a_pattern_of_many_hosts_is_the_shorter_one_or_none():
    dead = dict.fromkeys(map(str, range(300)), SPLIT)
    assert steps(summed({**dead, "b": AS_BOUND}, "verify")) == [f"verify --limit '!b'  # {summary.CORRECTED}"]
    assert steps(summed({**dead, **dict.fromkeys("abcdefghijklmn", AS_BOUND)}, "verify")) == [f"verify  # {summary.CORRECTED}"]


def by_method(method, services, adopts=False):
    live = {"slices": {"method": method, "services": services}}
    state = {"live": {**live, "adopt": {"mode": "now"}} if adopts else live}
    return {**DONE, "npu_affinity_state": state}


@pytest.mark.parametrize("playbook", ["plan", "bind"])
def test_hosts_are_counted_by_what_binds_their_workloads(playbook):
    hosts = {f"{method}{len(services)}{adopts}": by_method(method, services, adopts) for method, services, adopts, _text in METHODS}
    hosts |= {"more": by_method("slices", []), "off": {**DONE, "npu_affinity_state": {"live": {}}}}
    hosts["bare"] = {**by_method("none", []), "npu_affinity_plan": {**PLAN, "npus": []}}
    hosts["refused"] = {**by_method("slices", []), REFUSED: ["No."]}
    found = summed(hosts, playbook)["hosts"]
    assert [found[name]["method"] for name in ("more", "off", "bare", "refused")] == ["by slices", "", "", ""]
    expected = ", ".join(f"{'2 hosts' if text == 'by slices' else 1} {text}" for *_host, text in METHODS)
    assert said(hosts, playbook, "binding method") == [f"binding method: {expected}"]
    assert said({"off": hosts["off"]}, playbook, "binding method") == []
    assert not any(host["method"] for host in summed(hosts, "verify")["hosts"].values())


def test_one_machine_under_several_names_is_said_of_each():
    identities = {"a": "1f", "b": "1f", "c": "2e", "d": None, "e": None}
    hosts = {name: {**PLANNED, "npu_affinity_topology": {**TOPOLOGY, "machine": {"identity": found}}} for name, found in identities.items()}
    sentence = "a, b are one machine with one boot id: keep one of these names in the inventory. [NPU_ONE_MACHINE]"
    for name, entry in summed(hosts, "plan")["hosts"].items():
        assert [text for text in entry["remarks"] if "one machine" in text] == [sentence] * (name in "ab"), name


def test_a_plan_lists_what_a_bind_costs_each_host():
    state = {"plan": {**PLAN, "quality": {"smallest": 8, "remote": 2}}, "difference": {"restart": []}}
    moves = {"room_mib": {}, "units": {"npu-0.slice": {"mems": "0-1", "mib": {"0": 1536, "1": 7}}}}
    restarting = {**state, "difference": {"restart": ["a.service"]}, "expected": [{"unit": "npu-0.slice", "mems": "1"}]}
    silent = {**moves, "units": {"npu-0.slice": {"mems": "0-1", "mib": None}}}
    hosts = dict.fromkeys(("a", "b"), {**PLANNED, "npu_affinity_state": state})
    for name, memory in (("c", moves), ("d", silent)):
        hosts[name] = {**PLANNED, "npu_affinity_topology": {**TOPOLOGY, "memory": memory}, "npu_affinity_state": restarting}
    hosts["refused"] = {**hosts["a"], REFUSED: ["No."]}
    found = summed(hosts, "plan")["hosts"]
    assert found["c"]["cost"] == {"smallest": 8, "remote": 2, "memory_mib": 1536, "restart": ["a.service"]}
    assert said(hosts, "plan", "cost") == [
        "cost on a, b: smallest pool 8 CPUs, 2 remote CPUs, 0.0 GiB of memory to move, 0 units to restart",
        "cost on c: smallest pool 8 CPUs, 2 remote CPUs, 1.5 GiB of memory to move, 1 unit to restart",
        "cost on d: smallest pool 8 CPUs, 2 remote CPUs, memory to move not known, 1 unit to restart",
    ]
    assert found["refused"]["cost"] is None
    assert not any(host["cost"] for host in summed(hosts, "bind")["hosts"].values())


def test_verify_lists_the_plans_in_force():
    other = {**PLANNED, "npu_affinity_plan": {**PLAN, "housekeeping": "0-7"}}
    topology = {**TOPOLOGY, "applied": {"npus": [{"kind": "npu", "id": 0, "pool": "8-15"}]}}
    hosts = {"a": {**other, **AS_BOUND, "npu_affinity_topology": topology}, "never": {**other, VERIFIED: {"drift": [], "bound": False}}}
    (found,) = summed(hosts, "verify")["plans"]
    assert found == {"strategy": "unknown strategy", "housekeeping": "", "pools": {"NPU 0": "8-15"}, "hosts": ["a"]}


def adopting(*kinds):
    states = [*((kind, "adopted") for kind in kinds), ("service", "inside"), ("other", "failed")]
    users = [{"kind": kind, "state": state} for kind, state in states]
    return {**PLANNED, RESULT: {"changed": True, "adopt": {"changed": bool(kinds), "users": users}}, GATHERED: {"entry": {}}}


@pytest.mark.parametrize(("check", "word"), [("", "adopted"), (" --check", "would be adopted")])
@pytest.mark.parametrize("playbook", ["bind", "rollback"])
def test_adopted_work_is_counted_by_kind(playbook, check, word):
    hosts = {"a1": adopting("service", "service", "session"), "a2": adopting("service", "container", "other"), "a3": adopting()}
    hosts["failed"] = {**adopting("service"), FAILURE: {"state": "failed", "reason": "No."}}
    found = [text for text in said(hosts, playbook + check) if "adopted" in text]
    assert found == [f"3 units, 1 container and 2 processes {word} on a1, a2"]


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({}, True),
        ({RESULT: {**CHANGED, "adopt": {"users": [ADOPTED]}}}, False),
        ({RESULT: {**CHANGED, "adopt": {"users": [{**ADOPTED, "state": "left"}]}}}, True),
        ({RESULT: {**CHANGED, "adopt": {"users": [{**ADOPTED, "pids": [8]}]}}}, True),
        ({RESULT: {"changed": True}, VERIFIED: {"drift": [], "bound": True, "outside": []}}, False),
        ({RESULT: {"changed": True}, VERIFIED: {"skipped": True, "changed": False}}, True),
    ],
    ids=["nothing is done", "a bind would adopt it", "it is left alone", "another of its name is adopted", "compared since", "check mode"],
)
def test_work_that_a_bind_adopts_does_not_run_elsewhere(later, said):
    topology = {**TOPOLOGY, "users": [OUTSIDE]}
    state = {"plan": POOL, "outside": ["vllm.service: runs on CPUs 0-7, pool 0-3"], "remarks": [], "muted": {}}
    found = only({**PLANNED, "npu_affinity_topology": topology, "npu_affinity_state": state, **later}, "bind --check")
    assert (ELSEWHERE in found["remarks"]) == said


@pytest.mark.parametrize("pods", [False, True])
def test_a_bind_without_changes_names_work_as_verify_does(pods):
    pod = {**OUTSIDE, "kind": "pod", "unit": None, "name": "pod 1"}
    topology = {**TOPOLOGY, "users": [pod, {**OUTSIDE, "npus": [], "unassigned": ["davinci1"]}]}
    state = {"plan": POOL, "outside": ["x"], "remarks": [], "muted": {}, "converged": True, "live": {"adopt": {"pods": pods}}}
    found = only({**AS_WANTED, "npu_affinity_topology": topology, "npu_affinity_state": state}, "bind")["remarks"]
    texts = [text.removesuffix(" [NPU_WORK_OUTSIDE_POOL]") for text in found if "NPU_WORK_OUTSIDE_POOL" in text]
    of_pod = "1 NPU process runs outside its pool: pod 1" if pods else "pod 1 (pid 7, NPU 0) runs on CPUs 0-7, pool 0-3: the kubelet places"
    held = "vllm.service (pid 7) holds /dev/davinci1: no NPU of the plan is known to have this device, so its pool is"
    assert [text[: len(start)] for text, start in zip(texts, (of_pod, held), strict=True)] == [of_pod, held]


@pytest.mark.parametrize(("left", "rank"), [("away", "to do"), ("away_fails", "error")])
def test_a_comparison_names_work_outside_its_pool(left, rank):
    hosts = dict.fromkeys("ab", CASES["parts"][left])
    assert said(hosts, "verify", rank) == [f"{rank} on a, b: bound, workloads not: {ELSEWHERE}"]


def test_units_to_restart_come_from_bind_and_comparison():
    waiting = [{"cause": "not restarted: it runs in system.slice", "unit": "vllm@0.service"}]
    left = {RESULT: {**CHANGED, "restart_needed": ["b.service"]}, VERIFIED: {"drift": waiting}}
    assert only({**PLANNED, **left}, "bind")["restart"] == ["b.service", "vllm@0.service"]


def test_the_text_has_each_plan_sentence_and_unit_once():
    changed = {RESULT: {**CHANGED, "restart_needed": ["vllm@0.service"]}, "npu_affinity_root": "/trees/x"}
    changed["npu_affinity_plan"] = {**PLAN, "housekeeping": "24-25"}
    hosts = {f"node{number:02}": {**PLANNED, **changed} for number in range(1, 41)}
    hosts["node07"] = {REFUSED: ["Too few CPUs."]}
    hosts["odd"] = {**PLANNED, **changed, RESULT: {**changed[RESULT], "remarks": ["/trees/x/etc differs. [NPU_FACTS_INCOMPLETE]"]}}
    note = "note on node[01:06], node[08:40], odd: CPUs 3 are remote. [NPU_CPUS_REMOTE]"
    assert said(hosts, "bind", "note", verbose=True) == [note]
    assert said(hosts, "bind", start=Start(made=True)) == [
        "SUMMARY of bind, 41 hosts",
        "40 changed: node[01:06], node[08:40], odd",
        "1 refused: node07",
        "plan of node[01:06], node[08:40], odd (topo_affinity, housekeeping 24-25): NPU 0=0-7, 1=8-15; GPU 0=16-23",
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
    hosts = {"a": {**PLANNED, "npu_affinity_plan": {**PLAN, "warnings": warnings}}}
    shown = [f"note on a: {warning}" for warning in warnings]
    assert [line for line in said(hosts, "plan") if "note" in line] == [shown[0], "2 notes; -v shows them"]
    assert said(hosts, "plan", "note", verbose=True) == shown


@pytest.mark.parametrize(
    "message",
    ["ssh: connect to host {} port 22: Connection timed out", "{} cannot be reached over SSH: [Errno 32] Broken pipe"],
)
def test_hosts_that_do_not_answer_are_one_line(message):
    message = message.format("10.0.0.{}")
    hosts = {f"n{number}": {GATHERED: {"lost": True, "msg": message.format(number)}} for number in (1, 2, 3)}
    assert said({"n1": hosts["n1"]}, "plan", "error") == [f"error on n1: unreachable: {message.format(1)}"]
    assert said(hosts, "plan") == [
        "SUMMARY of plan, 3 hosts",
        "3 unreachable: n[1:3]",
        f"error on n[1:3]: unreachable: {message.replace('10.0.0.{}', '…')}",
        "next: ansible-playbook npu.affinity.plan  # again, after you have corrected that",
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
    assert summary_text.by_host(texts) == ["n1, n2, odd: a", "n1, n2: b"]
    work = {"n1": ["x (pid 1)", "x (pid 2)"], "n2": ["x (pid 4, 5, 6 and 2 more)"], "n3": ["y (pid 7, 8)"]}
    assert summary_text.by_host(work) == ["n1, n2: x (pid …)", "n1: x (pid 2)", "n3: y (pid 7, 8)"]
    many = {f"n{number}x": [str(number)] for number in range(40)}
    more = "and 28 other results; to see them, run again with -v or --limit"
    assert len(summary_text.alike(many)) == 80 and summary_text.alike(many, verbose=False)[-2:] == ["11", more]


def test_the_text_stays_short_when_all_hosts_differ():
    hosts = {}
    for number, name in enumerate("abcdefghijklmnopqr"):
        result = {"changed": False, "remarks": [f"note {name} [NPU_FACTS_INCOMPLETE]"]}
        plan = {**PLAN, "npus": [{"kind": "npu", "id": 0, "pool": str(number)}]}
        hosts[f"h{name}x{name}y"] = {**PLANNED, RESULT: result, "npu_affinity_plan": plan}
    lines = said(hosts, "bind")
    assert lines[1].endswith(", hlxly and 6 more")
    more = "more; to see them, run again with --limit"
    assert f"and 6 plans {more}" in lines and f"and 6 sentences {more}" in lines
    assert len(lines) == 2 + 13 + 13 + 1 + 1


FOLDED = [(["a"], "a"), (["a1", "a2"], "a1, a2"), (["n8", "n9", "n10", "n11", "n12"], "n8, n9, n[10:12]")]
FOLDED += [(["r1n1.x", "r1n2.x", "r1n3.x", "r2n4.x"], "r1n[1:3].x, r2n4.x"), (["10.0.0.7", "10.0.0.8", "10.0.0.9"], "10.0.0.[7:9]")]


@pytest.mark.parametrize(("names", "text"), FOLDED)
def test_names_of_hosts_are_folded_as_an_inventory_has_them(names, text):
    assert summary_text.folded(names) == text


BY_DEFAULT = [1, "5%", "25%", "100%"]
ENDS = [(6, BY_DEFAULT, [1, 2, 3, 6]), (200, BY_DEFAULT, [1, 11, 61, 200]), (5, [2], [2, 4, 5]), (3, ["100%"], [3])]


@pytest.mark.parametrize(("hosts", "batches", "ends"), ENDS)
def test_where_batches_end(hosts, batches, ends):
    """As Ansible counts them."""
    assert progress.ends(hosts, batches) == ends


def test_a_batch_with_lost_hosts_is_known_by_the_remaining_ones():
    names = [f"h{number}" for number in range(200)]
    at = progress.progress(names, names[3:7], BY_DEFAULT)
    assert at == {"batch": 2, "batches": 4, "begun": 1, "done": 11, "hosts": 200}


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
