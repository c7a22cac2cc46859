# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the collection owns on a host: written atomically, marked in their first line, restored when a run fails.

This module is private to the collection.
"""

from __future__ import annotations

import errno
import os
import posixpath
from typing import Any, Iterable, Mapping, Tuple

from .._host import Host

MARKER = "Managed by npu.affinity"
LEFTOVER = ".npu-affinity-"
"""How the names of temporary files begin; one is left behind only when a run is killed."""
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}


def is_ours(text: str) -> bool:
    """Whether a file's text says in its first line (the second after ``#!``) that the collection owns it."""
    lines = text.split("\n", 2)
    return MARKER in lines[0] or (lines[0].startswith("#!") and len(lines) > 1 and MARKER in lines[1])


def atomic_write(host: Host, path: str, text: str, mode: int = 0o644) -> None:
    """Write a whole file: to a temporary name beside it, to the disk, then renamed, so that a reader sees the old or the new one."""
    target = host.path(path)
    folder = os.path.dirname(target)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = _free_name(folder)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _free_name(folder: str) -> str:
    """Return a temporary name in a folder that no other process uses; what a killed process of the same number left there goes."""
    name = os.path.join(folder, LEFTOVER + str(os.getpid()))
    if os.path.lexists(name):
        os.unlink(name)
    return name


class FileState:
    """One file before and after: ``text`` None means that there is no file; ``mode`` is its permission bits.

    A symbolic link has its ``link`` target, no mode, and a text that only describes it.
    """

    def __init__(self, text: str | None, mode: int | None, link: str | None = None) -> None:
        self.text = text if link is None else "symbolic link to %s\n" % link
        self.mode = mode
        self.link = link

    @property
    def private(self) -> bool:
        """Whether not everybody may read it."""
        return self.mode is not None and not self.mode & 0o004

    @property
    def octal(self) -> str:
        """The permission bits as they are written, such as ``0644``; a link has none, and ``0000``."""
        return "%04o" % (self.mode or 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileState):
            return NotImplemented
        return (self.text, self.mode, self.link) == (other.text, other.mode, other.link)

    @classmethod
    def of(cls, host: Host, path: str) -> FileState:
        target = host.path(path)
        try:
            if os.path.islink(target):
                return cls(None, None, os.readlink(target))
            with open(target, "rb") as file:
                return cls(file.read().decode("utf-8", "surrogateescape"), os.fstat(file.fileno()).st_mode & 0o7777)
        except FileNotFoundError:
            return cls(None, None)

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> FileState:
        """Return what :meth:`record` described. Raises ``ValueError`` when it is no such thing."""
        try:
            if "link" in values:
                return cls(None, None, str(values["link"]))
            return cls(values["content"] + "", int(str(values.get("mode") or "0644"), 8))
        except (KeyError, TypeError, ValueError):
            raise ValueError("'%s' is neither a file with content and mode nor a link" % (values,))

    def record(self) -> dict[str, str | None]:
        """Return it as plain data: ``{content, mode}`` with the mode in octal, or ``{link}``."""
        if self.link is not None:
            return {"link": self.link}
        return {"content": self.text, "mode": self.octal}

    def put(self, host: Host, path: str) -> None:
        target = host.path(path)
        if self.link is not None:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            temporary = _free_name(os.path.dirname(target))
            os.symlink(self.link, temporary)
            os.rename(temporary, target)
        elif self.text is not None:
            atomic_write(host, path, self.text, 0o644 if self.mode is None else self.mode)
        elif os.path.lexists(target):
            os.unlink(target)


States = Tuple[FileState, FileState]
"""A file before and after."""


def missing_folders(host: Host, paths: Iterable[str]) -> list[str]:
    """Return the folders that files at these paths need and that are not there, outermost first."""
    missing = set()
    for path in paths:
        folder = posixpath.dirname(path)
        while folder != "/" and not host.exists(folder):
            missing.add(folder)
            folder = posixpath.dirname(folder)
    return sorted(missing)


def remove_empty(host: Host, folders: Iterable[str]) -> list[str]:
    """Remove those of the folders that are empty, innermost first, and return them."""
    removed = []
    for folder in sorted(folders, reverse=True):
        try:
            os.rmdir(host.path(folder))
            removed.append(folder)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
    return removed
