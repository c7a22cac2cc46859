# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first bind of machines of several shapes, as their kernels see it."""

from itertools import combinations

import pytest

from tests.lab.conftest import SHAPES, changes, plan_of
from tests.lab.image import ARCHITECTURE
from tests.lab.kernel import as_planned, numbers, refused
from tests.lab.shapes import A2, DUO, NVME, ODD

# The nodes of ODD with CPUs: of these the last has no memory, and the one before it is the nearest that has. On x86 there is no node 1; on
# aarch64 the kernel numbers the nodes without a gap and lists one as empty.
ODD_NODES = {"amd64": (0, 2, 3), "arm64": (0, 1, 2)}[ARCHITECTURE]
ODD_MEMORY = {"amd64": {"0": True, "2": True, "3": False}, "arm64": {"0": True, "1": True, "2": False, "3": False}}[ARCHITECTURE]
# CPUs by the node of the NPU. The published rules go by the number of the NPU, which here is the reverse of bus and node order: A3's
# divides all CPUs, and A2's those of an NPU's own and next node, which on two nodes is all as well.
POOLS = {
    "a2": {0: ["0-5"], 1: ["6-11"], 2: ["12-17"], 3: ["18-23"]},
    "a3": {0: ["0-5", "6-11"], 1: ["12-17", "18-23"]},
    "odd": dict(zip(ODD_NODES, (["0-7"], ["8-15"], ["16-23"]), strict=True)),
    "nvme": {0: ["0-5"], 1: ["6-11"]},
}
FILES = "find /etc /usr/local/lib -xdev -type f -printf '%p %T@ %i\\n' | sort"
RELOADS = "journalctl --quiet --boot --identifier=systemd --grep=Reloading --output=cat | wc -l"


@pytest.mark.core
def test_check_mode_touches_nothing(lab, claims):
    """Small machine: bind --check --diff touches nothing"""
    machine = lab.fresh(DUO)
    before, files = machine.look(), machine.run(FILES)
    run = lab.play(machine, "bind", "--check", "--diff")
    claims.equal("exit status", run.status, 0)
    claims.true("the diff shows npu-0.slice", "+ npu-0.slice  AllowedCPUs=" in run.output, run.output)
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == before)
    claims.true("files below /etc and /usr/local/lib are as before", machine.run(FILES) == files)


MARKS = {A2: [pytest.mark.architecture, pytest.mark.core], ODD: [pytest.mark.architecture]}
BINDS = [pytest.param(shape, id=shape.name, marks=MARKS.get(shape, [])) for shape in SHAPES if shape.name in POOLS]


@pytest.mark.parametrize("shape", BINDS)
def test_bind(lab, claims, shape):
    """The first bind of a machine"""
    machine, run, before, _files = lab.bound(shape)
    claims.equal(f"{shape.about}: exit status", run.status, 0)
    plan, look = plan_of(machine), machine.look()
    nodes = {npu["pci"]: look["functions"][npu["pci"]]["node"] for npu in plan["npus"]}
    by_node = {}
    for npu in sorted(plan["npus"], key=lambda npu: min(numbers(npu["pool"]))):
        by_node.setdefault(nodes[npu["pci"]], []).append(npu["pool"])
    claims.equal("pools by NUMA node of the NPU", dict(sorted(by_node.items())), POOLS[shape.name])
    pools = [numbers(npu["pool"]) for npu in plan["npus"]]
    claims.true("no CPU is in two pools", all(not one & other for one, other in combinations(pools, 2)))
    cores = [numbers(siblings) for siblings in look["siblings"]]
    whole = all(core <= pool or not core & pool for core in cores for pool in pools)
    claims.true(f"none of the {len(cores)} cores is in two pools", whole)
    as_planned(claims, machine, plan, look)
    if shape is ODD:
        memory = {node: found["memory"] > 0 for node, found in look["nodes"].items()}
        claims.equal("nodes, and whether they have memory", memory, ODD_MEMORY)
        (without_node,) = (npu for npu in plan["npus"] if nodes[npu["pci"]] == ODD_NODES[2])
        claims.equal(f"{without_node['slice']} takes memory of the nearest node that has some", without_node["mems"], str(ODD_NODES[1]))
    if shape is NVME:
        claims.true("the disk has interrupts of queues", any("q1" in vector["name"] for vector in look["nvme"].values()), look["nvme"])
        refused(claims, machine, [irq for irq, vector in look["nvme"].items() if not vector["name"].endswith("q0")])
        claims.true("and they are where they were before the bind", look["nvme"] == before["nvme"], look["nvme"])


@pytest.mark.core
def test_a_second_bind_does_nothing(lab, claims):
    """Small machine: a second bind does nothing"""
    machine = lab.bound(DUO).machine
    before, files, reloads = machine.look(), machine.run(FILES), machine.run(RELOADS)
    run = lab.play(machine, "bind")
    claims.equal("exit status and changes", changes(run), (0, []))
    claims.true("no file below /etc and /usr/local/lib was written", machine.run(FILES) == files)
    claims.equal("reloads of systemd since boot, as before", machine.run(RELOADS), reloads)
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == before)
