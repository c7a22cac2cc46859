# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a simulated host, as Ansible runs it: bound by the other modules, then looked at."""

from __future__ import annotations

import os
import re
import sys

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base import findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import KINDS
from ansible_collections.npu.affinity.plugins.modules import binding_info

from tests.simulator import generate as simulator
from tests.fakes.changes import work_outside
from tests.fakes.share import wanted
from tests.fakes.two_cards import two_cards

MACHINE = two_cards(0, 1)
PLAN = {
    "npus": [
        {"id": 0, "pci": "0000:c1:00.0", "pool": "0-15", "irq": "0-1", "mems": "0", "slice": "npu-0.slice"},
        {"id": 1, "pci": "0000:01:00.0", "pool": "16-31", "irq": "16-17", "mems": "1", "slice": "npu-1.slice"},
    ]
}
SLICE = "/etc/systemd/system/npu-0.slice"
FILES = [{"path": SLICE, "content": "# Managed by npu.affinity: changes are overwritten.\n[Slice]\nAllowedCPUs=0-15\n"}]
STATE = {
    "features": {"slices": "present", "irq": "present", "device_share": "present"},
    "files": FILES,
    "owned": ["/etc/systemd/system/npu-*.slice"],
    "plan": PLAN,
    "live": {"irq": "fail", "device_share": wanted()},
    "absent": {},
    "hardware": {},
    "runtime": True,
    "soft_split": "",
    **{name: [] for name in ("enabled", "started", "stopped", "released", "restarted", "expected", "programs")},
}


@pytest.fixture
def root(tmp_path):
    simulator.generate(MACHINE, tmp_path)
    program = tmp_path / "usr/local/Ascend/driver/tools/npu-smi"
    program.write_text("#!%s -IS\n%s" % (os.path.realpath(sys.executable), program.read_text()))
    return tmp_path


@pytest.fixture
def look(run_module, root):
    return lambda **arguments: run_module("binding_info", root=str(root), **arguments)


@pytest.fixture
def bound(run_module, root):
    assert run_module("host_files", root=str(root), state=STATE)["changed"]
    return root


def content(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.name.endswith("calls.log")}


def test_a_host_before_and_after_a_bind(look, root, request):
    first = look()
    assert (first["bound"], first["drift"], first["checked"]) == (False, [], {})
    assert look(must_be_bound=True)["drift"][0]["sentence"].endswith("likely never bound: bind the host [NPU_NEVER_BOUND]")
    request.getfixturevalue("bound")
    before = content(root)
    result = look()
    assert (result["changed"], result["bound"], result["drift"], result["remarks"]) == (False, True, [], [])
    assert {kind: len(objects) for kind, objects in result["checked"].items()} == {
        "plan": 1,
        "npus": 2,
        "cpus": 2,
        "files": 4,
        "interrupts": 4,
        "workqueues": 2,
        "threads": 2,
        "device_share": 2,
    }
    assert look(_ansible_check_mode=True)["checked"] == result["checked"]
    assert content(root) == before


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
    (bound / SLICE[1:]).write_text(FILES[0]["content"].replace("0-15", "0-7"))
    (entry,) = look()["drift"]
    assert entry == {
        "code": "NPU_FILE_CHANGED",
        "kind": "files",
        "object": SLICE,
        "expected": "AllowedCPUs=0-15",
        "found": "AllowedCPUs=0-7",
        "expected_cpus": None,
        "found_cpus": None,
        "cause": "manual change",
        "remark": "changed by hand",
        "npu": 0,
        "device": "npu",
        "pci": "0000:c1:00.0",
        "unit": "npu-0.slice",
        "sentence": SLICE + ": expected AllowedCPUs=0-15, found AllowedCPUs=0-7; likely manual change: changed by hand [NPU_FILE_CHANGED]",
    }


def test_what_a_bind_would_change_is_no_drift(look, bound):
    assert look(desired=STATE)["changes"] == [] and look()["changes"] == []
    other = dict(STATE, files=[dict(FILES[0], content=FILES[0]["content"].replace("0-15", "0-7"))])
    result = look(desired=other)
    assert (result["changes"], result["drift"]) == ([f"file {SLICE}: changed"], [])
    live = dict(STATE["live"], device_share=wanted(0))
    assert look(desired=dict(STATE, live=live))["changes"] == ["settings of feature device_share: changed"]


def test_host_code_of_another_version_is_a_remark(look, bound):
    archive = bound / "usr/local/lib/npu-affinity/npu_affinity.zip"
    content = archive.read_bytes()
    archive.write_bytes(content.replace(b'VERSION = "1', b'VERSION = "0', 1))
    result = look()
    assert result["drift"] == [] and "a bind would now replace the host code, version 0" in result["remarks"][0]
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
    assert [text.partition(":")[0] for text in result["remarks"]] == [
        "/etc/npu-affinity/history/1.json is not valid JSON (Expecting property name enclosed in double quotes",
        "the newest entry of the history cannot be read, so files and units are not compared",
    ]
    entry.unlink()
    assert look()["remarks"] == [
        "this host has no history, so files and units are not compared: bind it once more [NPU_HISTORY_INCOMPLETE]"
    ]
    (bound / "etc/npu-affinity/plan.json").unlink()
    assert [(found["kind"], found["cause"]) for found in look()["drift"]] == [("plan", "manual change")]


def test_the_module_documents_every_kind_and_every_cause():
    (returned,) = yaml.safe_load_all(binding_info.RETURN)
    fields = returned["drift"]["contains"]
    causes_there = {value for name, value in vars(findings).items() if name.isupper() and isinstance(value, str)}
    for name, known in (("kind", set(KINDS)), ("cause", causes_there)):
        assert set(re.findall(r"V\(([^)]*)\)", str(fields[name]["description"]))) == known
