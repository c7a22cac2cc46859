# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a transaction does before and after its files: each feature with something of this kind has a :class:`Step`."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, TypeVar

from .._host.host import Host, reason

T = TypeVar("T")


class Step:
    """One part of a transaction besides its files and units.

    ``title`` names it in a sentence, in the plural, where there can be something to undo. ``warnings`` are sentences for the user.
    """

    title = ""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        """Whether something was changed, or after :meth:`look` whether something would be."""
        return False

    @property
    def needed(self) -> bool:
        """Whether the transaction runs because of this step, even if nothing else differs."""
        return self.changed

    @property
    def held(self) -> bool:
        """Whether nothing is applied at all, because the controller does something first."""
        return False

    def look(self, check: bool) -> None:
        """Find out without a write what differs, in check mode also what to report. Raises ``ValueError`` for what is unsafe."""

    def prepare(self) -> None:
        """Record what the other parts of the transaction may change. It comes before the first write."""

    def run(self) -> None:
        """Change the host. Raises ``ValueError`` where that cannot be done wholly."""

    def undo(self) -> None:
        """Restore what :meth:`run` changed, also where it did not end. Raises ``ValueError`` with what could not be restored."""

    def finish(self) -> None:
        """Forget what only :meth:`undo` needs: all steps have succeeded."""


class LiveStep(Step):
    """A step that sets what a feature wants of the running host. ``key``: under which a module returns its result; ``disruptive``: whether
    it can disturb workloads; ``remarks``: sentences for the end of each bind, until what they are about is gone."""

    key = ""
    disruptive = True

    def __init__(self) -> None:
        Step.__init__(self)
        self.remarks: list[str] = []

    def result(self) -> Any:
        """Return what a module returns of the step, as plain data."""

    def lines(self) -> dict[str, list[str]]:
        """Return the lines of the diff by their title."""
        return {}

    def pending(self) -> list[str]:
        """Return what waits for something that the controller does first."""
        return []

    def unsettled(self) -> list[str]:
        """Return what the host itself completes later."""
        return []

    def complete(self) -> None:
        """Do what takes long and cannot be undone, after the transaction. Raises ``ValueError`` with what failed."""


class Check(LiveStep):
    """A step that looks whether the host has what a feature needs: ``find(*arguments)`` returns remarks, or raises ``ValueError``."""

    title = "requirements"

    def __init__(self, find: Callable[..., Optional[List[str]]], *arguments: Any) -> None:
        LiveStep.__init__(self)
        self._find, self._arguments = find, arguments

    def look(self, check: bool) -> None:
        self.remarks = self._find(*self._arguments) or []


class Options(NamedTuple):
    """How features are undone.

    ``npu_smi``: the path of the tool, None to look for it; ``device_share``: whether device share is restored, too, and ``ignore_busy``
    whether a card in use may keep it; ``move_memory`` and ``kubelet_wait``: see :class:`_features.feature.Choices`.
    """

    npu_smi: str | None = None
    device_share: bool = True
    ignore_busy: bool = False
    move_memory: bool = False
    kubelet_wait: int | None = None


class Outcome:
    """What an unbind says. ``recorded``: the sections of previous.json that it is about; ``kept``: those that a later run still needs.

    Sentences: ``failed`` on what a later run tries again, ``warnings`` on what stays, ``pending``, by feature, on what waits.
    """

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        self.warnings: list[str] = []
        self.failed: list[str] = []
        self.pending: dict[str, str] = {}
        self.kept: set[str] = set()

    def attempt(self, section: str | None, function: Callable[..., T], *arguments: Any) -> T | None:
        """Return what a step returns; where it fails, None, with a sentence and the section of previous.json kept for a later run."""
        try:
            return function(*arguments)
        except Exception as error:  # pylint: disable=broad-exception-caught # the other steps have to be taken
            self.leave(section, reason(error))
            return None

    def leave(self, section: str | None, sentence: str) -> None:
        if sentence not in self.failed:
            self.failed.append(sentence)
        if section in self.recorded:
            self.kept.add(section)


class Restore(LiveStep):
    """How one feature restores what is neither a file nor a managed unit, before its files are gone: its programs are stopped.

    What fails is noted in ``outcome``, and every step can be repeated. ``actions``: what is done besides, in words.
    """

    def __init__(self, host: Host, outcome: Outcome, options: Options) -> None:
        LiveStep.__init__(self)
        self.host, self.outcome, self.options = host, outcome, options
        self.actions: list[str] = []

    def settle(self, check: bool) -> None:
        """Do what comes when the files are gone, and say what is left. In check mode nothing else was done."""
