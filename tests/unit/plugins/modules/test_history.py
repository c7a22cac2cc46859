# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a simulated host: what gets an entry, what it says, and that the state of each entry can be applied again."""

import json
import re
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import OLD_PROCESS, Cause
from ansible_collections.npu.affinity.plugins.module_utils._drift.in_force import compare, drift_of
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.history import LIMIT
from ansible_collections.npu.affinity.plugins.module_utils._state.journal import INTERRUPTED
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE
from tests.fakes.changes import touched
from tests.fakes.bound import HISTORY, files_of

SLICE = "etc/systemd/system/npu-0.slice"


def kept(root):
    return sorted(int(path.stem) for path in (root / HISTORY[1:]).glob("*"))


def test_who_compares_a_host_is_told_who_changed_it_last(bind, root, act):
    bind(author="alice", reason="New cards")
    bind("irq", author="bob")
    change = act("binding_info")["last_change"]
    assert [change[name] for name in ("id", "action", "author", "reason")] == [2, "bind", "bob", ""]
    (root / HISTORY[1:] / "2.json").write_text("half an ent")
    assert act("binding_info")["last_change"] is None


def test_each_state_that_is_new_gets_an_entry(bind, root, act):
    assert bind(_ansible_check_mode=True)["history"] is None and kept(root) == []
    assert bind()["history"] == 1
    assert bind()["history"] is None, "converged"
    (root / SLICE).write_text("# Managed by npu.affinity: changes are overwritten.\n")
    repaired = bind()
    assert repaired["changed"] and repaired["history"] is None, "the same state, repaired"
    assert bind("irq", _ansible_check_mode=True)["history"] is None
    assert bind("irq")["history"] == 2
    assert act("unbind", features=["threads"])["changed"] and kept(root) == [1, 2, 3]
    assert not act("unbind", features=["threads"])["changed"] and kept(root) == [1, 2, 3]
    modes = [path.stat().st_mode & 0o777 for path in (root / HISTORY[1:], root / HISTORY[1:] / "1.json")]
    assert modes == [0o700, 0o600]
    assert act("unbind")["changed"] and not (root / HISTORY[1:]).exists()


def test_the_newest_entries_are_kept(bind, root, act):
    bind()
    folder = root / HISTORY[1:]
    for number in range(2, LIMIT + 1):
        (folder / f"{number}.json").write_text((folder / "1.json").read_text())
    bind("irq", reason="one more")
    assert kept(root) == list(range(2, LIMIT + 2))
    assert act("history_info")["entries"][0]["reason"] == "one more"


def test_who_when_why_and_what(bind, act):
    assert act("history_info") == {**act("history_info"), "bound": False, "entries": [], "entry": None}
    runs = [{"id": f"R{number}", "time": "2026-11-22T13:29:55Z", "inventory": "hosts.yml"} for number in (1, 2)]
    bind(author="alice", reason="first nodes", run=runs[0])
    bind("irq", run=runs[0])
    act("unbind", features=["threads"], author="bob", run=runs[1])
    bind("irq", "slices")
    newest, *others = act("history_info")["entries"]
    found = [tuple(entry[name] for name in ("id", "action", "author", "reason", "run")) for entry in others]
    assert found == [(3, "unbind", "bob", "", runs[1]), (2, "bind", "", "", runs[0]), (1, "bind", "alice", "first nodes", runs[0])]
    assert others[0]["features"]["threads"] == "absent" and "feature threads: on -> off" in others[0]["difference"]
    assert "file /etc/udev/rules.d/90-npu-affinity.rules: removed" in others[1]["difference"]
    assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{4}", newest["run"]["id"]), "a run of its own by default"
    assert act("binding_info")["last_change"]["run"] == newest["run"]


def test_the_state_of_an_entry_can_be_applied_again(bind, root, act):
    bind("threads")
    first = files_of(root)
    bind("slices")
    act("unbind", features=["threads"])
    third = files_of(root)
    bind()
    for chosen, number, files in ((-1, 5, third), (1, 6, first)):
        entry = act("history_info", entry=chosen)["entry"]
        back = act("host_files", state=entry["state"], action="rollback")
        assert back["changed"] and back["history"] == number
        assert touched(files, files_of(root)) <= {"/etc/npu-affinity/previous.json"}
        newest = act("history_info", entry=number)
        assert newest["entries"][0]["action"] == "rollback" and newest["entry"]["state"] == entry["state"]


def test_the_state_in_force_is_gathered_as_it_is(bind, root, act):
    assert act("gather", applied_state=True)["entry"] is None
    bind()
    kept = json.loads((root / HISTORY[1:] / "1.json").read_text())["state"]
    assert any("\n" in file["content"] for file in kept["files"])
    assert kept["runtime"] and not any(file["path"] == ARCHIVE for file in kept["files"]), "which has no host code"
    assert act("gather", applied_state=True)["entry"]["state"] == kept
    earlier = act("gather", entry=1)
    assert (earlier["entry"]["id"], earlier["entry"]["state"], earlier["hardware_changes"]) == (1, kept, [])


def test_what_cannot_be_found_is_said(bind, act, root):
    bind()
    for number in (7, -1):
        assert f"there is no entry {number} in the history; this host has entries 1" in act("history_info", entry=number)["msg"]
    (root / HISTORY[1:] / "1.json").write_text("{")
    assert "1.json is not valid JSON" in str(act("history_info")["warnings"])
    assert bind("irq")["history"] == 2, "a broken entry holds up no bind"
    for path in (root / HISTORY[1:]).iterdir():
        path.unlink()
    assert "there is no entry -1 in the history; this host has no entry" in act("history_info", entry=-1)["msg"]


RULES = "etc/udev/rules.d/90-npu-affinity.rules"


@pytest.mark.parametrize("action", ["bind", "rollback"])
def test_drift_names_the_change_that_a_host_does_not_follow(bind, root, act, action):
    bind(author="alice")
    rules = (root / RULES).read_text()
    bind("irq", author="bob")
    if action == "rollback":
        bind(author="alice")
        off = act("history_info", entry=2)["entry"]["state"]
        act("host_files", state=off, action="rollback", author="bob")
    run = act("history_info")["entries"][0]["run"]["id"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    (root / RULES).write_text(rules)
    (root / SLICE).write_text((root / SLICE).read_text().replace("0-15", "0-7"))
    remarks = {entry["object"]: entry["remark"] for entry in act("binding_info")["drift"]}
    as_before = f"added since the last bind; the next one removes it; it is as it was before the {action} of {today} by bob (run {run})"
    assert remarks == {f"/{RULES}": as_before, f"/{SLICE}": "changed by hand"}
    previous.record(Host(str(root)), INTERRUPTED, [f"/{SLICE}"])
    causes = {entry["object"]: entry["cause"] for entry in act("binding_info")["drift"]}
    assert causes == {f"/{RULES}": "manual change", f"/{SLICE}": "interrupted run"}


def test_an_older_entry_that_tells_too_little_hides_no_drift(bind, root, act):
    bind()
    bind("irq")
    entry = root / HISTORY[1:] / "1.json"
    document = json.loads(entry.read_text())
    document["state"]["live"]["device_share"] = {"enabled": True}
    entry.write_text(json.dumps(document))
    (root / SLICE).unlink()
    (found,) = act("binding_info")["drift"]
    assert (found["object"], found["remark"]) == (f"/{SLICE}", "removed")


def test_a_service_that_still_runs_as_before_names_the_bind(bind, act, root):
    bind(author="alice")
    run = act("history_info")["entries"][0]["run"]["id"]
    host = Host(str(root))
    compared = compare(host)
    cause = Cause(OLD_PROCESS, "it still runs with its former settings")
    for unit in ("vllm@0.service", "other.service"):
        compared.findings.differs("services", unit, "in npu-0.slice", "in system.slice", cause, unit)
    names_it = f"; its settings are those of the bind of {time.strftime('%Y-%m-%d', time.gmtime())} by alice (run {run})"
    assert [entry["remark"] for entry in drift_of(host, compared)] == [cause.remark + names_it, cause.remark]
