# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets, by the rule of its product, or which chip it shares with others.

Source of sharing, by quotas of its cores and of its memory: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip1softsharedev``. Only
jobs of the same policy share a chip. Of the chips in use that still have room, the fullest comes first, and unused ones last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import Rule, RULES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.ways import counted, grouped

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
    return Choice(rule, picked, rule.score(chips, wanted, allocatable or rule.chips, multi))


def mode_of(family: str) -> str | None:
    """Return the mode in the name of a rule for inference cards, None for the others."""
    mode = family.rpartition("_")[2]
    return mode if family.startswith("300I") and mode in MODES else None


def hands_out(family: str, mode: str) -> bool:
    """Whether a rule hands out inference cards by a mode. The 300I Pro has one chip on a card, which is the card."""
    return mode_of(family) == mode or family == "300I_pro" and mode == "card"


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
    beyond = [chip for chip in chips if rule and chip >= rule.chips]
    if rule and beyond:
        raise ValueError(f"free: {rule.product} has chips 0-{rule.chips - 1}, not {compress(beyond)}; name another rule with family")
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
        raise ValueError(f"size not allowed: {job} on {rule.product} cannot have {counted(number, 'NPU')}; ask for {sizes}")
    return number


def _no_fit(rule: Rule, free: Sequence[int], count: int) -> str:
    told = f"{counted(len(free), 'chip')} {'is' if len(free) == 1 else 'are'} free ({compress(free) or 'none'})"
    if rule.group > 1 and len(free) >= count:
        groups = ", ".join(f"{len(chips)} in {rule.word} {number}" for number, chips in grouped(free, rule.group).items())
        told = f"free are {compress(free)}, that is {groups}, and {rule.words} of {rule.group} are not split for that"
    return f"no fit: {rule.product} cannot give {counted(count, 'NPU')} to a task: {told}; wait for other chips, or ask for another number"


CORES = 100
"""The quota of a whole chip, in percent."""


def share(used: Mapping[Any, Mapping[str, Any]], unused: Iterable[int], request: Mapping[str, Any], chip_hbm_mb: int) -> tuple[int, int]:
    """Return the chip and its score.

    ``used`` maps chips to ``{core, hbm, policy}``: percent, MB and the name of the policy; ``request`` is ``{core, hbm_mb, policy}``.
    Raises ``ValueError`` where no chip has room; the sentence names what each lacks.
    """
    core, memory, policy = int(request["core"]), int(request["hbm_mb"]), request["policy"]
    if not 1 <= core <= CORES or not 1 <= memory <= chip_hbm_mb:
        raise ValueError(f"size not allowed: a share of a chip is 1 to {CORES} percent and 1 to {chip_hbm_mb} MB; got {core} and {memory}")
    full = []
    room = []
    for chip, has in sorted((int(chip), has) for chip, has in used.items()):
        if has["policy"] != policy:
            full.append(f"chip {chip} is shared by policy {has['policy']}")
        elif has["core"] + core > CORES or has["hbm"] + memory > chip_hbm_mb:
            full.append(f"chip {chip} has {CORES - has['core']} percent and {chip_hbm_mb - has['hbm']} MB left")
        else:
            room.append((-has["core"], -has["hbm"], chip))
    if room:
        taken, _memory, chip = min(room)
        return chip, _score(-taken, core)
    if chips := sorted(unused):
        return chips[0], _score(0, core)
    raise ValueError(
        f"no fit: no chip has room for {core} percent and {memory} MB under policy {policy}: {', '.join(full) or 'none is known'}; "
        "ask for less, or wait"
    )


def _score(used: int, asked: int) -> int:
    return 16 * (200 - (CORES - used - asked))
