# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``/etc/npu-affinity/previous.json``: what a host was like before the first bind, so that unbind can restore it.

What is recorded was there before the first change of its kind, and is never overwritten; only unbind removes the file.
"""

from __future__ import annotations

import json
from typing import Any, Container, Mapping

from .._host.host import Host
from .._base.outside import json_of, shown
from .._base.version import SCHEMA, refuse_newer
from .plan_file import RECORD
from . import sections as _sections
from .files import MARKER, FileState, atomic_write, remove_file

PATH = RECORD
CODE_FOLDERS = "libraries"
_ABOUT = MARKER + ": the state before the first bind, which unbind restores."
_ADVICE = "unbind cannot restore this host; correct or remove it by hand first"


def recorded(host: Host) -> dict[str, Any]:
    """Return the recorded sections by name; none when the host was never bound. Raises ``ValueError`` for a broken file, a newer one, and a
    section that could not be restored. Every change of a host starts here: such a record is found before the first write."""
    text = host.text(PATH)
    if text is None:
        return {}
    try:
        sections = json_of(text)
    except ValueError as error:
        raise ValueError("%s is not valid JSON (%s): %s" % (PATH, error, _ADVICE))
    if not isinstance(sections, dict):
        raise ValueError("%s does not hold sections: %s" % (PATH, _ADVICE))
    refuse_newer(PATH, sections)
    contents = {name: data for name, data in sections.items() if name not in ("about", "schema")}
    for name, data in contents.items():
        try:
            _sections.check(name, data)
        except ValueError as error:
            raise ValueError(
                "%s: section '%s' cannot be restored (%s). Nothing was touched; use the version of the collection that bound this host, or "
                "correct the file by hand" % (PATH, shown(name), error)
            )
    return contents


def code_folders(host: Host) -> list[str]:
    """Return the folders other than the usual one in which binds have placed the host code."""
    return list(recorded(host).get(CODE_FOLDERS, []))


def record(host: Host, section: str, data: Any) -> None:
    """Store what of the data is not recorded yet: what is recorded stays as it is.

    Lists, and dictionaries at any depth, get the members that they lack: an NPU that comes later is recorded later.
    """
    before = recorded(host)
    _store(host, before, {**before, section: _completed(before[section], data) if section in before else data})


def record_files(host: Host, states: Mapping[str, FileState]) -> None:
    """Store files that are not recorded yet."""
    recorded_files = recorded(host).get("files", {})
    files = {path: state.record() for path, state in states.items() if path not in recorded_files}
    if files:
        record(host, "files", files)


def _completed(before: Any, data: Any) -> Any:
    if isinstance(before, dict) and isinstance(data, dict):
        return dict(data, **{key: _completed(value, data[key]) if key in data else value for key, value in before.items()})
    if isinstance(before, list) and isinstance(data, list):
        return before + [member for member in data if member not in before]
    return before


def replace(host: Host, section: str, data: Any) -> None:
    """Store a section as it is given, whatever was recorded of it; None forgets it."""
    before = recorded(host)
    sections = {**before, section: data}
    _store(host, before, {name: kept for name, kept in sections.items() if kept is not None})


def keep(host: Host, names: Container[str]) -> None:
    """Remove every section that is not named, and the file without sections."""
    before = recorded(host)
    _store(host, before, {name: data for name, data in before.items() if name in names})


def forget(host: Host, section: str, members: Container[str]) -> None:
    """Forget members of a section that is a list, with its last member the section, and with the last section the file."""
    replace(host, section, [member for member in recorded(host).get(section, []) if member not in members] or None)


def _store(host: Host, before: Mapping[str, object], sections: Mapping[str, object]) -> None:
    if sections and sections != before:
        atomic_write(host, PATH, dump(_ABOUT, dict(sections, schema=SCHEMA)), 0o600)
    elif not sections:
        remove_file(host, PATH)


def dump(about: str, data: Mapping[str, object]) -> str:
    """Return JSON text whose first line says whose file it is."""
    body = json.dumps(data, indent=1, sort_keys=True)
    return '{"about": %s,%s\n' % (json.dumps(about), body[1:] if data else "}")
