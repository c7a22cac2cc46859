# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's command-line tool whose failures become sentences where a host is gathered, and exceptions where values are set by it."""

from __future__ import annotations

import posixpath
import re
import shlex
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from shutil import which
from typing import Callable, Collection, Container, Sequence, TypeVar

from .._host.host import ADMINISTRATORS_PATH, CommandError, Host, Result, search_path

T = TypeVar("T")
HUNG = "hung"
BUDGET = 5
"""The calls of a :class:`Command` take at most so many time limits together, so a boot goes on whatever npu-smi does."""


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
        self._ahead: dict[tuple[str, ...], Future[Result]] = {}

    def ask_ahead(self, *queries: tuple[str, ...]) -> None:
        """Start several queries (tuples of words) at once; :meth:`ask` takes their answers.

        A call takes tenths of a second to seconds, and until the time limit where a controller is silent: together they take as long
        as one.
        """
        with_threads = ThreadPoolExecutor(len(queries) or 1)
        self._ahead = {words: with_threads.submit(self.host.run, self.argv + list(words)) for words in queries}
        with_threads.shutdown(wait=False)

    def settle(self) -> None:
        """Wait for the queries whose answers nobody took, so nothing is left running."""
        wait(self._ahead.values())
        self._ahead = {}

    def ask(self, parse: Callable[[str], T], *words: str, quiet: Container[str] = ()) -> T | None:
        """Return what ``parse`` makes of the answer to ``words``, or None and a sentence when there is no usable answer.

        ``quiet`` names kinds of errors that need no sentence because they say something about the product, not about its state.
        """
        command = self.argv + list(words)
        self.failure = None
        try:
            ahead = self._ahead.pop(words, None)
            result = ahead.result() if ahead else self.host.run(command)
        except CommandError as error:
            self.failure = HUNG
            self.unanswered.append(" ".join(words))
            self.problems.append("%s." % error)
            return None
        try:
            answer = parse(result.output)
        except ValueError as error:
            self.failure = getattr(error, "kind", "unreadable")
            if self.failure not in quiet and not self._is_repeated(error, words):
                self.problems.append("'%s' ended with status %d: %s." % (" ".join(command), result.rc, error))
            return None
        if result.rc != 0:
            self.problems.append("'%s' printed data, but ended with status %d." % (" ".join(command), result.rc))
        return answer

    def _is_repeated(self, error: ValueError, words: Sequence[str]) -> bool:
        """Return whether what cannot work was said before: of another card, or, in a virtual machine, of any query."""
        if getattr(error, "kind", "") != "unsupported":
            return False
        query = "" if getattr(error, "in_guest", False) else " ".join(words[:3])
        is_repeated = query in self._unsupported
        self._unsupported.add(query)
        return is_repeated


def find(host: Host, command: str | None, name: str, folders: Sequence[str], problems: list[str], evidence: Collection[str]) -> Tool | None:
    """Return the :class:`Tool`, or None: the named command, else the program found in the folders or on PATH.

    That there is none is a problem when the user named a command or there is ``evidence`` (names of devices) that it is needed.
    """
    if not command:
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
        argv = shlex.split(command)
    except ValueError as error:
        problems.append("The command '%s', named for %s, cannot be split into words: %s." % (command, name, error))
        return None
    if not argv or which(argv[0], path=search_path()) is None:
        problems.append("The command '%s', named for %s, does not exist or is not executable." % (command, name))
        return None
    return Tool(host, argv, problems)


class Refusal(ValueError):
    """npu-smi did not do what it was told. ``kind`` is that of an ``NpuSmiError``, or ``hung``, ``unreadable`` or ``missing``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Command:
    """npu-smi of one host; ``command`` is the one to use instead of one that is looked for. Every method raises :class:`Refusal`.

    It serves one run: once a call got no answer in time, or all of them took ``budget`` time limits, it makes no more calls.
    """

    def __init__(self, host: Host, command: str | None = None, timeout: float | None = None, budget: float = BUDGET) -> None:
        problems: list[str] = []
        tool = find(host, command, "npu-smi", NPU_SMI_FOLDERS, problems, ["NPUs"])
        if tool is None:
            raise Refusal("missing", problems[0].rstrip("."))
        self._host, self._argv = host, tool.argv
        self._limit = timeout or host.timeout
        self._budget = self._most = budget * self._limit
        self._silent = ""

    def run(self, words: Sequence[str], stdin: str = "") -> Result:
        if self._silent:
            raise Refusal(HUNG, "npu-smi was not called, because " + self._silent)
        start = time.monotonic()
        try:
            return self._host.run([*self._argv, *words], stdin, min(self._budget, self._limit))
        except CommandError as error:
            self._silent = str(error)
            raise Refusal(HUNG, str(error))
        finally:
            self._budget -= time.monotonic() - start
            if self._budget <= 0:
                self._silent = "its answers took %g s together, which is the limit for a run" % self._most

    def ask(self, parse: Callable[[str], T], *words: str) -> T:
        output = self.run(["info", *words]).output
        try:
            return parse(output)
        except ValueError as error:
            raise Refusal(getattr(error, "kind", "unreadable"), str(error))


NPU_SMI_FOLDERS = ("/usr/local/Ascend/driver/tools", "/usr/local/sbin", "/usr/local/bin")
VERSION_FILE = "/usr/local/Ascend/driver/version.info"
OLDEST_DRIVER = "25.5"
"""The first driver whose device share serves soft split."""
_VERSION = re.compile(r"^Version\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def installed_version(host: Host) -> str | None:
    """Return the version that the driver's own file states, or None."""
    stated = _VERSION.search(host.read(VERSION_FILE) or "")
    return stated.group(1) if stated else None


def is_older(version: str, other: str) -> bool:
    """Whether a driver version is older than another one; release candidates come before the release (``26.0.rc2`` < ``26.0``)."""
    return _order(version) < _order(other)


def _order(version: str) -> tuple[list[int], list[float]]:
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"\.rc", version.lower())[0])]
    candidate: list[float] = [int(number) for number in re.findall(r"\d+", "".join(re.split(r"\.rc", version.lower())[1:]))]
    return (numbers + [0] * 4)[:4], candidate or [float("inf")]
