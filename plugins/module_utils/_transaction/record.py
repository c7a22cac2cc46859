# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""previous.json around a transaction: what was there before the first bind is recorded before it is changed."""

from __future__ import annotations

import posixpath
from typing import Mapping

from .._host import installed
from .._host.host import Host
from .._state import previous
from .._state.files import FileState, States, is_leftover, is_ours, missing_folders, remove_empty
from .._state.systemd import Systemd, units_of


def record_changes(host: Host, changes: Mapping[str, States], links: list[str]) -> None:
    """Record files of others that are overwritten, links that enable them, and folders that our files and links of our units need."""
    others = {
        path: before
        for path, (before, _after) in changes.items()
        if before.text is not None and not is_ours(before.text) and not is_leftover(path)
    }
    enabling = [link for unit in units_of(others) for link in Systemd(host).links(unit)]
    record_files(host, dict(others, **{link: FileState.of(host, link) for link in enabling}))
    ours = [path for path, (before, after) in changes.items() if after.text is not None and is_ours(after.text)]
    folders = [folder for folder in missing_folders(host, ours + links) if folder != posixpath.dirname(previous.PATH)]
    if folders:
        previous.record(host, "folders", folders)
    libraries = {posixpath.dirname(path) for path in ours if installed.is_archive(path)} - {installed.LIBRARY}
    if libraries:
        previous.record(host, previous.LIBRARIES, sorted(libraries))


def record_files(host: Host, states: Mapping[str, FileState]) -> None:
    known = previous.recorded(host).get("files", {})
    files = {path: state.record() for path, state in states.items() if path not in known}
    if files:
        previous.record(host, "files", files)


class Record:
    """previous.json as it was before a transaction."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.state = FileState.of(host, previous.PATH)
        self.folders = missing_folders(host, [previous.PATH])

    def restore(self) -> None:
        if FileState.of(self.host, previous.PATH) != self.state:
            self.state.put(self.host, previous.PATH)
        remove_empty(self.host, self.folders)
