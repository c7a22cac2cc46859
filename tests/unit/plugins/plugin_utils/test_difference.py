# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan next to the plan in force, and the plans of a fleet as tables."""

import json

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import value_feature
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import text_digest
from ansible_collections.npu.affinity.plugins.module_utils._state.value_kind import Setting
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.difference import changes as changes_of
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import FIRST_LINE
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import plan_tables
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

NODES = [6, 4, 6, 4, 0, 2, 0, 2]
FRESH = {**host(NODES), "machine": {"cgroup": "v2", "systemd": 255}}
FIRST = plan(FRESH)
ONE, TWO = {"unit": "vllm@0.service", "npus": [0]}, {"unit": "tp2.service", "npus": [0, 2]}
PAIR = {"name": "pair", "npus": [4, 6], "units": ["pair.service"]}


def bound(**others):
    return {**FRESH, "applied": json.loads(json.dumps(FIRST)), **others}


def state_of(topology, shown=False, tell=False, in_force=None, **settings):
    """Return the desired state; ``settings`` are without their prefix."""
    given = {f"npu_affinity_{name}": value for name, value in {"irq_enabled": False, **settings}.items()}
    return desired_state(topology, of_features(given), shown=shown, tell=tell, in_force=in_force)


def in_force_of(state, differs=()):
    return {"digest": state["digest"], "state": applied(state), "differs": list(differs)}


def difference(topology, **settings):
    return state_of(topology, **settings)["difference"]


def drop_in(text):
    return text_digest(FIRST_LINE + text)


IN_SLICE_0 = drop_in(
    "# CPUs and memory of NPU 0.\n[Service]\nCPUAffinity=\nSlice=npu-0.slice\nCPUAffinity=0-191\nEnvironment=ASCEND_RT_VISIBLE_DEVICES=0\n"
)


def of(difference, key="npus"):
    return {row["npu" if key == "npus" else "user"]: row for row in difference[key]}


def test_a_first_bind_has_nothing_beside_it():
    first_bind = difference(FRESH, services=[ONE], workloads=[PAIR])
    assert not first_bind["in_force"]
    assert {(row["now"], row["sentence"]) for row in first_bind["npus"]} == {(None, None)}
    assert [row["then"] for row in first_bind["npus"]] == [entry["pool"] for entry in FIRST["npus"]]
    first = {"npus": "0", "cpus": FIRST["npus"][0]["pool"], "mems": FIRST["npus"][0]["memory_nodes"], "slice": "npu-0.slice", "now": None}
    assert of(first_bind, "users")["vllm@0.service"] == {"user": "vllm@0.service", **first}
    pair = of(first_bind, "users")["workload pair"]
    assert (pair["npus"], pair["slice"]) == ("4,6", "npu-pair.slice")
    assert first_bind["restart"] == ["pair.service", "vllm@0.service"]
    (user,) = difference(FRESH, services=[ONE], slices_enabled=False)["users"]
    assert user["slice"] is None, "role slices is off, and writes none"


def test_other_pools_are_beside_those_in_force():
    topology = bound()
    second = plan(topology, housekeeping="1")
    moved = difference(topology, housekeeping="1", services=[ONE])
    row = of(moved)["NPU 0"]
    assert (row["now"], row["then"]) == (FIRST["npus"][0]["pool"], second["npus"][0]["pool"])
    assert row["sentence"] == f"A bind moves NPU 0 (PCI {row['pci']}) from CPUs {row['now']} to CPUs {row['then']}. [NPU_BIND_EFFECT]"
    assert of(moved, "users")["vllm@0.service"]["now"] == row["now"]
    again = difference(topology)
    assert again["in_force"] and not any(row["sentence"] for row in again["npus"])


def test_a_lost_card_stays_in_the_table_until_planned_without_it():
    topology = bound()
    remaining = [{**npu, "id": number} for number, npu in enumerate(npu for npu in topology["npus"] if npu["id"] != 3)]
    topology = {**topology, "npus": remaining}
    kept = difference(topology)
    assert len(kept["npus"]) == 8 and not any(row["sentence"] for row in kept["npus"])
    replanned = difference(topology, replan=True)
    (gone,) = (row for row in replanned["npus"] if row["then"] is None)
    assert (gone["npu"], gone["now"]) == ("NPU 3", FIRST["npus"][3]["pool"])
    (row,) = (row for row in difference(topology, housekeeping=1)["npus"] if row["then"] == "")
    assert row["sentence"] == f"A bind takes CPUs {row['now']} from NPU 3 (PCI {row['pci']}). [NPU_BIND_EFFECT]"


# what: drop-ins on the host, services named, whether role slices is on, services that have to be restarted
RESTARTS = {
    "as it is": ({"vllm@0.service": IN_SLICE_0}, [ONE], True, []),
    "another slice": ({"vllm@0.service": drop_in("[Service]\nSlice=npu-1.slice\n")}, [ONE], True, ["vllm@0.service"]),
    "one more": ({"vllm@0.service": IN_SLICE_0}, [ONE, TWO], True, ["tp2.service"]),
    "one less": ({"vllm@0.service": IN_SLICE_0}, [], True, ["vllm@0.service"]),
    "no slices": ({"vllm@0.service": IN_SLICE_0}, [ONE], False, ["vllm@0.service"]),
    "one that is not on the host": ({}, [{"unit": "absent.service", "npus": [0]}], True, []),
}


@pytest.mark.parametrize(("drop_ins", "services", "slices", "restart"), RESTARTS.values(), ids=list(RESTARTS))
def test_services_whose_drop_in_changes_have_to_be_restarted(drop_ins, services, slices, restart):
    topology = bound(drop_ins=drop_ins, missing_units={"absent.service": ""})
    assert difference(topology, services=services, slices_enabled=slices)["restart"] == restart


def test_a_plan_that_is_refused_is_compared_all_the_same():
    refused = difference(bound(drop_ins={"vllm@0.service": IN_SLICE_0}), services=[ONE, {"unit": "a.service", "npus": [77]}])
    assert [row["user"] for row in refused["users"]] == ["vllm@0.service"] and refused["users"][0]["slice"] is None
    assert refused["restart"] == []


def shown(topology, housekeeping="", **others):
    state = state_of(topology, housekeeping=housekeeping)
    return {"plan": state["plan"], "topology": topology, "summary": "", "remarks": [], "difference": state["difference"], **others}


def test_equal_tables_are_shared_and_sentences_name_their_hosts():
    topology = bound()
    other = plan(topology, housekeeping="1")
    moved = [row["sentence"] for row in difference(topology, housekeeping="1")["npus"]]
    hosts = {"a": shown(FRESH), "b": shown(FRESH, remarks=["Look here."])}
    lines = plan_tables({**hosts, "c": shown(topology, "1", remarks=[*moved, "Look there."])})
    text = "\n".join(lines)
    assert [line for line in lines if line.endswith(":")] == ["a, b:", "c:"]
    assert "remark     Look here. (b)" in lines and "remark     Look there." in lines
    assert "A bind moves" not in text and "" in lines and lines[-1]
    first, second = (line for line in lines if line.startswith("NPU "))
    assert "now" not in first.split() and second.split()[4:6] == ["now", "pool"]
    row = lines[lines.index(second) + 1].split()
    assert row[4:6] == [FIRST["npus"][0]["pool"], other["npus"][0]["pool"]]


def test_hosts_that_get_no_slices_have_no_column_for_them():
    topology = {**FRESH, "machine": {**FRESH["machine"], "cgroup": "v1"}}
    on_v1, on_v2 = plan_tables({"v1": shown(topology)}), plan_tables({"v2": shown(FRESH)})
    assert on_v1[1].split() == on_v2[1].split()[:-1] and on_v2[1].split()[-1] == "slice"
    assert not any(".slice" in line for line in on_v1)


def test_names_of_hosts_are_folded_and_none_is_left_out():
    one = shown(FRESH)
    assert plan_tables({f"node{number:02}": one for number in range(1, 41)})[0] == "node[01:40]:"
    odd = [f"rack-{chr(97 + number)}" for number in range(26)]
    lines = plan_tables(dict.fromkeys(odd, one))
    names = " ".join(lines[: next(place for place, line in enumerate(lines) if line.startswith("NPU "))])
    assert names == ", ".join(odd) + ":"


def test_a_host_as_planned_says_so():
    topology, unknown, changed = bound(), "moves no NPU; what else it changes is not known", ["feature tuning: off -> on"]
    for changes, words in ((None, unknown), ([], "changes nothing"), (changed, "moves no NPU")):
        host = shown(topology)
        host["difference"]["changes"] = changes
        assert f"in force the same CPUs as now: a bind {words}." in " ".join(" ".join(plan_tables({"a": host})).split())


def test_settings_of_every_feature_that_has_some_are_told(monkeypatch):
    for name, settings in (("frequency", {"governor": Setting("/a")}), ("pages", {})):
        monkeypatch.setitem(FEATURES, name, value_feature(name, settings, meaning="A."))
    live = {"frequency": {"governor": "powersave"}, "pages": {"size": 2048}, "tuning": {"governor": "performance"}}
    assert changes_of({"live": live, "features": {}}, None) == ["host settings: governor performance, governor powersave"]


def effects(state):
    return [text.partition("A bind changes: ")[2] for text in state["remarks"] if "A bind changes: " in text]


def test_a_plan_that_is_shown_has_all_that_a_bind_changes():
    topology = host([0, 0])
    before = state_of(topology, shown=True)
    (effect,) = effects(before)
    assert "feature slices: off -> on (gives workloads the CPUs and memory nodes of their NPUs)" in effect and "feature irq" not in effect
    tuning = {"governor": "performance", "swappiness": 0}
    first = state_of(topology, tell=True, tuning=tuning)
    sentence = "feature tuning: off -> on (sets the host's kernel settings); host settings: governor performance, swappiness 0. ["
    assert sentence in effects(first)[0]
    later = {**topology, "applied": first["plan"]}
    adopted = {**in_force_of(state_of(topology, adopt="now")), "digest": ""}
    (effect,) = effects(state_of(later, tell=True, in_force=adopted, adopt="now", move_memory=True, slices_enabled=False))
    assert "settings of feature adopt: changed" in effect and "feature slices: on -> off" in effect
    less = state_of(later, tell=True, in_force=in_force_of(first), tuning={"governor": "schedutil"})
    assert "host settings: governor schedutil, swappiness as before the first bind. [" in effects(less)[0]
    assert effects(state_of(later, tell=True, in_force=in_force_of(first), tuning=tuning)) == []


CHANGES = [
    ("nothing", {}, [], []),
    ("a feature", {"tuning": {"governor": "performance"}}, [], ["feature tuning: off -> on", "governor performance"]),
    ("a unit", {}, ["start npu-0.slice"], ["start npu-0.slice. ["]),
    ("files", {}, [f"file /etc/{name}: changed" for name in "abcd"], ["4 files, which --check --diff shows. ["]),
]


@pytest.mark.parametrize("settings, differs, words", [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_a_host_is_converged_if_a_bind_changes_nothing(settings, differs, words):
    before = state_of(host([0, 0]), shown=True)
    topology = {**host([0, 0]), "applied": before["plan"]}
    made = state_of(topology, shown=True, in_force=in_force_of(before, differs), **settings)
    assert made["converged"] == (not words) and len(effects(made)) == bool(words), made["remarks"]
    assert all(word in effects(made)[0] for word in words), made["remarks"]


def test_a_bind_has_no_effect_on_a_host_without_accelerators():
    made = state_of({**bound(), "npus": [], "applied": None}, shown=True)
    assert not made["refusals"] and not [text for text in made["remarks"] if "A bind" in text]


def using(group, npu, cpus):
    processes = [{"pid": 7, "start": 1, "command": "python3", "devices": ["davinci0"], "cpus": cpus}]
    user = {"group": group, "kind": "service", "unit": "vllm.service", "engine": "", "container": None, "name": "vllm.service"}
    sets = {"devices": ["davinci0"], "npus": [{"kind": "npu", "id": npu}], "cpus": "", "mems": "", "witness": "open"}
    return {**user, **sets, "processes": processes}


def test_the_plan_says_what_runs_elsewhere_than_it_would():
    pool = FIRST["npus"][0]["pool"]
    topology = {**FRESH, "users": [using("/system.slice/vllm.service", 0, "0-95"), using("/npu.slice/x.service", 0, pool)]}
    state = state_of(topology)
    assert state["outside"] == [f"vllm.service (pid 7, NPU 0): runs on CPUs 0-95, pool {pool}", "1 more inside their pools"]
    lines = plan_tables({"a": shown(topology, outside=state["outside"])})
    assert any(line.startswith("work       vllm.service (pid 7, NPU 0): runs on") for line in lines)
    assert state_of(FRESH)["outside"] == []


@pytest.mark.parametrize("isolation", ["off", "exclude", "explain"])
def test_isolated_cpus_are_in_pools_unless_excluded(isolation):
    last = str(max(expand(FRESH["cpus"]["online"])))
    topology = {**FRESH, "cpus": {**FRESH["cpus"], "isolated": last}}
    plan = state_of(topology, isolation=isolation)["plan"]
    divided = {cpu for npu in plan["npus"] for cpu in expand(npu["pool"])}
    assert (int(last) in divided) == (isolation != "exclude")


def test_housekeeping_would_confine_what_uses_npus_elsewhere():
    users = [using("/system.slice/vllm.service", 0, "0-95"), using("/npu.slice/x.service", 0, "0-3")]
    given = {"housekeeping": 1, "fail_on": ["drift", "services"]}
    topology = {**FRESH, "users": users, "missing_units": {"b.service": ""}}
    state = state_of(topology, **given)
    assert set(state["codes"]) == {"NPU_HOUSEKEEPING_CONFINES", "NPU_UNKNOWN_UNIT"}
    (refusal,) = (text for text in state["refusals"] if "confine these programs, which use accelerators, to CPUs" in text)
    assert refusal.count("vllm.service in system.slice (process 7 python3; /dev/davinci0). ") == 1
    assert state_of(topology, **given, slices_enabled=False)["refusals"] == []


@pytest.mark.parametrize("silent, advised", [({"npu": "npu-smi is missing."}, False), ({}, True)])
def test_unbind_is_advised_only_where_the_tool_has_answered(silent, advised):
    topology = {**bound(), "npus": [], "problems": ["npu-smi is missing."], "silent": silent}
    refusals = state_of(topology)["refusals"]
    assert refusals and any("unbind the host" in sentence for sentence in refusals) == advised, refusals
