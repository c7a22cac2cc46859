# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running slices that get other memory nodes, on kernels that leave pages behind."""

from __future__ import annotations

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request
from tests.fakes.systemd import UNITS, a_file, slice_text
from tests.fakes.work import CGROUPS, MIGRATEPAGES, working

UNITS_OF = {"npu.slice": "/npu.slice", "npu-0.slice": "/npu.slice/npu-0.slice"}
WORKER = UNITS_OF["npu-0.slice"] + "/worker.service"


def request(mems, move=True):
    files = [a_file("%s/%s" % (UNITS, unit), slice_text("0-3", mems)) for unit in UNITS_OF]
    return Request(files=files, started=list(UNITS_OF), move_memory=move)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A slice in a slice on node 0, with a process in the inner one."""
    machine = working(tmp_path, monkeypatch, keeps=False)
    machine.put(MIGRATEPAGES, "")
    os.chmod(machine.path(MIGRATEPAGES), 0o755)
    apply(machine, request("0"))
    for group in UNITS_OF.values():
        machine.put(CGROUPS + group + "/cgroup.events", "populated 1\nfrozen 0")
        machine.put(CGROUPS + group + "/cgroup.procs", "")
        machine.put(CGROUPS + group + "/memory.numa_stat", "anon N0=%d\nfile N0=0" % (100 << 20))
    for node in (0, 1):
        machine.put("/sys/devices/system/node/node%d/meminfo" % node, "Node %d MemFree: %d kB\n" % (node, 1 << 20))
    machine.process(100, WORKER)
    machine.allocate(100, N0=100)
    machine.calls.clear()
    return machine


def migrations(machine):
    return [call.split("/")[-1] for call in machine.calls if "migratepages" in call]


def test_what_the_kernel_leaves_behind_moves_once(machine):
    report = apply(machine, request("1"))
    assert (machine.pages(100), migrations(machine), report.warnings) == ({1: 100}, ["migratepages 100 0 1"], [])
    machine.calls.clear()
    assert not apply(machine, request("1")).changed and not migrations(machine)


def test_a_kernel_that_moves_it_leaves_nothing_to_do(machine):
    machine.allocate(100, N1=100)
    assert not apply(machine, request("1")).warnings and not migrations(machine)


def test_what_stays_is_reported(machine, monkeypatch):
    machine.space = {1: 20}
    assert "process 100 (worker) of npu-0.slice: 80 MiB stay on node 0" in apply(machine, request("1")).warnings[0]
    monkeypatch.setenv("PATH", "")
    os.unlink(machine.path(MIGRATEPAGES))
    machine.allocate(100, N1=100)
    for group in UNITS_OF.values():
        machine.put(CGROUPS + group + "/memory.numa_stat", "anon N1=%d\nfile N1=0" % (100 << 20))
    (warning,) = apply(machine, request("0")).warnings
    assert warning.startswith("npu-0.slice: 100 MiB stay on other memory nodes than its own: migratepages was not found")
    assert warning.endswith("install numactl on this host")


def test_commands_may_take_as_long_as_the_memory_needs(machine, monkeypatch):
    limits = []
    run = machine.run

    def timed(argv, stdin="", timeout=None):
        limits.append((argv[1], machine.timeout))
        return run(argv, stdin, timeout)

    monkeypatch.setattr(machine, "run", timed)
    apply(machine, request("1"))
    usual = machine.timeout
    assert max(limit for verb, limit in limits if verb == "daemon-reload") > usual + 1 and limits[-1][1] == usual
