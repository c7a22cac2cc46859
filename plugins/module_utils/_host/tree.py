# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the paths of a machine lie: its tree below one root."""

from __future__ import annotations

import errno
import os
import posixpath
import stat

_MOST_LINKS = 40
"""How many links the kernel follows on the way to one file."""


class Tree:
    """A machine's file tree: the running one (root ``/``), a chroot, an image, a captured or a simulated tree.

    All paths are absolute paths of the machine. Below another root links are followed as they would be after a chroot: an absolute one
    begins at the root. Raises ``ValueError`` for a root that is not a directory, and for every path that leads out of it.
    """

    def __init__(self, root: str) -> None:
        if not posixpath.isabs(root) or not os.path.isdir(root):
            why = "is not a directory" if posixpath.isabs(root) else "is not absolute" if root else "is empty"
            raise ValueError(
                "npu_affinity_root '%s' %s: name the directory of the machine's tree, or / for the running machine" % (root, why)
            )
        self.root = "/" if os.path.samefile(root, "/") else os.path.abspath(root)
        self._folders = {"": self.root}

    @property
    def live(self) -> bool:
        """Whether this is the running machine, so that kernel calls and systemd's bus concern it."""
        return self.root == "/"

    def path(self, path: str) -> str:
        """Return where a path of the machine lies, with no link on the way but perhaps the last name: to look at, make or replace it."""
        if self.live:
            return path
        folder, _slash, name = path.rpartition("/")
        if name in ("", ".", ".."):
            return self._without_links(path)
        return "%s/%s" % (self._folder(folder), name)

    def resolve(self, path: str) -> str:
        """Return where a path of the machine lies, with no link at all: to read what is there, or to write into it."""
        place = self.path(path)
        return self._without_links(path) if not self.live and os.path.islink(place) else place

    def _folder(self, folder: str) -> str:
        """Return :meth:`resolve` of a folder; those that are there are looked at once, from the outermost on."""
        new = []
        while folder not in self._folders:
            new.append(folder)
            folder = folder.rpartition("/")[0]
        place = self._folders[folder]
        for folder in reversed(new):
            name = folder.rpartition("/")[2]
            place = self._without_links(folder) if name in ("", ".", "..") else "%s/%s" % (place, name)
            try:
                mode = os.lstat(place).st_mode
            except OSError:
                continue
            if stat.S_ISLNK(mode):
                place = self._without_links(folder)
            self._folders[folder] = place
        return place

    def _without_links(self, path: str) -> str:
        """Return :meth:`resolve` of a path by looking at every name in it."""
        place, pending, links = "", path.split("/")[::-1], 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if not place:
                    raise ValueError(
                        "%s leads out of %s: correct the path, or the link on its way that has too many '..'" % (path, self.root)
                    )
                place = place.rpartition("/")[0]
                continue
            try:
                target = os.readlink("%s%s/%s" % (self.root, place, name))
            except OSError:
                place += "/" + name
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.root + path)
            if target.startswith("/"):
                place = ""
            pending += target.split("/")[::-1]
        return self.root + place
