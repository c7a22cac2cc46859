# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switch the device share (container share mode) of chips, and read every chip back, also after a failure.

One card never stops the others. ``python3 -m npu_affinity device_share`` switches it on again at boot.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..._base.outside import say
from ..._base.table import count
from ..._base.cpulist import compress
from ..._host.host import Host
from ..._users.finding import users
from ..._users.sentences import holders
from ..._kernel.pci import accelerators
from ..._smi.driver import installed_version
from ..._state import previous
from ..._state.files import FileState
from ..._state.lock import changing
from ..._state.log import Change, log_change
from .calls import Report, State, is_older, plan_changes, select
from .places import SECTION
from .tool import Cards, Refusal, ShareTool

PROGRAM = "npu_affinity device_share"
FILES = ("/etc/device_share.cfg", "/etc/device_share.cfg.bak")
"""What npu-smi writes for the driver's own recovery, some of it also when it is only asked."""
_PAUSE = 5


def survey(tool: ShareTool, cards: Iterable[int]) -> tuple[State, dict[int, Refusal]]:
    """Return ``(state, {card: Refusal})`` of some cards."""
    state: State = {}
    refused: dict[int, Refusal] = {}
    for card in sorted(cards):
        try:
            state[card] = tool.share(card)
        except Refusal as error:
            refused[card] = error
    return state, refused


class Choice(NamedTuple):
    """Which cards and chips (all by default) get which state. ``only_ours``: switch off only what this collection switched on, by what it
    recorded before its first change."""

    enabled: bool
    chosen: Sequence[Any] = ()
    only_ours: bool = True


def switch(host: Host, tool: ShareTool, cards: Cards, choice: Choice, check: bool = False) -> Report:
    """Switch device share as chosen and return the :class:`Report`.

    Raises ``ValueError`` for a choice that the host does not have or the product can't do.
    """
    report = compare(host, tool, cards, choice, check)
    apply(host, tool, cards, report, check)
    return report


def compare(host: Host, tool: ShareTool, cards: Cards, choice: Choice, check: bool) -> Report:
    """Return a :class:`Report` of what is there and what is wanted, for :func:`apply`. All cards are queried before the first
    change, to record their states."""
    enabled = choice.enabled
    selected = select(cards.chips, choice.chosen)
    recorded = previous.recorded(host).get(SECTION)
    report = Report()
    report.files = {} if check else _files(host)
    report.before, refused = survey(tool, selected if recorded or check else cards.chips)
    for card, chips in selected.items():
        if card in refused:
            if enabled or refused[card].kind != "unsupported":
                report.failed[card] = str(refused[card])
            continue
        kept = []
        if choice.only_ours and not enabled:
            kept = [chip for chip in chips if report.before[card].get(chip) is not False and not _is_ours(recorded, card, chip)]
        if kept:
            report.warnings.append(
                "card %d: chip %s stays on, because this collection did not switch it on; set only_ours=false to switch it off as well"
                % (card, ", ".join(map(str, kept)))
            )
        if not kept or card in cards.by_chip:
            report.wanted[card] = {chip: enabled for chip in chips if chip not in kept}
    return report


def _is_ours(recorded: Mapping[str, Any] | None, card: int, chip: int) -> bool:
    return recorded is not None and recorded["chips"].get(str(card), {}).get(str(chip)) is False


def _files(host: Host) -> dict[str, Any]:
    states = {path: FileState.of(host, path) for path in FILES}
    return {path: None if state.text is None else state.record() for path, state in states.items()}


def differing_files(host: Host, recorded: Mapping[str, Any]) -> list[str]:
    """Return those of the driver's files that are not as section ``device_share`` of previous.json has them."""
    now = _files(host)
    return [path for path, record in sorted(recorded.get("files", {}).items()) if now.get(path) != record]


def put_back_files(host: Host, recorded: Mapping[str, Any]) -> None:
    """Give the driver's own recovery the files that it had; npu-smi writes more lines than it takes back."""
    for path in differing_files(host, recorded):
        record = recorded["files"][path]
        (FileState(None, None) if record is None else FileState.from_record(record)).put(host, path)


def take_back(host: Host, tool: ShareTool, cards: Cards, done: Report) -> None:
    """Bring the chips and the driver's files back to what they were before a report. Raises ``ValueError`` with what does not go."""
    report = Report()
    report.before, refused = survey(tool, done.before)
    known = {card: {chip: enabled for chip, enabled in chips.items() if enabled is not None} for card, chips in done.before.items()}
    report.wanted = {card: known[card] for card in report.before}
    apply(host, tool, cards, report, check=False)
    failed = list(report.failed.values()) + list(map(str, refused.values()))
    if failed:
        raise ValueError("; ".join(failed))
    put_back_files(host, {"files": done.files})


def restore(
    host: Host, tool: ShareTool, cards: Cards, recorded: Mapping[str, Any], check: bool = False, report: Report | None = None
) -> Report:
    """Restore the state before the first change: section ``device_share`` of previous.json. Cards that are gone need nothing.

    ``report``: the one to complete; it has what was there before, also where this ends with an error.
    """
    report = report or Report()
    report.files, differing = _files(host), differing_files(host, recorded)
    chips = {int(card): {int(chip): enabled for chip, enabled in state.items()} for card, state in recorded["chips"].items()}
    report.before, refused = survey(tool, set(chips) & set(cards.chips))
    report.failed.update((card, str(error)) for card, error in refused.items())
    for card, state in report.before.items():
        report.wanted[card] = {chip: chips[card][chip] for chip in state if chips[card].get(chip) is not None}
    apply(host, tool, cards, report, check)
    if not report.failed:
        report.restored = differing
        if not check:
            put_back_files(host, recorded)
    return report


def apply(host: Host, tool: ShareTool, cards: Cards, report: Report, check: bool) -> None:
    """Bring ``report.before`` to ``report.wanted``, and complete the report."""
    changes = plan_changes(report.before, report.wanted, cards.by_chip)
    report.after = {card: dict(state) for card, state in report.before.items()}
    if check:
        for card, state in report.wanted.items():
            report.after[card].update(state)
        return
    if changes:
        chips = {str(card): {str(chip): enabled for chip, enabled in state.items()} for card, state in report.before.items()}
        previous.record(host, SECTION, {"chips": chips, "files": report.files})
    refused: dict[int, Refusal] = {}
    for change in changes:
        try:
            tool.change(change)
        except Refusal as error:
            refused.setdefault(change.card, error)
    found, unanswered = survey(tool, {change.card for change in changes})
    report.after.update(found)
    for card, refusal in unanswered.items():
        report.after[card] = dict.fromkeys(report.before[card])
        report.failed[card] = "its state could not be read back: %s" % refusal
    for card in sorted(set(found) & set(report.wanted)):
        _judge(host, tool, report, card, refused.get(card))


def _judge(host: Host, tool: ShareTool, report: Report, card: int, refused: Refusal | None) -> None:
    """Add what is to be said of a card after a change: the state that was read back decides, not the command's answer."""
    wrong = [chip for chip, enabled in report.wanted[card].items() if report.after[card].get(chip) is not enabled]
    if not wrong:
        return
    where = "chip %s is not %s" % (", ".join(map(str, wrong)), "on" if report.wanted[card][wrong[0]] else "off")
    if refused and refused.kind == "busy":
        report.busy.append(card)
        pids, names = tool.used(card)
        found = holders(users(host, listed=dict.fromkeys(pids, ()), monitors=True), names, pids)
        by = ": " + found if found else " (exporters and device plugins count)"
        report.failed[card] = "%s, because a container holds the card%s; stop it and run again" % (where, by)
    elif refused:
        report.failed[card] = "%s: %s" % (where, refused)
    else:
        report.failed[card] = "%s, although npu-smi reported no error; see the driver's log" % where


def require_driver(host: Host, minimum: str, version: str | None = None) -> None:
    """Raise ``ValueError`` when the driver is older than ``minimum``. ``version`` is the driver's, where it is known already."""
    version = version or installed_version(host)
    if not version:
        raise ValueError("the version of the Ascend driver is not known, and %s or newer is required" % minimum)
    if is_older(version, minimum):
        raise ValueError("the Ascend driver is %s, and %s or newer is required; update the driver first" % (version, minimum))


def main(argv: Sequence[str] | None = None) -> int:
    """Switch device share on at boot, when every chip is off, read it back, and print a line for what was changed or could not be.

    Returns 0 when every chosen chip is on, else 1. What is not there or not on is tried again for as long as ``--wait`` says: drivers
    come up one card after another. Unlike the module, it does what it can for the cards that are there.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Switch on the device share of NPUs.")
    parser.add_argument("cards", nargs="*", metavar="CARD[:CHIP]", help="NPU IDs, with a chip id where chips differ (default: all)")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    parser.add_argument("--npu-smi", help="the npu-smi command (default: looked for)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for each call of npu-smi (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=0, help="seconds in which to try again what is not there or not on yet")
    options = parser.parse_args(argv)
    host = Host(options.root, options.timeout)
    deadline = time.monotonic() + options.wait
    while True:
        lines = _attempt(host, options.npu_smi, [dict(zip(("card", "chip"), text.split(":"))) for text in options.cards])
        left = deadline - time.monotonic()
        if not lines or left <= 0:
            break
        time.sleep(min(_PAUSE, left))
    for line in lines:
        say(line)
    return 1 if lines else 0


def _attempt(host: Host, npu_smi: str | None, chosen: Sequence[Mapping[str, str]]) -> list[str]:
    """Switch on the chosen chips that are there, and return a line for everything that is not as wanted."""
    try:
        with changing(host, PROGRAM):
            return _switch_on(host, ShareTool(host, npu_smi), chosen)
    except (OSError, Refusal, ValueError) as error:
        return [str(error)]


def _switch_on(host: Host, tool: ShareTool, chosen: Sequence[Mapping[str, str]]) -> list[str]:
    cards = tool.cards()
    there = [choice for choice in chosen if not choice["card"].isdigit() or int(choice["card"]) in cards.chips]
    lines = [
        "there is no card %s; npu-smi knows cards %s" % (choice["card"], compress(cards.chips)) for choice in chosen if choice not in there
    ]
    if not chosen:
        lines = _absent(host, cards)
    if chosen and not there:
        return lines
    report = switch(host, tool, cards, Choice(True, there))
    chips = [(card, chip, on) for card, state in sorted(report.after.items()) for chip, on in sorted(state.items())]
    done = ["card %d chip %d: device share is on" % (card, chip) for card, chip, on in chips if on and not report.before[card].get(chip)]
    for sentence in done:
        say(sentence)
    if done:
        log_change(host, Change("rebind", PROGRAM, "device share of " + count(len(done), "chip"), done))
    for sentence in report.warnings:
        say(sentence)
    return lines + ["card %s: %s" % (card, sentence) for card, sentence in sorted(report.failed.items())]


def _absent(host: Host, cards: Cards) -> list[str]:
    """Return a line where the bus has more NPUs than npu-smi knows chips: they are still loading, or dead."""
    functions = [pci for pci, device in accelerators(host)[0].items() if device["family"] != "gpu"]
    known = sum(len(chips) for chips in cards.chips.values())
    return ["npu-smi knows %d chips, and %d NPUs are on the PCI bus" % (known, len(functions))] if known < len(functions) else []
