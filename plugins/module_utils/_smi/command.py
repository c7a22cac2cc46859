# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""npu-smi as features set values by it: what it does not answer, or refuses, is an exception."""

from __future__ import annotations

import time
from typing import Callable, Sequence, TypeVar

from .._host.host import CommandError, Host, Result
from .driver import NPU_SMI_FOLDERS
from .tool import HUNG, find

T = TypeVar("T")
BUDGET = 5
"""The calls of a run take at most so many time limits together, so a boot goes on whatever npu-smi does."""


class Refusal(ValueError):
    """npu-smi did not do what it was told. ``kind`` is that of an ``NpuSmiError``, or ``hung``, ``unreadable`` or ``missing``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Command:
    """npu-smi of one host; ``named`` is the command to use instead of one that is looked for. Every method raises :class:`Refusal`.

    It serves one run: once a call got no answer in time, or all of them took ``budget`` time limits, it makes no more calls.
    """

    def __init__(self, host: Host, named: str | None = None, timeout: float | None = None, budget: float = BUDGET) -> None:
        problems: list[str] = []
        tool = find(host, named, "npu-smi", NPU_SMI_FOLDERS, problems, ["NPUs"])
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
