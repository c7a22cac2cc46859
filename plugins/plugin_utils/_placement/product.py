# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which product a host is: by which rule its chips are handed out, and by which affinity between hosts its network can place jobs.

What the facts of a host leave open is an assumption. Sources, in Ascend/mind-cluster@22bb3d98: for the Ascend 950
``docs/zh/faultdiag/ascend-faultdiag-toolkit/01_introduction`` (the Atlas 350 has the Ascend 950PR, the Atlas 850 and the Atlas 950 SuperPoD
have the Ascend 950DT), for networks "Affinity Scheduling" and "YAML Configuration". MindCluster's scheduler does not check the network of a
product: to refuse the others is a rule of npu.affinity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

VARIABLE = "npu_affinity_labels.product"
"""The variable of the inventory that names the rule of a host; it is its label ``product``."""
MODES = ("chip", "card", "distributed")
"""How chips of inference cards are handed out, as MindCluster's label ``npu-310-strategy`` and distributed inference say it."""
_ATLAS = re.compile(r"\batlas\s*(350|850|950)", re.IGNORECASE)
_OF_350 = ("mesh4_8", "atlas350_8", "mesh4", "atlas350_16")
_OF_850 = ("atlas850", "atlas850_superpod")
_OF_950 = ("atlas950",)
_BY_PRODUCT = {"350": _OF_350, "850": _OF_850, "950": _OF_950}
_BY_CHIP = {"Ascend950PR": _OF_350, "Ascend950DT": _OF_850 + _OF_950}


class Product(NamedTuple):
    """The name of a host's rule. ``assumed`` is a sentence about what the facts of the host do not tell, '' where they tell all."""

    rule: str
    assumed: str = ""


def npus_of(topology: Topology) -> list[Npu]:
    return [npu for npu in topology.get("npus") or () if npu.get("kind", "npu") == "npu"]


def chip_of(npu: Npu) -> int:
    """Return the number by which the rules know a chip: its physical id, which does not move when another card drops off the bus."""
    physical = npu.get("phy_id")
    return int(npu["id"] if physical is None else physical)


def mode_of(family: str) -> str | None:
    """Return the mode in the name of a rule for inference cards, None for the others."""
    mode = family.rpartition("_")[2]
    return mode if family.startswith("300I") and mode in MODES else None


def product_of(topology: Topology, mode: str = "chip", labels: Mapping[str, Any] | None = None, wanted: str = "auto") -> Product:
    """Return the product of a host by its topology and its labels ``product`` and ``superpod``.

    ``wanted``, the name of a rule, decides where the facts leave it open. Raises ``ValueError``: no NPU, several families, no rule for
    them, or a label that does not fit.
    """
    npus = npus_of(topology)
    families = sorted({str(npu.get("family") or "") for npu in npus})
    if not npus:
        raise ValueError("The host has no NPU to choose from; GPUs have no published rule")
    if len(families) > 1:
        raise ValueError(f"The host has NPUs of the families {', '.join(families)}; name the rule with family")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {', '.join(MODES)}; got {mode!r}")
    (family,) = families
    chips = max(len(npus), 1 + max(map(chip_of, npus)))
    labels = labels or {}
    if labels.get("product") is not None:
        fitting = [rule.name for rule in RULES.values() if rule.family == family and chips <= rule.chips and mode_of(rule.name) is None]
        if (name := str(labels["product"])) in fitting:
            return Product(name)
        raise ValueError(
            f"{VARIABLE} is {name!r}; a host with {chips} chips of the family {family or 'unknown'} can be {', '.join(fitting) or 'none'}"
        )
    if family == "a5":
        return _of_950(topology, npus, chips, wanted, labels.get("superpod") is not None)
    two_chips = any((npu.get("chip") or 0) > 0 for npu in npus)
    by_size = {
        "910": ((2, "card_910_x2"), (4, "half_910_x4"), (8, "atlas800_9000")),
        "a2": ((8, "a2"), (16, "box16")),
        "a3": ((8, "a3_box8"), (16, "a3")),
        "310": ((64, "300I_card" if mode == "card" else "300I_chip"),),
        "310p": ((32, f"300I_duo_{mode}"),) if two_chips else ((64, "300I_pro"),),
    }
    for most, name in by_size.get(family, ()):
        if chips <= most:
            return Product(name)
    raise ValueError(f"No rule is known for {chips} chips of the family {family or 'unknown'}; name one with family: {', '.join(RULES)}")


def _of_950(topology: Topology, npus: Sequence[Npu], chips: int, wanted: str, in_superpod: bool) -> Product:
    title = _title(topology)
    names = sorted({str(npu.get("name") or "") for npu in npus})
    facts = f"product {title or 'unknown'}, NPUs {', '.join(filter(None, names)) or 'without a name'}"
    if match := _ATLAS.search(title):
        candidates = _BY_PRODUCT[match[1]]
    else:
        candidates = _BY_CHIP.get(names[0] if len(names) == 1 else "", _OF_350 + _OF_850 + _OF_950)
    fitting = [RULES[name] for name in candidates if chips <= RULES[name].chips]
    if in_superpod or "superpod" in title.lower():
        fitting = [rule for rule in fitting if rule.superpod] or fitting
    if not fitting:
        raise ValueError(f"No rule is known for {chips} chips of the Ascend 950 ({facts}); name one with family: {', '.join(RULES)}")
    if wanted in (rule.name for rule in fitting):
        return Product(wanted)
    least = min(rule.chips for rule in fitting)
    first, *others = [rule.name for rule in fitting if rule.chips == least]
    if not others:
        return Product(first)
    return Product(
        first,
        f"The facts of the host ({facts}) fit {', '.join([first, *others[:-1]])} and {others[-1]}, and {first} is assumed; "
        f"set {VARIABLE} in the inventory, or name the family",
    )


def _title(topology: Topology) -> str:
    return str((topology.get("machine") or {}).get("product") or "")


SUPERPOD, TREE = "superpod", "tree"
AFFINITIES = {
    "1.0": "switch affinity 1.0",
    "2.0": "switch affinity 2.0",
    "single_layer": "affinity to a single layer of switches",
    SUPERPOD: "SuperPods",
    TREE: "network trees",
}


class Network(NamedTuple):
    """``documented`` are the keys of :data:`AFFINITIES` that a network has, ``unconfirmed`` those that the documents leave open."""

    product: str
    links: str
    documented: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()


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
"""By the rule, and whether the host is for inference."""
_OTHERS = {
    "atlas800_9000": Network("Atlas 800 (model 9000)", _TWO_LAYERS, ("1.0",)),
    "half_910_x4": Network("half an Atlas 800 (model 9000)", _TWO_LAYERS, ("1.0",)),
    "a3": Network("Atlas 900 A3 SuperPoD", _BUS, (SUPERPOD, TREE)),
    "a3_box8": Network("Atlas 9000 A3 SuperPoD", _BUS, (), (SUPERPOD, TREE)),
    "atlas850": Network("Atlas 850 (standard cluster)", "PCIe between hosts"),
    "atlas850_superpod": Network("Atlas 850 (SuperPoD)", _BUS, (SUPERPOD,)),
    "atlas950": Network("Atlas 950 SuperPoD", _BUS, (SUPERPOD,), (TREE,)),
}


def _network_of(rule: str, topology: Topology) -> Network:
    title = _title(topology)
    if rule.startswith("a3") and (match := _WITHOUT_SUPERPOD.search(title)):
        return Network(f"Atlas {match[0]}", "a network that is not documented")
    if rule not in ("a2", "box16"):
        return _OTHERS.get(rule) or Network(RULES[rule].product, "a network that is not documented")
    if _INFERENCE.search(title) or _TRAINING.search(title):
        return _A2[rule, bool(_INFERENCE.search(title))]
    chips = {match[1] if (match := _CHIP.match(str(npu.get("name") or ""))) else None for npu in topology.get("npus") or ()}
    return _A2[rule, None if len(chips) != 1 or None in chips else chips == {"4"}]


def unconfirmed(affinity: str, rule: str, topology: Topology) -> str:
    """Return what is not confirmed about placing jobs of a product by an affinity, '' for nothing. ``ValueError``: its network has none."""
    network = _network_of(rule, topology)
    if affinity in network.documented:
        return ""
    if affinity in network.unconfirmed:
        return f"MindCluster's documents do not confirm {AFFINITIES[affinity]} for {network.product} ({network.links})."
    others = ", ".join(AFFINITIES[other] for other in (*network.documented, *network.unconfirmed))
    raise ValueError(
        f"{AFFINITIES[affinity]}: {network.product} has none, because its hosts are linked by {network.links}; "
        + (f"it has {others}" if others else "place its jobs without affinity between hosts")
        + " (a rule of npu.affinity; MindCluster's scheduler does not check it)"
    )
