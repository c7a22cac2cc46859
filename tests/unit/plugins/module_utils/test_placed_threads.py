# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads that role threads placed: compared with their roles, and let go by undo."""

from __future__ import annotations

import functools
import json

import pytest
from tests.fakes.workers import Files, allowed, npu, process

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.comparing import Comparing, Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import PROGRESS
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import SETTINGS, place
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Killed, Steps

PLAN = {"about": "Managed by npu.affinity", "npus": [npu(0, 0)]}
OURS = {"about": "Managed by npu.affinity: changes are overwritten.", "patterns": {}, "processes": []}


@pytest.fixture
def host(tree):
    return bound(tree)


def bound(tree):
    tree.write({"/sys/devices/system/cpu/online": "0-15", "/etc/npu-affinity/plan.json": json.dumps(PLAN), SETTINGS: json.dumps(OURS)})
    tree.write({PROGRESS: "{}", "/etc/npu-affinity/previous.json": json.dumps({"about": "Managed by npu.affinity", "folders": []})})
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread"], "0-7", granted="0-7")
    place(tree.host, PLAN)
    return tree.host


def test_threads_get_all_their_cgroup_grants_and_files_vanish(tree, host):
    predicted = unbind(host, check=True)
    assert predicted.releases["threads"].report.changed and allowed(tree, 100) == {"worker": "2-5", "acl_thread": "6"}
    done = unbind(host)
    assert done.changed and not done.failed and not done.warnings
    assert allowed(tree, 100) == {"worker": "0-7", "acl_thread": "0-7"}
    assert not host.exists(SETTINGS) and not host.exists(PROGRESS)
    again = unbind(host)
    assert (again.bound, again.changed, again.releases["threads"].report) == (False, False, None)


def killable(steps, host, path, value):
    if steps.root:
        steps.step()
    Host.set_attribute(host, path, value)


def test_a_killed_unbind_releases_threads_when_repeated(tmp_path, monkeypatch):
    steps = Steps(monkeypatch)

    def twin(number):
        (tmp_path / str(number)).mkdir()
        host = bound(Files(tmp_path / str(number)))
        host.set_attribute = functools.partial(killable, steps, host)
        return host

    for last, host in steps.endings(twin, Killed(), unbind):
        assert not unbind(host).failed
        assert allowed(host, 100) == {"worker": "0-7", "acl_thread": "0-7"}, last
        assert not host.exists("/etc/npu-affinity"), last


@pytest.mark.parametrize(
    "text", ["[]", "{", json.dumps({"about": "Managed by npu.affinity", "processes": [{"npus": [9]}], "patterns": {}})]
)
def test_useless_settings_are_a_warning_and_the_rest_is_undone(tree, host, text):
    tree.write({SETTINGS: text})
    done = unbind(host)
    assert "threads stay where they were placed until their processes end: " in done.warnings[0]
    assert not host.exists("/etc/npu-affinity/plan.json")


PLAN_OF_TWO = {"npus": [npu(0, 0), npu(1, 8)]}
TEAM = [{"npus": [0, 1], "slice": "npu-llm.slice"}]


def results(findings):
    return [result_of(finding) for finding in findings.drift]


def check(tree, processes=()):
    tree.write({"/sys/devices/system/cpu/online": "0-31"})
    findings = Findings()
    wanted = Wanted(live={"threads": {"processes": processes, "patterns": None}})
    FEATURE.compare(Comparing(findings, tree.host, PLAN_OF_TWO, wanted, set(), set(), set()))
    return findings


def test_placed_threads_are_no_drift_others_one_line_per_role(tree):
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread", "uvb_poll_window"], "0-7")
    process(tree, 200, "/npu.slice/npu-0.slice", ["server", "pool"], "0-7")
    place(tree.host, PLAN_OF_TWO)
    clean = check(tree)
    assert (clean.drift, clean.checked) == ([], {"threads": ["main threads of NPU 0", "acl threads of NPU 0"]})
    process(tree, 300, "/npu.slice/npu-0.slice", ["late", "pool", "acl_thread"], "0-7")
    found = check(tree)
    assert [(entry["object"], entry["expected"], entry["found"], entry["npu"]) for entry in results(found)] == [
        ("main threads of NPU 0", "CPUs 2-5", "CPUs 0-7 of thread 300 (late) of process 300 (late) and 1 more", 0),
        ("acl threads of NPU 0", "CPUs 6", "CPUs 0-7 of thread 302 (acl_thread) of process 300 (late)", 0),
    ]
    assert results(found)[0]["remark"].startswith("started since the timer last looked")
    assert set(allowed(tree, 300).values()) == {"0-7"}


def test_a_cpuset_refusal_is_drift_and_a_narrow_cpuset_a_remark(tree):
    process(tree, 100, "/npu.slice/npu-llm.slice", ["worker", "acl_thread"], "2", granted="2")
    process(tree, 200, "/npu.slice/npu-llm.slice/a.scope", ["worker", "acl_thread"], "20", granted="20")
    found = check(tree, TEAM)
    assert [(entry["object"], entry["npu"], entry["expected"]) for entry in results(found)] == [
        ("main threads of NPU 0 and NPU 1", None, "CPUs 2-5,10-13"),
        ("acl threads of NPU 0 and NPU 1", None, "CPUs 6,14"),
    ]
    assert found.drift[1].cause.word == "changed cpuset"
    assert found.drift[1].cause.remark.startswith("is refused the CPUs 6,14 of role acl: it may use CPUs 20, and none of the pool")
    assert found.remarks == [
        "process 100 (worker) of NPU 0 and NPU 1: CPU %s is not granted by the cgroup; its threads get CPUs 2 [NPU_THREAD_UNPLACED]"
        % of_role
        for of_role in ("3-5,10-13 of role main", "6,14 of role acl")
    ]
