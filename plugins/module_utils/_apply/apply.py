# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A desired state applied to a host: files and units, and the step of each feature, in one transaction."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Mapping

from .._base.findings import coded
from .._base.outside import require_shape
from .._host import installed
from .._state import diffs
from .._features import parts
from .._features.feature import Choices
from .._features.register import FEATURES
from .._state.history import Applied, digest, newest
from .._host.host import CommandError, Host
from .._state.plan_file import PATH as PLAN
from .._state import previous, sections
from .._state.files import MARKER, states_of
from .._state.host_code import files_of
from .._state.lock import changing
from .._state.log import log_change
from .._base.table import count
from .._transaction import programs
from .._state.journal import INTERRUPTED
from .._transaction.host_files import Undone, apply
from .._transaction.request import Report, Request, compare

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Comparison, FileEntry, NotCompared, Topology
    from .._host.installed import HostCode
    from .._state.step import LiveStep
    from .._transaction.unbind import SwitchedOff

PLAN_ABOUT = MARKER + ": the plan in force. Changes are overwritten."


class Application:
    """One run of :meth:`carry_out`. ``host_code``: returns the files of the host code for a desired state.

    ``failure``: why the host is not as wanted, or ''. What it would report of a transaction that failed was taken back, and is not there.
    """

    def __init__(self, host: Host, state: AppliedState, choices: Choices, host_code: HostCode, check: bool = False) -> None:
        self.host = host
        self.state = state
        self.choices = choices
        self.host_code = host_code
        self.check = check
        self.failure = ""
        self._warnings: list[str] = []
        self._report = Report()
        self._off: SwitchedOff | None = None
        self._named_steps: dict[str, LiveStep] = {}
        self._new = False
        self._waiting = False

    def carry_out(self) -> Application:
        """Bring the host to the state, or in check mode find out what that would change."""
        try:
            require_shape(self.state["live"], sections.LIVE, "live of the desired state")
            with changing(self.host, "module host_files", self.check):
                self._apply()
            self._complete()
        except (OSError, ValueError, CommandError) as error:
            self.failure = str(error)
            if isinstance(error, Undone):
                self._log("failed, %s" % error, [])
        if self.changed and not self.check:
            done = self.result()
            changes = ["write " + path for path in done["files"]] + ["remove " + path for path in done["removed"]] + done["actions"]
            changes += [line for step in self._steps for lines in step.lines().values() for line in lines]
            self._log(count(len(changes), "change"), changes)
        return self

    def _apply(self) -> None:
        last = newest(self.host)
        refuse_parted_code(last and last.state, self.state)
        off = switched_off(self.host, self.state, self.choices)
        made = {name: feature.step(self.host, self.state, self.choices) for name, feature in FEATURES.items() if feature.step}
        steps = {name: step for name, step in made.items() if step}
        first = [step for name, step in steps.items() if FEATURES[name].first]
        after = [step for name, step in steps.items() if not FEATURES[name].first]
        self._named_steps = steps
        request = request_of(self.host, self.state, self.choices, self.host_code, lambda: self._entry(last and last.state))
        try:
            report = apply(self.host, request, self.check, [*([off] if off else []), *first], after)
        except Exception:
            self._named_steps, self._new = {}, False
            raise
        self._off, self._report = off, report
        self._waiting = not self.check and any(step.held for step in self._steps)
        self._warnings = (off.sentences() if off else []) + report.warnings + report.not_started + report.unfinished

    @property
    def _steps(self) -> list[LiveStep]:
        return list(self._named_steps.values())

    def _entry(self, in_force: AppliedState | None) -> Applied:
        """Return what the history is given of this run: the whole state that is in force afterwards."""
        state = parts.deferred(self.state, in_force, [name for name, step in self._named_steps.items() if step.pending()])
        if in_force:
            state = parts.merged(state, in_force)
            self._new = digest(in_force) != digest(state)
        choices = self.choices
        return Applied(choices.action, state, choices.author, choices.reason, choices.run, self._new)

    def _complete(self) -> None:
        """Do what comes when the files stay, each step whatever becomes of the others."""
        if self.check or self._waiting:
            return
        failed = []
        for step in self._steps:
            try:
                step.complete()
            except (OSError, ValueError) as error:
                failed.append(str(error))
        self._warnings += programs.run_again(self.host, self._report.failed_units)
        if failed:
            raise ValueError("; ".join(failed))

    @property
    def disruptive(self) -> bool:
        """Whether what changed can disturb workloads."""
        if self._waiting:
            return False
        return (
            self._report.disruptive or bool(self._off and self._off.changed) or any(step.changed for step in self._steps if step.disruptive)
        )

    @property
    def changed(self) -> bool:
        return not self._waiting and (self.disruptive or self._report.changed or any(step.changed for step in self._steps) or self._new)

    def sentences(self) -> list[str]:
        """Return the warnings of all parts, each once."""
        return list(dict.fromkeys(self._warnings + [sentence for step in self._steps for sentence in step.warnings]))

    def remarks(self) -> list[str]:
        """Return the sentences that each bind reports."""
        return coded("NPU_PROGRAM_MISSING", self._report.untried) + [sentence for step in self._steps for sentence in step.remarks]

    def waits(self) -> list[str]:
        """Return what is completed later: units that a restart lets follow, interrupts that have to fire, a kubelet that is not drained."""
        return self._report.restart_needed + [sentence for step in self._steps for sentence in [*step.pending(), *step.unsettled()]]

    def diff(self) -> diffs.Diff:
        result = diffs.Diff()
        if self._off:
            result.add_unbind(self._off.report)
        result.add_files(self._report.changes, self._report.actions, self._report.restart_needed)
        for step in self._steps:
            result.add_lines(step.lines())
        return result

    def result(self) -> dict[str, Any]:
        """Return what module ``host_files`` returns besides the diff."""
        off = self._off.report if self._off else None
        both = [report for report in (off, self._report) if report]
        changes = [(path, after) for report in both for path, (_before, after) in report.changes.items()]
        results = {step.key: step.result() for step in self._steps if step.key}
        return {
            "changed": self.changed,
            "disruptive": self.disruptive,
            "files": [path for path, after in changes if after.text is not None],
            "removed": [path for path, after in changes if after.text is None],
            "actions": [action for report in both for action in report.actions],
            "restart_needed": [unit for report in both for unit in report.restart_needed],
            "remarks": self.remarks(),
            "history": self._report.history,
            **results,
            "settings": (off.settings() if off else []) + [row for step in self._steps if step.key == "settings" for row in step.result()],
        }

    def _log(self, text: str, changes: list[str]) -> None:
        """Say in the journal of the host what was changed, or that a change was taken back."""
        choices = self.choices
        log_change(self.host, choices.action, choices.author, text, changes, choices.reason, self._report.history, choices.run)


def refuse_parted_code(in_force: AppliedState | None, state: AppliedState) -> None:
    """Raise ``ValueError`` where features that this run leaves alone would lose the host code that their units run."""
    before, after = installed.code_folder(in_force), installed.code_folder(state)
    features = in_force["features"] if in_force and before != after else {}
    stranded = [name for name, there in features.items() if there == "present" and name not in state["features"]]
    if stranded:
        text = "npu_affinity_library is %s, and the host code is in %s, where feature %s needs it: bind the host as a whole"
        raise ValueError(text % (after, before, ", ".join(stranded)))


def switched_off(host: Host, state: AppliedState, choices: Choices) -> SwitchedOff | None:
    """Return what undoes the features that are absent and have left something on the host, or that a killed run has begun to undo."""
    recorded, features = previous.recorded(host), []
    for name, traces in sorted(state["absent"].items()):
        request = Request(owned=installed.everywhere(traces["owned"], recorded.get(previous.CODE_FOLDERS, [])))
        begun = [path for path in recorded.get(INTERRUPTED, []) if request.concerns(path)]
        if not FEATURES[name].undone_by_step and (not recorded.keys().isdisjoint(traces["sections"]) or begun or compare(host, request)):
            features.append(name)
    if not features:
        return None
    from .._transaction.unbind import SwitchedOff  # its imports cost a host more than the rest

    return SwitchedOff(host, state.get("npu_smi"), choices.move_memory, features)


def request_of(host: Host, state: AppliedState, choices: Choices, host_code: HostCode, applied: Callable[[], Applied]) -> Request:
    """Return the files and units of a desired state with those that the collection adds.

    What units read and run comes before them: where power fails in between, the boot meets no unit that cannot run.
    """
    undone = {pattern for traces in state["absent"].values() for pattern in traces["owned"]}
    undone -= {pattern for feature in FEATURES.values() for pattern, file in feature.shared.items() if host.exists(file)}
    files: list[FileEntry] = []
    owned = [pattern for pattern in state["owned"] if pattern not in undone]
    if state["plan"]:
        files.append({"path": PLAN, "content": previous.dump(PLAN_ABOUT, state["plan"])})
    if state["runtime"]:
        files += host_code(state)
    if state["runtime"] or set(state["features"]) >= {name for name, feature in FEATURES.items() if feature.owned}:
        owned += (installed.ARCHIVE, installed.COMMAND, installed.COMPLETION)
    files += state["files"]
    given: Mapping[str, Any] = state
    return Request(
        states_of(files),
        installed.everywhere(owned, previous.code_folders(host)),
        move_memory=choices.move_memory,
        applied=applied,
        **{name: given[name] for name in ("enabled", "started", "stopped", "released", "restarted", "expected")},
    )


def dry_run(root: str, state: AppliedState, topology: Topology, archive: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return what applying the state in force once more would change, and what it would leave as it should not be.

    Module ``gather`` runs this from the installed host code, so it need not send what applies a state. The result is ``differs``,
    ``compared`` and ``remarks`` as that returns them, and warnings. ``archive`` is the installed one, which a bind would install.
    """
    host = Host(root, 90)
    code = functools.partial(files_of, archive=archive.decode("utf-8", "surrogateescape"))
    applied = Application(host, state, Choices(), code, check=True).carry_out()
    differs = [applied.failure] if applied.failure else applied.diff().lines() + applied.waits()
    compared = _compared(host, topology, code) if not differs else None
    return {"differs": differs, "compared": compared, "remarks": applied.remarks()}, applied.sentences()


def _compared(host: Host, topology: Topology, code: HostCode) -> Comparison | NotCompared | None:
    """Return the comparison of a host on which a bind would change nothing; None where nothing differs and all work is placed."""
    from .._drift.in_force import compare, comparison  # a host that is not as wanted needs none

    gathered: Any = {"npus": topology["npus"], "users": topology.get("users") or [], "silent": topology.get("silent") or {}}
    try:
        compared = comparison(host, compare(host, gathered, host_code=code))
    except (OSError, ValueError, CommandError) as error:
        return {"msg": str(error)}
    return compared if compared["drift"] or compared["outside"] else None
