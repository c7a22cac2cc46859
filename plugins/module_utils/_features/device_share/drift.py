# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the device share of cards with what is wanted. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence

from ..._base.cpulist import compress
from ..._base.findings import CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, UNREADABLE, Cause, Device, Findings
from ..._smi.tool import Refusal
from ..feature import Comparing
from .calls import Cards
from .sharing import OFF, ON, Shares, ids_of

if TYPE_CHECKING:
    from ..._base.documents import DeviceShareLive, PlanEntry

_NO_ANSWER = Cause(UNREADABLE, "it did not answer; run 'npu-smi info'")


def compare(comparing: Comparing, wanted: DeviceShareLive) -> None:
    """Compare the device share of every card. The topology saves asking for cards."""
    host, findings = comparing.host, comparing.findings
    if not any(Device.of(npu).kind == "npu" for npu in comparing.plan["npus"]):
        return
    topology = comparing.wanted.topology
    known = Cards.of_topology(topology) if topology else None
    shares = Shares(comparing.wanted.npu_smi, known if known and known.chips else None)
    cards: dict[int, dict[int, str | None]] = {}
    try:
        for key in shares.wanted(host, wanted):
            card, chip = ids_of(key)
            cards.setdefault(card, {})[chip] = shares.read(host, key)
    except ValueError as error:
        cause = _NO_ANSWER if isinstance(error, Refusal) else Cause(CHANGED_SETTINGS, "they do not fit the cards of this host")
        findings.differs("device_share", "device share", ON, str(error), cause)
        return
    for card, sentence in sorted(shares.silent.items()):
        findings.differs("device_share", "card %d" % card, ON, sentence, _NO_ANSWER)
        del cards[card]
    _compare_chips(findings, cards, (topology or {}).get("npus") or ())


def _compare_chips(findings: Findings, cards: Mapping[int, Mapping[int, str | None]], npus: Sequence[PlanEntry]) -> None:
    cause = Cause(EDIT, "npu-smi switched it, or the card was reset")
    if all(word == OFF for chips in cards.values() for word in chips.values()):
        cause = Cause(DRIVER_RELOAD, "the driver forgets device share when it is loaded again and when the host boots")
    for card, chips in sorted(cards.items()):
        wrong = [chip for chip, word in chips.items() if word != ON]
        if not wrong:
            findings.same("device_share", "card %d" % card)
            continue
        found = str(chips[wrong[0]]) + (" (chips %s)" % compress(wrong) if len(wrong) < len(chips) else "")
        on_it = [Device.of(npu) for npu in npus if npu.get("card") == card and npu.get("chip") in wrong]
        findings.differs("device_share", "card %d" % card, ON, found, cause, on_it[0] if len(on_it) == 1 else None)
