# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of other projects give what their own tests and documentation say. Names of cases are those of the source."""

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask, mask_of, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import Units, distributed, packed
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import machine_of

from tests.compare.rules import balloons, restated
from tests.compare.machines import Subject


def units(cpus, nodes, sockets, cores):
    """Return a machine from masks; cores are pairs of CPU c and c + cores."""
    pairs = {core: 1 << core | 1 << core + cores for core in range(cores)}
    return Units(dict(enumerate(nodes)), dict(enumerate(sockets)), {0: cpus}, pairs)


DUAL = units(mask("0-11"), [mask("0,2,4,6,8,10"), mask("1,3,5,7,9,11")], [mask("0,2,4,6,8,10"), mask("1,3,5,7,9,11")], 6)
"""topoDualSocketHT"""
QUARTERS = ["0-9,40-49", "10-19,50-59", "20-29,60-69", "30-39,70-79"]
MULTI = units(mask("0-79"), list(map(mask, QUARTERS)), [mask("0-19,40-59"), mask("20-39,60-79")], 40)
"""topoDualSocketMultiNumaPerSocketHT"""


HALVES = "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"
# kubernetes/kubernetes@04791b49, pkg/kubelet/cm/cpumanager/cpu_assignment_test.go, TestTakeByTopologyNUMAPacked and ...NUMADistributed
TAKEN = {
    "take one cpu from dual socket with HT - core from Socket 0": (DUAL, "1-5,7-11", 1, None, "2"),
    "take a socket of cpus from dual socket with multi-numa-per-socket with HT": (MULTI, "0-79", 40, None, "0-19,40-59"),
    "take a NUMA node of cpus, with 1 NUMA node already taken": (MULTI, "10-39,50-79", 20, None, "10-19,50-59"),
    "take a socket and a NUMA node of cpus, a core taken": (MULTI, "1-39,41-79", 60, None, "10-39,50-79"),
    "allocate 4 full cores with 3 coming from the first NUMA node": (DUAL, "0-11", 8, None, "0,1,2,4,6,7,8,10"),
    "allocate 32 full cores with 30 coming from the first 3 NUMA nodes": (MULTI, "0-79", 64, None, "0-31,40-71"),
    "allocate 4 full cores with 2 distributed across each NUMA node": (DUAL, "0-11", 8, 1, "0-3,6-9"),
    "allocate 24 full cores": (MULTI, "0-79", 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67"),
    "allocate 24 full cores, last 3 NUMA nodes": (MULTI, "3-39,43-79", 48, 1, "10-17,20-27,30-37,50-57,60-67,70-77"),
    "allocate 13 full cores": (MULTI, "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    "allocate 13 full cores (cpuGroupSize 2)": (MULTI, "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    "allocate 31 full cores (cpuGroupSize 2)": (MULTI, "0-79", 62, 2, HALVES),
}


@pytest.mark.parametrize("machine, available, count, group, expected", TAKEN.values(), ids=TAKEN)
def test_kubelet(machine, available, count, group, expected):
    found = distributed(machine, mask(available), count, group) if group else packed(machine, mask(available), count)
    assert found == mask(expected)


def parts(packages, dies, nodes, cores, threads):
    """Return the tree of newCpuTreeFromInt5: so many units in each unit, threads of a core with consecutive numbers."""
    levels, size = [], packages * dies * nodes * cores * threads
    total = size
    for letters, count in (("p", packages), ("d", dies), ("n", nodes), ("c", cores)):
        size //= count
        levels.append((letters, {number: mask_of(range(number * size, (number + 1) * size)) for number in range(total // size)}))
    return balloons.tree(mask_of(range(total)), levels), levels


def resized(topology, deltas, balancing=False, owners=None, near=()):
    """Return the CPUs of balloons that grow by these numbers one after the other, each by the lowest CPUs it may have, and the choices."""
    tree, levels = parts(*topology)
    free = tree[0].cpus
    owned, sizes = {}, []
    for number, delta in enumerate(deltas):
        owner = owners[number] if owners else number
        choice = balloons.add_from(tree, owned.get(owner, 0), free, delta, near, balancing)
        sizes.append(choice.bit_count())
        taken = mask_of(cpus_of(choice)[:delta])
        owned[owner] = owned.get(owner, 0) | taken
        free &= ~taken
    return owned, sizes, dict(zip(("package", "die", "numa", "core"), (units for _letters, units in levels), strict=True))


def on(levels, level, cpus):
    return [number for number, unit in levels[level].items() if unit & cpus]


# containers/nri-plugins@0705acc8, cmd/plugins/balloons/policy/cputree_test.go, TestResizeCpus
class TestResizeCpus:
    def test_first_allocations(self):
        deltas = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32]
        sizes = [resized([2, 2, 2, 2, 2], [delta])[1][0] for delta in deltas]
        assert sizes == [0, 1, 2, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32]
        with pytest.raises(ValueError, match="not enough free CPUs"):
            resized([2, 2, 2, 2, 2], [33])

    @pytest.mark.parametrize(
        "topology, deltas, disjoint",
        [
            ([2, 2, 2, 2, 2], [1] * 8, ["package"] * 2 + ["die"] * 2 + ["numa"] * 4),
            ([4, 1, 4, 8, 2], [1, 3, 2, 4, 1, 4, 2, 4], ["package"] * 4 + ["numa"] * 4),
        ],
    )
    def test_spread(self, topology, deltas, disjoint):
        for count, level in enumerate(disjoint, start=1):
            owned, _sizes, levels = resized(topology, deltas[:count], balancing=True)
            units = [number for cpus in owned.values() for number in on(levels, level, cpus)]
            assert len(set(units)) == len(units), (count, level)

    def test_pack_allocations(self):
        for count, level in ((2, "core"), (3, "numa"), (4, "numa")):
            owned, _sizes, levels = resized([2, 2, 2, 2, 2], [1] * count)
            assert len(on(levels, level, mask_of(cpu for cpus in owned.values() for cpu in cpus_of(cpus)))) == 1

    def test_inflate(self):
        deltas = [1, 1, 1, 1, 1, 3, 6, 1, 1]
        owned, sizes, levels = resized([2, 2, 2, 2, 2], deltas, owners=[1] * 9)
        assert sizes == [1, 1, 1, 1, 1, 3, 8, 1, 1]
        assert on(levels, "package", owned[1]) == [0]

    def test_prefer_close_to_devices(self):
        near = (mask("4-7"), mask("3"), mask("2-7"), mask("2-15"))
        owned, _sizes, levels = resized([2, 1, 2, 2, 2], [1, 3, 4], balancing=True, owners=[1, 1, 2], near=near)
        assert on(levels, "numa", owned[1]) == [1]
        assert on(levels, "package", owned[2]) == [1]


def on_two_nodes(cpus):
    """Return a machine with these CPUs on two NUMA nodes and two GPUs on each, without what Slurm's rule does not read."""
    gpus = [{"kind": "gpu", "id": number, "pci": f"0000:0{number}:00.0", "numa": number // 2} for number in range(4)]
    numa = [{"id": number, "cpus": text} for number, text in enumerate(cpus)]
    topology = {"cpus": {"online": ",".join(cpus)}, "numa": numa, "npus": gpus}
    return Subject(None, topology, machine_of(topology), None, None, None, "")


# SchedMD/slurm@014ddc26, doc/man/man5/gres.conf.5, EXAMPLES: four GPUs, with the sockets that their cores imply
def test_slurm_cores_are_those_of_its_manual_page():
    assert list(map(text_of, restated.slurm(on_two_nodes(["0-1", "2-3"])).values())) == ["0-1", "0-1", "2-3", "2-3"]
    with pytest.raises(ValueError, match="NUMA nodes have 2 and 3 cores"):
        restated.slurm(on_two_nodes(["0-1", "2-4"]))


# Ascend/pytorch@9e73e708, docs/zh/api/environment_variable/performance_tuning/CPU_AFFINITY_CONF.md: 160 CPUs and 8 NPUs
def test_torch_npu_default_is_that_of_its_documentation():
    assert [text_of(cpus) for cpus in restated.blocks(160, 8)[:2]] == ["0-19", "20-39"]
