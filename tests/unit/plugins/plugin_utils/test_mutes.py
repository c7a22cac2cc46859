# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which findings are muted on which host, until when, which mutes are refused, and why a compared host fails."""

import datetime

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._report.export import junit
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import NAMED, failure, remarks, sentences, summary
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary import summary as summary_of_run
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import mutes
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS

NOW = datetime.datetime(2026, 11, 24, 9, 0, tzinfo=datetime.timezone.utc)
MUTE = {"code": "NPU_IRQ_MOVED", "until": "2026-12-01", "reason": "ticket 7"}
WHY = "muted until 2026-12-01 00:00 UTC: ticket 7"

OF_HOSTS = [
    ("every host by default", [MUTE], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
    ("a pattern", [{**MUTE, "hosts": ["a3-*", "a2-*"]}], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
    ("a name", [{**MUTE, "hosts": ["a2-01"]}], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
    ("a name is no beginning", [{**MUTE, "hosts": ["a2"]}], "a2-01", {}, 0),
    ("case counts", [{**MUTE, "hosts": ["A2-*"]}], "a2-01", {}, 0),
    ("a time of another zone", [{**MUTE, "until": "2026-12-01T02:00+02:00"}], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
    ("what YAML makes of a time", [{**MUTE, "until": "2026-12-01 00:00:00+00:00"}], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
    ("expired", [{**MUTE, "until": "2026-11-24"}], "a2-01", {}, 1),
    ("expires now", [{**MUTE, "until": "2026-11-24T09:00"}], "a2-01", {}, 1),
    ("expired elsewhere", [{**MUTE, "until": "2026-11-24", "hosts": ["b"]}], "a2-01", {}, 0),
    ("the latest of two", [MUTE, {**MUTE, "until": "2026-11-20"}, {**MUTE, "until": "2026-11-25"}], "a2-01", {"NPU_IRQ_MOVED": WHY}, 0),
]


@pytest.mark.parametrize("given, host, muted, expired", [row[1:] for row in OF_HOSTS], ids=[row[0] for row in OF_HOSTS])
def test_what_is_muted_on_a_host(given, host, muted, expired):
    reasons, expiries = mutes.of_host(mutes.checked(given), host, NOW)
    assert (reasons, len(expiries)) == (muted, expired)
    assert all("NPU_IRQ_MOVED (ticket 7) expired at 2026-11-24 0" in remark for remark in expiries)


def finding(code, kind, name):
    return {
        "code": code,
        "kind": kind,
        "object": name,
        "cause": "manual change",
        "sentence": f"{name} [{code}]",
        "npu": None,
        "device": None,
    }


IRQ, FILE = finding("NPU_IRQ_MOVED", "interrupts", "NPU 0 a"), finding("NPU_FILE_CHANGED", "files", "/f")
VLLM = {"name": "vllm", "title": "vllm", "npus": [{"kind": "npu", "id": 0}], "pids": [7], "cpus": "0-7", "pool": "0-3", "adoptable": True}
AWAY = {"outside": [VLLM], "outside_sentence": "1 NPU process runs outside its pool"}
MUTED = dict.fromkeys(("NPU_IRQ_MOVED", "NPU_PLAN_OUTDATED", "NPU_WORK_OUTSIDE_POOL"), WHY)
STATES = [
    ("all of it", [IRQ], {}, "as bound", False),
    ("a part", [IRQ, FILE], {}, "drifted", True),
    ("work outside its pool", [], AWAY, "as bound", False),
    ("both", [IRQ], AWAY, "as bound", False),
    ("what a bind would change", [], {"changes": ["file /f: added"]}, "as bound", False),
]


@pytest.mark.parametrize("drift, away, state, fails", [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_a_muted_finding_is_listed_and_does_not_fail_a_host(drift, away, state, fails):
    checked = {"interrupts": ["NPU 0 a"], "files": ["/f"]}
    verified = {"bound": True, "drift": drift, "checked": checked, **away, "muted": MUTED, "drift_fails": True, "workloads_fail": True}
    entry = summary_of_run({"a": {"__npu_affinity_verified": verified}}, "verify")["hosts"]["a"]
    assert (entry["state"], entry["fails"]) == (state, fails)
    assert len([remark for remark in entry["remarks"] if remark.endswith(WHY)]) == bool(IRQ in drift) + bool(away)
    lines = [*sentences(verified), *remarks(verified, {})]
    assert len([line for line in lines if line.endswith(WHY)]) == bool(IRQ in drift) + bool(away)
    assert ("1 of them muted" in summary(verified)) == (IRQ in drift)
    assert junit(verified, "a").count("<failure") == len([entry for entry in drift if entry is FILE])


def compared(number, cause="manual change", **changes):
    drift = [{"cause": cause, "code": "NPU_FILE_CHANGED", "sentence": f"file {place}"} for place in range(number)]
    result = {"bound": True, "drift": drift, "checked": {"files": ["/f"] * 9}, "muted": {}, "drift_fails": True, "workloads_fail": False}
    return {**result, **changes}


TWO = "2 of 9 compared objects differ"
WHY_IT_FAILS = [
    (compared(0), True, ""),
    (compared(2), False, TWO),
    (compared(2), True, f"{TWO}: file 0; file 1"),
    (compared(NAMED + 2), True, "7 of 9 compared objects differ: file 0; file 1; file 2; file 3; file 4; and 2 more"),
    (compared(2, OLD_PROCESS), True, ""),
    (compared(2, OLD_PROCESS), False, TWO),
    (compared(2, drift_fails=False), True, ""),
    (compared(2, muted={"NPU_FILE_CHANGED": "until 2027-01-01"}), True, ""),
    ({"msg": "no plan.json", "drift_fails": True}, True, "no plan.json"),
]


@pytest.mark.parametrize("verified, after_bind, why", WHY_IT_FAILS)
def test_the_reason_for_which_a_compared_host_fails(verified, after_bind, why):
    assert failure(verified, after_bind) == why
