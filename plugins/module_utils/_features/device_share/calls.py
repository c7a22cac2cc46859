# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which npu-smi calls bring the device share of chips from one state to another, and what its answers mean. Pure.

A state is ``{chip: True|False|None}``; None is not known. Rules of the tool: hicann/driver ``npucli`` and ``dcmi_inner``. Chips
are switched one by one on the 310 families only; elsewhere a card has one chip, or (A3) its dies change together.

The driver's own recovery after a reboot is left alone: it restores cards 0 to 7 only, and none of A3, and damages its file where a recorded
line is replaced. The boot unit sets device share again instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Sequence

from ..._base.cpulist import compress
from ..._npu_smi import find_error
from ..._smi.tool import Refusal

if TYPE_CHECKING:
    from ..._base.documents import Topology

_FAILED = re.compile(r"^\s*Status\s*:\s*Fail", re.MULTILINE | re.IGNORECASE)

Chips = Dict[int, Optional[bool]]


def calls_for(card: int, current: Chips, wanted: Mapping[int, bool], by_chip: bool) -> list[list[str]]:
    """Return the arguments of the fewest calls that bring chips of a card from ``current`` to ``wanted``, which names those that matter.

    ``by_chip``: whether they can be switched one by one. Raises ``ValueError`` if chips that change together should differ.
    """
    if not by_chip and (set(wanted) < set(current) or len(set(wanted.values())) > 1):
        raise ValueError(
            "card %d: its chips %s change together; name the card without a chip, and one state for it" % (card, compress(current))
        )
    setting = {chip: enabled for chip, enabled in sorted(wanted.items()) if current.get(chip) is not enabled}
    start = ["set", "-t", "device-share", "-i", str(card)]
    if len(set(setting.values())) == 1 and (not by_chip or set(setting) >= set(current)):
        return [[*start, "-d", str(int(setting.popitem()[1]))]]
    return [[*start, "-c", str(chip), "-d", str(int(enabled))] for chip, enabled in setting.items()]


def select(cards: Mapping[int, Sequence[int]], chosen: Sequence[Any], missing: list[str] | None = None) -> dict[int, list[int]]:
    """Return ``{card: [chips]}`` of the cards and chips chosen among ``cards`` (the same shape); nothing chosen means all.

    A choice is an NPU ID, or ``{card, chip}``. Raises ``ValueError`` naming what the host does not have; ``missing`` gets the sentence
    on a card that is not there instead.
    """
    if not chosen:
        return {card: list(chips) for card, chips in cards.items()}
    selected: dict[int, set[int]] = {}
    for choice in chosen:
        ids = choice if isinstance(choice, dict) else {"card": choice}
        try:
            card, chip = int(ids["card"]), None if ids.get("chip") is None else int(ids["chip"])
        except (KeyError, TypeError, ValueError):
            card = None
        if card is None or not set(ids) <= {"card", "chip"}:
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
            if "310" in (row.get("family") or row.get("name") or ""):
                self.by_chip.add(row["card"])

    @classmethod
    def of_topology(cls, topology: Topology) -> Cards:
        return cls([npu for npu in topology["npus"] if npu["kind"] == "npu" and npu["card"] is not None])


def refusal(output: str, exit_status: int | None) -> Refusal | None:
    """Return what the output of a set command says against it, or None.

    npu-smi ends with 0 where a product can't do it, says OK where nothing was recorded, and stops half-way when a container holds one chip
    of a card. So this only says what went wrong; what is right, a second query says.
    """
    error = find_error(output, exit_status)
    if error:
        return Refusal(error.kind, str(error))
    return Refusal("unavailable", "npu-smi reports 'Status : Fail' without a reason") if _FAILED.search(output) else None
