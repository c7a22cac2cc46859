# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the collection owns on a host: written atomically, marked in their first line, restored when a run fails.

This module is private to the collection.
"""

from __future__ import annotations

import os
import tempfile

MARKER = "Managed by npu.affinity"


def is_ours(text):
    """Whether a file's text says in its first line (the second after ``#!``) that the collection owns it."""
    lines = text.split("\n", 2)
    return MARKER in lines[0] or (lines[0].startswith("#!") and len(lines) > 1 and MARKER in lines[1])


def atomic_write(host, path, text, mode=0o644):
    """Write a whole file: to a temporary name beside it, to the disk, then renamed, so that a reader sees the old or the new one."""
    target = host.path(path)
    folder = os.path.dirname(target)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".npu-affinity-", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


class FileState:
    """One file before and after: ``text`` None means that there is no file; ``mode`` is its permission bits."""

    def __init__(self, text, mode):
        self.text = text
        self.mode = mode

    def __eq__(self, other):
        return (self.text, self.mode) == (other.text, other.mode)

    @classmethod
    def of(cls, host, path):
        try:
            with open(host.path(path), "rb") as file:
                return cls(file.read().decode("utf-8", "surrogateescape"), os.fstat(file.fileno()).st_mode & 0o7777)
        except FileNotFoundError:
            return cls(None, None)

    def put(self, host, path):
        if self.text is not None:
            atomic_write(host, path, self.text, self.mode)
            return
        target = host.path(path)
        if os.path.lexists(target):
            os.unlink(target)
        folder = os.path.dirname(target)
        if folder.endswith((".d", "/npu-affinity", "/npu_affinity")) and os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
