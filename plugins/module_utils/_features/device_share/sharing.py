# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device share (container share mode) of chips as values, ``on`` or ``off``, whose keys are ``<NPU ID>:<chip>``, and their comparison.

One card never stops the others: what npu-smi does not answer or refuse is noted, and what is right, a second query of the card says.
"""

from __future__ import annotations

import json
import posixpath
import re
import time
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._base.cpulist import compress
from ..._base.findings import CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, UNREADABLE, Cause, Device, Findings
from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.pci import accelerators
from ..._npu_smi import parse_device_share, parse_info, parse_mapping
from ..._smi.tool import Command, Refusal, OLDEST_DRIVER, installed_version, is_older
from ..._state import sections, step
from ..._state.files import FileState
from ..._state.value_kind import Change, Values
from ..._state.values import Restore as ValuesRestore
from ..._state.values import confirm, entries
from .calls import Cards, Chips, calls_for, refusal, select

if TYPE_CHECKING:
    from ..._base.documents import DeviceShareLive, Npu
    from ..feature import Comparing

NAME = "device_share"
ON, OFF, UNKNOWN = "on", "off", "unknown"
_ENABLED = {ON: True, OFF: False, UNKNOWN: None}
_WORDS = {enabled: word for word, enabled in _ENABLED.items()}
FILES = ("/etc/device_share.cfg", "/etc/device_share.cfg.bak")
"""What npu-smi writes for the driver's own recovery, some of it also when it is only asked, and more lines than it takes back."""
_KEY = re.compile(r"(\d{1,9}):(\d{1,9})\Z")
_PAUSE = 5
_NO_ANSWER = Cause(UNREADABLE, "it did not answer; run 'npu-smi info'")


def ids_of(key: str) -> tuple[int, int]:
    card, _colon, chip = key.partition(":")
    return int(card), int(chip)


class Shares(Values):
    """The device share of chips. ``cards``: those of the host, where they are known.

    ``silent`` has a sentence for each card that does not answer, ``refused`` one for each that is not as it was set, and ``busy`` are those
    of these that a container holds. :data:`FILES` are recorded with the first chip, and restored when every chip is as it was.
    """

    key = NAME
    part = "device share"

    def __init__(self, npu_smi: str | None = None, cards: Cards | None = None) -> None:
        Values.__init__(self, NAME, {}, "device share settings")
        self._npu_smi, self._timeout = npu_smi, None  # type: str | None, int | None
        self._known = cards
        self._boot, self._until = False, None  # type: bool, float | None
        self.tolerant = False
        self._begin_run()

    def _begin_run(self) -> None:
        self._command: Command | None = None
        self._cards: Cards | None = None
        self._now: dict[int, Chips] = {}
        self._before: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._together: dict[int, dict[int, bool]] = {}
        self._begun = False
        self.goal: Mapping[str, str] = {}
        self.silent: dict[int, str] = {}
        self.refused: dict[int, tuple[dict[int, bool], str]] = {}
        self.busy: list[int] = []
        self._missing: list[str] = []

    # --- what is wanted

    def require_live(self, host: Host, live: Mapping[str, Any]) -> None:
        require_shape(live, {"npus": list, "ignore_busy": bool, "npu_smi": str, "timeout": (int, float), "wait": int}, "it")

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        self.require_live(host, live)
        self._begin_run()
        self._npu_smi, self._timeout = live["npu_smi"] or self._npu_smi, live["timeout"]
        self.tolerant = live["ignore_busy"] and not self._boot
        if self._boot and self._until is None:
            self._until = time.monotonic() + live["wait"]
        cards = self.cards(host)
        selected = select(cards.chips, live["npus"], self._missing if self._boot else None)
        if self._boot and not live["npus"]:
            self._missing += _absent(host, cards)
        for card, chips in selected.items():
            calls_for(card, self.chips(host, card), dict.fromkeys(chips, True), card in cards.by_chip)
        self.goal = {"%d:%d" % (card, chip): ON for card, chips in selected.items() for chip in chips}
        return dict(self.goal)

    def require(self, host: Host, wanted: Mapping[str, str]) -> None:
        """Refuse an old driver, and cards that do not answer. At boot, what can be done is done."""
        if not self._boot:
            version = installed_version(host) or self._tool(host).ask(parse_info)["version"]
            required = "%s or newer is required" % OLDEST_DRIVER
            if not version:
                raise ValueError("the version of the Ascend driver is not known, and " + required)
            if is_older(version, OLDEST_DRIVER):
                raise ValueError("the Ascend driver is %s, and %s; update the driver first" % (version, required))
            if self.silent:
                raise ValueError("device share differs from the settings: " + "; ".join(self.failures()))

    def check_value(self, key: str, values: Sequence[str]) -> None:
        if key in FILES:
            record = json_of(values[0])
            sections.check_files({} if record is None else {key: record})
        elif not (_KEY.match(key) and set(values) <= set(_ENABLED)):
            raise ValueError("'%s' is not a chip whose device share is on or off" % key)

    def retry(self, boot: bool = False) -> None:
        self._boot = boot

    def again(self) -> bool:
        remaining = (self._until or 0) - time.monotonic()
        if remaining > 0:
            time.sleep(min(_PAUSE, remaining))
        return remaining > 0

    # --- what npu-smi says and does

    def _tool(self, host: Host) -> Command:
        if self._command is None:
            self._files = {path: _text(FileState.of(host, path)) for path in FILES}
            self._command = Command(host, self._npu_smi, self._timeout)
        return self._command

    def cards(self, host: Host) -> Cards:
        if self._cards is None:
            self._cards = self._known or Cards(self._tool(host).ask(parse_mapping, "-m"))
        return self._cards

    def chips(self, host: Host, card: int) -> Chips:
        """Return ``{chip: True|False|None}`` of a card; none where it does not answer, which raises once something was changed.

        Newer tools answer nothing without ``-i``. An answer of A5 repeats no chip: it is chip 0.
        """
        if card not in self._now and (self._begun or card not in self.silent):
            try:
                rows = self._tool(host).ask(parse_device_share, "-t", "device-share", "-i", str(card))
                self._now[card] = {row["chip"] or 0: row["enabled"] for row in rows if row["card"] in (None, card)}
                self.silent.pop(card, None)
            except Refusal as error:
                self.silent[card] = str(error)
                if self._begun:
                    raise
        return self._now.get(card, {})

    def read(self, host: Host, key: str) -> str | None:
        if key in FILES:
            return _text(FileState.of(host, key))
        card, chip = ids_of(key)
        state = self.chips(host, card) if card in self.cards(host).chips else {}
        if chip not in state:
            return None
        self._before.setdefault(key, _WORDS[state[chip]])
        return _WORDS[state[chip]]

    def writable(self, host: Host, key: str) -> bool:
        return True

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        return before if wanted == UNKNOWN else wanted

    def planned(self, host: Host, changes: list[Change], check: bool) -> list[Change]:
        """Return changes by card and chip: one call can serve all chips of a card."""
        chips = sorted((change for change in changes if change.key not in FILES), key=lambda change: ids_of(change.key))
        self._together = {}
        for change in chips:
            card, chip = ids_of(change.key)
            self._together.setdefault(card, {})[chip] = change.after == ON
        return chips + [change for change in changes if change.key in FILES]

    def write(self, host: Host, key: str, value: str) -> str:
        """Return what a chip then is. Files come last: :meth:`done` restores them if all chips are as they were."""
        if key in FILES:
            return (self.read(host, key) or "") if self.silent or self.refused else value
        self._begun = True
        card, chip = ids_of(key)
        if self.refused.get(card, ({}, ""))[0].get(chip) is not _ENABLED[value]:
            wanted = self._together.pop(card, {chip: value == ON})
            self._switch(host, card, wanted if card in self.cards(host).by_chip else dict.fromkeys(self.chips(host, card), value == ON))
        return _WORDS[self._now.get(card, {}).get(chip)]

    def _switch(self, host: Host, card: int, wanted: dict[int, bool]) -> None:
        """Make the calls for a card. The state that is read back decides, not the answer."""
        answers: list[Refusal] = []
        for arguments in calls_for(card, self.chips(host, card), wanted, card in self.cards(host).by_chip):
            self._now.pop(card, None)
            try:
                result = self._tool(host).run(arguments, stdin="Y\n")
                answers += filter(None, [refusal(result.output, result.rc)])
            except Refusal as error:
                answers.append(error)
        try:
            now = self.chips(host, card)
        except Refusal as error:
            self.silent[card] = "its state could not be read back: %s" % error
            return
        wrong = [chip for chip, on in wanted.items() if now.get(chip) is not on]
        self.refused.pop(card, None)
        if wrong:
            text = "chip %s is not %s" % (", ".join(map(str, wrong)), _WORDS[wanted[wrong[0]]])
            self.refused[card] = (wanted, text + self._why(host, card, answers))

    def _why(self, host: Host, card: int, answers: Sequence[Refusal]) -> str:
        if not answers:
            return ", although npu-smi reported no error; see the driver's log"
        if answers[0].kind != "busy":
            return ": %s" % answers[0]
        self.busy.append(card)
        by = _holders(host, self._tool(host), card)
        return ", because a container holds the card%s; stop it and run again" % (by or " (exporters and device plugins count)")

    # --- the record, results and sentences

    def aside(self, host: Host) -> dict[str, str]:
        return self._files

    def is_over(self, key: str) -> bool:
        return key not in FILES

    def keeps(self, host: Host, key: str, original: str) -> bool:
        try:
            return key in FILES or self.read(host, key) != original and original != UNKNOWN
        except Refusal:
            return True

    def done(self, host: Host, changes: Sequence[Change], undone: bool = False) -> None:
        """Give the driver's own recovery the files that it had before the first bind, or before this run, when all chips are as then."""
        if not undone:
            return
        originals = {key: entry["original"] for key, entry in entries(host, self).items()}
        for values in (originals, {**self._before, **self._files}):
            if values and self._all_are(host, values):
                for path in [path for path in FILES if self.read(host, path) != values.get(path, self.read(host, path))]:
                    record = json.loads(values[path])
                    (FileState(None, None) if record is None else FileState.from_record(record)).write(host, path)
                return

    def _all_are(self, host: Host, values: Mapping[str, str]) -> bool:
        """Whether chips have these values, as far as they are there."""
        chips = {key: value for key, value in values.items() if key not in FILES and value != UNKNOWN}
        try:
            return not self.silent and all(self.read(host, key) in (None, value) for key, value in chips.items())
        except Refusal:
            return False

    def failures(self) -> list[str]:
        return self._missing + self._sentences(False) + ([] if self.tolerant else self._sentences(True))

    def warnings(self, host: Host, live: Mapping[str, Any]) -> list[str]:
        return self._sentences(True) if self.tolerant else []

    def _sentences(self, busy: bool) -> list[str]:
        """Return the sentences on busy cards, or on the others, with cards joined for which the same is to be said."""
        cards: dict[str, list[int]] = {}
        for card, text in {**{card: text for card, (_wanted, text) in self.refused.items()}, **self.silent}.items():
            if (card in self.busy) is busy:
                cards.setdefault(text, []).append(card)
        return ["card %s: %s" % (compress(numbers), text) for text, numbers in cards.items()]

    def result(self, changes: Sequence[Change]) -> dict[str, Any]:
        after = {change.key: change.after for change in changes}
        chips = []
        for key, before in sorted(self._before.items(), key=lambda item: ids_of(item[0])):
            card, chip = ids_of(key)
            words = {"before": before, "after": after.get(key, before), "enabled": self.goal.get(key, UNKNOWN)}
            chips.append({"card": card, "chip": chip, **{name: _ENABLED[word] for name, word in words.items()}})
        return {"chips": chips, "busy": self.busy, "failures": self._sentences(False) + self._sentences(True)}

    def lines(self, host: Host, changes: Iterable[Change]) -> list[str]:
        """Return a line for all cards whose chip of one number changes alike."""
        cards: dict[str, list[int]] = {}
        files = []
        for change in changes:
            if change.key in FILES:
                files.append("~ %s: as before the first bind" % change.key)
            else:
                card, chip = ids_of(change.key)
                cards.setdefault("chip %d: %s -> %s" % (chip, change.before, change.after), []).append(card)
        return ["~ card %s %s" % (compress(numbers), text) for text, numbers in cards.items()] + files


class Restore(ValuesRestore):
    """Device share restored on each chip, unless it is to be left for a later run. A busy card may be left, too."""

    values: Shares

    def __init__(self, host: Host, outcome: step.Outcome, options: step.Options) -> None:
        super().__init__(Shares(options.npu_smi), host, outcome, options)
        self.values.tolerant = options.ignore_busy
        if not options.device_share:
            self._originals = {}
        self.values.goal = {key: value for key, value in self._originals.items() if key not in FILES}

    def look(self, check: bool) -> None:
        if self._originals and not self.outcome.attempt(NAME, self._cards):
            self._originals = {}
        super().look(check)

    def _cards(self) -> Cards:
        try:
            return self.values.cards(self.host)
        except ValueError as error:
            raise ValueError("device share could not be restored: %s" % error)

    def settle(self, check: bool) -> None:
        super().settle(check)
        self.warnings = self.values.warnings(self.host, {})
        if not self._originals and NAME in self.outcome.recorded:
            self.outcome.kept.add(NAME)
        failed = self.values.failures()
        for sentence in failed:
            self.outcome.leave(NAME, sentence)
        if self.warnings:
            self.outcome.kept.add(NAME)
        if not check and (failed or self.warnings):
            confirm(self.host, self.values, {}, self._unrestored)


def _text(state: FileState) -> str:
    return json.dumps(None if state.text is None else state.record(), sort_keys=True)


def _holders(host: Host, tool: Command, card: int) -> str:
    """Return who has a card open, as far as npu-smi and procfs tell."""
    from ..._users.finding import users
    from ..._users.devices import register_npus
    from ..._users.groups import holders

    try:
        information = tool.ask(parse_info)
    except Refusal:
        information = {"version": None, "chips": [], "processes": []}
    npus: list[Any] = [dict(row, kind="npu", id=place) for place, row in enumerate(information["chips"])]
    register_npus(host, npus, None, [])
    files = [npu["device"]["file"] for npu in npus if npu["card"] == card and npu["device"]["file"]]
    pids = [row["pid"] for row in information["processes"] if row["card"] == card]
    names = [posixpath.basename(file) for file in files]
    by = holders(users(host, listed=dict.fromkeys(pids, ()), monitors=True), names, pids)
    return by and ": " + by


def _absent(host: Host, cards: Cards) -> list[str]:
    """Return a sentence where the bus has more NPUs than npu-smi knows chips: they are still loading, or dead."""
    functions = [pci for pci, device in accelerators(host)[0].items() if device["family"] != "gpu"]
    chips = sum(map(len, cards.chips.values()))
    return ["npu-smi knows %d chips, and %d NPUs are on the PCI bus" % (chips, len(functions))] if chips < len(functions) else []


def compare(comparing: Comparing, wanted: DeviceShareLive) -> None:
    """Compare the device share of every card with what is wanted. Reads only; the topology saves asking for cards."""
    host, findings, topology = comparing.host, comparing.findings, comparing.wanted.topology
    if not any(Device.of(npu).kind == "npu" for npu in comparing.plan["npus"]):
        return
    in_topology = Cards.of_topology(topology) if topology else None
    shares = Shares(comparing.wanted.npu_smi, in_topology if in_topology and in_topology.chips else None)
    cards: dict[int, dict[int, str | None]] = {}
    try:
        for key in shares.wanted(host, wanted):
            card, chip = ids_of(key)
            cards.setdefault(card, {})[chip] = shares.read(host, key)
    except ValueError as error:
        cause = _NO_ANSWER if isinstance(error, Refusal) else Cause(CHANGED_SETTINGS, "they do not fit the cards of this host")
        findings.differs(NAME, "device share", ON, str(error), cause)
        return
    for card, sentence in sorted(shares.silent.items()):
        findings.differs(NAME, "card %d" % card, ON, sentence, _NO_ANSWER)
        del cards[card]
    _compare_chips(findings, cards, topology["npus"] if topology else ())


def _compare_chips(findings: Findings, cards: Mapping[int, Mapping[int, str | None]], npus: Sequence[Npu]) -> None:
    cause = Cause(EDIT, "npu-smi switched it, or the card was reset")
    if all(word == OFF for chips in cards.values() for word in chips.values()):
        cause = Cause(DRIVER_RELOAD, "the driver forgets device share when it is loaded again and when the host boots")
    for card, chips in sorted(cards.items()):
        wrong = [chip for chip, word in chips.items() if word != ON]
        if not wrong:
            findings.same(NAME, "card %d" % card)
            continue
        state = str(chips[wrong[0]]) + (" (chips %s)" % compress(wrong) if len(wrong) < len(chips) else "")
        devices = [Device.of(npu) for npu in npus if npu.get("card") == card and npu.get("chip") in wrong]
        findings.differs(NAME, "card %d" % card, ON, state, cause, devices[0] if len(devices) == 1 else None)
