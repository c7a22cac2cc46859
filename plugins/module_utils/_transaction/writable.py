# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that nothing can be written to are found before the first write, such as those below a read-only /usr."""

from __future__ import annotations

import os
import posixpath
from typing import Iterable

from .._host import installed
from .._host.host import Host

_SETTING = "set npu_affinity_library to a folder that can be written, such as /var/lib/npu-affinity, and bind again"
_OTHERS = "make it writable, or switch off the feature that needs the file, and bind again"


def refuse_unwritable(host: Host, paths: Iterable[str]) -> None:
    """Raise ``ValueError`` where a file cannot be written or removed, and where programs cannot be run from the folder of the host code."""
    code = ""
    for path in paths:
        folder = _nearest(host, posixpath.dirname(path))
        code = posixpath.dirname(path) if installed.is_archive(path) else code
        why = _obstacle(host, folder)
        if why:
            usual = path.startswith(installed.LIBRARY + "/") or path in (installed.COMMAND, installed.COMPLETION)
            advice = _SETTING if usual or posixpath.dirname(path) == code else _OTHERS
            raise ValueError("%s cannot be written: %s: %s; %s" % (path, folder, why, advice))
        if posixpath.dirname(path) == code != installed.LIBRARY:
            _refuse_unsafe(host, code, folder)


def _refuse_unsafe(host: Host, library: str, folder: str) -> None:
    place = host.resolve(folder)
    if host.live and os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise ValueError(
            "npu_affinity_library is %s: %s is mounted noexec, and the host code has scripts; name another folder" % (library, folder)
        )
    if os.stat(place).st_mode & 0o002:
        text = "npu_affinity_library is %s: every user can write to %s, and root runs the host code; name a folder of root's"
        raise ValueError(text % (library, folder))


def _nearest(host: Host, folder: str) -> str:
    """Return the folder, or the one above it that is there."""
    while folder != "/" and not os.path.exists(host.resolve(folder)):
        folder = posixpath.dirname(folder)
    return folder


def _obstacle(host: Host, folder: str) -> str:
    place = host.resolve(folder)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return "Read-only file system"
    return "" if os.access(place, os.W_OK) else "Permission denied"
