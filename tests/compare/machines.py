# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sixty machines on which rules are compared: seven families, with lost cards, housekeeping, cpusets, offline CPUs and SMT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.simulator import generate

Description = dict[str, Any]


class Shape(NamedTuple):
    """A machine: its description for the simulator, and the options of a plan (``cpus``, ``housekeeping``) that every rule is given."""

    family: str
    name: str
    description: Description
    options: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"{self.family}: {self.name}"


def _changed(base: str, **change: Any) -> Description:
    """Return a description of the simulator with other values and without processes. ``nodes`` replaces all of that section."""
    description = generate.merge(generate.load(base), change)
    description["nodes"] = change.get("nodes", description["nodes"])
    for section in ("npus", "gpus"):
        description.get(section, {}).pop("processes", None)
    return description


def _without(base: str, *lost: int, **change: Any) -> Description:
    """Return a description whose cards at these positions have dropped off the bus; a GPU that has done so is not there."""
    description = _changed(base, **change)
    if "gpus" in description:
        cards = description["gpus"]["cards"]
        description["gpus"]["cards"] = [card for number, card in enumerate(cards) if number not in lost]
    else:
        for number in lost:
            description["npus"]["cards"][number]["lost"] = True
    return description


def _a2_on(*nodes: int) -> Description:
    """Return A2 cards on these NUMA nodes, in the order of their logic ids."""
    cards = [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": node} for number, node in enumerate(nodes)]
    return {"family": "a2", "name": "910B3", "memory_mib": 65536, "cards": cards}


def _moved(base: str, where: Sequence[int], **change: Any) -> Description:
    """Return a description whose cards are on these NUMA nodes, in their order."""
    description = _changed(base, **change)
    cards = description["gpus" if "gpus" in description else "npus"]["cards"]
    for card, node in zip(cards, where, strict=True):
        card["node"] = node
    return description


RING = {"cpus": {"per_node": 64}, "npus": _a2_on(0, 0, 1, 1, 2, 2, 3, 3)}
SPARSE = {"nodes": {"ids": [0, 2, 4, 6], "memory_mib": 262144, "distances": {"other": 20}}, "npus": _a2_on(6, 6, 4, 4, 0, 0, 2, 2)}
PARTIAL = {
    "cpus": {"per_node": 32, "packages": 2},
    "nodes": {
        "ids": [0, 1, 2, 3, 4, 5],
        "without_cpus": [4, 5],
        "memory_mib": {0: 131072, 2: 131072, 4: 65536, 5: 65536},
        "distances": [
            [10, 12, 20, 20, 14, 24],
            [12, 10, 20, 20, 14, 24],
            [20, 20, 10, 12, 24, 14],
            [20, 20, 12, 10, 24, 14],
            [14, 14, 24, 24, 10, 28],
            [24, 24, 14, 14, 28, 10],
        ],
    },
    "npus": _a2_on(0, 0, 1, 1, 4, 4, 2, 2),
}
TWO_NODES = {"packages": 2, "per_node": 320, "smt": "adjacent"}
FOUR_NODES = {"packages": 4, "per_node": 160, "smt": "adjacent"}
XEON = {"cpus": {"per_node": 112}, "npus": _a2_on(0, 0, 0, 0, 1, 1, 1, 1)}
NPS4 = {"cpus": {"per_node": 48}, "nodes": {"count": 8, "memory_mib": 193536, "distances": {"package": 12, "other": 32}}}


def _a2() -> dict[str, tuple[Description, Mapping[str, str]]]:
    stock = _changed("a2_8x24")
    wide = _changed("a2_4x48")
    return {
        "8 nodes × 24": (stock, {}),
        "8 nodes × 24, housekeeping 2 cores per node": (stock, {"housekeeping": "2"}),
        "8 nodes × 24, housekeeping 0-7": (stock, {"housekeeping": "0-7"}),
        "8 nodes × 24, cpuset 0-95": (stock, {"cpus": "0-95"}),
        "8 nodes × 24, cpuset without nodes 1 and 3": (stock, {"cpus": "0-23,48-71,96-191"}),
        "8 nodes × 24, CPU 5 offline": (_changed("a2_8x24", cpus={"offline": "5"}), {}),
        "8 nodes × 24, 1 card lost": (_without("a2_8x24", 1), {}),
        "8 nodes × 24, 2 cards of a node lost": (_without("a2_8x24", 0, 1), {}),
        "4 nodes × 48": (wide, {}),
        "4 nodes × 48, housekeeping 2 cores per node": (wide, {"housekeeping": "2"}),
        "4 nodes × 48, 1 card lost": (_without("a2_4x48", 4), {}),
        "ring of 4 nodes × 64": (_changed("a2_4x48", **RING), {}),
        "ring of 4 nodes × 64, 3 cards lost": (_without("a2_4x48", 1, 2, 3, **RING), {}),
        "node ids 0, 2, 4, 6": (_changed("a2_4x48", **SPARSE), {}),
        "nodes without CPUs, nodes without memory": (_changed("a2_8x24", **PARTIAL), {}),
        "8 cards on 1 of 4 nodes × 48": (_moved("a2_4x48", [1] * 8), {}),
    }


def _a3() -> dict[str, tuple[Description, Mapping[str, str]]]:
    stock = _changed("a3_640_adjacent")
    two = _moved("a3_640_adjacent", [0, 0, 0, 0, 0, 0, 1, 1], cpus=TWO_NODES, nodes={"count": 2, "memory_mib": 786432})
    four = _moved("a3_640_adjacent", [0, 0, 1, 1, 2, 2, 3, 3], cpus=FOUR_NODES, nodes={"count": 4, "memory_mib": 393216})
    return {
        "640 CPUs, siblings 2k and 2k+1": (stock, {}),
        "640 CPUs, siblings c and c+320": (_changed("a3_640_split"), {}),
        "320 CPUs without SMT": (_changed("a3_640_adjacent", cpus={"per_node": 40, "smt": "none"}), {}),
        "2 nodes × 320, 12 dies on node 0": (two, {}),
        "4 nodes × 160": (four, {}),
        "640 CPUs, housekeeping 2 cores per node": (stock, {"housekeeping": "2"}),
        "640 CPUs, housekeeping 0-15": (stock, {"housekeeping": "0-15"}),
        "640 CPUs, cpuset 0-319": (stock, {"cpus": "0-319"}),
        "640 CPUs, cpuset of the nodes with cards": (stock, {"cpus": "0-79,160-239,320-399,480-559"}),
        "640 CPUs, CPUs 0-1 offline": (_changed("a3_640_adjacent", cpus={"offline": "0-1"}), {}),
        "640 CPUs, 1 card lost": (_without("a3_640_adjacent", 3), {}),
        "640 CPUs, 2 cards of a node lost": (_without("a3_640_split", 0, 1), {}),
    }


def _a5() -> dict[str, tuple[Description, Mapping[str, str]]]:
    stock = _changed("a5")
    return {
        "2 nodes × 128 with SMT": (stock, {}),
        "2 nodes × 64 without SMT": (_changed("a5", cpus={"per_node": 64, "smt": "none"}), {}),
        "2 nodes × 128, housekeeping 2 cores per node": (stock, {"housekeeping": "2"}),
        "2 nodes × 128, cpuset without threads 128-255": (stock, {"cpus": "0-127"}),
        "2 nodes × 128, 2 cards lost": (_without("a5", 0, 5), {}),
        "4 nodes × 96, cards on nodes 1 and 3": (
            _moved("a5", [1, 1, 1, 1, 3, 3, 3, 3], cpus={"per_node": 96, "packages": 2}, nodes={"count": 4, "memory_mib": 262144}),
            {},
        ),
    }


def _inference() -> dict[str, tuple[Description, Mapping[str, str]]]:
    return {
        "300I Pro, 2 cards on 1 of 2 nodes": (_changed("i310_pro"), {}),
        "300I Pro, housekeeping 2 cores per node": (_changed("i310_pro"), {"housekeeping": "2"}),
        "300I Pro, 4 cards, 3 on 1 node": (_i310_of_four(), {}),
        "300I, 2 cards of 4 chips": (_changed("n310"), {}),
        "300I, housekeeping 0-1": (_changed("n310"), {"housekeeping": "0-1"}),
        "910A, 8 nodes × 24": (_changed("n910a"), {}),
        "910A, 1 card lost": (_without("n910a", 2), {}),
        "910A, cpuset 0-47,144-191": (_changed("n910a"), {"cpus": "0-47,144-191"}),
    }


def _i310_of_four() -> Description:
    description = _changed("i310_pro")
    description["npus"]["cards"] = [
        {"npu": number, "bdf": f"0000:8{number}:00.0", "node": node, "phy": number} for number, node in enumerate((1, 1, 0, 1))
    ]
    return description


def _duo() -> dict[str, tuple[Description, Mapping[str, str]]]:
    return {
        "4 cards, 4 nodes × 32": (_changed("duo"), {}),
        "4 cards, housekeeping 1 core per node": (_changed("duo"), {"housekeeping": "1"}),
        "4 cards, cpuset 0-95": (_changed("duo"), {"cpus": "0-95"}),
        "4 cards, 1 lost": (_without("duo", 3), {}),
        "4 cards on adjacent nodes": (_moved("duo", [0, 0, 1, 1]), {}),
        "4 cards, 3 on node 0": (_moved("duo", [0, 0, 0, 2]), {}),
    }


def _gpu() -> dict[str, tuple[Description, Mapping[str, str]]]:
    stock = _changed("l40s_384")
    nps4 = _moved("l40s_384", [0, 1, 2, 3, 4, 5, 6, 7], **NPS4)
    return {
        "8 × L40S, 2 nodes × 192 with SMT": (stock, {}),
        "8 × L40S, housekeeping 4 cores per node": (stock, {"housekeeping": "4"}),
        "8 × L40S, cpuset 0-191": (stock, {"cpus": "0-191"}),
        "8 × L40S, 1 lost": (_without("l40s_384", 5), {}),
        "8 × L40S, 5 on 1 node": (_moved("l40s_384", [0, 0, 0, 0, 0, 1, 1, 1]), {}),
        "8 × L40S, 8 nodes × 48": (nps4, {}),
    }


def _x86() -> dict[str, tuple[Description, Mapping[str, str]]]:
    box = _changed("a2_910b2c_16")
    return {
        "8 × 910B3, 2 × 56 cores with SMT": (_changed("a2_910b2c_16", **XEON), {}),
        "8 × 910B3, CPUs numbered in turn": (_changed("a2_910b2c_16", **generate.merge(XEON, {"cpus": {"order": "round_robin"}})), {}),
        "16 × 910B2C, 2 × 48 cores with SMT": (box, {}),
        "16 × 910B2C, housekeeping 2 cores per node": (box, {"housekeeping": "2"}),
        "16 × 910B2C, 3 cards lost": (_without("a2_910b2c_16", 0, 1, 9), {}),
        "16 × 910B2C, cpuset without threads 96-191": (box, {"cpus": "0-95"}),
    }


FAMILIES = {"A2": _a2, "A3": _a3, "A5": _a5, "300I and 910A": _inference, "300I Duo": _duo, "GPU": _gpu, "x86": _x86}


def shapes() -> list[Shape]:
    return [
        Shape(family, name, description, options) for family, made in FAMILIES.items() for name, (description, options) in made().items()
    ]
