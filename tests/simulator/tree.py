# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing a machine's file tree quickly: thousands of small files, folders made once, links relative."""

from __future__ import annotations

import os
import posixpath


class Tree:
    """A machine's files below a directory. Paths are absolute paths of the machine.

    ``volatile`` collects the files that a reboot resets, with the text they then get.
    """

    def __init__(self, root: str | os.PathLike):
        self.root = os.path.abspath(root)
        self.volatile: dict[str, str] = {}
        self._made: set[str] = set()
        self._constants: dict[object, str] = {}

    def folder(self, path: str) -> None:
        if path not in self._made:
            os.makedirs(self.root + path, exist_ok=True)
            self._made.add(path)

    def write(self, path: str, value: object, mode: int = 0o644, volatile: bool = False) -> None:
        """Write a file of one value and a newline, as sysfs and procfs attributes are."""
        text = "%s\n" % value
        self.text(path, text, mode)
        if volatile:
            self.volatile[path] = text

    def constant(self, path: str, value: object) -> None:
        """Write an attribute that nobody changes. All of one value are one file, which saves most of a big host's space and time."""
        if value in self._constants:
            self.folder(path.rpartition("/")[0])
            os.link(self.root + self._constants[value], self.root + path)
        else:
            self._constants[value] = path
            self.write(path, value)

    def text(self, path: str, text: str = "", mode: int = 0o644) -> None:
        """Write a file with exactly this text."""
        self.bytes(path, text.encode(), mode)

    def bytes(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self.folder(path.rpartition("/")[0])
        descriptor = os.open(self.root + path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)

    def link(self, path: str, target: str) -> None:
        """Link a path to another path of the machine, relatively: the tree can be moved, and no link leads outside."""
        folder = path.rpartition("/")[0]
        self.folder(folder)
        os.symlink(posixpath.relpath(target, folder), self.root + path)
