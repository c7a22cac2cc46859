# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which product a host is, and so by which rule its chips are handed out.

Source for the Ascend 950: Ascend/mind-cluster@22bb3d98, ``docs/zh/faultdiag/ascend-faultdiag-toolkit/01_introduction`` (the Atlas 350 has
the Ascend 950PR, the Atlas 850 and the Atlas 950 SuperPoD have the Ascend 950DT). What the facts of a host leave open is an assumption.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.choice import MODES, chip_of, mode_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Topology

VARIABLE = "npu_affinity_labels.product"
"""The variable of the inventory that names the rule of a host; it is its label ``product``."""
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


def product_of(topology: Topology, mode: str = "chip", labels: Mapping[str, Any] | None = None, wanted: str = "auto") -> Product:
    """Return the product of a host by its topology and its labels ``product`` and ``superpod``.

    ``wanted``, the name of a rule, decides where the facts leave it open. Raises ``ValueError``: no NPU, several families, no rule for
    them, or a label that does not fit.
    """
    npus = [npu for npu in topology.get("npus") or () if npu.get("kind", "npu") == "npu"]
    families = sorted({str(npu.get("family") or "") for npu in npus})
    if not npus:
        raise ValueError("The host has no NPU to choose from; GPUs have no published rule")
    if len(families) > 1:
        raise ValueError(f"The host has NPUs of the families {', '.join(families)}; name the rule with family")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {', '.join(MODES)}; got {mode!r}")
    chips = max(len(npus), 1 + max(chip_of(npu) for npu in npus))
    labels = labels or {}
    if labels.get("product") is not None:
        return _named(str(labels["product"]), families[0], chips)
    if families[0] == "a5":
        return _of_950(topology, npus, chips, wanted, labels.get("superpod") is not None)
    two_chips = any((npu.get("chip") or 0) > 0 for npu in npus)
    by_size = {
        "910": ((2, "card_910_x2"), (4, "half_910_x4"), (8, "atlas800_9000")),
        "a2": ((8, "a2"), (16, "box16")),
        "a3": ((8, "a3_box8"), (16, "a3")),
        "310": ((64, "300I_card" if mode == "card" else "300I_chip"),),
        "310p": ((32, f"300I_duo_{mode}"),) if two_chips else ((64, "300I_pro"),),
    }
    for most, name in by_size.get(families[0], ()):
        if chips <= most:
            return Product(name)
    raise ValueError(
        f"No rule is known for {chips} chips of the family {families[0] or 'unknown'}; name one with family: {', '.join(RULES)}"
    )


def _named(name: str, family: str, chips: int) -> Product:
    fitting = [rule.name for rule in RULES.values() if rule.family == family and chips <= rule.chips and mode_of(rule.name) is None]
    if name not in fitting:
        raise ValueError(
            f"{VARIABLE} is {name!r}; a host with {chips} chips of the family {family or 'unknown'} can be {', '.join(fitting) or 'none'}"
        )
    return Product(name)


def _of_950(topology: Topology, npus: Sequence[Npu], chips: int, wanted: str, in_superpod: bool) -> Product:
    title = str((topology.get("machine") or {}).get("product") or "")
    names = sorted({str(npu.get("name") or "") for npu in npus})
    told = f"product {title or 'unknown'}, NPUs {', '.join(filter(None, names)) or 'without a name'}"
    if found := _ATLAS.search(title):
        known = _BY_PRODUCT[found[1]]
    else:
        known = _BY_CHIP.get(names[0], _OF_350 + _OF_850 + _OF_950) if len(names) == 1 else _OF_350 + _OF_850 + _OF_950
    fitting = [RULES[name] for name in known if chips <= RULES[name].chips]
    if in_superpod or "superpod" in title.lower():
        fitting = [rule for rule in fitting if rule.superpod] or fitting
    if not fitting:
        raise ValueError(f"No rule is known for {chips} chips of the Ascend 950 ({told}); name one with family: {', '.join(RULES)}")
    if wanted in (rule.name for rule in fitting):
        return Product(wanted)
    least = min(rule.chips for rule in fitting)
    open_between = [rule.name for rule in fitting if rule.chips == least]
    if len(open_between) == 1:
        return Product(open_between[0])
    return Product(
        open_between[0],
        f"The facts of the host ({told}) fit {', '.join(open_between[:-1])} and {open_between[-1]}, and {open_between[0]} is assumed; set "
        f"{VARIABLE} in the inventory, or name the family",
    )
