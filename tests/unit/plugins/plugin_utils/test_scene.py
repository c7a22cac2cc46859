# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import itertools

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._report.scene import (
    NODES_PER_ROW,
    PALETTE,
    colours_of,
    cpus_of,
    nodes_of,
    npus_of,
)
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import keys_of


def planned(topology, pools):
    """Return a topology, and entries of a plan that gives its NPUs these pools; a pool more than there are NPUs is that of a lost one."""
    cards = [*topology["npus"], {"kind": "npu", "id": 9, "pci": "0000:77:00.0", "mems": "4"}]
    entries = [{**npu, "pool": pool} for npu, pool in zip(cards, pools)]  # noqa: B905
    return topology, dict(zip(keys_of(entries), entries, strict=True))


def everything():
    """Sparse nodes, CPUs of nobody, offline ones, an NPU without node, one of a node that there is not, overlapping pools, a lost NPU."""
    topology = host([0, None, 4, 77], nodes=[0, 4, 9], cores=[8, 8, 4], threads=2)
    topology["cpus"]["offline"] = "40-42"
    topology["numa"].append({"id": 12, "cpus": "", "memory_mib": 1024, "distances": {}})
    return planned(topology, ["2-9", "8-13", "16-23", "", "24-29"])


MACHINES = {
    "192 CPUs in clusters": planned(host([0, 0, 2, 2, 4, 4, 6, 6], caches=4), [f"{24 * npu}-{24 * npu + 23}" for npu in range(8)]),
    "640 CPUs, siblings far apart": planned(
        host([npu // 2 for npu in range(16)], cores=40, threads=2, numbering="far"),
        [f"{20 * npu}-{20 * npu + 19},{320 + 20 * npu}-{339 + 20 * npu}" for npu in range(16)],
    ),
    "everything": everything(),
    "no NUMA node": planned(host([None], nodes=1, cores=12, numa=[]), ["2-9"]),
    "no NPU": planned(host([], nodes=2, cores=8), []),
}
every_machine = pytest.mark.parametrize(("topology", "entries"), MACHINES.values(), ids=MACHINES)


def drawn(topology, entries):
    npus = list(npus_of(topology, entries))
    nodes = list(nodes_of(topology, npus))
    return npus, nodes, colours_of(npus, nodes)


@every_machine
def test_every_cpu_and_npu_stands_at_one_node(topology, entries):
    npus, nodes, _colours = drawn(topology, entries)
    cpus = expand(topology["cpus"]["online"]) + expand(topology["cpus"]["offline"])
    assert sorted(cpu for node in nodes for cpu in cpus_of(node)) == sorted(cpus)
    assert sorted(index for node in nodes for index in node["npus"]) == list(range(len(npus)))
    of_node = {node["id"]: expand(node["cpus"]) for node in topology["numa"]}
    assert all(sorted(cpus_of(node)) == of_node[node["id"]] for node in nodes if node["id"] is not None)
    cores = [core for node in nodes for _cache, cores in node["groups"] for core in cores if len(core) > 1]
    assert sorted(cores) == sorted(map(expand, topology["cpus"]["siblings"]))
    caches = {tuple(expand(cache)) for node in nodes for cache, _cores in node["groups"] if cache}
    assert caches == set(map(tuple, map(expand, topology["cpus"]["caches"])))


@every_machine
def test_npus_that_touch_have_different_colours(topology, entries):
    npus, nodes, colours = drawn(topology, entries)
    here = [{index for index, npu in enumerate(npus) if set(expand(npu.pool)) & set(cpus_of(node))} for node in nodes]
    for number, members in enumerate(here):
        for neighbour in (number, number + 1, number + NODES_PER_ROW):
            for pair in itertools.product(members, here[neighbour] if neighbour < len(here) else ()):
                assert len(set(pair)) == 1 or len({colours[index] for index in pair}) == 2


def test_what_is_lost_or_at_no_node_says_so():
    npus, nodes, colours = drawn(*MACHINES["everything"])
    cards = [("NPU 0", "0", 0), ("NPU 1", "1", None), ("NPU 2", "2", 4), ("NPU 3", "3", 77), ("NPU 9 (lost)", "×9", 4)]
    assert [(npu.label, npu.badge, npu.node) for npu in npus] == cards
    places = [("NUMA node 0", [0]), ("NUMA node 4", [2, 4]), ("NUMA node 9", []), ("no NUMA node known", [1, 3])]
    assert [(node["label"], node["npus"]) for node in nodes] == places
    assert [colour is None for colour in colours] == [False, False, False, True, True]
    assert len(set(drawn(*MACHINES["192 CPUs in clusters"])[2])) == 8, "as many colours as NPUs"


def test_npus_and_gpus_of_one_host_are_told_apart():
    topology = host([0, 0], nodes=1, cores=16)
    topology["npus"][1].update(kind="gpu", id=0)
    assert [(npu.label, npu.badge) for npu in npus_of(*planned(topology, ["0-7", "8-15"]))] == [("NPU 0", "N0"), ("GPU 0", "G0")]


def test_a_pool_that_is_no_cpulist_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="pool of NPU 1: 'x' in '72-95,x' is not a CPU number"):
        drawn(*planned(host([0, 0]), ["0-7", "72-95,x"]))


DICHROMACY = {
    "trichromat": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranope": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanope": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency" (2009), severity 1."""


def cielab(colour, vision):
    """Return a colour such as #e69f00 as an eye sees it, in CIELAB (D65)."""
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    red, green, blue = (max(0, sum(weight * value for weight, value in zip(row, linear, strict=True))) for row in DICHROMACY[vision])
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    x, y, z = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", DICHROMACY)
@pytest.mark.parametrize("use", [0, 1, 3, 4], ids=["light main", "light role", "dark main", "dark role"])
def test_consecutive_colours_differ_for_every_eye(vision, use):
    seen = [cielab(colours[use], vision) for colours in PALETTE]
    for number, colour in enumerate(seen):
        difference = sum((one - other) ** 2 for one, other in zip(colour, seen[number - 1], strict=True)) ** 0.5
        assert difference > 15, (PALETTE[number][use], PALETTE[number - 1][use])
