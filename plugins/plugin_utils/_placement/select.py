# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a task gets, by the rule of its product, or which chip it shares with others. Serves the filter ``select_npus``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.table import count as counted
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import Product, chip_of, npus_of, product_of
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES, Rule, grouped

AUTO = "auto"


class Selection(TypedDict):
    """``assumed`` is what was assumed about the product of the host, '' for nothing."""

    family: str
    product: str
    chips: list[int]
    score: int
    reason: str
    assumed: str


class Choice(NamedTuple):
    """``chips`` in the order in which they are taken; ``score`` compares hosts of one product."""

    rule: Rule
    chips: list[int]
    score: int


def select_npus(
    free: Topology | Iterable[int] | str,
    count: int = 1,
    family: str = AUTO,
    multi: bool = False,
    mode: str = "chip",
    allocatable: int | None = None,
    share: Mapping[str, Any] | None = None,
) -> Selection:
    """Return the chips of a task; the arguments are those of the filter.

    ``ValueError`` with a sentence: the size is not allowed, the free chips do not fit, or the product is not known.
    """
    assumed = ""
    logic: dict[int, int] = {}
    if isinstance(free, Mapping):
        topology = cast("Topology", free)
        npus = npus_of(topology)
        logic = {chip_of(npu): int(npu["id"]) for npu in npus if not npu.get("busy")}
        if share is not None:
            return _shared(logic.values(), share)
        family, assumed = product_of(topology, mode) if family == AUTO else Product(family)
        free, allocatable = list(logic), allocatable or len(npus)
    if share is not None:
        return _shared(chip_ids(free), share)
    if family == AUTO:
        raise ValueError(f"family: chip ids do not show the product; name one of {', '.join(RULES)}")
    choice = choose(free, count, family, multi, allocatable)
    chips = [logic.get(chip, chip) for chip in choice.chips]
    return Selection(family=family, product=choice.rule.product, chips=chips, score=choice.score, reason=_reason(choice), assumed=assumed)


def choose(free: Iterable[int] | str, count: object, family: str, multi: bool = False, allocatable: int | None = None) -> Choice:
    """Return the chips that a task gets which asks for ``count`` of the free ones.

    ``allocatable`` is the number of healthy chips of the host, by default all that the product has. Raises ``ValueError``: the size is
    not allowed, or there is no fit; the sentence says what is free and what the rule needs.
    """
    if not isinstance(family, str) or family not in RULES:
        raise ValueError(f"family: expected one of {', '.join(RULES)}; got {family!r}")
    rule = RULES[family]
    chips = chip_ids(free, rule)
    wanted = _size(rule, count, multi)
    picked = rule.pick(chips, wanted, multi)
    if picked is None:
        raise ValueError(_no_fit(rule, chips, wanted))
    return Choice(rule, picked, rule.score(chips, wanted, allocatable or rule.chips, multi))


def chip_ids(free: object, rule: Rule | None = None) -> list[int]:
    """Return chip ids ascending. ``ValueError``: no list of ids, an id twice, or one that the product does not have."""
    ids = expand(free, "free") if isinstance(free, str) else free
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        raise ValueError(f"free: expected a list of chip ids such as [0, 1]; got {free!r}")
    chips = list(ids)
    wrong = [chip for chip in chips if isinstance(chip, bool) or not isinstance(chip, int) or chip < 0]
    if wrong or len(set(chips)) != len(chips):
        raise ValueError(f"free: expected different chip ids such as [0, 1]; got {free!r}")
    if rule and (beyond := [chip for chip in chips if chip >= rule.chips]):
        raise ValueError(f"free: {rule.product} has chips 0-{rule.chips - 1}, not {compress(beyond)}; name another rule with family")
    return sorted(chips)


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
    why = f"{counted(len(free), 'chip')} {'is' if len(free) == 1 else 'are'} free ({compress(free) or 'none'})"
    if rule.group > 1 and len(free) >= count:
        groups = ", ".join(f"{len(chips)} in {rule.word} {number}" for number, chips in grouped(free, rule.group).items())
        why = f"free are {compress(free)}, that is {groups}, and {rule.words} of {rule.group} are not split for that"
    return f"no fit: {rule.product} cannot give {counted(count, 'NPU')} to a task: {why}; wait for other chips, or ask for another number"


def _reason(choice: Choice) -> str:
    rule = choice.rule
    chips = compress(choice.chips).replace(",", ", ")
    if rule.group == 1:
        return f"Chips {chips} are the lowest free ids; all chips of {rule.product} are alike."
    groups = {chip // rule.group for chip in choice.chips}
    numbers = compress(groups).replace(",", ", ")
    loose = f" MindCluster guarantees no affinity for {len(choice.chips)} chips." if len(choice.chips) in rule.loose else ""
    return f"Chips {chips} are in {rule.word if len(groups) == 1 else rule.words} {numbers} of {rule.product}.{loose}"


CORES = 100
"""The quota of a whole chip, in percent."""


def _shared(unused: Iterable[int], share: Mapping[str, Any]) -> Selection:
    """Return the chip to share, by quotas of its cores and of its memory.

    Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/chip1softsharedev``. Only jobs of the same policy share a chip. Of the
    chips in use that still have room, the fullest comes first, and unused ones last.

    In ``share``, ``used`` maps chips to ``{core, hbm, policy}``: percent, MB and the name of the policy; ``request`` is ``{core, hbm_mb,
    policy}``. Raises ``ValueError`` where no chip has room; the sentence names what each lacks.
    """
    if missing := [name for name in ("request", "chip_hbm_mb") if name not in share]:
        raise ValueError(f"share: {' and '.join(missing)} is missing; expected used, request {{core, hbm_mb, policy}} and chip_hbm_mb")
    request, most = share["request"], int(share["chip_hbm_mb"])
    core, memory, policy = int(request["core"]), int(request["hbm_mb"]), request["policy"]
    if not 1 <= core <= CORES or not 1 <= memory <= most:
        raise ValueError(f"size not allowed: a share of a chip is 1 to {CORES} percent and 1 to {most} MB; got {core} and {memory}")
    full, room = [], []
    used = {int(chip): usage for chip, usage in (share.get("used") or {}).items()}
    for chip, usage in sorted(used.items()):
        if usage["policy"] != policy:
            full.append(f"chip {chip} is shared by policy {usage['policy']}")
        elif usage["core"] + core > CORES or usage["hbm"] + memory > most:
            full.append(f"chip {chip} has {CORES - usage['core']} percent and {most - usage['hbm']} MB left")
        else:
            room.append((-usage["core"], -usage["hbm"], chip))
    room = room or [(0, 0, chip) for chip in unused if chip not in used]
    if not room:
        raise ValueError(
            f"no fit: no chip has room for {core} percent and {memory} MB under policy {policy}: {', '.join(full) or 'none is known'}; "
            "ask for less, or wait"
        )
    in_use, _memory, chip = min(room)
    reason = f"Chip {chip} has room for {request['core']} percent and {request['hbm_mb']} MB under policy {policy}."
    score = 16 * (200 - (CORES + in_use - core))
    return Selection(family="soft_share", product="a shared chip", chips=[chip], score=score, reason=reason, assumed="")
