# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which npu-smi calls bring the device share of chips from one state to another. Pure: states in, calls out.

A state is ``{card: {chip: True|False|None}}``; None is not known. Rules of the tool: hicann/driver ``npucli`` and ``dcmi_inner``. Chips
are switched one by one on the 310 families only; elsewhere a card has one chip, or (A3) its dies change together.

The driver's own recovery after a reboot is left alone: it restores cards 0 to 7 only, and none of A3, and damages its file where a recorded
line is replaced. The boot unit sets device share again instead.
"""

from __future__ import annotations

import re
from typing import Any, Container, Dict, Mapping, NamedTuple, Optional, Sequence

from ..._base.cpulist import compress

OLDEST_DRIVER = "25.5"
"""The first driver whose device share serves soft split."""


Chips = Dict[int, Optional[bool]]
State = Dict[int, Chips]
Wanted = Dict[int, Dict[int, bool]]


class Report:
    """What was (or in check mode would be) done.

    ``before`` and ``after`` are states ``{card: {chip: True|False|None}}``, ``wanted`` what they should be; ``files`` are those of the
    driver's recovery before, ``{path: record or None}``, and ``restored`` those that a restore has restored; ``busy`` lists the cards that
    a container holds; ``failed`` has a sentence for every card that is not as wanted.
    """

    def __init__(self) -> None:
        self.before: State = {}
        self.files: dict[str, Any] = {}
        self.restored: list[str] = []
        self.after: State = {}
        self.wanted: Wanted = {}
        self.busy: list[int] = []
        self.warnings: list[str] = []
        self.failed: dict[int, str] = {}

    @property
    def changed(self) -> bool:
        return self.before != self.after or bool(self.restored)


class Change(NamedTuple):
    """One call of npu-smi: for a whole card (``chip`` None), or a chip."""

    card: int
    chip: int | None
    enabled: bool

    @property
    def words(self) -> list[str]:
        chip = [] if self.chip is None else ["-c", str(self.chip)]
        return ["set", "-t", "device-share", "-i", str(self.card), *chip, "-d", "1" if self.enabled else "0"]


def plan_changes(current: State, wanted: Wanted, by_chip: Container[int] = ()) -> list[Change]:
    """Return the least :class:`Change` list, cards ascending.

    ``wanted`` names only the chips that matter; ``by_chip`` the cards whose chips can be switched one by one. Raises ``ValueError`` if
    chips that change together should differ.
    """
    changes = []
    for card in sorted(wanted):
        chips, have = wanted[card], current.get(card, {})
        setting = {chip: enabled for chip, enabled in sorted(chips.items()) if have.get(chip) is not enabled}
        values = set(setting.values())
        if card not in by_chip and (set(chips) < set(have) or len(set(chips.values())) > 1):
            raise ValueError(
                "card %d: its chips %s change together; name the card without a chip, and one state for it" % (card, compress(have))
            )
        if len(values) == 1 and (card not in by_chip or set(setting) >= set(have)):
            changes.append(Change(card, None, values.pop()))
        else:
            changes.extend(Change(card, chip, enabled) for chip, enabled in setting.items())
    return changes


def select(cards: Mapping[int, Sequence[int]], chosen: Sequence[Any]) -> dict[int, list[int]]:
    """Return ``{card: [chips]}`` of the cards and chips chosen among ``cards`` (the same shape); nothing chosen means all.

    A choice is an NPU ID, or ``{card, chip}``. Raises ``ValueError`` naming what the host does not have.
    """
    if not chosen:
        return {card: list(chips) for card, chips in cards.items()}
    selected: dict[int, set[int]] = {}
    for choice in chosen:
        named = choice if isinstance(choice, dict) else {"card": choice}
        try:
            card, chip = int(named["card"]), None if named.get("chip") is None else int(named["chip"])
        except (KeyError, TypeError, ValueError):
            card = None
        if card is None or not set(named) <= {"card", "chip"}:
            raise ValueError("npu_affinity_device_share_npus: '%s' is neither a card (its NPU ID) nor {card: ..., chip: ...}" % (choice,))
        if card not in cards:
            raise ValueError(
                "npu_affinity_device_share_npus: there is no card %d; npu-smi knows cards %s" % (card, compress(cards) or "none")
            )
        if chip is not None and chip not in cards[card]:
            raise ValueError(
                "npu_affinity_device_share_npus: card %d has no chip %d; it has chips %s" % (card, chip, compress(cards[card]))
            )
        selected.setdefault(card, set()).update(cards[card] if chip is None else [chip])
    return {card: sorted(chips) for card, chips in selected.items()}


def is_older(version: str, other: str) -> bool:
    """Whether a driver version is older than another one; release candidates come before the release (``26.0.rc2`` < ``26.0``)."""
    return _order(version) < _order(other)


def _order(version: str) -> tuple[list[int], list[float]]:
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"\.rc", version.lower())[0])]
    candidate: list[float] = [int(number) for number in re.findall(r"\d+", "".join(re.split(r"\.rc", version.lower())[1:]))]
    return (numbers + [0] * 4)[:4], candidate or [float("inf")]
