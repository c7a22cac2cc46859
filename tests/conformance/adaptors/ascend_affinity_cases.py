# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chips of a host, scores of hosts, shares of a chip, blocks of SuperPods and sizes of jobs by the rules of MindCluster."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest
from adaptors import _topology

from ansible_collections.npu.affinity.plugins.filter.select_npus import select_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import job_sizes, superpods
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

FIELDS = {
    "pick": ({"family", "free", "n", "multi"}, {"chips", "error"}),
    "node_scores": ({"family", "free", "n", "allocatable", "healthy", "multi"}, {"score"}),
    "soft_share": ({"used", "unused", "request", "chip_hbm_mb"}, {"chip", "score"}),
    "superpod": (
        {"free_nodes", "blocks_wanted", "nodes_per_block", "reserve_nodes", "soft"},
        {"superpods", "blocks_per_superpod", "error_prefix"},
    ),
    "job_sizes": ({"family", "replicas", "per_task", "sp_block", "node_npus"}, {"ok"}),
    "switch_pass_fail": ({"label", "version", "replicas"}, {"ok"}),
}
FAMILIES = {"atlas800T_A2_and_Atlas900_A2_basic_unit": "a2"}


def cases(document: dict, folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    _topology.require_known(document, {"about", "sources", "free_means", "origin", "tables", *FIELDS}, "the document")
    for name in FIELDS:
        for case in document.get(name, ()):
            yield f"{name} {case['id']} {case['note']}".strip(), lambda name=name, case=case: check(name, case)


def check(name: str, case: dict) -> None:
    _topology.require_known(case["input"], FIELDS[name][0], "input")
    _topology.require_known(case["expected"], FIELDS[name][1], "expected")
    CHECKS[name](case["input"], case["expected"])


def pick(given: dict, expected: dict) -> None:
    family = FAMILIES.get(given["family"], given["family"])
    try:
        chosen = select_npus(given["free"], given["n"], family, given.get("multi", False))
    except Exception as refused:
        assert expected["error"] and expected["error"] in str(refused), str(refused)
        return
    assert (chosen["chips"], None) == (expected["chips"], expected["error"])


def score(given: dict, expected: dict) -> None:
    family = FAMILIES.get(given["family"], given["family"])
    rule = RULES[family]
    allocatable = given.get("allocatable", given.get("healthy")) or rule.chips
    assert rule.score(sorted(given["free"]), given["n"], allocatable, given.get("multi", False)) == expected["score"]


def soft_share(given: dict, expected: dict) -> None:
    share = {name: given[name] for name in ("used", "request", "chip_hbm_mb")}
    try:
        chosen = select_npus(given["unused"], share=share)
    except Exception as refused:
        assert expected["chip"] is None and "no fit" in str(refused), str(refused)
        return
    assert chosen["chips"] == [expected["chip"]]
    assert chosen["score"] == expected.get("score", chosen["score"])


def superpod(given: dict, expected: dict) -> None:
    try:
        taken = superpods.take(**given)
    except ValueError as refused:
        assert expected["error_prefix"] and str(refused).startswith(expected["error_prefix"]), str(refused)
        return
    blocks = [str(pod) for pod, _hosts in taken]
    assert expected["error_prefix"] is None
    assert sorted({pod for pod, _hosts in taken}) == expected["superpods"]
    assert {pod: blocks.count(pod) for pod in blocks} == expected["blocks_per_superpod"]


def job_size(given: dict, expected: dict) -> None:
    per_task, replicas = given.get("per_task"), given.get("replicas")
    if given["family"] == "superpod":
        single = RULES["a3"].single
        refusal = job_sizes.of_superpod(single, per_task, replicas, given.get("sp_block"), given.get("node_npus", 16))
        assert (refusal is None) == expected["ok"], refusal
    else:
        assert (per_task is None or per_task in RULES[given["family"]].sizes((replicas or 1) > 1)) == expected["ok"]


def switch(given: dict, expected: dict) -> None:
    pytest.skip("the case does not hold the map of switches; tests/unit has maps of its own for these numbers")


CHECKS = {
    "pick": pick,
    "node_scores": score,
    "soft_share": soft_share,
    "superpod": superpod,
    "job_sizes": job_size,
    "switch_pass_fail": switch,
}
