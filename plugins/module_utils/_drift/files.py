# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files as a bind writes them, by their text and rights. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence

from .._base.table import count
from .._host.host import Host
from .._host.installed import installed_version, is_archive
from .._state.executables import unusable
from .._state.files import FileState, is_ours
from .._state.systemd import unit_of
from .._transaction.request import Request, compare
from .._base.findings import EDIT, Cause, Findings

if TYPE_CHECKING:
    from .._base.documents import FileEntry

_SHOWN = 3
_OTHER_CODE = Cause(EDIT, "changed by hand, or bound from another build of this version; bind again")


def check_files(findings: Findings, host: Host, files: Sequence[FileEntry], owned: Sequence[str]) -> set[str]:
    """Compare the files and return the units whose files differ."""
    edited = set()
    changes = compare(host, Request(files=files, owned=owned))
    for path in [entry["path"] for entry in files if entry["path"] not in changes]:
        findings.same("files", path)
    for path, (before, after) in changes.items():
        ours = before.text is not None and is_ours(before.text)
        cause = _OTHER_CODE if is_archive(path) and before.text is not None else cause_of(before.text, after.text, ours)
        expected, found = (_version_texts if is_archive(path) else _file_texts)(before, after)
        findings.differs("files", path, expected, found, cause, unit_of(path))
        edited.add(unit_of(path))
    return {unit for unit in edited if unit is not None}


def check_programs(findings: Findings, host: Host, programs: Sequence[str]) -> None:
    """Look whether the programs are there that units start."""
    for path in programs:
        if host.exists(path):
            findings.same("files", path)
        else:
            cause = Cause(EDIT, "removed, or never placed; containers of vNPUs find no limiter")
            findings.differs("files", path, "a program that units start", "no such file", cause)


def check_executables(findings: Findings, host: Host, files: Sequence[FileEntry]) -> None:
    """Look whether the programs that units, udev rules and scripts name can be executed."""
    for wrong in unusable(host, {entry["path"]: entry["content"] for entry in files}):
        cause = Cause(EDIT, "removed or moved since the last bind, perhaps by a package; bind again, which names the one that is there")
        findings.differs("files", wrong.program, "a program that %s runs" % wrong.file, wrong.found, cause, unit_of(wrong.file))


def cause_of(before: str | None, after: str | None, ours: bool) -> Cause:
    """Return the likely cause why a file has the text ``before`` and not ``after`` (None: no file); ``ours``: whether it is managed."""
    if before is None:
        return Cause(EDIT, "removed")
    if after is None:
        return Cause(EDIT, "added since the last bind; the next one removes it")
    return Cause(EDIT, "changed by hand" if ours else "another file took its place")


def _file_texts(before: FileState, after: FileState) -> tuple[str, str]:
    """Return what a file should be and what it is, by its state before and after a bind."""
    if before.text is None:
        return "a file", "no such file"
    if after.text is None:
        return "no such file", "a file that no bind in force has"
    if before.text == after.text:
        return "mode " + after.octal, "mode " + before.octal
    if before.private or after.private:
        return "mode %s and the text of the last bind" % after.octal, "another text, not shown"
    missing, added = differing_lines(after.text, before.text)
    return _readable(missing), _readable(added)


def _version_texts(before: FileState, after: FileState) -> tuple[str, str]:
    """Return :func:`_file_texts` of the host code."""
    if before.text is None or after.text is None or before.text == after.text:
        return _file_texts(before, after)
    return "version %s" % installed_version(after.text), "other content"


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def differing_lines(expected: str, found: str) -> tuple[str, str]:
    """Return the lines that only the one, and only the other of two texts has, each as a short text."""
    lines = [text.splitlines() for text in (expected, found)]
    missing, added = ([line for line in lines[mine] if line not in lines[1 - mine]] for mine in (0, 1))
    if not missing and not added:
        return "its lines", "its lines in another order or number"
    return _shortened(missing) or "no further line", _shortened(added) or "no such line"


def _shortened(lines: list[str]) -> str:
    rest = len(lines) - _SHOWN
    return " / ".join(lines[:_SHOWN]) + (" and %s" % count(rest, "more line") if rest > 0 else "")
