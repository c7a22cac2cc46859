# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's command-line tool whose failures become sentences instead of exceptions."""

from __future__ import annotations

import posixpath
import shlex
import threading
from shutil import which
from typing import Callable, Collection, Container, Sequence, TypeVar

from .._host.host import ADMINISTRATORS_PATH, CommandError, Host, Result, search_path

T = TypeVar("T")
HUNG = "hung"


class _Query(threading.Thread):
    """One call of a tool, under way; ``answer`` waits for it and returns its result or raises its :class:`CommandError`."""

    def __init__(self, host: Host, command: list[str]) -> None:
        threading.Thread.__init__(self)
        self.host = host
        self.command = command
        self.outcome: Result | CommandError
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.host.run(self.command)
        except CommandError as error:
            self.outcome = error

    def answer(self) -> Result:
        self.join()
        if isinstance(self.outcome, CommandError):
            raise self.outcome
        return self.outcome


class Tool:
    """npu-smi or nvidia-smi of one host.

    ``problems`` collects sentences. ``failure`` is what was wrong with the last answer: None, :data:`HUNG` when there was none in
    time, the ``kind`` of the tool's own error, or ``unreadable``; ``unanswered`` has the queries that got none in time. ``session``:
    whether only the PATH of this session leads to the program, so that units of the host would not find it.
    """

    def __init__(self, host: Host, argv: list[str], problems: list[str]) -> None:
        self.host = host
        self.argv = argv
        self.problems = problems
        self.failure: str | None = None
        self.unanswered: list[str] = []
        self.session = False
        self._unsupported: set[str] = set()
        self._ahead: dict[tuple[str, ...], _Query] = {}

    def ask_ahead(self, *queries: tuple[str, ...]) -> None:
        """Start several queries (tuples of words) at once; :meth:`ask` takes their answers.

        A call takes tenths of a second to seconds, and until the time limit where a controller is silent: together they take as long
        as one.
        """
        self._ahead = {words: _Query(self.host, self.argv + list(words)) for words in queries}

    def settle(self) -> None:
        """Wait for the queries whose answers nobody took, so nothing is left running."""
        for query in self._ahead.values():
            query.join()
        self._ahead = {}

    def ask(self, parse: Callable[[str], T], *words: str, quiet: Container[str] = ()) -> T | None:
        """Return what ``parse`` makes of the answer to ``words``, or None and a sentence when there is no usable answer.

        ``quiet`` names kinds of errors that need no sentence because they say something about the product, not about its state.
        """
        command = self.argv + list(words)
        self.failure = None
        try:
            ahead = self._ahead.pop(words, None)
            result = ahead.answer() if ahead else self.host.run(command)
        except CommandError as error:
            self.failure = HUNG
            self.unanswered.append(" ".join(words))
            self.problems.append("%s." % error)
            return None
        try:
            answer = parse(result.output)
        except ValueError as error:
            self.failure = getattr(error, "kind", "unreadable")
            if self.failure not in quiet and not self._was_said(error, words):
                self.problems.append("'%s' ended with status %d: %s." % (" ".join(command), result.rc, error))
            return None
        if result.rc != 0:
            self.problems.append("'%s' printed data, but ended with status %d." % (" ".join(command), result.rc))
        return answer

    def _was_said(self, error: ValueError, words: Sequence[str]) -> bool:
        """Return whether what cannot work was said before: of another card, or, in a virtual machine, of any query."""
        if getattr(error, "kind", "") != "unsupported":
            return False
        query = "" if getattr(error, "in_guest", False) else " ".join(words[:3])
        was_said = query in self._unsupported
        self._unsupported.add(query)
        return was_said


def find(host: Host, named: str | None, name: str, folders: Sequence[str], problems: list[str], evidence: Collection[str]) -> Tool | None:
    """Return the :class:`Tool`, or None: the named command, else the program found in the folders or on PATH.

    That there is none is a problem when the user named a command or there is ``evidence`` (names of devices) that it is needed.
    """
    if not named:
        program = host.find_program(name, folders)
        if program:
            tool = Tool(host, [program], problems)
            tool.session = host.live and posixpath.dirname(program) not in [*folders, *ADMINISTRATORS_PATH.split(":")]
            return tool
        if evidence:
            places = ", ".join(folders) + (" and on PATH" if host.live else " below %s" % host.root)
            problems.append("%s was not found in %s, but the host has %s." % (name, places, ", ".join(sorted(evidence))))
        return None
    try:
        argv = shlex.split(named)
    except ValueError as error:
        problems.append("The command '%s', named for %s, cannot be split into words: %s." % (named, name, error))
        return None
    if not argv or which(argv[0], path=search_path()) is None:
        problems.append("The command '%s', named for %s, does not exist or is not executable." % (named, name))
        return None
    return Tool(host, argv, problems)
