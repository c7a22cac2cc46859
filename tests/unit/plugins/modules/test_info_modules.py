# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules that only look: facts, the comparison of a host that other modules have bound, and measurements of a real process."""

import json
import os
import re

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.doc_fragments._attributes import ModuleDocFragment
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base import findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import KINDS
from ansible_collections.npu.affinity.plugins.module_utils._kernel.hugepages import path_of
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import ARGUMENTS
from ansible_collections.npu.affinity.plugins.modules import binding_info, topology_facts
from tests.fakes.bound import state_of
from tests.fakes.changes import state, work_outside
from tests.fakes.workers import RealWorker, npu

OFF = ("adopt", "threads", "nic", "hugepages", "tuning", "metrics")
COUNTS = {"plan": 1, "npus": 2, "cpus": 2, "files": 14, "units": 3, "services": 3, "interrupts": 4, "workqueues": 2, "threads": 2}
SLICE = "/etc/systemd/system/npu-0.slice"


@pytest.fixture
def gathered(act):
    return lambda **options: act("topology_facts", **options)["ansible_facts"]["npu_affinity_topology"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_fact_is_the_same_in_check_mode_and_nothing_changes(root, act, check_mode):
    before = state(root)
    result = act("topology_facts", _ansible_check_mode=check_mode)
    assert result["changed"] is False and state(root) == before
    facts = result["ansible_facts"]["npu_affinity_topology"]
    assert facts["problems"] == [] and facts["allocator"] is None
    found = [tuple(npu[name] for name in ("id", "pci", "family", "numa", "device_share")) for npu in facts["npus"]]
    assert found == [(0, "0000:c1:00.0", "a2", 0, None), (1, "0000:01:00.0", "a2", 1, None)]
    assert [(node["id"], node["cpus"]) for node in facts["numa"]] == [(0, "0-15"), (1, "16-31")]


def test_options_say_what_is_asked_with_which_command_how_long(root, gathered):
    assert [npu["device_share"] for npu in gathered(device_share=True)["npus"]] == [False, False]
    slow = root / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    assert "slow slowly info' did not answer within 1 s" in gathered(npu_smi=f"{slow} slowly", timeout=1)["problems"][0]


REFUSED = [
    ("topology_facts", {"timeout": 0}, "npu_affinity_timeout is 0 s; a command needs at least 1 s to answer"),
    ("measure_info", {"seconds": 0}, "seconds is 0"),
    ("measure_info", {"interval": 0}, "interval is 0"),
    ("measure_info", {}, "this host was never bound; bind it, or give a plan"),
]


@pytest.mark.parametrize("module, options, sentence", REFUSED)
def test_what_cannot_be_gathered_or_measured_is_said(act, module, options, sentence):
    result = act(module, **options)
    assert result["failed"] and sentence in result["msg"]


def test_the_documentation_names_every_option_as_it_is():
    documented = yaml.safe_load(ModuleDocFragment.GATHERING)["options"]
    spec = {name: (option["type"], option.get("default")) for name, option in ARGUMENTS.items()}
    assert {name: (option["type"], option.get("default")) for name, option in documented.items()} == spec


def test_the_documentation_names_every_returned_field(root, act, gathered):
    seldom = {"path", "silent", "guests", "mig", "adopt", "vnpus"}  # npu-smi answers and is where units find it, and the host has none

    def check(value, documented, path):
        if "contains" not in documented:
            return
        for entry in value if isinstance(value, list) else [value]:
            assert set(entry) == set(documented["contains"]) - seldom, path
            for key in entry:
                check(entry[key], documented["contains"][key], path + "." + key)

    for path, text in {
        "sys/fs/cgroup/npu.slice/memory.numa_stat": "anon N0=2097152\n",
        "var/lib/kubelet/config.yaml": "cpuManagerPolicy: static",
        "etc/npu-affinity/plan.json": '{"npus": []}',
        "etc/npu-affinity/previous.json": json.dumps({"schema": 1, "hugepages": {path_of(2048, 0): {"original": "7", "given": []}}}),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    assert "others" not in gathered()
    result = act("topology_facts", units=["vllm@0.service"], others=True)
    assert set(result) <= {"ansible_facts", "changed", "invocation", "warnings"}
    assert result["ansible_facts"]["npu_affinity_topology"]["hugepages_before"] == {"2048": {"0": 7}}
    check(result["ansible_facts"], yaml.safe_load(topology_facts.RETURN)["ansible_facts"], "ansible_facts")


@pytest.fixture
def look(act):
    return lambda **arguments: act("binding_info", **arguments)


@pytest.fixture
def bound(bind, root):
    assert bind(*OFF)["changed"]
    return root


def test_a_host_before_and_after_a_bind(look, root, request):
    first = look()
    assert (first["bound"], first["drift"], first["checked"]) == (False, [], {})
    assert look(must_be_bound=True)["drift"][0]["sentence"].endswith("likely never bound: bind the host [NPU_NEVER_BOUND]")
    request.getfixturevalue("bound")
    before = state(root)
    result = look()
    assert (result["changed"], result["bound"], result["drift"]) == (False, True, [])
    assert {kind: len(objects) for kind, objects in result["checked"].items()} == COUNTS
    assert look(_ansible_check_mode=True)["checked"] == result["checked"]
    assert state(root) == before


def test_work_outside_its_pool_is_listed_and_is_no_drift(look, bound):
    work_outside(bound)
    result = look()
    assert result["drift"] == []
    assert result["outside_sentence"] == "1 NPU process runs outside its pool: vllm.service (pid 7, NPU 1) on CPUs 0-31, pool 16-31"
    (entry,) = result["outside"]
    documented = yaml.safe_load(binding_info.RETURN)["outside"]["contains"]
    assert set(entry) == {key for key, about in documented.items() if "returned" not in about}
    assert look(topology={"npus": [], "users": []})["outside"] == []
    (bound / "proc/7/status").write_text("Name:\tpython3\nCpus_allowed_list:\t16-20\n")
    assert (look()["outside"], look()["outside_sentence"]) == ([], "")


def test_a_changed_file_is_described_by_every_field(look, bound):
    (bound / SLICE[1:]).write_text((bound / SLICE[1:]).read_text().replace("0-15", "0-7"))
    (entry,) = look()["drift"]
    differs = {"kind": "files", "object": SLICE, "expected": "AllowedCPUs=0-15", "found": "AllowedCPUs=0-7"}
    why = {"code": "NPU_FILE_CHANGED", "cause": "manual change", "remark": "changed by hand"}
    whose = {"npu": 0, "device": "npu", "pci": "0000:c1:00.0", "unit": "npu-0.slice", "expected_cpus": None, "found_cpus": None}
    said = f"{SLICE}: expected AllowedCPUs=0-15, found AllowedCPUs=0-7; likely manual change: changed by hand [NPU_FILE_CHANGED]"
    assert entry == {**differs, **why, **whose, "sentence": said}


def test_what_a_bind_would_change_is_no_drift(look, bound, topology):
    assert look(desired=state_of(topology, *OFF))["changes"] == [] and look()["changes"] == []
    other = state_of(topology, *OFF[1:])
    (text,) = [file for file in other["files"] if file["path"] == SLICE]
    text["content"] = text["content"].replace("0-15", "0-7")
    result = look(desired=other)
    assert result["drift"] == []
    assert {f"file {SLICE}: changed", "file /etc/npu-affinity/adopt.json: added"} <= set(result["changes"])


def test_host_code_of_another_version_is_a_remark(look, bound):
    archive = bound / "usr/local/lib/npu-affinity/npu_affinity.zip"
    content = archive.read_bytes()
    archive.write_bytes(content.replace(b'VERSION = "1', b'VERSION = "0', 1))
    result = look()
    assert result["drift"] == [] and "a bind would now replace the host code, version 0" in str(result["remarks"])
    archive.write_bytes(content + b"x")
    (found,) = look(host_code=runtime.digest())["drift"]
    assert (found["object"], found["cause"]) == ("/" + str(archive.relative_to(bound)), "manual change")
    assert look()["drift"] == [], "nobody says which host code is wanted"
    archive.write_bytes(content)
    assert look(host_code=runtime.digest())["drift"] == []
    archive.unlink()
    assert look()["drift"][0]["found"] == "no such file"


def test_a_history_that_is_missing_or_damaged_is_a_remark(look, bound):
    entry = bound / "etc/npu-affinity/history/1.json"
    (bound / SLICE[1:]).unlink()
    entry.write_text("{")
    result = look()
    assert result["drift"] == [] and "files" not in result["checked"] and "interrupts" in result["checked"]
    unread, uncompared = result["remarks"]
    assert unread.startswith("/etc/npu-affinity/history/1.json is not valid JSON (")
    assert uncompared.startswith("the newest entry of the history cannot be read, so files and units are not compared: ")
    entry.unlink()
    remark = "this host has no history, so files and units are not compared: bind it once more [NPU_HISTORY_INCOMPLETE]"
    assert look()["remarks"] == [remark]
    (bound / "etc/npu-affinity/plan.json").unlink()
    assert [(found["kind"], found["cause"]) for found in look()["drift"]] == [("plan", "manual change")]


def test_the_module_documents_every_kind_and_every_cause():
    (returned,) = yaml.safe_load_all(binding_info.RETURN)
    fields = returned["drift"]["contains"]
    causes_there = {value for name, value in vars(findings).items() if name.isupper() and isinstance(value, str)}
    for name, known in (("kind", set(KINDS)), ("cause", causes_there)):
        assert set(re.findall(r"V\(([^)]*)\)", str(fields[name]["description"]))) == known


def test_a_worker_that_sleeps_is_measured_in_check_mode_too(run_module):
    pool = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    plan = {"npus": [npu(0, 0, pool=pool, irq="", main=pool, acl="", release="")]}
    with RealWorker("acl_thread") as worker:
        asked = {"processes": [{"npus": [0], "pids": [worker.pid]}], "_ansible_check_mode": True}
        result = run_module("measure_info", plan=plan, seconds=1, interval=0.25, **asked)
    (row,) = result["workloads"]
    assert (result["changed"], row["processes"][0]["pid"], row["threads"]) == (False, worker.pid, 2)
    assert row["metrics"]["involuntary_switches"]["value"] < 1000
    assert 0 <= row["metrics"]["others_share"]["value"] <= 100
    assert row["memory"][0]["mib"]
    assert result["measured_at"].endswith("Z") and result["seconds"] >= 1
