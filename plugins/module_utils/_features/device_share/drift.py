# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the device share of cards with what is wanted. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ..._base.cpulist import compress
from ..._base.findings import Device
from ..._base.findings import CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, UNREADABLE, Cause, Findings
from ..comparing import Comparing
from .calls import Report
from .switching import Choice, switch
from .tool import Cards, Refusal, ShareTool

if TYPE_CHECKING:
    from ..._base.documents import DeviceShareLive

_NO_ANSWER = Cause(UNREADABLE, "it did not answer; run 'npu-smi info'")
_WORDS = {True: "on", False: "off", None: "unknown"}


def compare(comparing: Comparing, wanted: DeviceShareLive) -> None:
    """Compare the device share of every card. The topology saves asking for cards."""
    host, findings = comparing.host, comparing.findings
    if not any(Device.of(npu).kind == "npu" for npu in comparing.plan["npus"]):
        return
    enabled, topology = wanted["enabled"], comparing.wanted.topology
    try:
        tool = ShareTool(host, comparing.wanted.npu_smi)
        known = Cards.of_topology(topology) if topology else None
        cards = known if known and known.chips else tool.cards()
        report = switch(host, tool, cards, Choice(enabled, wanted["npus"], wanted["only_ours"]), check=True)
    except Refusal as error:
        findings.differs("device_share", "device share", _WORDS[enabled], str(error), _NO_ANSWER)
        return
    except ValueError as error:
        cause = Cause(CHANGED_SETTINGS, "they do not fit the cards of this host")
        findings.differs("device_share", "device share", _WORDS[enabled], str(error), cause)
        return
    for card, sentence in sorted(report.failed.items()):
        findings.differs("device_share", "card %d" % card, _WORDS[enabled], sentence, _NO_ANSWER)
    _compare_chips(findings, report, (topology or {}).get("npus") or ())


def _compare_chips(findings: Findings, report: Report, npus: Sequence[Mapping[str, Any]]) -> None:
    states = {card: {chip: report.before[card].get(chip) for chip in chips} for card, chips in report.wanted.items()}
    cause = Cause(EDIT, "npu-smi switched it, or the card was reset")
    if all(enabled is False for state in states.values() for enabled in state.values()):
        cause = Cause(DRIVER_RELOAD, "the driver forgets device share when it is loaded again and when the host boots")
    for card, state in sorted(states.items()):
        wrong = [chip for chip in state if state[chip] is not report.wanted[card][chip]]
        if not wrong:
            findings.same("device_share", "card %d" % card)
            continue
        expected, found = _WORDS[report.wanted[card][wrong[0]]], _WORDS[state[wrong[0]]]
        found += " (chips %s)" % compress(wrong) if len(wrong) < len(state) else ""
        on_it = [Device.of(npu) for npu in npus if npu.get("card") == card and npu.get("chip") in wrong]
        device = on_it[0] if len(on_it) == 1 else None
        findings.differs("device_share", "card %d" % card, expected, found, cause, device)
