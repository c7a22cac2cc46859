# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine for values that features set on a running host: it looks, records, writes, takes back, restores, names and sets at boot.

A feature has a kind of :class:`Values`, which knows where they are and what the kernel answers. The section of previous.json that has the
name of the feature is ``{key: {original: value, given: [values]}}``. The original is recorded before the first write, and what is given is
kept until a later value is confirmed: whenever a run is killed or refused, the value that a host then has is known to be ours.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from typing import TYPE_CHECKING, Any, Container, Mapping, Sequence, cast

from .._base.findings import EDIT, INTERRUPTED_RUN, Cause, Findings, coded
from .._base.outside import say
from .._base.table import count
from .._host.host import Host, reason
from . import previous, step
from .lock import changing
from .log import log_change
from .value_kind import Change, Values

if TYPE_CHECKING:
    from .sections import ValueRecord


def entries(host: Host, values: Values) -> dict[str, ValueRecord]:
    """Return ``{key: {original, given}}`` of what binds have changed."""
    return dict(previous.recorded(host).get(values.name, {}))


def targets(host: Host, values: Values, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return ``{key: value}``: what is wanted, and the original of everything that a former run gave and that is not wanted any more."""
    values.require(host, wanted)
    over = {key: entry["original"] for key, entry in entries(host, values).items() if values.is_over(key)}
    return {**over, **values.heirs(host, over), **wanted}


def look(host: Host, values: Values, wanted: Mapping[str, str], check: bool = False) -> list[Change]:
    """Return what differs from ``{key: value}`` and can be changed. Raises ``ValueError`` for what may not be written."""
    return values.planned(host, [change for key in wanted for change in difference(host, values, key, wanted[key])], check)


def difference(host: Host, values: Values, key: str, value: str) -> list[Change]:
    """Return the change of one value, none where nothing can be changed. Raises ``ValueError`` where it may not be written."""
    before = values.read(host, key)
    if before is None or before == value:
        return []
    after = values.possible(host, key, before, value)
    if after != before and not values.writable(host, key):
        raise ValueError("%s cannot be written; run as root (become: true), and not where /proc and /sys are read-only" % key)
    return [Change(key, before, value, after)] if after != before else []


def carry_out(host: Host, values: Values, changes: Sequence[Change], begun: list[Change]) -> None:
    """Record the originals and what is given, and write. ``begun`` gets what was reached, also where a later write fails."""
    recorded = entries(host, values)
    for change in changes:
        entry = recorded.get(change.key) or {"original": values.original(host, change.key, change.before), "given": []}
        given = [value for value in entry["given"] if value != change.wanted] + [change.wanted]
        recorded[change.key] = cast("ValueRecord", dict(entry, given=given, **values.about(host, change.key)))
    if changes:
        for key, value in values.aside(host).items():
            recorded.setdefault(key, {"original": value, "given": []})
        previous.replace(host, values.name, recorded)
    for change in changes:
        begun.append(change)
        begun[-1] = change._replace(after=values.write(host, change.key, change.after))
    values.done(host, begun)
    begun[:] = [change for change in begun if change.before != change.after]


def undo(host: Host, values: Values, changes: Sequence[Change]) -> list[str]:
    """Write what there was before ``changes``, and return a sentence for everything that could not be restored."""
    failed = []
    values.undoing = True
    for change in changes if values.forwards else reversed(changes):
        try:
            now = values.read(host, change.key)
            if now not in (None, change.before):
                now = values.write(host, change.key, values.possible(host, change.key, str(now), change.before))
                failed += values.unreached(change.key, change.before, now, "this run") if now != change.before else []
        except Exception as error:
            failed.append(reason(error))
    try:
        values.done(host, changes, undone=True)
    except Exception as error:
        failed.append(reason(error))
    values.undoing = False
    return list(dict.fromkeys(failed))


def confirm(host: Host, values: Values, wanted: Mapping[str, str], remaining: Container[str] = ()) -> None:
    """Forget what was given before ``wanted``, and values that are not wanted any more, are what they originally were and not ``left``."""
    kept: dict[str, ValueRecord] = {}
    for key, entry in entries(host, values).items():
        if key in wanted:
            kept[key] = {**entry, "given": [wanted[key]]}
        elif key in remaining or values.keeps(host, key, entry["original"]):
            kept[key] = entry
    previous.replace(host, values.name, kept or None)


class Step(step.LiveStep):
    """The values of a feature as a step of a bind. Late ones are set by :meth:`complete`, when all else has succeeded."""

    def __init__(self, host: Host, values: Values, live: Mapping[str, Any]) -> None:
        step.LiveStep.__init__(self)
        self.host, self.values, self.live = host, values, live
        self.late, self.title, self.key = values.late, "" if values.late else values.title, values.key
        self.changes: list[Change] = []
        self._wanted: Mapping[str, str] = {}

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def look(self, check: bool) -> None:
        self._wanted = self.values.wanted(self.host, self.live)
        self.changes = look(self.host, self.values, targets(self.host, self.values, self._wanted), check)
        self._note(ahead=True)
        if check:
            self._require_all()

    def _note(self, ahead: bool = False) -> None:
        self.warnings = self.values.warnings(self.host, self.live)
        self.remarks = self.values.remarks(self.host, self.live, self.changes, ahead)

    def _require_all(self) -> None:
        failed = self.values.failures()
        if failed:
            raise ValueError("not everything could be bound: " + "; ".join(failed))

    def run(self) -> None:
        if not self.late:
            changes, self.changes = self.changes, []
            carry_out(self.host, self.values, changes, self.changes)
            self._note()
            self._require_all()

    def undo(self) -> None:
        failed = [] if self.late else undo(self.host, self.values, self.changes)
        if failed:
            raise ValueError("; ".join(failed))

    def finish(self) -> None:
        if not self.late:
            confirm(self.host, self.values, self._wanted)

    def complete(self) -> None:
        if self.late:
            self.values.retry()
            with changing(self.host, "setting %s" % self.values.title):
                self.changes = apply(self.host, self.values, self.live)
            self._note()
            self._require_all()

    def unsettled(self) -> list[str]:
        return self.values.unsettled()

    def result(self) -> Any:
        return self.values.result(self.changes)

    def lines(self) -> dict[str, list[str]]:
        return {self.values.part: self.values.lines(self.host, self.changes)}


class Restore(Step, step.Restore):
    """Restores the originals of a feature's values."""

    def __init__(self, values: Values, host: Host, outcome: step.Outcome, options: step.Options) -> None:
        Step.__init__(self, host, values, {})
        step.Restore.__init__(self, host, outcome, options)
        self._originals = {key: entry["original"] for key, entry in outcome.recorded.get(values.name, {}).items()}
        self._attempt = functools.partial(outcome.attempt, values.name)
        self._unrestored: set[str] = set()
        self.late = False
        values.retry()

    def look(self, check: bool) -> None:
        changes = []
        heirs = self._attempt(self.values.heirs, self.host, self._originals) or {}
        for key, original in [*self._originals.items(), *heirs.items()]:
            differing = self._attempt(difference, self.host, self.values, key, original)
            changes += differing or []
            self._unrestored |= {key} if differing is None else set()
        self.changes = self._attempt(self.values.planned, self.host, changes, False) or []
        self._leave()

    def run(self) -> None:
        done = []
        for change in self.changes:
            after = self._attempt(self.values.write, self.host, change.key, change.after)
            if after is None:
                self._unrestored.add(change.key)
            else:
                done.append(change._replace(after=after))
        self._attempt(self.values.done, self.host, done, True)
        self.changes = done

    def settle(self, check: bool) -> None:
        if check:
            self.changes = self.values.planned(self.host, self.changes, check)
        self._leave()
        self.changes = [change for change in self.changes if change.before != change.after]
        self.warnings = self.values.lost(self.host)
        if self._unrestored and not check:
            confirm(self.host, self.values, {}, self._unrestored)

    def _leave(self) -> None:
        """Keep the record of values that do not become what they originally were."""
        reached = {change.key: change.after for change in self.changes}
        for key, original in [(key, value) for key, value in self._originals.items() if key not in self._unrestored]:
            value = reached[key] if key in reached else self._attempt(self.values.read, self.host, key)
            if value not in (None, original):
                for sentence in self.values.unreached(key, original, str(value), "the first bind"):
                    self._unrestored.add(key)
                    self.outcome.leave(self.values.name, sentence)


def compare(findings: Findings, host: Host, values: Values, live: Mapping[str, Any], by_whom: str) -> None:
    """Compare the values of a host with those that are wanted: one finding for each setting."""
    given = {}
    with contextlib.suppress(ValueError):  # a broken record is named by who needs it
        given = {key: entry["given"] for key, entry in entries(host, values).items()}
    groups: dict[tuple[str, str], dict[str, int]] = {}
    ours = set()
    for key, wanted in values.wanted(host, live).items():
        (name, _noun, number), value = values.label(host, key), values.read(host, key) or "nothing"
        group = groups.setdefault((name, wanted), {})
        group[value] = group.get(value, 0) + number
        if value != wanted and value in given.get(key, ()):
            ours.add(name)
    for (name, wanted), numbers in groups.items():
        if set(numbers) == {wanted}:
            findings.same(values.name, name)
            continue
        total = sum(numbers.values())
        shown = ["%s (%d of %d)" % (text, numbers[text], total) if len(numbers) > 1 else text for text in sorted(numbers)]
        interrupted = Cause(INTERRUPTED_RUN, "a run that did not end left it; bind again")
        findings.differs(values.name, name, wanted, ", ".join(shown), interrupted if name in ours else Cause(EDIT, by_whom))
    findings.remarks += coded("NPU_NO_EFFECT", values.warnings(host, live))


def main(values: Values, argv: Sequence[str] | None = None) -> int:
    """Set at boot what was applied. Returns 0, also where the kernel grants less, and 1 where a value is refused."""
    program = "npu_affinity " + values.name
    parser = argparse.ArgumentParser(prog=program, description="Set the %s of this host, as they were applied." % values.title)
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    values.add_arguments(parser)
    options = parser.parse_args(argv)
    host = Host(options.root)
    try:
        values.begin(host, options)
    except (OSError, ValueError) as error:
        say(error)
        return 1
    remarks, failed = _at_boot(host, values, program)
    while failed and values.again():
        remarks, failed = _at_boot(host, values, program)
    for sentence in remarks + failed:
        say(sentence)
    return 1 if failed else 0


def _at_boot(host: Host, values: Values, program: str) -> tuple[list[str], list[str]]:
    """Set what was applied and say what that changed. Returns sentences on what is left, and on what failed."""
    try:
        with changing(host, program):
            live = values.applied(host)
            if live is None:
                return [], []
            done = apply(host, values, live)
            remarks = values.warnings(host, live) + values.remarks(host, live, done)
    except (OSError, ValueError) as error:
        return [], [str(error)]
    lines = [line[2:] for line in values.lines(host, done)]
    if lines:
        log_change(host, "rebind", program, "%s of %s" % (count(len(done), "change"), values.title), lines)
    for line in lines:
        say(line)
    return remarks, values.failures()


def apply(host: Host, values: Values, live: Mapping[str, Any]) -> list[Change]:
    """Make all changes or none, without a transaction; late values are set as far as the kernel lets them."""
    wanted, begun = values.wanted(host, live), []  # type: Mapping[str, str], list[Change]
    try:
        carry_out(host, values, look(host, values, targets(host, values, wanted)), begun)
    except Exception as error:
        if values.late:
            raise
        raise ValueError("; ".join([reason(error), *undo(host, values, begun)]))
    if not values.failures():
        confirm(host, values, wanted)
    return begun
