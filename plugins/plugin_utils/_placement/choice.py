# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets, by the rule of its product.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.groups import counted, grouped
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES, Rule

MODES = ("chip", "card", "distributed")
"""How chips of inference cards are handed out, as MindCluster's label ``npu-310-strategy`` and distributed inference say it."""


@dataclass(frozen=True)
class Choice:
    """``chips`` in the order in which they are taken; ``score`` compares hosts of one product."""

    rule: Rule
    chips: list[int]
    score: int


def choose(free: Iterable[int] | str, count: object, family: str, multi: bool = False, allocatable: int | None = None) -> Choice:
    """Return the chips that a task gets which asks for ``count`` of the free ones.

    ``allocatable`` is the number of healthy chips of the host, by default all that the product has. Raises ``ValueError``: the size is
    not allowed, or there is no fit; the sentence says what is free and what the rule needs.
    """
    rule = _rule(family)
    chips = chip_ids(free, rule)
    wanted = _size(rule, count, multi)
    picked = rule.pick(chips, wanted, multi)
    if picked is None:
        raise ValueError(_no_fit(rule, chips, wanted))
    return Choice(rule, picked, rule.score(chips, wanted, allocatable or rule.CHIPS, multi))


def mode_of(family: str) -> str | None:
    """Return the mode in the name of a rule for inference cards, None for the others."""
    mode = family.rpartition("_")[2]
    return mode if family.startswith("300I") and mode in MODES else None


def hands_out(family: str, mode: str) -> bool:
    """Whether a rule hands out inference cards by a mode. The 300I Pro has one chip on a card, which is the card."""
    return mode_of(family) == mode or family == "300I_pro" and mode == "card"


def family_of(topology: Mapping[str, Any], mode: str = "chip") -> str:
    """Return the name of the rule for the NPUs of a topology. ``ValueError``: no NPU, several families, or one without a rule."""
    npus = [npu for npu in topology.get("npus") or () if npu.get("kind", "npu") == "npu"]
    families = sorted({str(npu.get("family") or "") for npu in npus})
    if not npus:
        raise ValueError("The host has no NPU to choose from; GPUs have no published rule")
    if len(families) > 1:
        raise ValueError(f"The host has NPUs of the families {', '.join(families)}; name the rule with family")
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {', '.join(MODES)}; got {mode!r}")
    chips = max(len(npus), 1 + max(chip_of(npu) for npu in npus))
    two_chips = any((npu.get("chip") or 0) > 0 for npu in npus)
    by_size = {
        "910": ((2, "card_910_x2"), (4, "half_910_x4"), (8, "atlas800_9000")),
        "a2": ((8, "a2"), (16, "box16")),
        "a3": ((8, "a3_box8"), (16, "a3")),
        "a5": ((16, "mesh4"),),
        "310": ((64, "300I_card" if mode == "card" else "300I_chip"),),
        "310p": ((32, f"300I_duo_{mode}"),) if two_chips else ((64, "300I_pro"),),
    }
    for most, name in by_size.get(families[0], ()):
        if chips <= most:
            return name
    raise ValueError(
        f"No rule is known for {chips} chips of the family {families[0] or 'unknown'}; name one with family: {', '.join(RULES)}"
    )


def chip_of(npu: Mapping[str, Any]) -> int:
    """Return the number by which the rules know a chip: its physical id, which does not move when another card drops off the bus."""
    physical = npu.get("phy_id")
    return int(npu["id"] if physical is None else physical)


def chip_ids(free: object, rule: Rule | None = None) -> list[int]:
    """Return chip ids ascending. ``ValueError``: no list of ids, an id twice, or one that the product does not have."""
    ids = expand(free, "free") if isinstance(free, str) else free
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        raise ValueError(f"free: expected a list of chip ids such as [0, 1]; got {free!r}")
    chips = list(ids)
    wrong = [chip for chip in chips if isinstance(chip, bool) or not isinstance(chip, int) or chip < 0]
    if wrong or len(set(chips)) != len(chips):
        raise ValueError(f"free: expected different chip ids such as [0, 1]; got {free!r}")
    beyond = [chip for chip in chips if rule and chip >= rule.CHIPS]
    if rule and beyond:
        raise ValueError(f"free: {rule.PRODUCT} has chips 0-{rule.CHIPS - 1}, not {compress(beyond)}; name another rule with family")
    return sorted(chips)


def _rule(family: object) -> Rule:
    if not isinstance(family, str) or family not in RULES:
        raise ValueError(f"family: expected one of {', '.join(RULES)}; got {family!r}")
    return RULES[family]


def _size(rule: Rule, count: object, multi: bool) -> int:
    number = int(count) if isinstance(count, str) and count.strip().isdecimal() else count
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"count: expected a number of NPUs, 1 or more; got {count!r}")
    allowed = rule.sizes(multi)
    if number not in allowed:
        job = "a task of a job with several tasks" if multi else "a task"
        sizes = compress(allowed).replace(",", ", ")
        raise ValueError(f"size not allowed: {job} on {rule.PRODUCT} cannot have {counted(number, 'NPU')}; ask for {sizes}")
    return number


def _no_fit(rule: Rule, free: Sequence[int], count: int) -> str:
    told = f"{counted(len(free), 'chip')} {'is' if len(free) == 1 else 'are'} free ({compress(free) or 'none'})"
    if rule.GROUP > 1 and len(free) >= count:
        groups = ", ".join(f"{len(chips)} in {rule.WORD} {number}" for number, chips in grouped(free, rule.GROUP).items())
        told = f"free are {compress(free)}, that is {groups}, and {rule.WORDS} of {rule.GROUP} are not split for that"
    return f"no fit: {rule.PRODUCT} cannot give {counted(count, 'NPU')} to a task: {told}; wait for other chips, or ask for another number"
