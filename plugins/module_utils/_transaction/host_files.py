# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a set of host files and the systemd units that they configure to the wanted state, wholly or not at all.

Order: compare, refuse what is unsafe, start what a killed run had stopped, take the steps that come before (:mod:`.step`: what is switched
off), record what was there before the first bind, set what concerns the whole host, widen live CPU sets whose setting goes, write, try the
programs of our units, reload, stop slices that are gone and idle, enable, start, give running units what the reload did not, read back what
the kernel grants, take the steps that come after, add to the history. When a step fails, every file and setting is restored, what was
stopped is started, systemd is reloaded, and previous.json is restored. Before the first write the paths are noted in previous.json, and
forgotten when systemd has followed: what a killed run began the next one finishes.
"""

from __future__ import annotations

import contextlib
import functools
import posixpath
from typing import Callable, Container, Iterable, Iterator, Mapping, Sequence

from .._features.register import FEATURES
from .._host import installed
from .._host.host import CommandError, Host, reason
from .._kernel.memory import patience
from .._state import history, journal, previous
from .._state.files import LEFTOVER, FileState, Snapshot, States, is_managed, missing_folders, remove_empty, restore_labels
from .._state.journal import INTERRUPTED
from .._state.step import Step
from .._state.systemd import Systemd, enable_links, settings, unit_of, units_of
from .._state.writable import Writing
from . import programs
from .live_units import LiveUnits
from .moving_memory import MovingMemory
from .request import Report, Request, compare
from .stopped_units import StoppedUnits


def record_changes(host: Host, changes: Mapping[str, States], links: list[str]) -> None:
    """Record files of others that are overwritten, links that enable them, and folders that our files and links of our units need."""
    others = {
        path: before
        for path, (before, _after) in changes.items()
        if before.text is not None and not is_managed(before.text) and not posixpath.basename(path).startswith(LEFTOVER)
    }
    enabling = [link for unit in units_of(others) for link in Systemd(host).links(unit)]
    previous.record_files(host, dict(others, **{link: FileState.of(host, link) for link in enabling}))
    ours = [path for path, (before, after) in changes.items() if after.text is not None and is_managed(after.text)]
    folders = [folder for folder in missing_folders(host, ours + links) if folder != posixpath.dirname(previous.PATH)]
    if folders:
        previous.record(host, "folders", folders)
    code_folders = {posixpath.dirname(path) for path in ours if installed.is_archive(path)} - {installed.CODE_FOLDER}
    if code_folders:
        previous.record(host, previous.CODE_FOLDERS, sorted(code_folders))


class Undone(ValueError):
    """A step failed, and the host is as it was before the transaction; or the text says what could not be restored."""


class Transaction:
    """The changes of one request on one host. ``look`` completes ``report`` without a write, ``run`` changes the host, ``finish`` forgets
    that a run is under way, and ``undo`` restores everything in the reverse order, also after ``finish``."""

    def __init__(self, host: Host, request: Request) -> None:
        self.host = host
        self.request = request
        self.report = Report()
        self.systemd = Systemd(host)
        self.written: list[str] = []
        self._begun = False
        self._disabled: list[tuple[str, str | None]] = []
        self._enabled: list[tuple[str, str | None]] = []
        begun = previous.recorded(host).get(INTERRUPTED, []) if host.live else []
        self._interrupted = [path for path in begun if request.concerns(path)]
        self._live = LiveUnits(self.systemd, request, self.report, self._interrupted)
        self._stopped = StoppedUnits(self.systemd, request, self.report)
        self._memory = MovingMemory(host, self.systemd)

    def look(self) -> None:
        """Complete the report. Raises ``ValueError`` where the request is unsafe."""
        report, request = self.report, self.request
        report.changes = compare(self.host, request)
        Writing(self.host, report.changes, request.files).refuse_impossible()
        programs.refuse_missing(self.host, request.files)
        if self.host.live:
            self._memory.look(report.changes, request.move_memory)
        report.actions += ["start %s again" % unit for unit in journal.stopped(self.host)]
        report.actions += ["enable %s" % unit for unit, _text in self._to_enable()]
        report.actions += self._stopped.look()
        if self.host.live:
            self._live.look_at_removals()
            self._live.look_at_units()
            report.failed_units = list(programs.failed(self.host)) if programs.programs(request.files) else []
            report.actions += ["run %s again, which had failed" % unit for unit in report.failed_units]

    def run(self) -> None:
        self._begun = True
        with self._meanwhile(self.report.changes):
            record_changes(self.host, self.report.changes, [link for entry in self._to_enable() for link in enable_links(*entry)])
            if self.host.live:
                if self.report.changes:
                    previous.record(self.host, INTERRUPTED, list(self.report.changes))
                self._live.widen()
            self._write()
            self._tidy()
            if self.host.live:
                programs.try_out(self.host, self.request.files)
            for entry in self._to_enable():
                self._enabled.append(entry)
                self.systemd.enable(*entry)
            if self.host.live:
                with patience(self.host, self._memory.moved):
                    self._live.follow(linked=bool(self._enabled))
                self.report.warnings += self._memory.finish()
            self._stopped.run()

    def _write(self) -> None:
        writing = Writing(self.host, self.report.changes, self.request.files)
        for path, (before, after) in self.report.changes.items():
            unit = unit_of(path)
            if unit and "WantedBy" in settings(before.text) and is_managed(before.text or "") and not is_managed(after.text or ""):
                self._disabled.append((unit, before.text))
                self.systemd.disable(unit, before.text)
            self.written.append(path)
            with writing.naming(path):
                after.write(self.host, path)
        for path, state in self.request.files.items():
            if state.link is not None and not self.host.exists(path):
                state.write(self.host, path)

    def _tidy(self) -> None:
        """Remove recorded folders that are empty now, and label what was written before systemd reads it."""
        folders = previous.recorded(self.host).get("folders", [])
        remove_empty(self.host, folders)
        if self.written:
            restore_labels(self.host, [*folders, *self.written])

    def _to_enable(self) -> list[tuple[str, str | None]]:
        texts = [(unit, self.request.text_of(self.systemd, unit)) for unit in self.request.enabled]
        return [(unit, text) for unit, text in texts if not self.systemd.enabled(unit, text)]

    def finish(self) -> None:
        """Forget that this run and an earlier one were under way, unless something is left that the next run tries again."""
        if self.report.unfinished or not self.host.live:
            return
        try:
            previous.forget(self.host, INTERRUPTED, self._interrupted + list(self.report.changes))
        except OSError as error:
            raise ValueError("%s could not be written: %s; make room and run again" % (previous.PATH, error.strerror or error))

    @contextlib.contextmanager
    def _meanwhile(self, paths: Container[str], strict: bool = True) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for feature in FEATURES.values():
                if feature.meanwhile and self.host.live:
                    stack.enter_context(feature.meanwhile(self.host, paths, strict))
            yield

    def undo(self) -> None:
        """Restore everything except previous.json. Raises ``ValueError`` with what could not be; the next run then finishes."""
        if self._begun:
            disable = [functools.partial(self.systemd.disable, *entry) for entry in self._enabled]
            with self._meanwhile(self.written, strict=False):
                each([*disable, self._undo_files, self._undo_units, *self._stopped.undo_steps()])

    def _undo_files(self) -> None:
        for path in reversed(self.written):
            before = self.report.changes[path][0]
            if FileState.of(self.host, path) != before:
                before.write(self.host, path)
        with contextlib.suppress(ValueError, CommandError):  # the files are restored, and the run has failed already
            self._tidy()

    def _undo_units(self) -> None:
        for unit, text in self._disabled:
            if not self.systemd.enabled(unit, text):
                self.systemd.enable(unit, text)
        if self.host.live:
            with patience(self.host, self._memory.moved):
                self._live.undo(self.written, linked=bool(self._enabled or self._disabled))


def each(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step, whatever becomes of the others. Raises ``ValueError`` with what could not be done."""
    failed = []
    for step in steps:
        try:
            step()
        except Exception as error:  # pylint: disable=broad-exception-caught # the other steps have to be taken
            failed.append(reason(error))
    if failed:
        raise ValueError("; ".join(failed))


def apply(host: Host, request: Request, check: bool = False, before: Sequence[Step] = (), after: Sequence[Step] = ()) -> Report:
    """Bring the host to the requested state and return the :class:`Report`; ``before`` and ``after`` are steps of the same transaction.

    Raises ``ValueError`` with a sentence when the request is unsafe, and its kind :class:`Undone` when it could not be reached.
    """
    transaction = Transaction(host, request)
    transaction.look()
    steps = [*before, *after]
    for step in steps:
        step.look(check)
    applied = request.applied() if request.applied else None
    new_state = applied is not None and applied.new
    if check or any(step.held for step in steps) or not (new_state or transaction.report.changed or any(step.needed for step in steps)):
        return transaction.report
    stopped = journal.stopped(host)
    not_started = journal.finish(host, transaction.systemd)
    restore: list[Callable[[], object]] = []
    begun: list[Step] = []
    try:
        folders = missing_folders(host, [previous.PATH])
        restore = [Snapshot(host, [previous.PATH]).restore, functools.partial(remove_empty, host, folders)]
        for step in steps:
            step.prepare()
        _run(before, begun)
        changed_before = any(step.changed for step in before)
        if changed_before:
            transaction = Transaction(host, request)
            transaction.look()
        if transaction.report.changed or changed_before:
            transaction.run()
        _run(after, begun)
        for step in begun:
            step.finish()
        changed = new_state or transaction.report.changed or any(step.changed for step in begun)
        if changed and applied:  # last: what fails after it would be undone, and the entry not
            transaction.report.history = history.keep(host, applied)
    except Exception as error:
        raise Undone("%s%s" % (reason(error), _undo_all(transaction, restore, begun)))
    transaction.finish()
    report = transaction.report
    report.actions = ["start %s again" % unit for unit in stopped if "start %s again" % unit not in report.actions] + report.actions
    report.warnings += [journal.sentence(unit) for unit in stopped]
    report.not_started = not_started
    report.untried = programs.untried(host, request.files)
    return report


def _run(steps: Iterable[Step], begun: list[Step]) -> None:
    for step in steps:
        begun.append(step)
        step.run()


def _undo_all(transaction: Transaction, restore: Iterable[Callable[[], object]], begun: Sequence[Step]) -> str:
    """Undo the steps before a failed one, ``restore`` previous.json, and return the result as the end of a sentence.

    The files come first: a thread can go back only to CPUs that its slice grants again.
    """
    changed = [step.title for step in begun if step.changed and step.title]
    kinds = ["files"][: len(transaction.written)] + changed
    try:
        each([transaction.undo] + [step.undo for step in reversed(begun)])
        for step in restore:  # previous.json: as long as anything is to be restored, it says what
            step()
    except Exception as second:  # pylint: disable=broad-exception-caught # names what is left
        written = ", ".join(transaction.written)
        return "; not everything could be restored: %s%s" % (reason(second), ". Files written: %s" % written if written else "")
    listed = " and ".join([", ".join(kinds[:-1])][: len(kinds) - 1] + kinds[-1:])
    return ". %s" % ("All %s were restored" % listed if kinds else "No file was changed")
