# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running units get the sets of their files, in an order that nobody notices, from a systemd whose reload leaves them alone. Memory that
the kernel leaves behind follows."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Result
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.live_units import _steps, _Unit
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Machine, snapshot
from tests.fakes.systemd import a_request, MARK, SLICE, UNITS, ModelledSystemd, a_file, live_request, slice_text
from tests.fakes.work import CGROUPS, MIGRATEPAGES, working

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


def test_a_bind_that_fails_gives_the_running_slice_its_set_again(host):
    with pytest.raises(ValueError, match="npu-0.slice should have CPUs 5,90 and has 5. All files were restored"):
        apply(host, live_request("5,90"))
    assert host.read(SLICE) + "\n" == slice_text("0-3")
    assert host.read(CHILD) == "0-3" and not host.exists(CONTROL)


def test_a_slice_narrowed_and_reverted_by_hand_regains_its_set(host):
    host.put(CHILD, "2")
    host.put(CHILD.replace(".effective", ""), "2")
    assert apply(host, live_request("0-3"), check=True).actions == ["reload: npu-0.slice should have CPUs 0-3 and has 2"]
    assert apply(host, live_request("0-3")).changed and host.read(CHILD) == "0-3"


def test_a_runtime_setting_of_somebody_else_is_named_and_left(host):
    by_hand = CONTROL + "/npu-0.slice.d/50-AllowedCPUs.conf"
    host.run(["systemctl", "set-property", "--runtime", "npu-0.slice", "AllowedCPUs=1"])
    host.calls.clear()
    with pytest.raises(ValueError, match="has 1 .overridden by " + by_hand):
        apply(host, live_request("4-5"))
    assert host.exists(by_hand) and not any(call.startswith("set-property") for call in host.calls)


@pytest.mark.parametrize("cpus", ["", "0-7", "0-1"])
def test_what_a_killed_run_gave_a_slice_at_once_is_no_override(host, cpus):
    """It was killed before systemd followed, or after it gave the slice a set."""
    host.put(SLICE, slice_text("4-5").rstrip("\n"))
    if cpus:
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
    assert host.read(CHILD) == "0-3" and not host.exists(CONTROL)


def test_unbind_gives_back_the_set_of_a_drop_in_of_others(tmp_path):
    machine = Machine(str(tmp_path))
    machine.reapplies = False
    machine.put(UNITS + "/system.slice.d/10-site.conf", "[Slice]\nAllowedCPUs=0-5\n")
    machine.run(["systemctl", "daemon-reload"])
    before = snapshot(machine.root)
    ours = a_file(UNITS + "/system.slice.d/50-npu-affinity.conf", MARK + "[Slice]\nAllowedCPUs=\nAllowedCPUs=4-7\n")
    apply(machine, a_request(files=[ours], expected=[{"unit": "system.slice", "cpus": "4-7"}]))
    assert machine.effective("system.slice")[0] == "4-7"
    assert not unbind(machine).failed
    assert machine.effective("system.slice")[0] == "0-5" and snapshot(machine.root) == before


def test_memory_nodes_new_to_the_group_come_first_from_outside():
    units = {"/a": _Unit("npu.slice", {}, {"AllowedMemoryNodes": {0, 1}}), "/a/b": _Unit("npu-0.slice", {}, {"AllowedMemoryNodes": {1}})}
    assert [(name, sets) for name, sets in _steps(units) if sets] == [
        ("npu-0.slice", {"AllowedMemoryNodes": {1}}),
        ("npu.slice", {"AllowedMemoryNodes": {0, 1}}),
    ]


NAMES = ("/a", "/a/b", "/a/b/c", "/a/d", "/e")
TREES = st.fixed_dictionaries({folder: st.sets(st.integers(0, 7)) for folder in NAMES})


def granted(configured, folder):
    """The effective set of a control group, as Linux ``Documentation/admin-guide/cgroup-v2.rst`` has it."""
    if not folder:
        return set(range(8))
    around = granted(configured, os.path.dirname(folder).rstrip("/"))
    return configured[folder] & around or around


@given(TREES, TREES)
def test_no_group_ever_has_what_it_has_neither_before_nor_after(before, after):
    old, new = ({folder: granted(tree, folder) for folder in tree} for tree in (before, after))
    changed = [folder for folder in NAMES if old[folder] != new[folder]]
    behind = {folder: _Unit(folder, {"AllowedCPUs": old[folder]}, {"AllowedCPUs": new[folder]}) for folder in changed}
    live = dict(old)
    steps = [(folder, sets["AllowedCPUs"]) for folder, sets in _steps(behind) if sets]
    for folder, cpus in steps:
        live[folder] = cpus
        for name in NAMES:
            assert granted(live, name) <= old[name] | new[name], (steps, folder, name)
    assert {folder: granted(live, folder) for folder in NAMES} == new and len(steps) <= 2 * len(behind)


UNITS_OF = {"npu.slice": "/npu.slice", "npu-0.slice": "/npu.slice/npu-0.slice"}


def request(mems):
    files = [a_file("%s/%s" % (UNITS, unit), slice_text("0-3", mems)) for unit in UNITS_OF]
    return a_request(files=files, started=list(UNITS_OF), move_memory=True)


@pytest.fixture
def with_memory(tmp_path, monkeypatch):
    """A slice in a slice on node 0, with a process in the inner one, on a kernel that leaves pages behind."""
    machine = working(tmp_path, monkeypatch, keeps=False)
    machine.free(1 << 10)
    apply(machine, request("0"))
    lies_on(machine, 0)
    for group in UNITS_OF.values():
        machine.lay({CGROUPS + group + "/cgroup.events": "populated 1\nfrozen 0", CGROUPS + group + "/cgroup.procs": ""})
    machine.process(100, UNITS_OF["npu-0.slice"] + "/worker.service")
    machine.allocate(100, N0=100)
    machine.calls.clear()
    return machine


def lies_on(machine, node):
    text = "anon N%d=%d\nfile N%d=0" % (node, 100 << 20, node)
    machine.lay({CGROUPS + group + "/memory.numa_stat": text for group in UNITS_OF.values()})


def test_what_the_kernel_leaves_behind_moves_once(with_memory):
    report = apply(with_memory, request("1"))
    assert (with_memory.pages(100), with_memory.migrations, report.warnings) == ({1: 100}, ["migratepages 100 0 1"], [])
    with_memory.calls.clear()
    assert not apply(with_memory, request("1")).changed and not with_memory.migrations
    with_memory.allocate(100, N0=100)
    assert not apply(with_memory, request("0")).warnings and not with_memory.migrations, "the kernel moved it"


def test_what_stays_is_reported(with_memory, monkeypatch):
    with_memory.space = {1: 20}
    assert "process 100 (worker) of npu-0.slice: 80 MiB stay on node 0" in apply(with_memory, request("1")).warnings[0]
    monkeypatch.setenv("PATH", "")
    os.unlink(with_memory.path(MIGRATEPAGES))
    with_memory.allocate(100, N1=100)
    lies_on(with_memory, 1)
    (warning,) = apply(with_memory, request("0")).warnings
    assert warning.startswith("npu-0.slice: 100 MiB stay on other memory nodes than its own: migratepages was not found")
    assert warning.endswith("install numactl on this host")


def test_commands_may_take_as_long_as_the_memory_needs(with_memory, monkeypatch):
    limits, run, usual = [], with_memory.run, with_memory.timeout

    def timed(argv, stdin="", timeout=None):
        limits.append((argv[1], with_memory.timeout))
        return run(argv, stdin, timeout)

    monkeypatch.setattr(with_memory, "run", timed)
    apply(with_memory, request("1"))
    assert max(limit for verb, limit in limits if verb == "daemon-reload") > usual + 1 and limits[-1][1] == usual
