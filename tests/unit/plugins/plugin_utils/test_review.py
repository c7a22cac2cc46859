# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a fleet as files: equal while the fleet is, and a bind is refused for whatever has moved since, in words."""

import copy
import json

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._review.file import refusal, review_entry, review_file
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features

NODES = [6, 4, 6, 4, 0, 2, 0, 2]
IRQBALANCE = {"installed": False, "active": False, "argument_key": None}
FRESH = {**host(NODES), "machine": {"cgroup": "v2", "systemd": 255}, "irqbalance": IRQBALANCE}
DEFAULTS = features.of_features({})
SLICES = {**DEFAULTS["slices"], "services": [{"unit": "vllm@0.service", "npus": [0]}]}
IRQ = {**DEFAULTS["irq"], "interval": "10min"}
FILE = "plans/fleet.json"


def variables(topology=FRESH, settings=None, **options):
    """What playbook plan leaves of a host."""
    of_roles = DEFAULTS | {"slices": SLICES, "irq": IRQ} | (settings or {})
    work = {name: of_roles["slices"][name] for name in ("services", "workloads", "vnpus")}
    state = desired_state(topology, {**of_roles, "plan": {**of_roles["plan"], **work, **options}})
    assert state["refusals"] == []
    return {"npu_affinity_state": state, "npu_affinity_topology": topology}


def bound(of=FRESH, **options):
    """A host on which a plan is in force, as it is read from plan.json."""
    return {**of, "applied": json.loads(json.dumps({"about": "…", **plan(of, **options)}))}


def lost(*ids):
    npus = [npu for npu in FRESH["npus"] if npu["id"] not in ids]
    return {**FRESH, "npus": [{**npu, "id": number} for number, npu in enumerate(npus)]}


def refused(files, now, name="node1"):
    return refusal(name, review_entry(now["npu_affinity_state"], now["npu_affinity_topology"]), files)


def moved(then, now):
    return refused({FILE: review_file({"node1": then}, ["node1"])["json"]}, now)


def test_an_unchanged_fleet_gives_the_same_texts_without_repeats():
    hosts = {f"node{number}": variables() for number in (10, 9, 1)}
    texts = review_file(hosts, hosts)
    assert texts == review_file(copy.deepcopy(dict(reversed(hosts.items()))), reversed(hosts))
    document = json.loads(texts["json"])
    assert [len(document[table]) for table in ("machines", "plans", "states", "differences")] == [1, 1, 1, 1]
    assert len({json.dumps(entry) for entry in document["hosts"].values()}) == 1


def test_what_a_host_does_at_the_moment_is_not_in_the_file():
    users = [{"group": "/a", "processes": [], "devices": [], "npus": [], "witness": "open"}]
    busy = {**FRESH, "npus": [{**npu, "busy": True} for npu in FRESH["npus"]], "users": users}
    assert review_file({"a": variables()}, ["a"]) == review_file({"a": variables(busy)}, ["a"])


@pytest.mark.parametrize("now", [FRESH, bound()], ids=["as it was", "bound by the file"])
def test_a_host_that_has_not_moved_is_bound_and_stays_so(now):
    assert moved(variables(), variables(now)) == moved(variables(bound()), variables(bound())) == ""


OFFLINE = {**FRESH, "cpus": {**FRESH["cpus"], "online": "0-191"}, "numa": [{**FRESH["numa"][0], "cpus": "0-22"}, *FRESH["numa"][1:]]}
FOUR_IRQ = {"roles": {"irq": 4, "acl": 1, "release": 1}}
UNIT_FILES = "/etc/systemd/system"
FIRST = FRESH["npus"][0]["pci"]
OTHER_ROLES = f"NPU 0 ({FIRST}): irq 144-145 -> 144-147, main 146-165 -> 148-165; NPU 1"
NO_SERVICES = {"slices": {**SLICES, "services": []}}
# what the host was then and is now, besides what it always is, and the sentence on that
MOVED = {
    "a card": ({}, {"topology": lost(3)}, f"is not what {FILE} was written for: the accelerator at {FRESH['npus'][3]['pci']} is missing"),
    "CPUs": ({}, {"topology": OFFLINE}, "written for: NUMA node 0 had CPUs 0-23 and has CPUs 0-22"),
    "a bind": ({}, {"topology": bound(housekeeping="1")}, f"in force is not the one that {FILE} compares with: there was none"),
    "an unbind": ({"topology": bound()}, {}, "compares with: there was one and is none now"),
    "a rollback": ({"topology": bound()}, {"topology": bound(**FOUR_IRQ)}, f"compares with: {OTHER_ROLES}"),
    "housekeeping": ({}, {"housekeeping": "1"}, f"a bind would not do what {FILE} says: housekeeping none -> 0,24,48"),
    "roles": ({}, FOUR_IRQ, f"says: {OTHER_ROLES}"),
    "a role": ({}, {"settings": {"irq": {**IRQ, "enabled": False}}}, "says: feature irq: on -> off; file "),
    "a time": ({}, {"settings": {"irq": {**IRQ, "interval": "1min"}}}, f"says: file {UNIT_FILES}/npu-affinity-irq.timer: changed."),
    "a service": ({}, {"settings": NO_SERVICES}, f"says: file {UNIT_FILES}/vllm@0.service.d/50-npu-affinity.conf: removed."),
}


@pytest.mark.parametrize(("then", "now", "sentence"), MOVED.values(), ids=MOVED)
def test_a_host_that_has_moved_is_refused_with_what_differs(then, now, sentence):
    refusal = moved(variables(**then), variables(**now))
    assert sentence in refusal
    assert refusal.startswith("npu_affinity_reviewed: ") and refusal.count(". ") == 1 and refusal.endswith("and bind with that.")


def test_a_host_that_had_no_plan_then_is_refused():
    of_refused = moved({"__npu_affinity_refused": ["Too few\nCPUs."]}, variables())
    assert "has no plan of this host, because a bind was refused then: Too few CPUs." in of_refused
    assert "has no plan of this host, which did not answer then." in moved({}, variables())


def test_much_that_differs_is_counted():
    refusal = moved(variables(), variables(strategy="even_split", housekeeping="2"))
    assert "says: strategy topo_affinity -> even_split, housekeeping none -> " in refusal and " more. " in refusal


def test_a_host_without_accelerators_is_left_alone():
    bare = {**FRESH, "npus": []}
    assert moved(variables(bare), variables({**bare, "cpus": {**FRESH["cpus"], "online": "0-7"}})) == ""
    assert "the accelerator at" in moved(variables(bare), variables())


def edited(change):
    document = json.loads(review_file({"node1": variables()}, ["node1"])["json"])
    change(document)
    return json.dumps(document)


def of_plans(change):
    return edited(lambda document: [change(made) for made in document["plans"].values()])


OTHER_POOL = f"a bind would not do what plans/fleet.json says: NPU 0 ({FIRST}): CPUs 0-7 -> 144-167."
FILES = {
    "missing": ({FILE: None}, "there is no file plans/fleet.json on the controller."),
    "cut": ({FILE: "{"}, "plans/fleet.json is not valid JSON ("),
    "deep": ({FILE: "[" * 100_000}, "plans/fleet.json is not valid JSON ("),
    "a plan": ({FILE: json.dumps(plan(FRESH))}, "plans/fleet.json is not a file of plans that playbook npu.affinity.plan wrote"),
    "with a list of hosts": ({FILE: edited(lambda file: file.update(hosts=["node1"]))}, "plans/fleet.json is not a file of plans that"),
    "of another version": ({FILE: edited(lambda file: file.update(version="0.9.0"))}, "was written by npu.affinity 0.9.0, and this is "),
    "of others": ({FILE: review_file({"node2": variables()}, ["node2"])["json"]}, "plans/fleet.json has no plan of this host."),
    "of two": ({"a.json": edited(lambda file: None), "b.json": edited(lambda file: None)}, "a.json and b.json all have this host."),
    "without a state": ({FILE: edited(lambda file: file["states"].clear())}, "what plans/fleet.json has of this host was changed by hand"),
    "without NPUs": ({FILE: of_plans(lambda made: made.pop("npus"))}, "was changed by hand, and lacks 'npus'."),
    "with a pool of its own": ({FILE: of_plans(lambda made: made["npus"][0].update(pool="0-7"))}, OTHER_POOL),
}


@pytest.mark.parametrize(("files", "sentence"), FILES.values(), ids=FILES)
def test_files_that_cannot_be_applied(files, sentence):
    assert sentence in refused(files, variables())


def test_the_slices_of_a_job_are_files_of_their_own():
    files = {f"{name}.json": review_file({name: variables()}, [name])["json"] for name in ("node1", "node2")}
    assert [refused(files, variables(), name) for name in ("node1", "node2")] == ["", ""]


def test_people_read_each_distinct_plan_once():
    hosts = {f"node{number}": variables() for number in range(1, 5)}
    hosts["node5"] = variables(bound(housekeeping="1"))
    hosts["node6"] = variables(bound())
    hosts["node7"] = variables({**FRESH, "npus": []})
    hosts["node8"] = {"__npu_affinity_refused": ["node8 has <3 CPUs | none."]}
    hosts["node9"] = {}
    hosts["node4"]["npu_affinity_state"]["remarks"] = ["look"]
    lines = review_file(hosts, hosts)["md"].splitlines()
    assert lines[4:10] == [
        "* 4 hosts bound for the first time",
        "* 1 host with other CPUs than now",
        "* 1 host with the CPUs of now",
        "* 1 host with nothing to bind",
        "* 1 host refused",
        "* 1 host without an answer",
    ]
    assert [line for line in lines if line.startswith("### ")] == ["### node[1:4]", "### node5", "### node6"]
    rows = [line for line in lines if line.startswith("| NPU 0 |")]
    pool, before = plan(FRESH)["npus"][0]["pool"], plan(FRESH, housekeeping="1")["npus"][0]["pool"]
    assert [row.split(" | ")[2:4] for row in rows] == [["-", pool], [before, pool], [pool, pool]]
    assert "| vllm@0.service | 0 | - | 144-167 | 6-7 | npu-0.slice |" in lines
    assert {"* node4: look", "* node8: node8 has &lt;3 CPUs | none."} <= set(lines)
    assert any(line.startswith("* Workloads are bound by systemd slices (cgroup v2).") for line in lines)
    assert [line.split(" (")[0] for line in lines if "A bind moves" in line] == ["* A bind moves NPU 0"]
    assert "* A bind restarts no service; these follow when you restart them: vllm@0.service" in lines


def test_a_lost_card_has_its_row():
    topology = {**lost(3), "applied": bound()["applied"]}
    row = next(line for line in review_file({"a": variables(topology)}, ["a"])["md"].splitlines() if line.startswith("| NPU 3 |"))
    assert row.split(" | ")[1] == FRESH["npus"][3]["pci"]


@pytest.mark.parametrize("roles, has_kv", [(None, False), ({"kv": 2}, True)])
def test_a_role_for_kv_caches_has_a_column_where_a_plan_has_it(roles, has_kv):
    lines = review_file({"a": variables(roles=roles)}, ["a"])["md"].splitlines()
    heading, _line, first = [line for line in lines if line.startswith("| ")][:3]
    assert ("| main | KV | ACL |" in heading) == has_kv
    assert heading.count("|") == first.count("|")
    assert ("| 164-165 | 166 |" in first) == has_kv


HOSTILE = [
    ("\x1b[2J![](//host)", "\\\\x1b[2J\\![\\](//host)"),
    ("[a](//host) [b][c] [d]: //host", "[a\\](//host) [b\\][c] [d\\]: //host"),
    ("<img src=//host>", "&lt;img src=//host&gt;"),
    ("# heading", "\\# heading"),
    ("_a_ ~~b~~ *c* `d` npu_affinity_x", "\\_a\\_ \\~\\~b\\~\\~ \\*c\\* \\`d\\` npu_affinity_x"),
    ("a\n\n# b\u202ec", "a # b\\\\u202ec"),
    ("node[1:4]", "node[1:4]"),
]


@pytest.mark.parametrize("text, shown", HOSTILE)
def test_the_page_shows_names_of_a_host_as_they_are(text, shown):
    hosts = {"node1": variables()}
    hosts["node1"]["npu_affinity_state"]["remarks"] = [text]
    assert f"* {shown}" in review_file(hosts, hosts)["md"].splitlines()
