# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running units get the sets of their files from a systemd whose reload leaves them alone, in an order that nobody notices."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Result
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from ansible_collections.npu.affinity.plugins.module_utils._transaction.live_sets import _steps, _Unit
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Machine, bind, snapshot
from tests.fakes.systemd import MARK, SLICE, UNITS, ModelledSystemd, a_file, live_request, slice_text

CHILD = "/sys/fs/cgroup/npu.slice/npu-0.slice/cpuset.cpus.effective"
CONTROL = "/run/systemd/system.control"


class Stubborn(ModelledSystemd):
    """systemd 257: a changed set takes effect by set-property alone."""

    reapplies = False

    def run(self, argv, stdin="", timeout=None):
        if argv[1] == "set-property":
            unit, *words = [word for word in argv[2:] if not word.startswith("-")]
            for word in words:
                self.put("%s/%s.d/50-%s.conf" % (CONTROL, unit, word.partition("=")[0]), "[Slice]\n%s\n" % word)
        return ModelledSystemd.run(self, argv, stdin, timeout)


class StubbornMachine(Machine):
    reapplies = False


@pytest.fixture
def host(tmp_path):
    host = Stubborn(str(tmp_path))
    apply(host, live_request("0-3"))
    host.calls.clear()
    return host


def test_another_plan_reaches_the_running_slice(host):
    assert apply(host, live_request("4-5", "1", move_memory=True)).changed
    assert (host.read(CHILD), host.read(CHILD.replace("cpus.", "mems."))) == ("4-5", "1")
    assert [call for call in host.calls if call.startswith(("set-", "daemon"))] == [
        "daemon-reload",
        "set-property --runtime npu-0.slice AllowedCPUs=4-5 AllowedMemoryNodes=1",
        "daemon-reload",
    ]
    assert not host.exists(CONTROL)
    host.calls.clear()
    assert not apply(host, live_request("4-5", "1")).changed
    assert host.calls == ["is-active npu-0.slice"]


def test_systemd_gets_no_further_calls_if_a_reload_applies_sets(tmp_path):
    host = ModelledSystemd(str(tmp_path))
    apply(host, live_request("0-3"))
    host.calls.clear()
    apply(host, live_request("4-5"))
    assert [call for call in host.calls if not call.startswith("is-active")] == ["daemon-reload"]


def test_a_bind_that_fails_gives_the_running_slice_its_set_again(host):
    with pytest.raises(ValueError, match="npu-0.slice should have CPUs 5,90 and has 5. All files were restored"):
        apply(host, live_request("5,90"))
    assert host.read(SLICE) + "\n" == slice_text("0-3")
    assert host.read(CHILD) == "0-3"
    assert not host.exists(CONTROL)


def test_a_slice_narrowed_and_reverted_by_hand_regains_its_set(host):
    host.put(CHILD, "2")
    host.put(CHILD.replace(".effective", ""), "2")
    assert apply(host, live_request("0-3"), check=True).actions == ["reload: npu-0.slice should have CPUs 0-3 and has 2"]
    assert apply(host, live_request("0-3")).changed
    assert host.read(CHILD) == "0-3"


def test_a_runtime_setting_of_somebody_else_is_named_and_left(host):
    by_hand = CONTROL + "/npu-0.slice.d/50-AllowedCPUs.conf"
    host.run(["systemctl", "set-property", "--runtime", "npu-0.slice", "AllowedCPUs=1"])
    host.calls.clear()
    with pytest.raises(ValueError, match="has 1 .overridden by " + by_hand):
        apply(host, live_request("4-5"))
    assert host.exists(by_hand)
    assert not any(call.startswith("set-property") for call in host.calls)


def test_a_run_killed_before_systemd_followed_is_finished(host):
    host.put(SLICE, slice_text("4-5").rstrip("\n"))
    host.put("/etc/npu-affinity/previous.json", '{"interrupted": ["%s"]}' % SLICE)
    assert apply(host, live_request("4-5")).changed
    assert host.read(CHILD) == "4-5"


@pytest.mark.parametrize("cpus", ["0-7", "0-1"])
def test_what_a_killed_run_gave_a_slice_at_once_is_no_override(host, cpus):
    host.put(SLICE, slice_text("4-5").rstrip("\n"))
    host.run(["systemctl", "set-property", "--runtime", "npu-0.slice", "AllowedCPUs=" + cpus])
    host.put("/etc/npu-affinity/previous.json", '{"interrupted": ["%s"]}' % SLICE)
    assert apply(host, live_request("4-5")).changed
    assert host.read(CHILD) == "4-5" and not host.exists(CONTROL)


def test_a_set_property_that_fails_leaves_no_drop_in(host):
    run = host.run
    refused = [Result(["systemctl", "set-property"], 1, "Failed to set unit properties: Access denied")]
    host.run = lambda argv, *rest: refused.pop() if argv[1] == "set-property" and refused else run(argv, *rest)
    with pytest.raises(ValueError, match="Access denied. All files were restored"):
        apply(host, live_request("4-5"))
    assert host.read(CHILD) == "0-3"
    assert not host.exists(CONTROL)


def test_unbind_gives_back_the_set_of_a_drop_in_of_others(tmp_path):
    machine, theirs = StubbornMachine(str(tmp_path)), UNITS + "/system.slice.d/10-site.conf"
    machine.put(theirs, "[Slice]\nAllowedCPUs=0-5\n")
    machine.run(["systemctl", "daemon-reload"])
    before = snapshot(machine.root)
    ours = a_file(UNITS + "/system.slice.d/50-npu-affinity.conf", MARK + "[Slice]\nAllowedCPUs=\nAllowedCPUs=4-7\n")
    apply(machine, Request(files=[ours], expected=[{"unit": "system.slice", "cpus": "4-7"}]))
    assert machine.effective("system.slice")[0] == "4-7"
    assert not unbind(machine).failed
    assert machine.effective("system.slice")[0] == "0-5"
    assert snapshot(machine.root) == before


def test_a_bound_machine_is_what_it_was_before(tmp_path):
    machine = StubbornMachine(str(tmp_path))
    before = snapshot(machine.root)
    bind(machine)
    assert machine.effective("npu-0.slice") == ("0-3", "0")
    report = unbind(machine)
    assert snapshot(machine.root) == before
    assert report.changed and not (report.failed or report.warnings or report.kept)
    assert machine.effective("npu-0.slice") == machine.effective("npu.slice") == machine.effective("system.slice") == ("0-7", "0-1")
    assert not machine.exists(CONTROL)


def test_memory_nodes_new_to_the_group_come_first_from_outside():
    units = {"/a": _Unit("npu.slice", {}, {"AllowedMemoryNodes": {0, 1}}), "/a/b": _Unit("npu-0.slice", {}, {"AllowedMemoryNodes": {1}})}
    assert [(name, sets) for name, sets in _steps(units) if sets] == [
        ("npu-0.slice", {"AllowedMemoryNodes": {1}}),
        ("npu.slice", {"AllowedMemoryNodes": {0, 1}}),
    ]
