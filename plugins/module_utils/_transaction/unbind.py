# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a host back to what it was before the first bind, as far as previous.json and the marks in our files tell.

Order: refuse what cannot be read, look, then: our units stopped, what the features hold besides their files given back
(``Feature.release``), live CPU sets widened and files removed or written back (``_transaction.host_files``), units started that a bind had
stopped, what features give back last, and at the end previous.json. A step that fails is a sentence and keeps its section of previous.json;
the others go on. Every step can be repeated, and what it needs to know stays on the disk until it is done (the plan until the threads are
let go): a run that was killed, or in which a card was busy or a unit masked, is finished by the next one.
"""

from __future__ import annotations

import fnmatch
import functools
from typing import Any, Iterable, Mapping, Sequence

from .._host import installed
from .._features import parts
from .._features.register import FEATURES
from .._state.history import entries
from .._host.host import Host
from .._state.plan_file import PATH as PLAN
from .._state.plan_file import refuse_newer_plan
from .._state import journal, previous
from .._state.files import FileState, States, is_file, is_ours, leftovers, remove_empty
from .._state.release import Options, Outcome, Release
from .._state.systemd import UNIT_FOLDER, Systemd
from .._state.journal import INTERRUPTED
from .host_files import Transaction, apply, each
from .request import Report as Files
from .request import Request, owned
from .stopped_units import StoppedBefore, enables

_LIBRARY = installed.LIBRARY
_SHARED = (
    PLAN,
    entries.OWNED,
    UNIT_FOLDER + "/npu-affinity-*.service",
    UNIT_FOLDER + "/npu-affinity-*.timer",
    UNIT_FOLDER + "/*.d/50-npu-affinity*.conf",
) + (installed.ARCHIVE, installed.COMMAND, installed.COMPLETION)
"""Files to remove with the last feature: those that all features use."""
OWNED = _SHARED + tuple(pattern for feature in FEATURES.values() for pattern in feature.owned)
_FOLDERS = ["/etc/npu-affinity", "/etc/npu-affinity/vnpu", entries.FOLDER, "/run/npu-affinity", _LIBRARY]


_ALL = Options()


class Report(Outcome):
    """What was (or in check mode would be) undone.

    ``bound`` is whether there was anything; ``changes`` maps a path to its file state before and after; ``actions`` is what systemd was
    told; ``releases`` are what the features gave back besides; ``restart_needed`` are the running units that follow at their next start,
    ``slices_left`` the slices without a file that live on because of them.
    """

    def __init__(self, recorded: dict[str, Any]) -> None:
        super().__init__(recorded)
        self.bound = True
        self.changes: dict[str, States] = {}
        self.actions: list[str] = []
        self.releases: dict[str, Release] = {}
        self.restart_needed: list[str] = []
        self.slices_left: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.changes or self.actions) or any(part.changed for part in self.releases.values())

    def settings(self) -> list[dict[str, str]]:
        """Return ``{path, before, after}`` of every setting that was restored."""
        return [row for part in self.releases.values() if part.key == "settings" for row in part.result()]


def unbind(
    host: Host,
    options: Options = _ALL,
    check: bool = False,
    features: Sequence[str] = tuple(FEATURES),
) -> Report:
    """Undo some features, by default all, and return the :class:`Report`.

    With all of them the plan, the host code and the record go as well. ``move_memory`` of the options matters when a unit file of others
    with memory nodes is written back. Raises ``ValueError`` with a sentence, before anything is touched when previous.json is broken.
    """
    recorded = previous.recorded(host)
    refuse_newer_plan(host)
    unbinding = Unbinding(host, Report(recorded), options, features)
    unbinding.look()
    report = unbinding.report
    if not (recorded or report.changed):
        report.bound = False
        return report
    if not check:
        unbinding.carry_out()
    unbinding.finish_releases(check)
    unbinding.finish(check)
    return report


def _concerned(recorded: dict[str, Any], features: Iterable[str], patterns: Iterable[str]) -> dict[str, Any]:
    """Return what the record has of some features, the files that they overwrote and the links of units that they stopped among them."""
    sections = {name: recorded[name] for feature in features for name in FEATURES[feature].sections if name in recorded}

    def is_theirs(path: str, values: Mapping[str, Any]) -> bool:
        return enables(values) in sections or any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)

    files = {path: values for path, values in recorded.get("files", {}).items() if is_theirs(path, values)}
    return dict(sections, files=files) if files else sections


def _files_of_others(host: Host, report: Report) -> list[dict[str, Any]]:
    """Return the recorded files that are to be written back: those whose place is empty, or taken by a managed file."""
    files = []
    for path, values in sorted(report.recorded.get("files", {}).items()):
        now = FileState.of(host, path)
        if now.text is None or is_ours(now.text) or now == FileState.from_record(values):
            files.append(dict(values, path=path))
        else:
            report.warnings.append("%s was changed by someone else since the first bind and stays as it is" % path)
    return files


class _Programs:
    """The running units of features that are undone: stopped before anything else, and noted where they do not stop."""

    def __init__(self, systemd: Systemd, features: Iterable[str], owned: Sequence[str]) -> None:
        self.systemd = systemd
        others = [pattern for name in features for pattern in FEATURES[name].owned if pattern not in owned]
        self.patterns = [
            pattern for name in features for pattern in FEATURES[name].programs if "%s/%s" % (UNIT_FOLDER, pattern) not in others
        ]
        self.units: list[str] = []
        self.still_running = False

    def look(self) -> None:
        self.units = self.systemd.running(self.patterns) if self.patterns else []

    def stop(self) -> None:
        if self.units:
            self.still_running = True
            self.systemd.stop(self.units)
            self.still_running = False

    def note(self) -> None:
        """Let a later run stop those that still run."""
        if self.still_running:
            previous.record(self.systemd.host, INTERRUPTED, ["%s/%s" % (UNIT_FOLDER, unit) for unit in self.units])

    def start(self) -> None:
        """Start the units that ran; without waiting for services, which wait for the lock that is held."""
        units = [unit for unit in self.units if not unit.endswith(".slice")]
        if units:
            self.systemd.start(["--no-block"] + units)


class _Leftovers:
    """What lies on a host besides the files of the features: what their programs wrote, and what killed runs left."""

    def __init__(self, host: Host, features: Iterable[str], whole: bool) -> None:
        self.host = host
        self.features = features
        self.whole = whole

    def paths(self, recorded: dict[str, Any]) -> list[str]:
        written = [path for name in self.features for path in FEATURES[name].leftovers if self.host.exists(path)]
        for told in [FEATURES[name].written for name in self.features]:
            written += told(self.host, recorded) if told else []
        if not self.whole:
            return written
        folders = [UNIT_FOLDER, "/etc/udev/rules.d", *previous.libraries(self.host)] + self.folders()
        folders += ["%s/%s" % (UNIT_FOLDER, name) for name in self.host.names(UNIT_FOLDER, "*.*")]
        paths = [path for folder in folders for path in leftovers(self.host, folder)]
        return paths + written

    def folders(self) -> list[str]:
        return _FOLDERS

    def empty_folders(self) -> list[str]:
        """Return our folders that nothing is in: an earlier run was killed between its last steps."""
        return [folder for folder in self.folders() if self.whole and self.host.exists(folder) and not self.host.names(folder)]


class Unbinding:
    """The undoing of one host. ``look`` reads only; what it finds is reported, and carried out afterwards."""

    def __init__(self, host: Host, report: Report, options: Options, features: Sequence[str], strict: bool = False) -> None:
        self.host = host
        self.strict = strict
        self.whole = not strict and set(features) == set(FEATURES)
        self.owned = parts.owned(features, host.exists) + list(_SHARED if self.whole else ())
        self.owned = installed.everywhere(self.owned, previous.libraries(host))
        self.record = FileState.of(host, previous.PATH)
        self.systemd = Systemd(host)
        self.report = report
        if not self.whole:
            report.recorded = _concerned(report.recorded, features, self.owned)
        self.files: Transaction | None = None
        for name in [name for name in reversed(list(FEATURES)) if name in features]:
            release = FEATURES[name].release
            if release:
                report.releases[name] = release()(host, report, options)
        self.programs = _Programs(self.systemd, features, self.owned)
        self.stopped = StoppedBefore(self.systemd, report)
        self.besides = _Leftovers(host, features, self.whole)
        self.leftovers: list[str] = []
        self.request = Request(
            files=_files_of_others(host, report),
            owned=self.owned,
            restarted=[{"unit": unit, "files": files} for name in features for unit, files in FEATURES[name].restarted],
            move_memory=options.move_memory,
            tolerant=True,
        )

    def look(self) -> None:
        report = self.report
        found = apply(self.host, self.request, check=True)
        for path in owned(self.host, self.owned):
            if not is_file(self.host, path):
                report.warnings.append("%s is not a file of npu.affinity and stays: remove or rename it" % path)
        if self.host.live and found.changed:
            self.programs.look()
        self.stopped.look(self.request)
        if self.whole and found.changes and not report.recorded:
            report.warnings.append(
                "%s is missing: what interrupts and device share were before the first bind is not known, so they stay as they are"
                % previous.PATH
            )
        for part in report.releases.values():
            part.look()
        self.leftovers = self.besides.paths(report.recorded)
        report.changes = dict(found.changes)
        report.changes.update((path, (FileState.of(self.host, path), FileState(None, None))) for path in self.leftovers)
        report.actions = ["remove the empty folder %s" % folder for folder in self.besides.empty_folders()]
        report.actions = list(dict.fromkeys(report.actions + ["stop %s" % unit for unit in self.programs.units] + found.actions))
        report.actions += self.stopped.actions
        report.actions += [action for part in report.releases.values() for action in part.actions]
        report.restart_needed, report.slices_left = found.restart_needed, found.slices_left
        self._note_unfinished(found)

    def carry_out(self) -> None:
        self.report.attempt(None, self.programs.stop)
        for part in self.report.releases.values():
            part.release()
        self._change_files()
        if self.host.live and self.programs.units:
            self.report.attempt(None, self.systemd.forget_failed, "npu-affinity-*")
        self.stopped.run()
        for path in self.leftovers:
            self.report.attempt(None, FileState(None, None).put, self.host, path)

    def _change_files(self) -> None:
        report, done = self.report, self.report.attempt("files", self._apply)
        if done is None:
            report.changes = {path: states for path, states in report.changes.items() if path in self.leftovers}
            report.kept |= {"folders", previous.LIBRARIES, INTERRUPTED} & set(previous.recorded(self.host))
            self.stopped.leave_disabled()  # the links that they had are among the files
            return
        report.restart_needed, report.slices_left = done.restart_needed, done.slices_left
        report.warnings += done.warnings
        for sentence in done.not_started:
            self.report.leave(journal.SECTION, sentence)
        self._note_unfinished(done)

    def _apply(self) -> Files:
        """Change the files; with ``strict`` as a part of another transaction, which takes them back where it fails."""
        if not self.strict:
            return apply(self.host, self.request)
        self.files = Transaction(self.host, self.request)
        self.files.look()
        if self.files.report.changed:
            self.files.run()
        return self.files.report

    def _note_unfinished(self, done: Files) -> None:
        for sentence in done.unfinished:
            self.report.leave(INTERRUPTED, sentence)
            self.report.kept.add(INTERRUPTED)

    def finish_releases(self, check: bool) -> None:
        for part in self.report.releases.values():
            part.finish(check)

    def take_back(self) -> None:
        """Bring back what was undone, in the reverse order. Raises ``ValueError`` with what does not go."""
        steps = [part.take_back for part in reversed(list(self.report.releases.values()))]
        for path in self.leftovers:
            steps.append(functools.partial(self.report.changes[path][0].put, self.host, path))
        steps += self.stopped.undo_steps()
        if self.files is not None:
            steps.append(self.files.undo)
        each(steps + [self.programs.start])

    def finish(self, check: bool) -> None:
        report, folders = self.report, self.report.recorded.get("folders", [])
        if self.files is not None:
            self.files.finish()
        if self.programs.still_running:
            report.kept.add(INTERRUPTED)
        if report.kept and not check and any(self.host.exists(folder) for folder in folders):
            report.kept.add("folders")
        if not self.whole:
            if not check:
                self._forget()
            return
        if self.record.text is not None and not report.kept:
            report.changes[previous.PATH] = (self.record, FileState(None, None))
        if not check:
            self.programs.note()
            previous.keep(self.host, report.kept)
            remove_empty(self.host, self.besides.folders() + folders)

    def _forget(self) -> None:
        """Take what was undone out of the record, which is still needed for other features."""
        self.programs.note()
        recorded = self.report.recorded
        for name in recorded.keys() - self.report.kept:
            before = previous.recorded(self.host).get(name, {})
            left = {path: values for path, values in before.items() if path not in recorded[name]} if name == "files" else None
            previous.replace(self.host, name, left or None)
