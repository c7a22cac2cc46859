# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a host back to what it was before the first bind, as far as previous.json and the marks in our files tell.

Order: refuse what cannot be read, look, then: our units stopped, what the features hold besides their files given back
(``Feature.restore``), live CPU sets widened and files removed or written back (``_transaction.host_files``), units started that a bind had
stopped, what features give back last, and at the end previous.json. A step that fails is a sentence and keeps its section of previous.json;
the others go on. Every step can be repeated, and what it needs to know stays on the disk until it is done (the plan until the threads are
let go): a run that was killed, or in which a card was busy or a unit masked, is finished by the next one.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
from typing import Any, Callable, Iterable, Iterator, Sequence, TypeVar

from .._host import installed
from .._features import parts
from .._features.register import FEATURES
from .._host.host import CommandError, Host
from .._state import history, journal, previous
from .._state.files import FileState, States, is_file, is_managed, leftovers, remove_empty
from .._state.journal import INTERRUPTED
from .._state.plan_file import PATH as PLAN, refuse_newer_plan
from .._state.step import Options, Outcome, Restore, Step
from .._state.systemd import UNIT_FOLDER, Systemd
from .host_files import Transaction, apply, each
from .request import Report as Files, Request, owned
from .stopped_units import StoppedBefore, enables

T = TypeVar("T")
_SHARED = (
    PLAN,
    history.OWNED,
    UNIT_FOLDER + "/npu-affinity-*.service",
    UNIT_FOLDER + "/npu-affinity-*.timer",
    UNIT_FOLDER + "/*.d/50-npu-affinity*.conf",
    installed.ARCHIVE,
    installed.COMMAND,
    installed.COMPLETION,
)
"""Files to remove with the last feature: those that all features use."""
_FOLDERS = ["/etc/npu-affinity", "/etc/npu-affinity/vnpu", history.FOLDER, "/run/npu-affinity", installed.CODE_FOLDER]
_ALL = Options()


class Report(Outcome):
    """What was (or in check mode would be) undone.

    ``bound`` is whether there was anything; ``changes`` maps a path to its file state before and after; ``actions`` is what systemd was
    told; ``restored`` is what the features gave back besides; ``restart_needed`` are the running units that follow at their next start,
    ``slices_left`` the slices without a file that live on because of them.
    """

    def __init__(self, recorded: dict[str, Any]) -> None:
        super().__init__(recorded)
        self.bound = True
        self.changes: dict[str, States] = {}
        self.actions: list[str] = []
        self.restored: dict[str, Restore] = {}
        self.restart_needed: list[str] = []
        self.slices_left: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.changes or self.actions) or any(part.changed for part in self.restored.values())

    def settings(self) -> list[dict[str, str]]:
        """Return ``{path, before, after}`` of every setting that was restored."""
        return [row for part in self.restored.values() if part.key == "settings" for row in part.result()]


def unbind(host: Host, options: Options = _ALL, check: bool = False, features: Sequence[str] = tuple(FEATURES)) -> Report:
    """Undo some features, by default all, and return the :class:`Report`.

    With all of them the plan, the host code and the record go as well. ``move_memory`` of the options matters when a unit file of others
    with memory nodes is written back. Raises ``ValueError`` with a sentence, before anything is touched when previous.json is broken.
    """
    recorded = previous.recorded(host)
    refuse_newer_plan(host)
    report = Report(recorded)
    unbinding = Unbinding(host, report, options, features)
    unbinding.look()
    if not (recorded or report.changed):
        report.bound = False
        return report
    if not check:
        unbinding.carry_out()
    unbinding.settle(check)
    unbinding.finish(check)
    return report


def _concerned(recorded: dict[str, Any], features: Iterable[str], patterns: Iterable[str]) -> dict[str, Any]:
    """Return what the record has of some features, the files that they overwrote and the links of units that they stopped among them."""
    sections = {name: recorded[name] for feature in features for name in FEATURES[feature].sections if name in recorded}
    files = {
        path: values
        for path, values in recorded.get("files", {}).items()
        if enables(values) in sections or any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
    }
    return dict(sections, files=files) if files else sections


def _files_of_others(host: Host, report: Report) -> dict[str, FileState]:
    """Return the recorded files that are to be written back: those whose place is empty, or taken by a managed file."""
    files = {}
    for path, values in sorted(report.recorded.get("files", {}).items()):
        now, before = FileState.of(host, path), FileState.from_record(values)
        if now.text is None or is_managed(now.text) or now == before:
            files[path] = before
        else:
            report.warnings.append("%s was changed by someone else since the first bind and stays as it is" % path)
    return files


class Unbinding:
    """The undoing of one host. ``look`` reads only; what it finds is reported, and carried out afterwards.

    ``running``: the units that run programs of the features, which are stopped before anything else; ``leftovers``: what lies on the host
    besides the files of the features, because their programs wrote it or a run was killed.
    """

    def __init__(self, host: Host, report: Report, options: Options, features: Sequence[str], strict: bool = False) -> None:
        self.host = host
        self.strict = strict
        self.whole = not strict and set(features) == set(FEATURES)
        self.owned = parts.owned(features, host.exists) + list(_SHARED if self.whole else ())
        self.owned = installed.everywhere(self.owned, previous.code_folders(host))
        self.record = FileState.of(host, previous.PATH)
        self.systemd = Systemd(host)
        self.report = report
        if not self.whole:
            report.recorded = _concerned(report.recorded, features, self.owned)
        self.files: Transaction | None = None
        for name in [name for name in reversed(list(FEATURES)) if name in features]:
            restore = FEATURES[name].restore
            if restore:
                report.restored[name] = restore(host, report, options)
        self.features = features
        self.running: list[str] = []
        self.still_running = False
        self.stopped = StoppedBefore(self.systemd, report)
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
        preview = apply(self.host, self.request, check=True)
        for path in owned(self.host, self.owned):
            if not is_file(self.host, path):
                report.warnings.append("%s is not a file of npu.affinity and stays: remove or rename it" % path)
        if self.host.live and preview.changed:
            others = [pattern for name in self.features for pattern in FEATURES[name].owned if pattern not in self.owned]
            programs = [pattern for name in self.features for pattern in FEATURES[name].programs]
            self.running = self.systemd.running([name for name in programs if "%s/%s" % (UNIT_FOLDER, name) not in others])
        self.stopped.look(self.request)
        if self.whole and preview.changes and not report.recorded:
            report.warnings.append(
                "%s is missing: what interrupts and device share were before the first bind is not known, so they stay as they are"
                % previous.PATH
            )
        for part in report.restored.values():
            part.look(check=False)
        self.leftovers = self._leftovers()
        report.changes = dict(preview.changes)
        report.changes.update((path, (FileState.of(self.host, path), FileState(None, None))) for path in self.leftovers)
        empty = [folder for folder in _FOLDERS if self.whole and self.host.exists(folder) and not self.host.names(folder)]
        report.actions = ["remove the empty folder %s" % folder for folder in empty]  # a run was killed between its last steps
        report.actions = list(dict.fromkeys(report.actions + ["stop %s" % unit for unit in self.running] + preview.actions))
        report.actions += self.stopped.actions
        report.actions += [action for part in report.restored.values() for action in part.actions]
        report.restart_needed, report.slices_left = preview.restart_needed, preview.slices_left
        self._note_unfinished(preview)

    def _leftovers(self) -> list[str]:
        paths = []
        if self.whole:
            folders = [UNIT_FOLDER, "/etc/udev/rules.d", *previous.code_folders(self.host), *_FOLDERS]
            folders += ["%s/%s" % (UNIT_FOLDER, name) for name in self.host.names(UNIT_FOLDER, "*.*")]
            paths = [path for folder in folders for path in leftovers(self.host, folder)]
        for feature in [FEATURES[name] for name in self.features]:
            paths += [path for path in feature.leftovers if self.host.exists(path)]
            paths += feature.written(self.host, self.report.recorded) if feature.written else []
        return paths

    def carry_out(self) -> None:
        self.report.attempt(None, self._stop_programs)
        for part in self.report.restored.values():
            part.run()
        self._change_files()
        if self.host.live and self.running:
            self.report.attempt(None, self.systemd.forget_failed, "npu-affinity-*")
        self.stopped.run()
        for path in self.leftovers:
            self.report.attempt(None, FileState(None, None).write, self.host, path)

    def _stop_programs(self) -> None:
        self.still_running = True
        if self.running:
            self.systemd.stop(self.running)
        self.still_running = False

    def _change_files(self) -> None:
        report, done = self.report, self.report.attempt("files", self._apply)
        if done is None:
            report.changes = {path: states for path, states in report.changes.items() if path in self.leftovers}
            report.kept |= {"folders", previous.CODE_FOLDERS, INTERRUPTED} & set(previous.recorded(self.host))
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

    def settle(self, check: bool) -> None:
        for part in self.report.restored.values():
            part.settle(check)

    def undo(self) -> None:
        """Bring back what was undone, in the reverse order. Raises ``ValueError`` with what does not go."""
        steps = [part.undo for part in reversed(list(self.report.restored.values()))]
        for path in self.leftovers:
            steps.append(functools.partial(self.report.changes[path][0].write, self.host, path))
        steps += self.stopped.undo_steps()
        if self.files is not None:
            steps.append(self.files.undo)
        each(steps + [self._start_programs])

    def _start_programs(self) -> None:
        """Start the units that ran; without waiting for services, which wait for the lock that is held."""
        units = [unit for unit in self.running if not unit.endswith(".slice")]
        if units:
            self.systemd.start(["--no-block"] + units)

    def finish(self, check: bool) -> None:
        report, folders = self.report, self.report.recorded.get("folders", [])
        if self.files is not None:
            self.files.finish()
        if self.still_running:
            report.kept.add(INTERRUPTED)
        if report.kept and not check and any(self.host.exists(folder) for folder in folders):
            report.kept.add("folders")
        if self.whole and self.record.text is not None and not report.kept:
            report.changes[previous.PATH] = (self.record, FileState(None, None))
        if check:
            return
        if self.still_running:  # a later run stops them
            previous.record(self.host, INTERRUPTED, ["%s/%s" % (UNIT_FOLDER, unit) for unit in self.running])
        if self.whole:
            previous.keep(self.host, report.kept)
            remove_empty(self.host, _FOLDERS + folders)
        else:
            self._forget()

    def _forget(self) -> None:
        """Take what was undone out of the record, which is still needed for other features."""
        recorded = self.report.recorded
        for name in recorded.keys() - self.report.kept:
            before = previous.recorded(self.host).get(name, {})
            remaining = {path: values for path, values in before.items() if path not in recorded[name]} if name == "files" else None
            previous.replace(self.host, name, remaining or None)


class _Strict(Report):
    """An unbind that ends with the first step that fails."""

    def attempt(self, section: str | None, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def leave(self, section: str | None, sentence: str) -> None:
        raise ValueError(sentence)


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (CommandError, OSError, ValueError) as error:
        raise ValueError("not everything that is switched off could be unbound: %s" % error)


class SwitchedOff(Step):
    """What earlier binds did for absent features of a desired state, undone wholly or not at all, as the first part of a transaction."""

    def __init__(self, host: Host, npu_smi: str | None, move_memory: bool, features: Sequence[str]) -> None:
        Step.__init__(self)
        self.title = "features that were to be switched off (%s)" % ", ".join(features)
        self.report = _Strict(previous.recorded(host))
        self._unbinding = Unbinding(host, self.report, Options(npu_smi, move_memory=move_memory), features, strict=True)

    @property
    def changed(self) -> bool:
        return self.report.changed

    @property
    def needed(self) -> bool:
        """Whatever is left, and be it a section of previous.json."""
        return True

    def sentences(self) -> list[str]:
        """Return the warnings of all that was undone."""
        return self.report.warnings + [sentence for part in self.report.restored.values() for sentence in part.warnings]

    def look(self, check: bool) -> None:
        with _named():
            self._unbinding.look()
            if check:
                self._unbinding.settle(check=True)

    def run(self) -> None:
        with _named():
            self._unbinding.carry_out()
            self._unbinding.settle(check=False)

    def undo(self) -> None:
        self._unbinding.undo()

    def finish(self) -> None:
        self._unbinding.finish(check=False)
