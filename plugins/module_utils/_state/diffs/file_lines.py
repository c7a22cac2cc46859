# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the collection that change, one line each: ``+`` with what a new file sets, ``~`` with what differs, ``-`` for one that goes.

A program or a JSON document is never shown as text: what it holds is on the host, or is the version of the collection.
"""

from __future__ import annotations

import difflib
import json
import posixpath
import re
from typing import Iterable, Mapping

from ..._host import installed
from ..._base.outside import json_of
from ..files import FileState, States, is_ours
from ..systemd import UNIT_FOLDER

_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9_]*[=+]?)=(.*)")
"""A setting, or a match or an assignment of a udev rule."""
_NEXT_OF_RULE = re.compile(r'(?<="), (?=[A-Z]+[=+]?=")')
_ROUTINE = {"Description", "Documentation", "After", "Before", "Type", "ConditionPathExists", "TimeoutStartSec", "AccuracySec"}
"""What a new unit is not told by; a change of it is shown."""
_GAP = "  "
_LONG = 60
"""So many characters of a value of a JSON document are shown."""


def programs(changes: Mapping[str, States]) -> list[str]:
    """Return the lines of the host code among ``{path: (before, after)}`` of file states; none where it stays as it is."""
    return [_archive_line(path, *states) for path, states in changes.items() if installed.is_archive(path)]


def _archive_line(path: str, before: FileState, after: FileState) -> str:
    now, then = (_version(state.text) for state in (before, after))
    now = "other content" if now == then else now
    return "%s %s: %s -> %s" % (_mark([before.text], [after.text]), path, now, then)


def _version(text: str | None) -> str:
    return "none" if text is None else "version %s" % (installed.installed_version(text) or "unknown")


def _mark(before: Iterable[str | None], after: Iterable[str | None]) -> str:
    """Return the mark of texts that are all new, all go, or change."""
    if all(text is None for text in after):
        return "-"
    return "+" if all(text is None for text in before) else "~"


def is_told_in_lines(before: FileState, after: FileState) -> bool:
    """Whether :func:`lines` describes a change: one of a managed file, a link, or a removal. Text of other files is shown unchanged."""
    texts = [state.text for state in (before, after) if state.text is not None and state.link is None]
    return after.text is None or all(map(is_ours, texts))


def lines(path: str, before: FileState, after: FileState) -> list[str]:
    """Return the line of a file that changes. For a managed file without settings, such as a script, its lines that differ follow."""
    name = posixpath.relpath(path, UNIT_FOLDER) if path.startswith(UNIT_FOLDER + "/") else path
    if after.text is None:
        return ["- " + name]
    if before.text is None:
        return ["+ " + _GAP.join([name] + _contents(after))]
    if before.link is not None or after.link is not None:
        return ["~ %s%s%s -> %s" % (name, _GAP, _kind(before), _kind(after))]
    told, more = _differences(before, after)
    return ["~ " + _GAP.join([name] + told)] + ["    " + line for line in more]


def _kind(state: FileState) -> str:
    return "a file" if state.link is None else "symbolic link to " + state.link


def _contents(state: FileState) -> list[str]:
    if state.link is not None:
        return [_kind(state)]
    if state.private:
        return ["(not shown; mode %s)" % state.octal]
    text = state.text or ""
    settings = _settings(text)
    if settings is None:
        return ["%d lines" % len(text.splitlines())]
    return ["%s=%s" % (key, value) for key, values in settings.items() if key not in _ROUTINE for value in values]


def _differences(before: FileState, after: FileState) -> tuple[list[str], list[str]]:
    """Return what differs in two texts of one file: parts of its line, and further lines."""
    mode = ["mode %s -> %s" % (before.octal, after.octal)] if before.mode != after.mode else []
    if before.private or after.private:
        return ["(not shown)"] + mode, []
    texts = before.text or "", after.text or ""
    old, new = map(_settings, texts)
    if old is None or new is None:
        return mode, _changed_lines(*texts)
    parts = [part for key in list(dict.fromkeys(list(old) + list(new))) for part in _change(key, old.get(key, []), new.get(key, []))]
    return (parts + mode or ["comments"]), []


def _change(key: str, old: list[str], new: list[str]) -> list[str]:
    if old == new:
        return []
    name = key.rstrip("=+")
    if key.endswith("="):
        old, new = ([one for value in values for one in value.strip('"').split("|")] for values in (old, new))
    if len(old) > 1 or len(new) > 1:
        gone, added = [value for value in old if value not in new], [value for value in new if value not in old]
        parts = ["%s -%s" % (name, value) for value in gone] + ["%s +%s" % (name, value) for value in added]
        return parts or ["%s in another order" % name]
    now, then = ("".join(values) or "none" for values in (old, new))
    return ["%s %s -> %s" % (name, now, then)]


def _changed_lines(before: str, after: str) -> list[str]:
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def _settings(text: str) -> dict[str, list[str]] | None:
    """Return ``{key: [value, ...]}`` of a file of settings or a JSON document; None for another one. Lists are emptied first in our
    drop-ins, which is not told."""
    if text.startswith("{"):
        return _of_document(text)
    said = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", ";", "["))]
    found: dict[str, list[str]] = {}
    for match in map(_SETTING.fullmatch, [part for line in said for part in _NEXT_OF_RULE.split(line)]):
        if match is None:
            return None
        found.setdefault(match.group(1), []).append(match.group(2))
    return {key: [value for value in values if value] or [""] for key, values in found.items()}


def _of_document(text: str) -> dict[str, list[str]] | None:
    try:
        document = json_of(text)
    except ValueError:
        return None
    return {key: [_shortened(value)] for key, value in document.items() if key != "about"}


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONG else text[: _LONG - 2] + " …"
