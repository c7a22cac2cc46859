# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a simulated host: what gets an entry, what it says, and that the state of each entry can be applied again."""

from __future__ import annotations

import json
import re
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS, Cause
from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare, drift_of
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.history.entries import LIMIT
from ansible_collections.npu.affinity.plugins.module_utils._state.journal import INTERRUPTED
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.fakes.changes import touched
from tests.fakes.bound import HISTORY, MACHINE, TEXTFILE, files_of, state_of
from tests.simulator import generate as simulator

SLICE = "etc/systemd/system/npu-0.slice"


@pytest.fixture
def machine(tmp_path):
    simulator.generate(MACHINE, tmp_path)
    (tmp_path / TEXTFILE[1:]).parent.mkdir(parents=True)
    return tmp_path


@pytest.fixture
def bind(run_module, machine):
    """Bind with some features switched off, and return what module host_files answers."""
    topology = gather(Host(str(machine)))

    def run(*off, check=False, **options):
        return run_module("host_files", root=str(machine), state=state_of(topology, "tuning", *off), _ansible_check_mode=check, **options)

    return run


@pytest.fixture
def history(run_module, machine):
    return lambda **options: run_module("history_info", root=str(machine), **options)


def kept(machine):
    return sorted(int(path.stem) for path in (machine / HISTORY[1:]).glob("*"))


def test_who_compares_a_host_is_told_who_changed_it_last(bind, machine, run_module):
    bind(author="alice", reason="New cards")
    bind("irq", author="bob")
    change = run_module("binding_info", root=str(machine))["last_change"]
    assert [change[name] for name in ("id", "action", "author", "reason")] == [2, "bind", "bob", ""]
    (machine / HISTORY[1:] / "2.json").write_text("half an ent")
    assert run_module("binding_info", root=str(machine))["last_change"] is None


def test_each_state_that_is_new_gets_an_entry(bind, machine, run_module):
    assert bind(check=True)["history"] is None and kept(machine) == []
    assert bind()["history"] == 1
    assert bind()["history"] is None, "converged"
    (machine / SLICE).write_text("# Managed by npu.affinity: changes are overwritten.\n")
    repaired = bind()
    assert repaired["changed"] and repaired["history"] is None, "the same state, repaired"
    assert bind("irq", check=True)["history"] is None
    assert bind("irq")["history"] == 2
    assert run_module("unbind", root=str(machine), features=["threads"])["changed"] and kept(machine) == [1, 2, 3]
    assert not run_module("unbind", root=str(machine), features=["threads"])["changed"] and kept(machine) == [1, 2, 3]
    modes = [path.stat().st_mode & 0o777 for path in (machine / HISTORY[1:], machine / HISTORY[1:] / "1.json")]
    assert modes == [0o700, 0o600]
    assert run_module("unbind", root=str(machine))["changed"] and not (machine / HISTORY[1:]).exists()


def test_the_newest_entries_are_kept(bind, machine, history):
    bind()
    folder = machine / HISTORY[1:]
    for number in range(2, LIMIT + 1):
        (folder / f"{number}.json").write_text((folder / "1.json").read_text())
    bind("irq", reason="one more")
    assert kept(machine) == list(range(2, LIMIT + 2))
    assert history()["entries"][0]["reason"] == "one more"


def test_who_when_why_and_what(bind, history, run_module, machine):
    assert history() == {**history(), "bound": False, "entries": [], "lines": [], "entry": None}
    bind(author="alice", reason="first nodes")
    bind("irq")
    run_module("unbind", root=str(machine), features=["threads"], author="bob")
    found = history()
    assert [(entry["id"], entry["action"], entry["author"], entry["reason"]) for entry in found["entries"]] == [
        (3, "unbind", "bob", ""),
        (2, "bind", "", ""),
        (1, "bind", "alice", "first nodes"),
    ]
    assert (
        found["entries"][0]["features"]["threads"] == "absent" and "feature threads: present -> absent" in found["entries"][0]["difference"]
    )
    assert "file /etc/udev/rules.d/90-npu-affinity.rules: removed" in found["entries"][1]["difference"]
    assert re.fullmatch(r"1  \S+Z  run \d+T\d+-\w+: bind by alice, npu.affinity [\d.]+: first nodes", found["lines"][-2])


def test_each_entry_has_the_run_that_it_belongs_to(bind, history, run_module, machine):
    runs = [{"id": f"R{number}", "time": "2026-11-22T13:29:55Z", "inventory": "hosts.yml"} for number in (1, 2)]
    bind(run=runs[0])
    bind("irq", run=runs[0])
    run_module("unbind", root=str(machine), features=["threads"], run=runs[1])
    bind("irq", "slices")
    newest, *others = (entry["run"] for entry in history()["entries"])
    assert others == [runs[1], runs[0], runs[0]] and re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{4}", newest["id"]), "a run of its own by default"
    assert run_module("binding_info", root=str(machine))["last_change"]["run"] == newest


def test_the_state_of_an_entry_can_be_applied_again(bind, history, machine, run_module):
    bind("threads")
    first = files_of(machine)
    bind("slices")
    run_module("unbind", root=str(machine), features=["threads"])
    third = files_of(machine)
    bind()
    for chosen, number, files in ((-1, 5, third), (1, 6, first)):
        entry = history(entry=chosen)["entry"]
        back = run_module("host_files", root=str(machine), state=entry["state"], action="rollback")
        assert back["changed"] and back["history"] == number
        assert touched(files, files_of(machine)) <= {"/etc/npu-affinity/previous.json"}
        newest = history(entry=number)
        assert newest["entries"][0]["action"] == "rollback" and newest["entry"]["state"] == entry["state"]


def test_the_state_in_force_is_gathered_as_it_is(bind, machine, run_module):
    assert run_module("gather", root=str(machine), applied_state=True)["entry"] is None
    bind()
    kept = json.loads((machine / HISTORY[1:] / "1.json").read_text())["state"]
    assert any("\n" in file["content"] for file in kept["files"])
    assert run_module("gather", root=str(machine), applied_state=True)["entry"]["state"] == kept
    earlier = run_module("gather", root=str(machine), entry=1)
    assert (earlier["entry"]["id"], earlier["entry"]["state"], earlier["hardware_changes"]) == (1, kept, [])


def test_what_cannot_be_found_is_said(bind, history, machine):
    bind()
    for number in (7, -1):
        assert f"there is no entry {number} in the history; this host has entries 1" in history(entry=number)["msg"]
    (machine / HISTORY[1:] / "1.json").write_text("{")
    assert "1.json is not valid JSON" in str(history()["warnings"])
    assert bind("irq")["history"] == 2, "a broken entry holds up no bind"
    for path in (machine / HISTORY[1:]).iterdir():
        path.unlink()
    assert "there is no entry -1 in the history; this host has no entry" in history(entry=-1)["msg"]


def test_an_entry_has_no_host_code(bind, machine):
    bind()
    entry = json.loads((machine / HISTORY[1:] / "1.json").read_text())
    assert entry["state"]["runtime"] and not [file for file in entry["state"]["files"] if file["path"].endswith(".py")]


RULES = "etc/udev/rules.d/90-npu-affinity.rules"


@pytest.mark.parametrize("action", ["bind", "rollback"])
def test_drift_names_the_change_that_a_host_does_not_follow(bind, history, machine, run_module, action):
    bind(author="alice")
    rules = (machine / RULES).read_text()
    bind("irq", author="bob")
    if action == "rollback":
        bind(author="alice")
        off = history(entry=2)["entry"]["state"]
        run_module("host_files", root=str(machine), state=off, action="rollback", author="bob")
    run = history()["entries"][0]["run"]["id"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    (machine / RULES).write_text(rules)
    (machine / SLICE).write_text((machine / SLICE).read_text().replace("0-15", "0-7"))
    remarks = {entry["object"]: entry["remark"] for entry in run_module("binding_info", root=str(machine))["drift"]}
    added = "added since the last bind; the next one removes it"
    assert remarks == {
        f"/{RULES}": f"{added}; it is as it was before the {action} of {today} by bob (run {run})",
        f"/{SLICE}": "changed by hand",
    }
    previous.record(Host(str(machine)), INTERRUPTED, [f"/{SLICE}"])
    causes = {entry["object"]: entry["cause"] for entry in run_module("binding_info", root=str(machine))["drift"]}
    assert causes == {f"/{RULES}": "manual change", f"/{SLICE}": "interrupted run"}


def test_an_older_entry_that_tells_too_little_hides_no_drift(bind, machine, run_module):
    bind()
    bind("irq")
    entry = machine / HISTORY[1:] / "1.json"
    document = json.loads(entry.read_text())
    document["state"]["live"]["device_share"] = {"enabled": True}
    entry.write_text(json.dumps(document))
    (machine / SLICE).unlink()
    (found,) = run_module("binding_info", root=str(machine))["drift"]
    assert (found["object"], found["remark"]) == (f"/{SLICE}", "removed")


def test_a_service_that_still_runs_as_before_names_the_bind(bind, history, machine):
    bind(author="alice")
    run = history()["entries"][0]["run"]["id"]
    host = Host(str(machine))
    compared = compare(host)
    cause = Cause(OLD_PROCESS, "it still runs as it was started")
    for unit in ("vllm@0.service", "other.service"):
        compared.findings.differs("services", unit, "in npu-0.slice", "in system.slice", cause, unit)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert [entry["remark"] for entry in drift_of(host, compared)] == [
        f"{cause.remark}; its settings are those of the bind of {today} by alice (run {run})",
        cause.remark,
    ]
