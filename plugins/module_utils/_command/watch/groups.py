# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New cgroups, whichever engine makes them: inotify(7) on the folders of slices, on cgroup v2 and v1."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Iterator

from ..._host.host import Host
from ..._kernel.device_opens import chunks, inotify
from ..._kernel.machine import CGROUPS, HIERARCHIES
from ..._users.groups import of_pods

_IN_CREATE = 0x100
_PLACES = ("", "/docker")
"""Where engines make groups besides slices: docker without systemd's driver."""


class Groups:
    """Tells when a cgroup is made. ``descriptor`` is that of inotify(7), -1 where the kernel has none: then the clock alone counts.

    With ``pods``, those of the kubelet count, too.
    """

    pods = False

    def __init__(self, host: Host) -> None:
        self.host = host
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = inotify(self._library)
        self.watch()

    def watch(self) -> None:
        """Watch all slices; those that are watched already stay so."""
        for folder in self._folders() if self.descriptor >= 0 else ():
            with contextlib.suppress(UnicodeError):  # a name that this locale does not have
                self._library.inotify_add_watch(self.descriptor, os.fsencode(self.host.path(folder)), _IN_CREATE)

    def _folders(self) -> Iterator[str]:
        tops = [CGROUPS + top for top in (*HIERARCHIES, "/cpuset")]
        for top in (top for top in tops if self.host.exists(top + "/cgroup.procs")):
            yield from (top + place for place in _PLACES if self.host.exists(top + place))
            yield from self._slices(top)

    def _slices(self, top: str) -> Iterator[str]:
        left = [top]
        while left:
            outer = left.pop()
            inner = ["%s/%s" % (outer, name) for name in self.host.names(outer, "*.slice") if self.pods or not of_pods([name])]
            yield from inner
            left += inner

    def read(self) -> bool:
        """Return whether a group was made since the last call."""
        found = list(chunks(self.descriptor))
        if found:
            self.watch()
        return bool(found)
