# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which npu-smi calls bring the device share of chips from one state to another, and what its answers mean. Pure.

A state is ``{card: {chip: True|False|None}}``; None is not known. Rules of the tool: hicann/driver ``npucli`` and ``dcmi_inner``. Chips
are switched one by one on the 310 families only; elsewhere a card has one chip, or (A3) its dies change together.

The driver's own recovery after a reboot is left alone: it restores cards 0 to 7 only, and none of A3, and damages its file where a recorded
line is replaced. The boot unit sets device share again instead.
"""

from __future__ import annotations

import re
from typing import Any, Container, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence

from ..._base.cpulist import compress
from ..._npu_smi import find_error
from ..._smi.tool import Refusal

_FAILED = re.compile(r"^\s*Status\s*:\s*Fail", re.MULTILINE | re.IGNORECASE)

Chips = Dict[int, Optional[bool]]
State = Dict[int, Chips]
Wanted = Dict[int, Dict[int, bool]]


class Call(NamedTuple):
    """One call of npu-smi: for a whole card (``chip`` None), or a chip."""

    card: int
    chip: int | None
    enabled: bool

    @property
    def words(self) -> list[str]:
        chip = [] if self.chip is None else ["-c", str(self.chip)]
        return ["set", "-t", "device-share", "-i", str(self.card), *chip, "-d", "1" if self.enabled else "0"]


def plan_changes(current: State, wanted: Wanted, by_chip: Container[int] = ()) -> list[Call]:
    """Return the least :class:`Call` list, cards ascending.

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
            changes.append(Call(card, None, values.pop()))
        else:
            changes.extend(Call(card, chip, enabled) for chip, enabled in setting.items())
    return changes


def select(cards: Mapping[int, Sequence[int]], chosen: Sequence[Any], missing: list[str] | None = None) -> dict[int, list[int]]:
    """Return ``{card: [chips]}`` of the cards and chips chosen among ``cards`` (the same shape); nothing chosen means all.

    A choice is an NPU ID, or ``{card, chip}``. Raises ``ValueError`` naming what the host does not have; ``missing`` gets the sentence
    on a card that is not there instead.
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
            absent = "npu_affinity_device_share_npus: there is no card %d; npu-smi knows cards %s" % (card, compress(cards) or "none")
            if missing is None:
                raise ValueError(absent)
            missing.append(absent)
            continue
        if chip is not None and chip not in cards[card]:
            raise ValueError(
                "npu_affinity_device_share_npus: card %d has no chip %d; it has chips %s" % (card, chip, compress(cards[card]))
            )
        selected.setdefault(card, set()).update(cards[card] if chip is None else [chip])
    return {card: sorted(chips) for card, chips in sorted(selected.items())}


class Cards:
    """The cards of a host: ``chips`` is ``{card: [chips]}``, ``by_chip`` those whose chips are switched one by one.

    ``rows`` are those of ``info -m``, or NPUs of the fact ``npu_affinity_topology``.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.chips: dict[int, list[int]] = {}
        self.by_chip: set[int] = set()
        for row in rows:
            self.chips.setdefault(row["card"], []).append(row["chip"] or 0)
            family, name = row.get("family"), row.get("name") or ""
            if "310" in (family or name):
                self.by_chip.add(row["card"])

    @classmethod
    def of_topology(cls, topology: Mapping[str, Any]) -> Cards:
        return cls([npu for npu in topology["npus"] if npu["kind"] == "npu" and npu["card"] is not None])


def states(rows: Iterable[Mapping[str, Any]], card: int | None = None, chip: int | None = None) -> State:
    """Return ``{card: {chip: True|False|None}}`` of the rows of ``parse_device_share``.

    An answer for one chip repeats neither card nor chip, one of A5 no chip: they are those that were asked for, chip 0 by default.
    """
    found: State = {}
    for row in rows:
        number: Any = card if row["card"] is None else row["card"]
        found.setdefault(number, {})[(chip or 0) if row["chip"] is None else row["chip"]] = row["enabled"]
    return found


def refusal(output: str, exit_status: int | None) -> Refusal | None:
    """Return what the output of a set command says against it, or None.

    npu-smi ends with 0 where a product can't do it, says OK where nothing was recorded, and stops half-way when a container holds one chip
    of a card. So this only says what went wrong; what is right, a second query says.
    """
    error = find_error(output, exit_status)
    if error:
        return Refusal(error.kind, str(error))
    return Refusal("unavailable", "npu-smi reports 'Status : Fail' without a reason") if _FAILED.search(output) else None
