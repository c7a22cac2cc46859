# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals and remarks have codes of the lists, from where they are made to the summary of a run."""

import ast
import datetime
import pickle
import re
from pathlib import Path

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.module_utils._smi import errors
from ansible_collections.npu.affinity.plugins.plugin_utils import _codes
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, REMARKS, Sentence, code_of, rank
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import plans as of_hosts
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary import summary
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import mutes
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

CODED = ("Sentence", "coded_error", "warn", "_refused", "remark", "coded")
PLUGINS = Path(__file__).resolve().parents[4] / "plugins"


def written():
    """Every text that looks like a code where the code makes a sentence, or a pair of code and sentence."""
    for path in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            of_call = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in CODED
            parts = node.args if of_call else node.elts if isinstance(node, ast.Tuple) else ()
            if parts and isinstance(parts[0], ast.Constant) and re.fullmatch("NPU_[A-Z_]+", str(parts[0].value)):
                yield parts[0].value


def test_the_lists_have_the_codes_of_sentences_and_no_others():
    assert [sorted(codes) for codes in (REFUSALS, REMARKS)] == [list(REFUSALS), list(REMARKS)]
    assert not (REFUSALS.keys() | REMARKS.keys()) & CODES.keys()
    assert set(written()) - CODES.keys() == REFUSALS.keys() | REMARKS.keys()


REFUSED = [
    ("too few CPUs", {"npu_affinity_min_cpus": 5000}, "NPU_TOO_FEW_CPUS"),
    ("a value that is none", {"npu_affinity_cpus": "5-2"}, "NPU_SETTING_INVALID"),
    ("an NPU that is not there", {"npu_affinity_services": [{"unit": "a.service", "npus": [77]}]}, "NPU_UNKNOWN_NPU"),
    ("a folder that is lost", {"npu_affinity_library": "/run/a"}, "NPU_SETTING_INVALID"),
    ("a feature", {"npu_affinity_metrics_enabled": True, "npu_affinity_metrics_textfile": "a"}, "NPU_SETTING_INVALID"),
    ("a feature's own", {"npu_affinity_adopt": "now", "npu_affinity_bound_by": "workers"}, "NPU_WORKERS_CONFLICT"),
]


@pytest.mark.parametrize("settings, code", [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_document_has_its_refusals_by_code(settings, code):
    state = desired_state(host([0, 0]), of_features({"npu_affinity_irq_enabled": False, **settings}))
    assert state["codes"] == {code: state["refusals"]} and not any(isinstance(sentence, Sentence) for sentence in state["refusals"])


def texts(value):
    """Every text of a document."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    several = isinstance(value, list | tuple)
    return [value] if isinstance(value, str) else [text for part in value for text in texts(part)] if several else []


IRQBALANCE = {"active": True, "installed": True, "argument_key": None, "refusal": ""}
HOST = {**host([0, 0]), "irqbalance": IRQBALANCE}
ISOLATED = {"cpus": {**HOST["cpus"], "isolated": "2-3"}}
REMARKED = [
    ("a unit that is missing", {"missing_units": {"a.service": ""}}, "NPU_UNKNOWN_UNIT"),
    ("CPUs of pods", {"kubelet": {"policy": "none", "exclusive": {"a": {"b": "2"}}}}, "NPU_PODS_IN_POOL"),
    ("a note", {}, "NPU_IRQBALANCE_ACTIVE"),
    ("a warning of the plan", ISOLATED, "NPU_CPUS_ISOLATED"),
    ("what a bind moves", {"applied": {"npus": [{"id": 0, "pci": HOST["npus"][0]["pci"], "pool": "3"}]}}, "NPU_BIND_EFFECT"),
]


@pytest.mark.parametrize("facts, code", [row[1:] for row in REMARKED], ids=[row[0] for row in REMARKED])
def test_a_remark_is_plain_text_with_its_code(facts, code):
    settings = of_features({"npu_affinity_irqbalance": "leave"})
    state = desired_state({**HOST, **facts}, settings, shown=True)
    notes = [note for feature, texts in state["notes"].items() if feature != "slices" for note in texts]
    assert code in {code_of(text) for text in (*state["remarks"], *state["plan"]["warnings"], *notes)}
    assert all(map(code_of, (*state["remarks"], *state["plan"]["warnings"], *notes)))
    assert {type(text) for text in texts(state)} == {str}


def test_a_sentence_keeps_its_code_in_an_error_but_not_elsewhere():
    error = _codes.of_error(ValueError(Sentence("NPU_RULE_FAILS", "a")), "NPU_SETTING_INVALID")
    assert (error, error.code, _codes.of_error(ValueError("b"), "NPU_SETTING_INVALID").code) == (
        "a",
        "NPU_RULE_FAILS",
        "NPU_SETTING_INVALID",
    )
    assert _codes.shown(["a", "c"], _codes.by_code([error])) == ["a [NPU_RULE_FAILS]", "c"]
    assert not isinstance(pickle.loads(pickle.dumps(error)), Sentence)


def test_codes_are_not_part_of_what_a_host_applies():
    state = desired_state(host([0, 0]), of_features({"npu_affinity_irq_enabled": False}))
    assert state["refusals"] == [] and "codes" not in applied({**state, "codes": {"NPU_RULE_FAILS": ["a"]}})


HOSTS = [
    ("a plan", {"__npu_affinity_gathered": {"refusals": ["a [NPU_RULE_FAILS]"], "codes": {"NPU_RULE_FAILS": ["a"]}}}, "NPU_RULE_FAILS"),
    ("a setting", {"__npu_affinity_refused": ["a"]}, "NPU_SETTING_INVALID"),
    ("no answer", {"__npu_affinity_failure": {"state": "refused", "task": "Plan", "reason": "a"}}, "NPU_NOT_GATHERED"),
]


@pytest.mark.parametrize("variables, code", [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
def test_a_summary_has_the_code_of_a_refusal(variables, code):
    entry = summary({"a": variables}, "bind")["hosts"]["a"]
    assert (entry["state"], entry["reasons"], entry["codes"]) == ("refused", [f"a [{code}]"], {code: ""})


@pytest.mark.parametrize("code", sorted(REFUSALS.keys() - REMARKS.keys()))
def test_a_refusal_cannot_be_muted(code):
    with pytest.raises(ValueError, match=f"entry 1 has the code {code} of a refusal, which cannot be muted"):
        mutes.checked([{"code": code, "until": "2026-12-01", "reason": "ticket 7"}])


def test_what_npu_smi_does_not_know_asks_for_nothing():
    unknown = f"'npu-smi info -t topo' ended with status 0: {errors.find_error('This device does not support querying topo.')}."
    sentences = _codes.problems({"problems": [unknown, "NPU 1: npu-smi and the kernel contradict each other"]})
    assert list(map(code_of, sentences)) == ["NPU_QUERY_UNSUPPORTED", "NPU_FACTS_INCOMPLETE"]
    assert list(map(rank, sentences)) == ["note", "to do"]


WHY = "muted until 2026-12-01 00:00 UTC: ticket 7"
MUTE = [{"code": "NPU_CPUS_ISOLATED", "until": "2026-12-01", "reason": "ticket 7"}]


def test_a_muted_remark_is_only_counted():
    muted = mutes.of_host(mutes.checked(MUTE), "a", datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc))[0]
    topology = {**HOST, **ISOLATED, "problems": ["c"]}
    made = desired_state(topology, of_features({"npu_affinity_irqbalance": "leave"}) | {"muted": muted}, shown=True)
    variables = {"npu_affinity_state": made, "npu_affinity_plan": made["plan"], "npu_affinity_topology": topology}
    entry = summary({"a": variables}, "plan")["hosts"]["a"]
    count = sum(code_of(text) == "NPU_CPUS_ISOLATED" for text in (*made["remarks"], *made["plan"]["warnings"]))
    assert count > 1 and entry["codes"]["NPU_CPUS_ISOLATED"] == WHY
    assert [text for text in entry["remarks"] if "ISOLATED" in text] == [f"NPU_CPUS_ISOLATED ({count}) is {WHY}"]
    assert "NPU_CPUS_ISOLATED" not in "".join(of_hosts({"a": variables}, ["a"]))
    assert entry["codes"]["NPU_FACTS_INCOMPLETE"] == "" and "c [NPU_FACTS_INCOMPLETE]" in entry["remarks"]
    verified = {"bound": True, "drift": [], "checked": {}, "remarks": ["b [NPU_CPUS_ISOLATED]"], "muted": muted}
    texts = remarks(verified, {})
    assert texts == [f"NPU_CPUS_ISOLATED (1) is {WHY}"] and rank(texts[0]) == "note"
    assert fleet([{"host": "a", **verified}])["hosts"][0]["remarks"] == texts


def test_a_mute_of_a_remark_hides_no_refusal():
    verified = {"bound": True, "drift": [], "checked": {}, "muted": {"NPU_PODS_IN_POOL": WHY}}
    variables = {"__npu_affinity_gathered": {"refusals": ["a [NPU_PODS_IN_POOL]"]}}
    (remark,) = remarks(verified, variables)
    assert (remark, rank(remark)) == ("A bind would now be refused: a [NPU_PODS_IN_POOL]", "to do")
    entry = summary({"a": {**variables, "npu_affinity_state": {"muted": verified["muted"]}}}, "bind")["hosts"]["a"]
    assert (entry["state"], entry["reasons"]) == ("refused", ["a [NPU_PODS_IN_POOL]"])


def test_verify_leaves_out_what_a_bind_would_do():
    texts = ["a [NPU_BIND_EFFECT]", "b [NPU_NO_EFFECT]"]
    assert remarks({"bound": True, "drift": [], "checked": {}}, {"npu_affinity_state": {"remarks": texts}}) == ["b [NPU_NO_EFFECT]"]
