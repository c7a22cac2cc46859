# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a feature restores at unbind besides its files, units and folders: each has a :class:`Release`, which an unbind runs."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, TypeVar

from .._host.host import Host, reason

T = TypeVar("T")


class Options(NamedTuple):
    """How features are undone.

    ``npu_smi``: the path of the tool, None to look for it; ``device_share``: whether device share is restored, too, and ``ignore_busy``
    whether a card in use may keep it; ``move_memory``: see
    :class:`_transaction.request.Request`; ``kubelet_wait``: see :class:`_features.feature.Choices`.
    """

    npu_smi: str | None = None
    device_share: bool = True
    ignore_busy: bool = False
    move_memory: bool = False
    kubelet_wait: int | None = None


class Outcome:
    """What an unbind says. ``recorded``: the sections of previous.json that it is about; ``kept``: those that a later run still needs.

    Sentences: ``failed`` on what a later run tries again, ``warnings`` on what stays, ``pending`` on what waits for the controller, by
    feature.
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


class Release:
    """How one feature gives back what is neither a file nor a managed unit. Every step can be repeated.

    ``report``: what was or would be released, in the shape that the feature has for it; ``actions``: what is done besides, in words.
    ``key``: under which a module returns its result.
    """

    key = ""
    report: Any = None

    def __init__(self, host: Host, outcome: Outcome, options: Options) -> None:
        self.host = host
        self.outcome = outcome
        self.options = options
        self.actions: list[str] = []

    @property
    def changed(self) -> bool:
        return self.report is not None and self.report.changed

    def result(self) -> Any:
        """Return what a module returns of it, as plain data."""

    def lines(self) -> dict[str, list[str]]:
        """Return the lines of the diff by their title."""
        return {}

    def failures(self) -> list[str]:
        """Return a sentence for each part that was not given back and that the outcome does not tell."""
        return []

    def warnings(self) -> list[str]:
        """Return sentences for the user that the outcome does not tell."""
        return []

    def look(self) -> None:
        """Find out, without a write, what there is to give back."""

    def release(self) -> None:
        """Give it back, while the files of the feature are still there and its programs are stopped."""

    def finish(self, check: bool) -> None:
        """Do what comes when the files are gone, and say what is left. In check mode nothing else was done."""

    def take_back(self) -> None:
        """Bring back what was released, because the transaction failed. Raises what it raises."""
