# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What npu-smi can be asked and told about device share.

It asks Y or N on standard input, ends with 0 where a product can't do it, says OK where nothing was recorded, and stops half-way when a
container holds one chip of a card. So a set command's answer only says what went wrong; what is right, a second query says.
"""

from __future__ import annotations

import posixpath
import re
import time
from typing import Any, Callable, Iterable, Mapping, TypeVar

from ..._host.host import CommandError, Host, Result
from ..._npu_smi import find_error, parse_device_share, parse_info, parse_mapping
from ..._smi.driver import NPU_SMI_FOLDERS
from ..._smi.tool import find
from ..._users.register import register_npus
from .calls import Change, Chips, State

T = TypeVar("T")
BUDGET = 5
"""The calls of a run take at most so many time limits together, so a boot goes on whatever npu-smi does."""
_FAILED = re.compile(r"^\s*Status\s*:\s*Fail", re.MULTILINE | re.IGNORECASE)


class Refusal(Exception):
    """npu-smi did not do what it was told. ``kind`` is that of an ``NpuSmiError``, or ``hung`` or ``unreadable``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Cards:
    """The cards of a host: ``chips`` is ``{card: [chips]}``, ``by_chip`` those whose chips are switched one by one.

    ``rows`` are those of ``info -m``, or NPUs of the fact ``npu_affinity_topology``.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.chips: dict[int, list[int]] = {}
        self.by_chip: set[int] = set()
        for row in rows:
            self.chips.setdefault(row["card"], []).append(row["chip"] or 0)
            family, name = row.get("family"), row.get("name") or ""
            if "310" in (family or name):
                self.by_chip.add(row["card"])

    @classmethod
    def of_topology(cls, topology: Mapping[str, Any]) -> Cards:
        return cls([npu for npu in topology["npus"] if npu["kind"] == "npu" and npu["card"] is not None])


class ShareTool:
    """npu-smi of one host; ``named`` is the command to use instead of one that is looked for. Every method raises :class:`Refusal`.

    It serves one run: once a call got no answer in time, or all of them took :data:`BUDGET`, it makes no more calls.
    """

    def __init__(self, host: Host, named: str | None = None) -> None:
        problems: list[str] = []
        tool = find(host, named, "npu-smi", NPU_SMI_FOLDERS, problems, ["NPUs"])
        if tool is None:
            raise Refusal("unavailable", problems[0].rstrip("."))
        self._tool = tool
        self._budget: float = BUDGET * host.timeout
        self._silent = ""

    def _run(self, words: list[str], stdin: str = "") -> Result:
        if self._silent:
            raise Refusal("hung", "npu-smi was not called, because " + self._silent)
        start = time.monotonic()
        try:
            return self._tool.host.run(self._tool.argv + words, stdin, min(self._budget, self._tool.host.timeout))
        except CommandError as error:
            self._silent = str(error)
            raise Refusal("hung", str(error))
        finally:
            self._budget -= time.monotonic() - start
            if self._budget <= 0:
                limit = BUDGET * self._tool.host.timeout
                self._silent = "its answers took %g s together, which is the limit for a run" % limit

    def _ask(self, parse: Callable[[str], T], *words: str) -> T:
        output = self._run(["info"] + list(words)).output
        try:
            return parse(output)
        except ValueError as error:
            raise Refusal(getattr(error, "kind", "unreadable"), str(error))

    def cards(self) -> Cards:
        return Cards(self._ask(parse_mapping, "-m"))

    def version(self) -> str | None:
        """Return the version of the driver as npu-smi prints it."""
        version: str | None = self._ask(parse_info)["version"]
        return version

    def used(self, card: int) -> tuple[list[int], list[str]]:
        """Return the PIDs that npu-smi lists for a card, not all of them, and the names of its device files; none if it does not answer."""
        try:
            found = self._ask(parse_info)
        except Refusal:
            return [], []
        npus = [dict(row, kind="npu", id=place) for place, row in enumerate(found["chips"])]
        register_npus(self._tool.host, npus, None, [])
        files = [npu["device"]["file"] for npu in npus if npu["card"] == card and npu["device"]["file"]]
        return [row["pid"] for row in found["processes"] if row["card"] == card], [posixpath.basename(file) for file in files]

    def share(self, card: int) -> Chips:
        """Return ``{chip: True|False|None}`` of a card. Newer tools answer nothing without ``-i``."""
        return states(self._ask(parse_device_share, "-t", "device-share", "-i", str(card)), card).get(card, {})

    def change(self, change: Change) -> None:
        """Make a :class:`Change`. That there is no :class:`Refusal` does not prove it."""
        result = self._run(change.words, stdin="Y\n")
        error = refusal(result.output, result.rc)
        if error:
            raise error


def states(rows: Iterable[Mapping[str, Any]], card: int | None = None, chip: int | None = None) -> State:
    """Return ``{card: {chip: True|False|None}}`` of the rows of ``parse_device_share``.

    An answer for one chip repeats neither card nor chip, one of A5 no chip: they are those that were asked for, chip 0 by default.
    """
    found: State = {}
    for row in rows:
        number: Any = card if row["card"] is None else row["card"]
        found.setdefault(number, {})[(chip or 0) if row["chip"] is None else row["chip"]] = row["enabled"]
    return found


def refusal(output: str, exit_status: int | None) -> Refusal | None:
    """Return the :class:`Refusal` that the output of a set command means, or None."""
    error = find_error(output, exit_status)
    if error:
        return Refusal(error.kind, str(error))
    if _FAILED.search(output):
        return Refusal("unavailable", "npu-smi reports 'Status : Fail' without a reason")
    return None
