# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets, by the rule of each product, one file each; a new file in this folder is a new rule.

Source: Ascend/mind-cluster@22bb3d98, ``component/ascend-for-volcano/internal/npu`` and the document "Affinity Scheduling". The aims of
these rules are few fragments (large blocks stay whole) and little traffic (same card, then HCCS, then PCIe).

This package is private to the collection.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils.placement._groups import counted, grouped


class Rule(Protocol):
    """What every file of this folder has. ``free`` is ascending, ``multi`` says that the job has several tasks."""

    NAME: str
    PRODUCT: str
    CHIPS: int
    """The most chips that a host of the product has."""
    GROUP: int
    """Chips of a group: numbers from a multiple of this."""
    WORD: str
    WORDS: str
    """What a group and groups are called."""

    def sizes(self, multi: bool) -> Collection[int]:
        """Return the numbers of chips that a task may ask for."""

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        """Return the chips in the order in which they are taken, None where none fit. ``count`` is one of the sizes."""

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return how well a host suits, the most suitable first; 0 where the rule has no score or does not fit."""


@dataclass(frozen=True)
class Choice:
    """``chips`` in the order in which they are taken; ``score`` compares hosts of one product."""

    rule: Rule
    chips: list[int]
    score: int


def _discover() -> dict[str, Rule]:
    modules = (
        cast(Rule, importlib.import_module(f"{__name__}.{module.name}"))
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("_")
    )
    return {rule.NAME: rule for rule in sorted(modules, key=lambda rule: rule.NAME)}


RULES = _discover()
MODES = ("chip", "card", "distributed")
"""How chips of inference cards are handed out, as MindCluster's label ``npu-310-strategy`` and distributed inference say it."""


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


def node_score(free: Iterable[int] | str, count: object, family: str, multi: bool = False, allocatable: int | None = None) -> int:
    """Return the score of a host, whether its chips fit or not. ``ValueError``: the size is not allowed."""
    rule = _rule(family)
    return rule.score(chip_ids(free, rule), _size(rule, count, multi), allocatable or rule.CHIPS, multi)


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
