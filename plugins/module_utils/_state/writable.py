# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that nothing can be written to are found before the first write, such as those below a read-only /usr.

What a security policy forbids shows only when it is tried: then the file is named, and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from typing import Iterable, Iterator, Mapping

from .._host import installed
from .._host.host import FORBIDDEN, Host
from .files import States

_SETTING = "set npu_affinity_library to a folder that can be written, such as /var/lib/npu-affinity, and bind again"
_OTHERS = "make it writable, or switch off the feature that needs the file, and bind again"
_REMOVED = "make it writable and run again"


class Writing:
    """The files of a run that are to be written or removed, with the folder of the host code among ``files``."""

    def __init__(self, host: Host, changes: Mapping[str, States], files: Iterable[str]) -> None:
        self._host = host
        self._changes = changes
        self._code_folder = next((posixpath.dirname(path) for path in files if installed.is_archive(path)), installed.CODE_FOLDER)

    def refuse_impossible(self) -> None:
        """Raise ``ValueError`` where a file cannot be written or removed, and where no program may run from the folder of the host code."""
        for path in self._changes:
            folder = posixpath.dirname(path)
            why = obstacle(self._host, folder)
            if why:
                raise ValueError(self._sentence(path, why))
            if folder == self._code_folder != installed.CODE_FOLDER and self._changes[path][1].text is not None:
                _refuse_unsafe(self._host, folder)

    @contextlib.contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Turn what the kernel answers to writing or removing a file into ``ValueError`` with a sentence."""
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno == errno.EACCES:
                why += " ('ausearch -m avc' shows what SELinux refused)"
            raise ValueError(self._sentence(path, why, error.errno in FORBIDDEN))

    def _sentence(self, path: str, why: str, forbidden: bool = True) -> str:
        removed = self._changes[path][1].text is None
        usual = path.startswith(installed.CODE_FOLDER + "/") or path in (installed.COMMAND, installed.COMPLETION)
        advice = _REMOVED if removed else _SETTING if usual or posixpath.dirname(path) == self._code_folder else _OTHERS
        return "%s cannot be %s: %s%s" % (path, "removed" if removed else "written", why, "; " + advice if forbidden else "")


def obstacle(host: Host, folder: str) -> str:
    """Return the folder, or the one above it that is there, and why nothing can be written to it; or ''."""
    folder = _nearest(host, folder)
    place = host.resolve(folder)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return folder + ": Read-only file system"
    return "" if os.access(place, os.W_OK) else folder + ": Permission denied"


def _nearest(host: Host, folder: str) -> str:
    while folder != "/" and not os.path.exists(host.resolve(folder)):
        folder = posixpath.dirname(folder)
    return folder


def _refuse_unsafe(host: Host, code_folder: str) -> None:
    folder = _nearest(host, code_folder)
    place = host.resolve(folder)
    if host.live and os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise ValueError(
            "npu_affinity_library is %s: %s is mounted noexec, and the host code has scripts; name another folder" % (code_folder, folder)
        )
    names = folder.rstrip("/").split("/")
    for above in ["/".join(names[:depth]) or "/" for depth in range(len(names), 0, -1)]:
        status = os.stat(host.resolve(above))
        shared = status.st_mode & stat.S_IWOTH and (above == folder or not status.st_mode & stat.S_ISVTX)
        if shared or status.st_uid not in (0, os.geteuid()):
            who = "every user" if shared else "user %d" % status.st_uid
            text = "npu_affinity_library is %s: %s can write to %s, and root runs the host code; name a folder of root's"
            raise ValueError(text % (code_folder, who, above))
