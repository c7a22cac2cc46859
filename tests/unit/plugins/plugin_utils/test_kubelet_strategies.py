# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kubelet's CPU manager would give to a container for each card, next to what the other strategies give."""

from __future__ import annotations

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, allocate, distributed, packed
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.units import units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

TWO = host([1, 0, 1], nodes=2, cores=10)
SMT = host([1, 0], nodes=2, cores=4, threads=2, numbering="far")
L40S = host([0, 0, 0, 0, 1, 1, 1, 1], nodes=2, cores=96, threads=2, numbering="far", caches=8, family="gpu")


@pytest.mark.parametrize(
    ("strategy", "topology", "options", "pools"),
    [
        ("packed", TWO, {}, ["0-5", "6-11", "12-17"]),
        ("distributed", TWO, {}, ["0-5", "10-15", "6-8,16-18"]),
        ("packed", SMT, {}, ["0-3,8-11", "4-7,12-15"]),
        ("packed", SMT, {"housekeeping": 1}, ["1-3,9-11", "5-7,13-15"]),
        ("packed", SMT, {"smt": "threads", "cpus": "0-14"}, ["4-6,12-14,7", "0-3,8-10"]),
    ],
)
def test_pools_by_the_ids_of_the_cards_whatever_their_node(strategy, topology, options, pools):
    made = plan(topology, strategy=strategy, repair=False, min_cpus=1, **options)
    assert made["strategy"] == strategy
    assert [sorted(expand(entry["pool"])) for entry in made["npus"]] == [sorted(expand(pool)) for pool in pools]


def test_a_plan_names_what_is_lost_against_the_cards_own_nodes():
    made = plan(TWO, strategy="packed")
    assert made["quality"]["local"] < 0.6
    assert any("even_split takes no others" in warning for warning in made["warnings"])


def test_too_few_cores_are_told_in_the_kubelets_words():
    with pytest.raises(ValueError, match="not enough cpus available to satisfy request: requested=4, available=2"):
        plan(SMT, strategy="packed", cpus="0,8", repair=False, min_cpus=1)


def test_five_of_eight_cards_get_120_and_120_cpus_or_192_and_48():
    units = units_of(L40S)
    for choose, counts in ((distributed, [120, 120]), (packed, [192, 48])):
        taken = choose(units, units.cpus, 240)
        assert [(taken & cpus).bit_count() for cpus in units.of["nodes"].values()] == counts


def test_sockets_come_from_facts_and_align_by_socket_fills_one():
    topology = {**host([0, 1, 2, 3], nodes=4, cores=4), "kubelet": None}
    topology["cpus"] = {**topology["cpus"], "sockets": ["0-7", "8-15"]}
    units = units_of(topology)
    assert units.of["sockets"] == {0: 0xFF, 1: 0xFF00}
    assert allocate(units, units.cpus, 6, PolicyOptions(align_by_socket=True), nodes=[2]) == 0x3F00
