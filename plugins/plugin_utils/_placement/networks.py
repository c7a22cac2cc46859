# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which network links the hosts of a product, and so by which affinity between hosts its jobs can be placed.

Source: MindCluster's documentation (Ascend/mind-cluster@22bb3d98), "Affinity Scheduling" and "YAML Configuration". Its scheduler does not
check the network of a product: to refuse the others is a rule of npu.affinity.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

SUPERPOD, TREE = "superpod", "tree"
WAYS = {
    "1.0": "switch affinity 1.0",
    "2.0": "switch affinity 2.0",
    "single_layer": "affinity to a single layer of switches",
    SUPERPOD: "SuperPods",
    TREE: "network trees",
}


class Network(NamedTuple):
    """``ways`` are the keys of :data:`WAYS` that a network has, ``open`` those that the documents do not confirm."""

    product: str
    links: str
    ways: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


_TWO_LAYERS = "RoCE with two layers of switches"
_BUS = "UnifiedBus and RoCE"
_BOTH = ("1.0", "2.0")
_INFERENCE = re.compile(r"\b(A?200I|800I) A2\b", re.IGNORECASE)
_TRAINING = re.compile(r"\b(200T|800T|900) A2\b", re.IGNORECASE)
_WITHOUT_SUPERPOD = re.compile(r"\b(800[IT]|A200T) A3\b", re.IGNORECASE)
_CHIP = re.compile(r"(?:Ascend ?)?910B([1-4])", re.IGNORECASE)
_A2 = {
    ("a2", True): Network("Atlas 800I A2", "RoCE with one or two layers of switches", ("single_layer",), _BOTH),
    ("a2", False): Network("Atlas 800T A2 or Atlas 900 A2 unit", _TWO_LAYERS, _BOTH),
    ("a2", None): Network("Atlas 800 A2 with an unknown chip", _TWO_LAYERS, _BOTH, ("single_layer",)),
    ("box16", True): Network("Atlas 200I A2 Box16", _TWO_LAYERS, (), _BOTH),
    ("box16", False): Network("Atlas 200T A2 Box16", _TWO_LAYERS, _BOTH),
    ("box16", None): Network("Atlas 200 A2 Box16 with an unknown chip", _TWO_LAYERS, _BOTH),
}
_OTHERS = {
    "atlas800_9000": Network("Atlas 800 (model 9000)", _TWO_LAYERS, ("1.0",)),
    "half_910_x4": Network("half an Atlas 800 (model 9000)", _TWO_LAYERS, ("1.0",)),
    "a3": Network("Atlas 900 A3 SuperPoD", _BUS, (SUPERPOD, TREE)),
    "a3_box8": Network("Atlas 9000 A3 SuperPoD", _BUS, (), (SUPERPOD, TREE)),
    "atlas850": Network("Atlas 850 (standard cluster)", "PCIe between hosts"),
    "atlas850_superpod": Network("Atlas 850 (SuperPoD)", _BUS, (SUPERPOD,)),
    "atlas950": Network("Atlas 950 SuperPoD", _BUS, (SUPERPOD,), (TREE,)),
}


def network_of(rule: str, topology: Topology) -> Network:
    """Return the network of a host by the rule of its product, the machine's name and the name of its chips."""
    title = str((topology.get("machine") or {}).get("product") or "")
    if rule.startswith("a3") and (found := _WITHOUT_SUPERPOD.search(title)):
        return Network(f"Atlas {found[0]}", "a network that is not documented")
    if rule in ("a2", "box16"):
        return _A2[rule, _is_inference(title, topology.get("npus") or ())]
    return _OTHERS.get(rule) or Network(RULES[rule].product, "a network that is not documented")


def _is_inference(title: str, npus: Any) -> bool | None:
    if _INFERENCE.search(title) or _TRAINING.search(title):
        return bool(_INFERENCE.search(title))
    chips = {found[1] if (found := _CHIP.match(str(npu.get("name") or ""))) else None for npu in npus}
    return None if len(chips) != 1 or None in chips else chips == {"4"}


def doubt(way: str, rule: str, topology: Topology) -> str:
    """Return what is not confirmed about placing jobs of a product in this way, '' for nothing. ``ValueError``: its network has none."""
    network = network_of(rule, topology)
    if way in network.ways:
        return ""
    if way in network.open:
        return f"MindCluster's documents do not confirm {WAYS[way]} for {network.product} ({network.links})."
    known = [WAYS[known] for known in (*network.ways, *network.open)]
    raise ValueError(
        f"{WAYS[way]}: {network.product} has none, because its hosts are linked by {network.links}; "
        + (f"it has {', '.join(known)}" if known else "place its jobs without affinity between hosts")
        + " (a rule of npu.affinity; MindCluster's scheduler does not check it)"
    )
