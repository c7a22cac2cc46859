# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How npu-smi says that it cannot answer.

The exit status alone proves nothing: an unsupported query ends with 0, a failed one may print only a status, and all
of it is on standard output. So the text decides, and the status only where the text is silent. Texts and codes:
hicann/driver ``src/custom/dev_prod/user/npucli`` and ``dcmi``; Project-HAMi/ascend-device-plugin issues 23 and 131;
Ascend/cann-container-image issue 46.
"""

from __future__ import annotations

import re

from .text import first_line, lines_of

NEXT_STEP = {
    "unavailable": "check that the NPU driver is loaded and that this user may open /dev/davinci_manager",
    "unsupported": "this product or driver version cannot do it",
    "permission": "run it as root on the physical machine or in a privileged container",
    "busy": "a container or process holds the device; stop it first",
    "aborted": "the Y/N question was not answered with Y",
    "invalid": "the installed npu-smi does not know this command, card or chip; see 'npu-smi info -l' for the cards",
}
"""The kinds of error, and what to do about each."""

_CODES = {
    "permission": (-8002, -9002),
    "aborted": (-8016, -9016),
    "busy": (-8017, -8020, -9013, -9020, -9021),
    "unsupported": (-8255, -9255),
    "invalid": (-9001, -9007),
}
"""Codes of the management interface (-8...) and of the tool (-9...); every other code means unavailable.

-8001 is not our argument's fault: one dead NPU makes the topology query of all NPUs end with it.
"""

_KINDS_OF_CODES = {code: kind for kind, codes in _CODES.items() for code in codes}
_KINDS_OF_STATUSES = {code & 0xFF: kind for code, kind in _KINDS_OF_CODES.items()}

_IN_GUEST = "cannot be executed on a vm"
_CODE = re.compile(r"\bret(?:\s+is|\s*[:=])?\s*(-[89][0-9]{3})\b")
_TEXTS = [
    ("busy", re.compile(r"\boccupied by\b|because the device is used|device or resource busy|is upgrading", re.IGNORECASE)),
    ("permission", re.compile(r"not permitted|permission denied|only by the root user|only root user", re.IGNORECASE)),
    (
        "invalid",
        re.compile(
            r"error parameter|\binvalid (?:\w+ ){0,2}(?:id|parameter|argument)\b|must input|does not support entering"
            r"|command or option is not found|^usage: npu-smi",
            re.IGNORECASE,
        ),
    ),
    ("unsupported", re.compile(r"does not support|not supported|" + _IN_GUEST, re.IGNORECASE)),
]
_UNAVAILABLE = re.compile(
    r"initiali[sz]ed? failed|there is no npu card|command not found|no such file or directory|while loading shared libraries", re.IGNORECASE
)


_NO_ANSWER = "npu-smi cannot answer"
UNSUPPORTED = _NO_ANSWER + " (unsupported)"
"""What the sentence on a query has that the product or the version of the driver does not know."""


class NpuSmiError(ValueError):
    """npu-smi answered with an error. ``kind`` is a key of :data:`NEXT_STEP`; the text names the line of the error."""

    def __init__(self, kind: str, line: str) -> None:
        self.in_guest = _IN_GUEST in line.lower()
        step = "npu-smi does that on the physical machine only" if self.in_guest else NEXT_STEP[kind]
        super().__init__("%s (%s): '%s'; %s" % (_NO_ANSWER, kind, line, step))
        self.kind = kind


def classify_error(text: str, exit_status: int | None = None) -> dict[str, str | None]:
    """Return ``{"error": kind}``: unavailable, unsupported, permission, busy, aborted, invalid, or None.

    None means that neither the text nor the exit status names an error. It does not mean that a change was made:
    that is for a second query to say.
    """
    error = find_error(text, exit_status)
    return {"error": error.kind if error else None}


def find_error(text: str, exit_status: int | None = None) -> NpuSmiError | None:
    """Return the :class:`NpuSmiError` that an output stands for, or None. Rows of tables are data, never an error."""
    last = ""
    for line in map(str.strip, lines_of(text)):
        if not line or line[0] in "|+":
            continue
        last = line
        kind = _kind_of_line(line)
        if kind:
            return NpuSmiError(kind, line)
    if last.upper().endswith("(Y/N)"):
        return NpuSmiError("aborted", last)
    if exit_status:
        kind = _KINDS_OF_STATUSES.get(exit_status & 0xFF, "unavailable")
        return NpuSmiError(kind, "%s, exit status %s" % (first_line(text), exit_status))
    return None


def _kind_of_line(line: str) -> str | None:
    for kind, pattern in _TEXTS:
        if pattern.search(line):
            return kind
    code = _CODE.search(line)
    if code:
        return _KINDS_OF_CODES.get(int(code.group(1)), "unavailable")
    return "unavailable" if _UNAVAILABLE.search(line) else None


def require_answer(readable: object, text: str, command: str, wanted: str) -> None:
    """Raise what an output without data stands for; return when it is an empty answer in a readable form.

    The tool's own error is a :class:`NpuSmiError`; a form nobody knows is a ValueError naming command and first line.
    """
    error = find_error(text)
    if error:
        raise error
    if not readable:
        raise ValueError(
            "%s: no %s in its output, which begins with '%s'; run the command on the host to see why" % (command, wanted, first_line(text))
        )
