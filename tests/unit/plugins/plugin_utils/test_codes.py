# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals have codes of the list, from where they are made to the summary of a run."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import CODES
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import REFUSALS, Sentence, by_code, of_error, shown
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary import summary
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import mutes
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

PLUGINS = Path(__file__).resolve().parents[4] / "plugins"


def written():
    """Every text of the controller's code that looks like a code."""
    for folder in ("plugin_utils", "action", "filter", "lookup"):
        for path in (PLUGINS / folder).rglob("*.py"):
            if path.name != "_codes.py":
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in ("Sentence", "_refused"):
                        yield from [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []


def test_the_list_has_the_codes_of_sentences_and_no_others():
    assert sorted(REFUSALS) == list(REFUSALS) and not REFUSALS.keys() & CODES.keys()
    assert set(written()) == REFUSALS.keys()


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
    return [value] if isinstance(value, str) else [text for part in value for text in texts(part)] if isinstance(value, list) else []


SAID = [
    ("a unit that is missing", {"missing_units": {"a.service": ""}}, "a.service is not installed"),
    ("CPUs of pods", {"kubelet": {"policy": "none", "exclusive": {"a": {"b": "2"}}}}, "that the kubelet gave to containers"),
]


@pytest.mark.parametrize("found, sentence", [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_what_is_only_a_remark_is_plain_text(found, sentence):
    state = desired_state({**host([0, 0]), **found}, of_features({"npu_affinity_irq_enabled": False}), shown=True)
    assert sentence in " ".join(state["remarks"])
    assert {type(text) for text in texts(state)} == {str}


def test_a_sentence_leaves_its_process_as_plain_text():
    assert not isinstance(pickle.loads(pickle.dumps(Sentence("NPU_RULE_FAILS", "a"))), Sentence)


def test_codes_are_not_part_of_what_a_host_applies():
    state = desired_state(host([0, 0]), of_features({"npu_affinity_irq_enabled": False}))
    assert state["refusals"] == [] and "codes" not in applied({**state, "codes": {"NPU_RULE_FAILS": ["a"]}})


def test_a_sentence_keeps_its_code_in_an_error():
    said = of_error(ValueError(Sentence("NPU_RULE_FAILS", "a")), "NPU_SETTING_INVALID")
    assert (said, said.code, of_error(ValueError("b"), "NPU_SETTING_INVALID").code) == ("a", "NPU_RULE_FAILS", "NPU_SETTING_INVALID")
    assert shown(["a", "c"], by_code([said])) == ["a [NPU_RULE_FAILS]", "c"]


HOSTS = [
    ("a plan", {"__npu_affinity_gathered": {"refusals": ["a [NPU_RULE_FAILS]"], "codes": {"NPU_RULE_FAILS": ["a"]}}}, "NPU_RULE_FAILS"),
    ("a setting", {"__npu_affinity_refused": ["a"]}, "NPU_SETTING_INVALID"),
    ("no answer", {"__npu_affinity_failure": {"state": "refused", "task": "Plan", "reason": "a"}}, "NPU_NOT_GATHERED"),
]


@pytest.mark.parametrize("variables, code", [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
def test_a_summary_has_the_code_of_a_refusal(variables, code):
    entry = summary({"a": variables}, "bind")["hosts"]["a"]
    assert (entry["state"], entry["reasons"], entry["codes"]) == ("refused", [f"a [{code}]"], {code: ""})


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_cannot_be_muted(code):
    with pytest.raises(ValueError, match=f"entry 1 has the code {code} of a refusal, which cannot be muted"):
        mutes.checked([{"code": code, "until": "2026-12-01", "reason": "ticket 7"}])
