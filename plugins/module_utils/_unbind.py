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

import contextlib
import fnmatch
import functools
import posixpath
from typing import Any, Callable, Iterator, Sequence, TypeVar

from . import _installed
from ._features.register import FEATURES
from ._history import entries
from ._host import CommandError, Host
from ._features.irq.feature import UNCHANGEABLE
from ._plan_file import PATH as PLAN
from ._plan_file import refuse_newer_plan
from ._state import journal, previous
from ._state.files import FileState, States, is_file, is_ours, leftovers, remove_empty
from ._state.release import Options, Outcome, Release
from ._state.systemd import UNIT_FOLDER, UNIT_SUFFIX, Systemd, enable_links
from ._transaction import host_files
from ._transaction.host_files import INTERRUPTED, Request, Transaction, apply, each, standing, take_away
from ._state.step import Step

T = TypeVar("T")
_LIBRARY = _installed.LIBRARY
_SHARED = (
    (
        PLAN,
        entries.OWNED,
        UNIT_FOLDER + "/npu-affinity-*.service",
        UNIT_FOLDER + "/npu-affinity-*.timer",
        UNIT_FOLDER + "/*.d/50-npu-affinity*.conf",
    )
    + _installed.OWNED
    + (_installed.COMMAND, _installed.COMPLETION)
)
"""What goes with the last feature: files of all of them, and those of other versions."""
OWNED = _SHARED + tuple(pattern for feature in FEATURES.values() for pattern in feature.owned)
_FOLDERS = ["/etc/npu-affinity", "/etc/npu-affinity/vnpu", entries.FOLDER, posixpath.dirname(UNCHANGEABLE), _LIBRARY]


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

    def of(self, feature: str) -> Any:
        """Return what a feature gave back, in its own shape, or None."""
        return self.releases[feature].report if feature in self.releases else None


def unbind(
    host: Host,
    npu_smi: str | None = None,
    device_share: bool = True,
    move_memory: bool = False,
    check: bool = False,
    features: Sequence[str] = tuple(FEATURES),
) -> Report:
    """Undo some features, by default all, and return the :class:`Report`.

    With all of them the plan, the host code and the record go as well. ``device_share``: whether it is put back, too. ``move_memory``: see
    :class:`_transaction.host_files.Request`; it matters when a unit file of others with memory nodes is written back. Raises ``ValueError``
    with a sentence, before anything is touched when previous.json is broken.
    """
    recorded = previous.recorded(host)
    refuse_newer_plan(host)
    options = Options(npu_smi, device_share, move_memory)
    unbinding = _Unbinding(host, Report(recorded), options, features)
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


class SwitchedOff(Step):
    """What earlier binds did for features that are absent, undone wholly or not at all, as the first part of a transaction."""

    def __init__(self, host: Host, npu_smi: str | None, move_memory: bool, features: Sequence[str]) -> None:
        Step.__init__(self)
        self.title = "features that were to be switched off (%s)" % ", ".join(features)
        self.report = _Strict(previous.recorded(host))
        self._unbinding = _Unbinding(host, self.report, Options(npu_smi, True, move_memory), features, strict=True)

    @property
    def changed(self) -> bool:
        return self.report.changed

    @property
    def needed(self) -> bool:
        """Whatever is left, and be it a section of previous.json."""
        return True

    def sentences(self) -> list[str]:
        """Return the warnings of all that was undone."""
        return self.report.warnings + [sentence for part in self.report.releases.values() for sentence in part.warnings()]

    def look(self, check: bool) -> None:
        with _named():
            self._unbinding.look()
            if check:
                self._unbinding.finish_releases(check=True)
                self.report.require_all()

    def run(self) -> None:
        with _named():
            self._unbinding.carry_out()
            self._unbinding.finish_releases(check=False)
            self.report.require_all()

    def undo(self) -> None:
        self._unbinding.take_back()

    def finish(self) -> None:
        self._unbinding.finish(check=False)


class _Strict(Report):
    """An unbind that ends with the first step that fails."""

    def attempt(self, section: str | None, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def leave(self, section: str | None, sentence: str) -> None:
        raise ValueError(sentence)

    def require_all(self) -> None:
        failures = self.failed + [sentence for part in self.releases.values() for sentence in part.failures()]
        if failures:
            raise ValueError("; ".join(failures))


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except (CommandError, OSError, ValueError) as error:
        raise ValueError("what is switched off could not all be unbound: %s" % error)


class _Unbinding:
    """The undoing of one host. ``look`` reads only; what it finds is reported, and carried out afterwards."""

    def __init__(self, host: Host, report: Report, options: Options, features: Sequence[str], strict: bool = False) -> None:
        self.host = host
        self.features = features
        self.strict = strict
        self.whole = not strict and set(features) == set(FEATURES)
        self.owned = [pattern for name in features for pattern in FEATURES[name].owned] + list(_SHARED if self.whole else ())
        self.recorded = report.recorded if self.whole else self._concerned(report.recorded)
        self.record = FileState.of(host, previous.PATH)
        self.systemd = Systemd(host)
        self.report = report
        report.recorded = self.recorded
        self.files: Transaction | None = None
        self.before: dict[str, host_files.Standing] = {}
        for name in [name for name in reversed(list(FEATURES)) if name in features]:
            release = FEATURES[name].release
            if release:
                self.report.releases[name] = release()(host, self.report, options)
        self.programs: list[str] = []
        self.still_running = False
        self.enabled: list[tuple[str, str]] = []
        self.started: list[str] = []
        self.leftovers: list[str] = []
        self.request = Request(
            files=self._files_of_others(),
            owned=self.owned,
            restarted=[{"unit": unit, "files": files} for name in features for unit, files in FEATURES[name].restarted],
            move_memory=options.move_memory,
            tolerant=True,
        )

    def _concerned(self, recorded: dict[str, Any]) -> dict[str, Any]:
        """Return what the record has of the features that are undone, files that they overwrote among them."""
        sections = {name: recorded[name] for feature in self.features for name in FEATURES[feature].sections if name in recorded}
        files = {path: values for path, values in recorded.get("files", {}).items() if self._is_owned(path)}
        return dict(sections, files=files) if files else sections

    def _is_owned(self, path: str) -> bool:
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.owned)

    def _files_of_others(self) -> list[dict[str, Any]]:
        """Return the recorded files that are to be written back: those whose place is empty, or taken by a file of ours."""
        files = []
        for path, values in sorted(self.recorded.get("files", {}).items()):
            now = FileState.of(self.host, path)
            if now.text is None or is_ours(now.text) or now == FileState.from_record(values):
                files.append(dict(values, path=path))
            else:
                self.report.warnings.append("%s was changed by someone else since the first bind and stays as it is" % path)
        return files

    def look(self) -> None:
        report = self.report
        found = apply(self.host, self.request, check=True)
        for path in host_files.owned(self.host, self.owned):
            if not is_file(self.host, path):
                report.warnings.append("%s is not a file of npu.affinity and stays: remove or rename it" % path)
        self._look_at_programs(found)
        self._look_at_stopped_units()
        if self.whole and found.changes and not self.recorded:
            report.warnings.append(
                "%s is missing: what interrupts and device share were before the first bind is not known, so they stay as they are"
                % previous.PATH
            )
        for part in report.releases.values():
            part.look()
        self.leftovers = self._find_leftovers()
        report.changes = dict(found.changes)
        report.changes.update((path, (FileState.of(self.host, path), FileState(None, None))) for path in self.leftovers)
        report.actions = ["remove the empty folder %s" % folder for folder in self._empty_folders()]
        report.actions = list(dict.fromkeys(report.actions + ["stop %s" % unit for unit in self.programs] + found.actions))
        report.actions += ["enable %s" % unit for unit, _text in self.enabled] + ["start %s" % unit for unit in self.started]
        report.actions += [action for part in report.releases.values() for action in part.actions]
        report.restart_needed, report.slices_left = found.restart_needed, found.slices_left
        self._note_unfinished(found)

    def _look_at_programs(self, found: host_files.Report) -> None:
        if self.host.live and found.changed:
            patterns = [pattern for name in self.features for pattern in FEATURES[name].programs]
            self.programs = self.systemd.running(patterns) if patterns else []

    def _look_at_stopped_units(self) -> None:
        for unit, values in sorted(self.recorded.items()):
            if not UNIT_SUFFIX.search(unit):
                continue
            text = self.systemd.text(unit)
            if self.systemd.masked(unit):
                advice = "systemctl unmask %s, and unbind again" % unit
                self.report.leave(
                    unit, "%s was stopped by a bind and has been masked since, so that it is not started: %s" % (unit, advice)
                )
                continue
            if text is None:
                self.report.warnings.append("%s was stopped by a bind and is not installed any more" % unit)
                continue
            # On a running machine always: what stands for System V's run levels is not a link of systemd's.
            missing = [link for link in enable_links(unit, text) if not self.host.exists(link) and link not in self.request.files]
            if values.get("enabled", True) and (missing or self.host.live):
                self.enabled.append((unit, text))
            if self.host.live and values.get("running") and not self.systemd.active([unit]):
                self.started.append(unit)

    def _find_leftovers(self) -> list[str]:
        """Return what our programs wrote besides the owned files, and the temporary files of runs that were killed."""
        written = [path for name in self.features for path in FEATURES[name].leftovers if self.host.exists(path)]
        for told in [FEATURES[name].written for name in self.features]:
            written += told(self.host, self.recorded) if told else []
        if not self.whole:
            return written
        folders = [UNIT_FOLDER, "/etc/udev/rules.d"] + self._folders()
        folders += ["%s/%s" % (UNIT_FOLDER, name) for name in self.host.names(UNIT_FOLDER, "*.*")]
        paths = [path for folder in folders for path in leftovers(self.host, folder)]
        return paths + _installed.former_bytecode(self.host) + written

    def _folders(self) -> list[str]:
        return _FOLDERS + _installed.former_folders(self.host)

    def _empty_folders(self) -> list[str]:
        """Return our folders that nothing is in: an earlier run was killed between its last steps."""
        return [folder for folder in self._folders() if self.whole and self.host.exists(folder) and not self.host.names(folder)]

    def carry_out(self) -> None:
        self.report.attempt(None, self._stop_programs)
        for part in self.report.releases.values():
            part.release()
        self._change_files()
        if self.host.live and self.programs:
            self.report.attempt(None, self.systemd.forget_failed, "npu-affinity-*")
        self._start_units()
        for path in self.leftovers:
            self.report.attempt(None, FileState(None, None).put, self.host, path)

    def _stop_programs(self) -> None:
        if self.programs:
            self.still_running = True
            self.systemd.stop(self.programs)
            self.still_running = False

    def _change_files(self) -> None:
        report, done = self.report, self.report.attempt("files", self._apply)
        if done is None:
            report.changes = {path: states for path, states in report.changes.items() if path in self.leftovers}
            report.kept |= {"folders", INTERRUPTED} & set(previous.recorded(self.host))
            report.kept |= {unit for unit, _text in self.enabled}
            self.enabled = []  # the links that they had are among the files
            return
        report.restart_needed, report.slices_left = done.restart_needed, done.slices_left
        report.warnings += done.warnings
        for sentence in done.not_started:
            self.report.leave(journal.SECTION, sentence)
        self._note_unfinished(done)

    def _apply(self) -> host_files.Report:
        """Change the files; with ``strict`` as a part of another transaction, which takes them back where it fails."""
        if not self.strict:
            return apply(self.host, self.request)
        self.files = Transaction(self.host, self.request)
        self.files.look()
        if self.files.report.changed:
            self.files.run()
        return self.files.report

    def _note_unfinished(self, done: host_files.Report) -> None:
        for sentence in done.unfinished:
            self.report.leave(INTERRUPTED, sentence)
            self.report.kept.add(INTERRUPTED)

    def _start_units(self) -> None:
        """Enable and start what a bind had stopped, one after the other: one that does not start holds up nothing else."""
        self.before = {unit: standing(self.host, self.systemd, unit) for unit in [unit for unit, _text in self.enabled] + self.started}
        for unit, text in self.enabled:
            self.report.attempt(unit, self.systemd.enable, unit, text)
        if self.host.live and self.enabled:
            self.report.attempt(None, self.systemd.reload)
        for unit in self.started:
            self.report.attempt(unit, self.systemd.start, [unit])

    def finish_releases(self, check: bool) -> None:
        for part in self.report.releases.values():
            part.finish(check)

    def take_back(self) -> None:
        """Bring back what was undone, in the reverse order. Raises ``ValueError`` with what does not go."""
        steps = [part.take_back for part in reversed(list(self.report.releases.values()))]
        for path in self.leftovers:
            steps.append(functools.partial(self.report.changes[path][0].put, self.host, path))
        for unit, before in self.before.items():
            steps.append(functools.partial(take_away, self.host, self.systemd, unit, self.systemd.text(unit), before))
        if self.files is not None:
            steps.append(self.files.undo)
        each(steps + [self._start_programs])

    def _start_programs(self) -> None:
        """Start the units that ran; without waiting for services, which wait for the lock that is held."""
        units = [unit for unit in self.programs if not unit.endswith(".slice")]
        if units:
            self.systemd.start(["--no-block"] + units)

    def finish(self, check: bool) -> None:
        report, folders = self.report, self.recorded.get("folders", [])
        if self.files is not None:
            self.files.finish()
        if self.still_running:
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
            if self.still_running:
                previous.record(self.host, INTERRUPTED, ["%s/%s" % (UNIT_FOLDER, unit) for unit in self.programs])
            previous.keep(self.host, report.kept)
            remove_empty(self.host, self._folders() + folders)

    def _forget(self) -> None:
        """Take what was undone out of the record, which is still needed for other features."""
        if self.still_running:
            previous.record(self.host, INTERRUPTED, ["%s/%s" % (UNIT_FOLDER, unit) for unit in self.programs])
        for name in self.recorded.keys() - self.report.kept:
            before = previous.recorded(self.host).get(name, {})
            left = {path: values for path, values in before.items() if path not in self.recorded[name]} if name == "files" else None
            previous.replace(self.host, name, left or None)
