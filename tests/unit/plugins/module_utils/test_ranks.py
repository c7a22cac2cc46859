# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ranks of one service or container: placed process by process, described, and given back."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._drift.placement import Judge
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import record, watching
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import page_sample
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from ansible_collections.npu.affinity.plugins.module_utils._users import ranks
from tests.fakes.work import DOCKER, ID, PLAN, SERVICE, all_cpus, user, working
from tests.unit.plugins.module_utils.test_adopt_watching import watching_with

MIB = 1 << 20


def service(machine, group=SERVICE):
    """Two ranks, their parent, which holds no device, and a process that holds both."""
    machine.engines = {ID: ""}
    for pid in (100, 200, 300, 400):
        machine.process(pid, group)
    machine.put("/proc/cmdline", "")
    devices = {200: [1], 300: [0], 400: [0, 1]}

    def found():
        one = user(machine, group, 0, 1, pids=sorted(devices))
        for process in one["processes"]:
            process["devices"] = ["davinci%d" % number for number in devices[process["pid"]]]
        return one

    return found


@pytest.fixture(params=[(SERVICE, True, False), (SERVICE, False, False), (SERVICE, False, True), (DOCKER, True, False)])
def placed(request, tmp_path, monkeypatch):
    group, keeps, v1 = request.param
    machine = working(tmp_path, monkeypatch, keeps, v1)
    found = service(machine, group)
    monkeypatch.setattr(watching, "users", lambda _host, _npus, among=None: [found()])
    return machine, watching_with(machine), found


def test_each_rank_gets_its_pool_and_the_rest_the_union(placed):
    machine, watcher, _found = placed
    before = all_cpus(machine)
    watcher.look()
    assert all_cpus(machine) == {100: "0-1,4-7", 200: "4-7", 300: "0-1", 400: "0-1,4-7"}
    changed = list(machine.calls)
    watcher.look()
    assert machine.calls == changed or not any("set-property" in call or "update" in call for call in machine.calls[len(changed) :])
    assert all_cpus(machine) == {100: "0-1,4-7", 200: "4-7", 300: "0-1", 400: "0-1,4-7"}
    assert not unbind(machine).failed
    assert all_cpus(machine) == before and "adopt" not in previous.recorded(machine)


def test_a_rank_is_placed_at_its_open_before_its_service(placed):
    machine, watcher, _found = placed
    assert watcher.born({200: None}) and machine.cpus(200) == "4-7"
    assert machine.cpus(100) == "0-7" and set(record.entries(machine)) >= {"200:1:boot", "300:1:boot"}
    watcher.look()
    assert all_cpus(machine) == {100: "0-1,4-7", 200: "4-7", 300: "0-1", 400: "0-1,4-7"}


def test_a_rank_on_the_union_of_its_service_is_outside(placed):
    machine, watcher, found = placed
    watcher.look()
    machine.set_affinity(200, {0, 1, 4, 5, 6, 7})
    live = {"adopt": {"mode": "always"}}
    (away,) = Judge.of(machine, PLAN, [], live).placed([found()]).outside
    assert (away["title"], away["cpus"], away["pool"]) == ("rank 1 of %s (pid 200, NPU 1)" % ranks.title_of(found()), "0-1,4-7", "4-7")
    assert not Judge.of(machine, PLAN, [], {}).placed([found()]).outside, "a slice alone gives all of them the union"


@pytest.mark.parametrize(
    ("cpus", "local", "line"),
    [
        ("4-7", 98, "rank 1 of outside.service: NPU 1, 4 CPUs, 98 % local pages"),
        ("4", None, "rank 1 of outside.service: NPU 1, 1 CPU, local pages not known"),
        ("0-7", 0, "rank 1 of outside.service: NPU 1, CPUs 0-7, pool 4-7, 0 % local pages"),
    ],
)
def test_a_rank_is_described_in_a_line(tmp_path, monkeypatch, cpus, local, line):
    machine = working(tmp_path, monkeypatch)
    found = service(machine)()
    found["processes"][0]["cpus"] = cpus
    pages = {1: local, 0: 100 - local} if local is not None else {}
    monkeypatch.setattr(ranks, "sampled", lambda _host, _pid: pages)
    npus = [dict(npu, numa=number) for number, npu in enumerate(PLAN["npus"])]
    found["ranks"] = ranks.described(machine, npus, found, [])
    assert [(rank["rank"], rank["pid"]) for rank in found["ranks"]] == [(0, 300), (1, 200)]
    assert ranks.titles(found, PLAN)[1] == line


def test_an_unreadable_process_has_unknown_pages_and_a_reason(tmp_path, monkeypatch):
    machine = working(tmp_path, monkeypatch)
    machine.put("/proc/300/maps", "")
    for live, reasons in ((False, []), (True, [f"The pages of process 300 are not known: not on {os.uname().machine}."])):
        problems = []
        monkeypatch.setattr(type(machine), "live", live, raising=False)
        monkeypatch.setattr(page_sample, "_SYSCALLS", {})
        found = ranks.described(machine, [dict(npu, numa=0) for npu in PLAN["npus"]], service(machine)(), problems)
        assert ([rank["local"] for rank in found], problems) == ([None, None], reasons)


def test_a_sample_counts_present_pages_and_is_bounded(monkeypatch):
    memory = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        before = page_sample.sampled(Host(), os.getpid())
    except ValueError as error:
        pytest.skip(str(error))
    for place in range(0, 64 * MIB, 4096):
        memory[place] = 1
    after = page_sample.sampled(Host(), os.getpid())
    assert 20 <= sum(after.values()) - sum(before.values()) <= 40, "32 pages of 2 MiB each"
    assert ctypes.addressof(ctypes.c_char.from_buffer(memory)) and max(after) < 1024
    monkeypatch.setattr(page_sample, "MOST", 16)
    assert 0 < sum(page_sample.sampled(Host(), os.getpid()).values()) <= 16
    assert page_sample.sampled(Host(), (1 << 22) + 1) == {}, "it has ended"
