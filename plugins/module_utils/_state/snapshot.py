# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and folders as they are at the moment, for a step that may have to be taken back."""

from __future__ import annotations

import os
import stat
from typing import Iterable

from .._host.host import Host
from .files import FileState, make_folder


class Snapshot:
    """Content and mode of files, and mode and owner of folders; what is not there is remembered, too."""

    def __init__(self, host: Host, files: Iterable[str], folders: Iterable[str] = ()) -> None:
        self._host = host
        self._files = {path: FileState.of(host, path) for path in files}
        self._folders = {path: _folder(host, path) for path in sorted(folders)}

    @property
    def differing(self) -> list[str]:
        """The paths of files that are not as they were."""
        return [path for path, before in self._files.items() if FileState.of(self._host, path) != before]

    def restore(self) -> None:
        """Write back what differs."""
        for path, found in self._folders.items():
            if found is not None and _folder(self._host, path) != found:
                place = self._host.path(path)
                make_folder(self._host, path)
                mode, owner, group = found
                os.chown(place, owner, group)
                os.chmod(place, mode)
        for path in self.differing:
            self._files[path].put(self._host, path)


def _folder(host: Host, path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(host.path(path))
    except OSError:
        return None
    return (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) if stat.S_ISDIR(found.st_mode) else None
