# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bind while a worker runs in a slice: its memory moves only when asked."""

import re

import pytest

from tests.lab.conftest import changes, plan_of, success
from tests.lab.kernel import allowed_to, pages, start_worker
from tests.lab.shapes import A2, DUO

MEBIBYTES = 40
MORE = 80
"""MiB that a worker has more than a node can hold."""
HALF = MEBIBYTES << 20 >> 13
"""Half of the worker's pages of 4096 bytes."""


def of_node(plan, machine, node):
    functions = machine.look()["functions"]
    return next(npu for npu in plan["npus"] if functions[npu["pci"]]["node"] == node)


def test_memory_of_a_running_worker_moves_only_when_asked(lab, claims):
    """Small machine: a plan that gives a slice other memory nodes while a worker runs in it"""
    machine = lab.bound(DUO).machine
    npu = of_node(plan_of(machine), machine, 0)
    worker = start_worker(machine, "worker", npu["slice"], MEBIBYTES)
    status = f"cat /proc/{worker}/status"
    before = pages(machine, worker)
    claims.true(f"the worker's pages by node: {before}", before.get(0, 0) >= HALF)
    elsewhere = {"npu_affinity_strategy": "global_slice", "npu_affinity_replan": True}
    refused = lab.play(machine, "bind", **elsewhere)
    claims.true("bind refuses", refused.status != 0, refused.output)
    claims.true(
        "and says why, and how to insist", f"{npu['slice']} has running processes" in refused.failure("duo"), refused.failure("duo")
    )
    claims.equal("the worker's CPUs and memory nodes", allowed_to(machine, status), (npu["pool"], npu["memory_nodes"]))
    claims.true("its pages did not move", pages(machine, worker).get(0, 0) >= HALF)
    moved = lab.play(machine, "bind", npu_affinity_move_memory=True, **elsewhere)
    claims.equal("exit status with npu_affinity_move_memory", success(moved), (0, ""))
    now = next(entry for entry in plan_of(machine)["npus"] if entry["id"] == npu["id"])
    claims.equal("the worker's CPUs and memory nodes", allowed_to(machine, status), (now["pool"], now["memory_nodes"]))
    after = pages(machine, worker)
    claims.true(f"its pages moved: {after}", sum(count for node, count in after.items() if node != 0) >= HALF)


def test_memory_moves_home_on_request(lab, claims):
    """Small machine: a worker that was started on the wrong node, and migratepages"""
    machine = lab.bound(DUO).machine
    npu = of_node(plan_of(machine), machine, 1)
    worker = start_worker(machine, "worker", "system.slice", MEBIBYTES, under="numactl --membind=0")
    before = pages(machine, worker)
    claims.true(f"the worker's pages by node: {before}", before.get(0, 0) >= HALF)
    asked = {
        "npu_affinity_threads_enabled": True,
        "npu_affinity_threads_processes": [{"unit": "worker.service", "npus": [npu["id"]]}],
        "npu_affinity_threads_memory_limit": 4096,
        "npu_affinity_memory": "strict",
    }
    refused = lab.play(machine, "bind", **{**asked, "npu_affinity_threads_memory_limit": 5})
    claims.true("refused above the limit", refused.status != 0 and "memory_limit is 5 MiB" in refused.failure("duo"), refused.output)
    claims.equal("exit status in check mode", success(lab.play(machine, "bind", "--check", **asked)), (0, ""))
    claims.true("its pages did not move", pages(machine, worker).get(0, 0) >= HALF)
    claims.equal("exit status", success(lab.play(machine, "bind", **asked)), (0, ""))
    after = pages(machine, worker)
    claims.true(f"its pages moved: {after}", after.get(1, 0) >= HALF)
    claims.equal("the file with the progress", machine.run("ls /run/npu-affinity/migration.json 2>/dev/null || true"), "")
    claims.equal("exit status and changes of a second run", changes(lab.play(machine, "bind", **asked)), (0, []))


@pytest.mark.parametrize("shape", [A2], ids=lambda shape: shape.name)  # which has two nodes in a socket
def test_memory_that_does_not_fit_is_not_moved(lab, claims, shape):
    """A2-like machine: a worker with more memory than its node has spills with wide, and strict is refused where the kernel would kill"""
    machine = lab.bound(shape).machine
    npu = of_node(plan_of(machine), machine, 0)
    mebibytes = free_mebibytes(machine, 0) + MORE
    worker = start_worker(machine, "worker", npu["slice"], mebibytes)
    before = pages(machine, worker)
    claims.equal("memory nodes of the slice", machine.look()["slices"][npu["slice"]]["mems"], "0-1")
    claims.true(f"{mebibytes} MiB, pages by node: {before}", min(before.get(node, 0) for node in (0, 1)) > MORE << 20 >> 13)
    strict = {"npu_affinity_memory": "strict", "npu_affinity_move_memory": True}
    refused = lab.play(machine, "bind", **strict)
    claims.true("bind with strict refuses", refused.status != 0, refused.output)
    claims.true(
        "and says that the kernel would kill", "the kernel would kill processes of it" in refused.failure("a2"), refused.failure("a2")
    )
    claims.equal("the worker still runs, its memory nodes", allowed_to(machine, f"cat /proc/{worker}/status")[1], "0-1")
    claims.equal("memory nodes of the slice", machine.look()["slices"][npu["slice"]]["mems"], "0-1")
    machine.run(f"systemctl set-property --runtime {npu['slice']} AllowedMemoryNodes=0")
    touch = f"python3 -c 'chr(120) * ({MORE} << 20)'"
    machine.run(f"systemd-run --quiet --wait --collect --slice={npu['slice']} {touch} || true")
    killed = [line for line in machine.run("dmesg").splitlines() if "CONSTRAINT_CPUSET" in line]
    claims.true(f"with that set by hand, the next allocation kills: {killed[:1]}", killed and "mems_allowed=0" in killed[0])


def free_mebibytes(machine, node):
    meminfo = machine.run(f"cat /sys/devices/system/node/node{node}/meminfo")
    return int(re.search(r"MemFree:\s+(\d+) kB", meminfo).group(1)) >> 10
