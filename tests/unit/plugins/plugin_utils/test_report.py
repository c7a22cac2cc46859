# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a fleet: what is read from records, that nothing in them can become markup, and how large it gets."""

import base64
import copy
import functools
import hashlib
import json
import re
from html.parser import HTMLParser

import planner_hosts
import pytest

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Cause, Device, Findings, Value
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.plugin_utils._report.commands import Start
from ansible_collections.npu.affinity.plugins.plugin_utils._report.page import report_html
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import marked


@functools.cache
def planned_host(nodes, per_node, npus, threads):
    """Return a topology with its NPUs spread over the nodes, and their plan; siblings are as far apart as possible."""
    homes = [number * nodes // npus for number in range(npus)]
    topology = planner_hosts.host(homes, nodes=nodes, cores=per_node // threads, threads=threads, numbering="far")
    topology["machine"] |= {"product": "Test server", "kernel": "6.6.0", "systemd": 252, "cgroup": "v2"}
    for npu in topology["npus"]:
        npu |= {"name": "910B9", "busy": False, "memory_mib": 65536, "phy_id": None, "device_share": None}
    topology |= {"driver": {"version": "25.5.1", "npu_smi": "25.5.1"}, "irqbalance": {"installed": False, "active": False}}
    plan = planner_hosts.plan(topology, strategy="even_split", memory="strict")
    for entry in plan["npus"]:
        del entry["kind"]  # a plan need not have it: the slice says it, too
    return topology, plan


def record(host="node1", nodes=2, per_node=16, npus=2, threads=1, **changes):
    """Return what is known of a bound host, which is as planned."""
    topology, plan = copy.deepcopy(planned_host(nodes, per_node, npus, threads))
    topology["applied"] = {key: plan[key] for key in ("strategy", "requested", "cpus", "housekeeping", "options", "lost", "npus")}
    checked = {"interrupts": [f"NPU {number} {name}" for number in range(npus) for name in ("cq_update_irq", "sq_send_trigger_irq")]}
    found = {"host": host, "topology": topology, "plan": plan, "bound": True, "drift": [], "checked": checked, "remarks": []}
    return {**found, **changes}


def differs(kind, name, expected, found, npu=None, pci=None, unit=None, cause="manual change", remark="moved by hand"):
    """A drift as module binding_info returns it. NPUs of :func:`record` are on PCI functions 1, 2 and so on."""
    findings = Findings()
    device = None if npu is None else Device("npu", npu, pci or f"0000:{npu + 1:02x}:00.0")
    if device and unit:
        findings.devices[unit] = device
    findings.differs(kind, name, expected, found, Cause(cause, remark), unit or device)
    return result_of(findings.drift[0])


PLACES = [Value(cpus="7", irqs="20-35"), Value(cpus="9", irqs="36")]
MOVED = differs("interrupts", "NPU 0 cq_update_irq", Value(cpus="1"), PLACES, npu=0)
ALL_OVER = differs("interrupts", "NPU 1 sq_send_trigger_irq", Value(cpus="16"), Value(cpus="0-31", irqs="50"), npu=1)
SLICE = {"npu": 1, "unit": "npu-1.slice"}
WIDE = differs("cpusets", "npu-1.slice CPUs", Value(cpus="16-31"), Value(cpus="12-31"), **SLICE)
OVERRIDE = differs("cpusets", "npu-1.slice CPUs", Value(cpus="16-31"), Value("AllowedCPUs=0-3 5 in /run/x.conf", cpus="0-3,5"), **SLICE)
NODES = differs("cpusets", "npu-1.slice memory nodes", Value(mems="1"), Value(mems="0-1"), **SLICE)
NONE = differs("cpusets", "npu-1.slice CPUs", Value(cpus="16-31"), "no cpuset", **SLICE)
OFFLINE = differs("cpus", "pool of NPU 1", Value(cpus="16-31"), Value(cpus="16-19,22-31"), npu=1)
TASK = Value(cpus="0-31", task="77 (python)", more=3)
STRAY = differs("processes", "processes in npu-0.slice", Value(cpus="0-15"), TASK, npu=0, unit="npu-0.slice")
SERVICE = differs("cpusets", "a.service CPUs", Value(cpus="0-15"), Value(cpus="0-3"), npu=0, unit="a.service")
FILE = differs("files", "/etc/irqbalance-policy", "a file", "no such file")
MARKED = [(MOVED, "1,7,9"), (ALL_OVER, "16"), (WIDE, "12-15"), (OVERRIDE, "0-3,5,16-31"), (NODES, ""), (NONE, "16-31")]


@pytest.mark.parametrize(("drift", "cpus"), [*MARKED, (OFFLINE, "20-21"), (STRAY, "0-15"), (FILE, "")])
def test_a_drift_marks_the_cpus_that_it_is_about(drift, cpus):
    assert marked(drift) == cpus


def only(records, **options):
    data = fleet(records, **options)
    (host,) = data["hosts"]
    return host, [data["views"][place] for place in host["views"]], data["machines"][host["machine"]]


def test_the_kernel_is_the_plan_in_force_but_for_what_was_found():
    host, (in_force, kernel), _machine = only([record(drift=[MOVED, WIDE, NODES, FILE, OFFLINE, SERVICE])])
    assert host["state"] == "drifted"
    assert host["why"] == "manual change (6)"
    assert [entry["npu"] for entry in host["drift"]] == [0, 1, 1, None, 1, 0]
    assert in_force["npus"][0]["pool"] == kernel["npus"][0]["pool"], "a service has a part of it"
    assert in_force["npus"][0]["irq"] == "0-1" and kernel["npus"][0]["irq"] == "0,7,9"
    assert in_force["npus"][1]["pool"] == "16-31" and kernel["npus"][1]["pool"] == "12-31"
    assert (in_force["label"], kernel["label"], in_force["local"]) == ("plan in force", "kernel", 1.0)


AWAY = [{"title": "a.service (pid 7, NPU 0)", "pids": [7], "cpus": "0-31", "pool": "0-15", "next": "restart it", "command": ""}]


def unbound(**changes):
    given = record(bound=False, **changes)
    given["topology"]["applied"] = None
    return given


def planned(**changes):
    """A bound host whose plan in force is what a bind would plan now, except for what is given."""
    given = record()
    given["plan"] |= changes
    return given


def remote():
    """A bound host whose plan in force, which a bind would not make again, has the CPUs of the other node."""
    given = record()
    one, other = given["topology"]["applied"]["npus"] = copy.deepcopy(given["plan"]["npus"])
    one["pool"], other["pool"] = other["pool"], one["pool"]
    return given


def without():
    given = unbound(plan={"npus": [], "cpus": "0-31", "strategy": "even_split"})
    given["topology"]["npus"] = []
    return given


BOTH = ["plan in force", "kernel"]
NEVER = differs("plan", "/etc/npu-affinity/plan.json", "the plan in force", "no such file", cause="never bound")
# (record, state, why, labels of the views)
STATES = [
    (planned(warnings=["CPUs are isolated."]), "bound with warnings", "CPUs are isolated.", BOTH),
    (planned(quality={"local": 0.75}), "bound with warnings", "25 % of the CPUs are remote.", BOTH),
    (remote(), "bound with warnings", "100 % of the CPUs are remote.", [*BOTH, "a bind now"]),
    (without(), "no accelerator", "", ["a bind now"]),
    ({"host": "node1", "unreachable": "Connection timed out"}, "no answer", "Connection timed out", []),
    (record(), "bound", "", BOTH),
    (record(drift=[MOVED]), "drifted", "manual change", BOTH),
    (record(outside=AWAY, outside_sentence="1 runs elsewhere"), "bound, workloads not", "1 runs elsewhere", BOTH),
    (record(outside=AWAY, drift=[MOVED]), "drifted", "manual change", BOTH),
    (unbound(), "not bound", "", ["a bind now"]),
    (unbound(drift=[NEVER]), "not bound", "never bound", ["a bind now"]),
    (unbound(refused="NPU 9 is not here."), "refused", "NPU 9 is not here.", ["a bind now"]),
    (record(refused="NPU 9 is not here.", plan=None), "bound", "", [*BOTH, "a bind now"]),
    ({"host": "node1", "msg": "It failed."}, "refused", "It failed.", []),
    ({"host": "node1"}, "no answer", "no result was received", []),
]


@pytest.mark.parametrize(("given", "state", "why", "labels"), STATES, ids=[f"{state[1]} {number}" for number, state in enumerate(STATES)])
def test_states(given, state, why, labels):
    data = fleet([given])
    (host,) = data["hosts"]
    assert (host["state"], host["why"]) == (state, why)
    assert [data["views"][place]["label"] for place in host["views"]] == labels
    assert any("NPU 9" in remark for remark in host["remarks"]) == (state == "bound" and bool(given.get("refused")))


OUTDATED = [
    ({}, "A bind would now change NPU 0 (0000:c1:00.0): CPUs 0-3 -> 4-7 [NPU_PLAN_OUTDATED]"),
    ({"refused": "NPU 9 is not here."}, "A bind would now be refused: NPU 9 is not here."),
    ({"muted": {"NPU_PLAN_OUTDATED": "muted until May"}}, "NPU_PLAN_OUTDATED (1) is muted until May"),
]


@pytest.mark.parametrize(("given", "said"), OUTDATED, ids=["as planned once", "refused", "muted"])
def test_a_plan_that_is_outdated_is_a_remark_of_the_page(given, said):
    (host,) = fleet([record(changes=["NPU 0 (0000:c1:00.0): CPUs 0-3 -> 4-7"], **given)])["hosts"]
    assert host["remarks"] == [said]


def test_work_outside_its_pool_is_on_the_page_with_its_cause():
    (host,) = fleet([record(outside=AWAY, drift=[MOVED])])["hosts"]
    (user,) = host["holders"]
    assert user == {**{key: AWAY[0][key] for key in AWAY[0] if key != "pids"}, "cause": "", "outside": True}
    (host,) = fleet([record(outside=[{**AWAY[0], "cause": "systemd has a mask"}])])["hosts"]
    assert host["holders"][0]["cause"] == "systemd has a mask"


def test_the_command_for_drift_repeats_how_the_run_was_started():
    start = Start(options=("-i", "hosts.yml"), limit="all", extra=(("npu_affinity_report", "r.html"), ("npu_affinity_smt", "threads")))
    page = Parsed(report_html([record("it's", drift=[MOVED]), record("node2")], start=start))
    moved, fine = json.loads(page.text("script")[0])["hosts"]
    command = """ansible-playbook -i hosts.yml npu.affinity.bind --limit 'it'"'"'s' -e npu_affinity_smt=threads"""
    assert moved["bind"] == command and "bind" not in fine


def test_users_inside_their_pools_follow_those_outside():
    given = record(outside=AWAY)
    inside = {"container": None, "name": "b.service", "npus": [{"kind": "npu", "id": npu} for npu in (0, 1)]}
    given["topology"]["users"] = [
        {**inside, "name": "a.service", "npus": inside["npus"][:1], "processes": [{"pid": 7, "cpus": "0-31"}]},
        {**inside, "processes": [{"pid": 8, "cpus": "0-3"}, {"pid": 9, "cpus": "16-17"}]},
        {**inside, "name": "allowed only", "processes": []},
    ]
    (host,) = fleet([given])["hosts"]
    assert [(user["title"], user["outside"]) for user in host["holders"]] == [
        ("a.service (pid 7, NPU 0)", True),
        ("b.service (pid 8, 9, NPU 0-1)", False),
    ]
    assert host["holders"][1] | {"cpus": "0-3,16-17", "pool": "0-31", "next": ""} == host["holders"][1]


RANKED = {"container": None, "name": "b.service", "kind": "service", "npus": [{"kind": "npu", "id": npu} for npu in (0, 1)]}
RANKED |= {"processes": [{"pid": pid, "cpus": "0-31"} for pid in (8, 9)]}
LAST = "rank 1 of b.service (pid 9, NPU 1), local pages not known"
# the CPUs of rank 1, what a comparison names, the kind of the service; whether the rank is marked, and what helps
RANKS = {
    "as planned": ("16-31", [], "service", (False, "")),
    "outside": ("0-31", [], "service", (True, "bind with npu_affinity_adopt: now")),
    "named": ("0-31", [{**AWAY[0], "title": "rank 1 of b.service (pid 9, NPU 1)", "next": "do"}], "service", (True, "do")),
    "of a pod": ("0-31", [], "pod", (False, "")),
}


@pytest.mark.parametrize(("cpus", "outside", "kind", "row"), RANKS.values(), ids=RANKS)
def test_a_rank_is_said_once_and_marked_outside_its_pool(cpus, outside, kind, row):
    given = record(outside=outside, remarks=["rank 0 of b.service: NPU 0; rank 1 of [NPU_RANKS_PLACED]", "a [NPU_NO_EFFECT]"])
    ranks = [
        {"rank": number, "pid": 8 + number, "npus": RANKED["npus"][number : number + 1], "cpus": found, "local": local}
        for number, found, local in ((0, "0-15", 98), (1, cpus, None))
    ]
    given["topology"]["users"] = [{**RANKED, "kind": kind, "ranks": ranks}]
    (host,) = fleet([given])["hosts"]
    found = [(user["title"], user["outside"], user["next"]) for user in host["holders"]]
    first = [("b.service (pid 8, 9, NPU 0-1)", False, ""), ("rank 0 of b.service (pid 8, NPU 0), 98 % local pages", False, "")]
    assert found == sorted([*first, (LAST, *row)], key=lambda shown: not shown[1])
    assert host["remarks"] == ["a [NPU_NO_EFFECT]"]
    del given["topology"]["users"]
    assert len(fleet([given])["hosts"][0]["remarks"]) == 2, "no table has them"


def test_other_strategies_and_an_earlier_run_can_be_compared():
    now, earlier = record(), record()
    earlier["topology"]["applied"]["npus"] = earlier["topology"]["applied"]["npus"][:1]
    _host, views, _machine = only([now], earlier=[earlier], strategies=["topo_affinity", "cluster"])
    assert [view["label"] for view in views[2:]] == ["strategy topo_affinity", "strategy cluster", "earlier: plan in force"]
    assert views[2]["npus"][1]["pool"] == "16-31"
    assert list(views[4]["npus"]) == [0]
    assert "cluster" in views[3].get("refused", views[3].get("strategy"))


def test_what_is_new_fixed_and_still_there_since_an_earlier_run():
    other = differs("workqueues", "dev0_sq_send_wq", Value(cpus="0"), Value(cpus="0-3"))
    earlier = [record(drift=[MOVED]), record("node2", drift=[MOVED]), {"host": "node3"}]
    hosts = fleet([record(drift=[MOVED, other]), record("node2"), record("node3"), record("node4")], earlier=earlier)["hosts"]
    moved = MOVED["object"]
    new, fixed = ({"new": ["dev0_sq_send_wq"], "fixed": [], "still": [moved]}, {"new": [], "fixed": [moved], "still": []})
    assert [host["since"] for host in hosts] == [new, fixed, None, None]


def test_the_page_tells_who_changed_a_host_last():
    change = {"id": 7, "time": "2026-11-22T13:30:00Z", "action": "bind", "author": "alice", "reason": "New cards", "run": {"id": "R1"}}
    told = [dict(fleet([record(last_change=entry)])["hosts"][0]["facts"]).get("Last change") for entry in (change, None)]
    assert told == ["bind of 2026-11-22T13:30:00Z by alice, run R1: New cards", None]


def test_services_and_workloads_have_the_cpus_of_their_npus():
    services = [{"unit": "a.service", "npus": [0]}, {"unit": "b.service", "npus": ["0000:02:00.0", 7]}]
    (host,) = fleet([record(services=services, workloads=[{"name": "llm", "npus": [0, 1], "units": ["c.service"]}])])["hosts"]
    assert [(user["kind"], user["name"], user["npus"], user["pool"], user["mems"]) for user in host["users"]] == [
        ("service", "a.service", ["NPU 0"], "0-15", "0"),
        ("service", "b.service", ["NPU 1", "7 (not in the plan)"], "16-31", "1"),
        ("workload", "llm", ["NPU 0", "NPU 1"], "0-31", "0-1"),
    ]


def test_a_lost_card_keeps_its_drift_although_logic_ids_close_up():
    drift = [
        differs("npus", "NPU 1", "PCI function 0000:02:00.0", "no such function", npu=1),
        differs("interrupts", "NPU 3 cq_update_irq", Value(cpus="49"), Value(cpus="1"), npu=3),
        differs("npus", "NPU 1 (PCI 0000:03:00.0)", "CPUs of its own", "no entry", npu=1, pci="0000:03:00.0"),
    ]
    given = record(nodes=4, npus=4, drift=drift)
    del given["topology"]["npus"][1]
    for number, npu in enumerate(given["topology"]["npus"]):
        npu["id"] = number
    given["plan"] = {**given["plan"], "npus": [], "lost": [given["plan"]["npus"][1]]}
    host, views, machine = only([given])
    assert [npu["label"] for npu in host["npus"]] == ["NPU 0", "NPU 1", "NPU 2", "NPU 1 (lost)"]
    assert [npu["pci"] for npu in host["npus"]] == ["0000:01:00.0", "0000:03:00.0", "0000:04:00.0", "0000:02:00.0"]
    assert [entry["npu"] for entry in host["drift"]] == [3, 2, 1]
    assert machine["nodes"][1]["npus"] == [3] and host["npus"][3]["gone"]
    assert views[0]["npus"][2]["pool"] == "48-63"


def test_two_npus_on_one_pci_function_are_two():
    given = record(npus=4)
    for entries in (given["topology"]["npus"], given["topology"]["applied"]["npus"]):
        for one in entries:
            one["pci"] = f"0000:{one['id'] // 2 + 1:02x}:00.0"
    _host, views, _machine = only([given])
    assert [view["pool"] for view in views[0]["npus"].values()] == ["0-7", "8-15", "16-23", "24-31"]


def no_online_cpus(topology):
    del topology["cpus"]["online"]


def no_npus(topology):
    topology["npus"][0] = "NPU 0"


@pytest.mark.parametrize(
    ("damage", "why"), [(no_online_cpus, "lacks 'online'"), (no_npus, "has an unexpected form ('str' object has no attribute 'get')")]
)
def test_what_cannot_be_drawn_is_in_the_table_all_the_same(damage, why):
    given = record(drift=[MOVED])
    damage(given["topology"])
    data = fleet([given, record("node2")])
    assert [host["state"] for host in data["hosts"]] == ["drifted", "bound"]
    assert "machine" not in data["hosts"][0]
    assert data["hosts"][0]["remarks"] == [f"This host cannot be drawn, because its record {why}. Verify or collect it again."]


NAMELESS = "a record of a host has its name in 'host'"
NO_RUN = "runs: a run has its name in 'name'"
WRONG = [([{"topology": {}}], [], NAMELESS), (["node1"], [], NAMELESS), ([{"host": "a"}] * 2, [], "host a has two records")]


@pytest.mark.parametrize(("records", "runs", "error"), [*WRONG, ([], [{"host": "a"}], NO_RUN)])
def test_wrong_records_and_runs_are_named(records, runs, error):
    with pytest.raises(ValueError, match=re.escape(error)):
        report_html(records, runs=runs)


def test_process_memory_comes_from_the_record_and_measurements():
    given = record(processes=[{"pid": 1, "name": "a", "npu": 1, "memory": {0: 5}}])
    entries = [{"pid": 2, "name": "b", "npus": [0, 1], "wanted": "0-1", "mib": {"1": 7.26}, "remote_mib": 0.0}]
    measures = [
        {"host": "node1", "label": label, "measured_at": when, "workloads": [{"memory": entries}, {"memory": []}]}
        for label, when in (("after", "2026-02"), ("before", "2026-01"))
    ]
    measures.append({"host": "node2", "label": "before", "workloads": []})
    host, _views, _machine = only([given], measures=measures)
    assert [group["label"] for group in host["memory"]] == ["", "before, 2026-01", "after, 2026-02"]
    assert host["memory"][0]["processes"] == [{"pid": 1, "name": "a", "npus": [1], "wanted": "", "memory": {"0": 5.0}}]
    assert host["memory"][1]["processes"] == [{"pid": 2, "name": "b", "npus": [0, 1], "wanted": "0-1", "memory": {"1": 7.3}}]


def test_records_are_not_changed():
    given = [record(drift=[MOVED], processes=[{"pid": 1, "name": "a", "npu": 0, "memory": {0: 5}}])]
    before = copy.deepcopy(given)
    report_html(given, earlier=given, strategies=["even_split"])
    assert given == before


class Parsed(HTMLParser):
    """The elements of a page and the texts in them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data):
        if self.rawdata and self.cdata_elem:
            self.texts.setdefault(len(self.tags) - 1, []).append(data)

    def text(self, tag, number=0):
        place = [index for index, found in enumerate(self.tags) if found == tag][number]
        return "".join(self.texts.get(place, [])), self.attributes[place]


PLAIN = Parsed(report_html([record()]))
NASTY = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "<!--<script>", "]]>", "@@DATA@@"]
NASTY += ["\u2028\u2029", "\ud800"]
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))


@given(texts, texts, texts, texts)
def test_no_text_of_a_host_can_become_markup(name, title, cause, process):
    given = record(
        "n" + name,
        drift=[{**MOVED, "object": name, "cause": cause, "remark": cause}],
        remarks=[cause],
        outside=[{"title": name, "cpus": cause, "pool": process, "next": title, "command": cause}],
        processes=[{"pid": 1, "name": process, "npu": 0, "memory": {}}],
    )
    given["topology"]["machine"]["product"] = process
    given["topology"]["npus"][0]["name"] = cause
    page = report_html([given], title=title, generated=cause)
    page.encode()
    parsed = Parsed(page)
    assert parsed.tags == PLAIN.tags
    data = json.loads(parsed.text("script")[0])
    assert data["title"] == title
    assert data["hosts"][0]["name"] == "n" + name
    assert data["hosts"][0]["npus"][0]["name"] == cause


def test_the_policy_allows_only_this_style_and_this_script():
    policy = next(attributes["content"] for attributes in PLAIN.attributes if attributes.get("http-equiv") == "Content-Security-Policy")
    for tag, number, directive in (("style", 0, "style-src"), ("script", 1, "script-src")):
        digest = base64.b64encode(hashlib.sha256(PLAIN.text(tag, number)[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_page_loads_nothing_and_its_script_creates_no_markup():
    page = report_html([record()])
    assert re.findall(r"""(?:src|href)\s*=\s*["']?(?!#)\w+:""", page) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    script = PLAIN.text("script", 1)[0]
    assert not re.search(r"(inner|outer|insertAdjacent)HTML|document\.write|(eval|fetch|import)\(|new Function|XMLHttpRequest", script)
    assert not re.search(r"@import|url\((?!#)", PLAIN.text("style")[0])


def test_a_full_page_of_640_cpus_and_16_npus_is_below_300_kb():
    names = ("cq_update_irq", "sq_send_trigger_irq")
    moved = (Value(cpus="1"), Value(cpus="3", irqs="7"))
    drift = [differs("interrupts", f"NPU {npu} {name}", *moved, npu=npu) for npu in range(16) for name in names]
    memory = {node: 100.5 * node for node in range(8)}
    processes = [{"pid": 1000 + number, "name": f"worker {number}", "npu": number % 16, "memory": memory} for number in range(64)]
    given = record(nodes=8, per_node=80, npus=16, threads=2, drift=drift, processes=processes)
    page = report_html([given], earlier=[given], strategies=["even_split", "topo_affinity", "global_slice"])
    assert len(page.encode()) < 150_000


def test_a_thousand_hosts_share_what_is_alike():
    large = {"nodes": 8, "per_node": 80, "npus": 16, "threads": 2}
    hosts = [record(f"node{number}", **large, drift=[MOVED] if number % 7 == 0 else []) for number in range(1000)]
    page = report_html(hosts)
    assert len(page.encode()) < 3_000_000
    data = json.loads(Parsed(page).text("script")[0])
    assert [len(data[part]) for part in ("hosts", "machines", "views")] == [1000, 1, 3]
