# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which npu-smi calls bring the device share of chips from one state to another. Pure: states in, calls out.

A state is ``{card: {chip: True|False|None}}``; None is not known. Rules of the tool: hicann/driver ``npucli`` and ``dcmi_inner``. Chips
are switched one by one on the 310 families only; elsewhere a card has one chip, or (A3) its dies change together.

The driver can restore device share after a reboot ("recovery"). It records a setting only while recovery is on. Replacing a recorded
line, or adding one below another, damages its file while the command says OK; switching recovery off drops all lines. At boot it
restores cards 0 to 7 only, and none of A3, whose lines its own script does not understand.
"""

from __future__ import annotations

import re
from typing import Any, Container, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence

from ..._base.cpulist import compress

_RECORD = re.compile(r"^npu-smi set -t device-share -i (\d+)(?: -c (\d+))? -d ([01])\Z")
_START, _END = "[device-share-config start]", "[device-share-config end]"
_RECOVERY = {"device-share-recover:enable": True, "device-share-recover:disable": False}
_RESTORED_CARDS = range(8)
OLDEST_DRIVER = "25.5"
"""The first driver whose device share serves soft split."""


Chips = Dict[int, Optional[bool]]
State = Dict[int, Chips]
Wanted = Dict[int, Dict[int, bool]]


class Report:
    """What was (or in check mode would be) done.

    ``before`` and ``after`` are states ``{card: {chip: True|False|None}}``, ``wanted`` what they should be; ``files`` are those of the
    driver's recovery before, ``{path: record or None}``, and ``restored`` those that a restore has restored; ``recover`` is ``(before,
    after)`` of the driver's recovery switch, or None when it was left alone; ``busy`` lists the cards that a container holds; ``failed``
    has a sentence for every card that is not as wanted, by card (None: the recovery switch).
    """

    def __init__(self) -> None:
        self.before: State = {}
        self.files: dict[str, Any] = {}
        self.restored: list[str] = []
        self.after: State = {}
        self.wanted: Wanted = {}
        self.recover: tuple[bool | None, bool | None] | None = None
        self.busy: list[int] = []
        self.warnings: list[str] = []
        self.failed: dict[int | None, str] = {}

    @property
    def changed(self) -> bool:
        return self.before != self.after or bool(self.restored) or (self.recover is not None and self.recover[0] != self.recover[1])


class Change(NamedTuple):
    """One call of npu-smi: for a whole card (``chip`` None), a chip, or the recovery switch (``card`` None)."""

    card: int | None
    chip: int | None
    enabled: bool

    @property
    def words(self) -> list[str]:
        target = ["device-share-cfg-recover"] if self.card is None else ["device-share", "-i", str(self.card)]
        if self.chip is not None:
            target += ["-c", str(self.chip)]
        return ["set", "-t"] + target + ["-d", "1" if self.enabled else "0"]


def plan_changes(
    current: State,
    wanted: Wanted,
    by_chip: Container[int] = (),
    recovering: bool = False,
    recover: bool | None = None,
    recorded: State | None = None,
) -> list[Change]:
    """Return the least :class:`Change` list, the recovery switch first, then cards ascending.

    ``wanted`` names only the chips that matter; ``by_chip`` the cards whose chips can be switched one by one. ``recovering`` is whether
    recovery is on, ``recover`` whether it should be (None: as it is), ``recorded`` the state in the driver's file: with
    ``recover`` a chip is set again when the file does not say the same. Raises ``ValueError`` if chips that change together should differ.
    """
    changes = []
    if recover is not None and recover != recovering:
        changes.append(Change(None, None, recover))
    for card in sorted(wanted):
        chips, have, written = wanted[card], current.get(card, {}), (recorded or {}).get(card, {})
        setting = {
            chip: enabled
            for chip, enabled in sorted(chips.items())
            if have.get(chip) is not enabled or (recover and written.get(chip, False) is not enabled)
        }
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


def damages(changes: Iterable[Change], state: State, recorded: State) -> bool:
    """Whether the driver, with recovery on, would damage its file by recording these changes to a state.

    Every chip of a changed card gets a line. That is harmless where the same line is there already or where it comes last.
    """
    lines = {(card, chip): enabled for card, chips in recorded.items() for chip, enabled in chips.items()}
    for change in changes:
        if change.card is None:
            continue
        for chip in [change.chip] if change.chip is not None else sorted(state.get(change.card, {})):
            place = (change.card, chip)
            if lines.get(place) is not change.enabled and lines and place <= max(lines):
                return True
            lines[place] = change.enabled
    return False


def parse_recovery_file(text: str) -> dict[str, Any]:
    """Return ``{recover, lines: [{card, chip, value}]}`` of ``/etc/device_share.cfg``; ``chip`` is None in a line for a card.

    Raises ``ValueError`` when the driver would refuse it: it takes a mode, a start mark, settings and an end mark, and nothing else.
    """
    lines = text.splitlines()
    if len(lines) < 3 or lines[0] not in _RECOVERY or lines[1] != _START or lines[-1] != _END:
        raise ValueError("/etc/device_share.cfg lacks its mode line or a mark")
    records: list[dict[str, Any]] = []
    for line in lines[2:-1]:
        match = _RECORD.match(line)
        if not match:
            raise ValueError("/etc/device_share.cfg is damaged at '%s'" % line)
        card, value = int(match.group(1)), int(match.group(3))
        chip = None if match.group(2) is None else int(match.group(2))
        if any((record["card"], record["chip"]) == (card, chip) for record in records):
            raise ValueError("/etc/device_share.cfg is damaged: it has two lines for card %d" % card)
        records.append({"card": card, "chip": chip, "value": value})
    return {"recover": _RECOVERY[lines[0]], "lines": records}


def in_recovery_file(line: str) -> bool:
    """Whether a line is one that the driver writes into ``/etc/device_share.cfg``."""
    return line in _RECOVERY or line in (_START, _END) or _RECORD.match(line) is not None


def recorded_state(lines: Iterable[Mapping[str, Any]], chips_of: Mapping[int, Sequence[int]]) -> State:
    """Return the recorded settings as a state; ``chips_of`` gives the chips of a card, for lines without one."""
    state: State = {}
    for line in lines:
        chips = chips_of.get(line["card"], ()) if line["chip"] is None else [line["chip"]]
        for chip in chips:
            state.setdefault(line["card"], {})[chip] = bool(line["value"])
    return state


def recovery_limits(cards: Iterable[int], a3: Iterable[int]) -> list[str]:
    """Return sentences on those of the cards that the driver's own recovery does not restore; ``a3`` are the cards of A3."""
    reasons = [
        (set(cards) & set(a3), "the driver's own recovery restores no A3 card at boot"),
        (set(cards) - set(a3) - set(_RESTORED_CARDS), "the driver's own recovery restores cards 0-7 only"),
    ]
    return ["cards %s: %s; have device share set again at boot" % (compress(lost), reason) for lost, reason in reasons if lost]


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
