# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who opens a device file, on the host or in a container: fanotify(7), and inotify(7) where that has nothing to report.

fanotify reports opens of character devices only with FAN_REPORT_FID, and those on tmpfs from Linux 5.13 on. A mark is on one inode: each
container has nodes of its own, which /proc/PID/root leads to. inotify does not tell who opened a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import struct
from typing import Iterator

from .._base.device_files import NAME
from .._host.host import Host

_NODE = re.compile(NAME + r"\Z")
_MOST = 256
"""Device files of one folder: those of a container are its own choice."""
_MEMORY = ("tmpfs", "devtmpfs")
"""File systems of /dev that answer at once. What users mount there, such as FUSE, need not answer at all."""
_AT_FDCWD = -100
_CLOEXEC, _NONBLOCK, _REPORT_FID = 0x1, 0x2, 0x200
_ADD, _DONT_FOLLOW = 0x1, 0x4
_OPEN, _OVERFLOW = 0x20, 0x4000
_METADATA = struct.Struct("=IBBHQii")
_NOTIFICATION = struct.Struct("=iIII")
_IN_OPEN, _IN_OVERFLOW, _IN_DONT_FOLLOW = 0x20, 0x4000, 0x02000000


class Opens:
    """Opens of the device files that :meth:`watch` and :meth:`watch_of` found. ``descriptors`` are to be waited for.

    ``why`` says why who opens a device is not known, '' where it is.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._seen: set[str] = set()
        self.why = ""
        self._fanotify = self._inotify = -1
        if not host.live:
            self.why = "another root is not the running system"
            return
        with contextlib.suppress(AttributeError):  # a C library without it
            self._fanotify = self._libc.fanotify_init(ctypes.c_uint(_REPORT_FID | _CLOEXEC | _NONBLOCK), ctypes.c_uint(os.O_RDONLY))
        if self._fanotify < 0:
            self.why = "fanotify: %s" % os.strerror(ctypes.get_errno())

    @property
    def descriptors(self) -> list[int]:
        return [descriptor for descriptor in (self._fanotify, self._inotify) if descriptor >= 0]

    def watch(self) -> None:
        """Watch the device files of the host, and those that all processes have in place of them."""
        self._seen = set()
        if self.host.live:
            self._mark(self.host.path("/dev"))
            for name in self.host.names("/proc", "[0-9]*"):
                self.watch_of(int(name))

    def watch_of(self, pid: int) -> None:
        """Watch the device files that a process sees, unless it shares its mounts with one that was looked at."""
        try:
            namespace = os.readlink(self.host.path("/proc/%d/ns/mnt" % pid))
        except OSError:
            return
        folder = "" if namespace in self._seen else device_folder(self.host, pid)
        self._seen.add(namespace)
        if folder:
            self._mark(self.host.path(folder))

    def _mark(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            for name in sorted(filter(_NODE.match, os.listdir(folder)))[:_MOST]:
                path = "%s/%s" % (folder, name)
                with contextlib.suppress(OSError):
                    if stat.S_ISCHR(os.lstat(path).st_mode) and not self._mark_by_fanotify(path):
                        mask = ctypes.c_uint32(_IN_OPEN | _IN_DONT_FOLLOW)
                        self._inotify = inotify(self._libc) if self._inotify < 0 else self._inotify
                        self._libc.inotify_add_watch(ctypes.c_int(self._inotify), os.fsencode(path), mask)

    def _mark_by_fanotify(self, path: str) -> bool:
        if self._fanotify < 0:
            return False
        flags, mask = ctypes.c_uint(_ADD | _DONT_FOLLOW), ctypes.c_uint64(_OPEN)
        if self._libc.fanotify_mark(ctypes.c_int(self._fanotify), flags, mask, ctypes.c_int(_AT_FDCWD), os.fsencode(path)) == 0:
            return True
        self.why = "fanotify on %s: %s" % (path, os.strerror(ctypes.get_errno()))
        return False

    def read(self) -> tuple[set[int], bool]:
        """Return the processes that have opened device files since the last call, and whether others may have done so."""
        pids, others = set(), False
        for data in chunks(self._fanotify):
            place = 0
            while place + _METADATA.size <= len(data):
                length, _version, _reserved, _begin, mask, descriptor, pid = _METADATA.unpack_from(data, place)
                if descriptor >= 0:
                    os.close(descriptor)
                if mask & _OVERFLOW:
                    others = True
                elif pid > 0:
                    pids.add(pid)
                place += max(length, _METADATA.size)
        for data in chunks(self._inotify):
            place = 0
            while place + _NOTIFICATION.size <= len(data):
                _watch, mask, _cookie, length = _NOTIFICATION.unpack_from(data, place)
                others = others or bool(mask & (_IN_OPEN | _IN_OVERFLOW))
                place += _NOTIFICATION.size + length
        return pids - {os.getpid()}, others


def device_folder(host: Host, pid: int) -> str:
    """Return the path of /dev as a process sees it, '' where it or a device file lies on a file system that might not answer."""
    kinds = {}
    for line in (host.read("/proc/%d/mountinfo" % pid) or "").splitlines():
        mount, _dash, rest = line.partition(" - ")
        kinds["".join(mount.split(" ")[4:5])] = rest.partition(" ")[0]
    concerned = [kind for place, kind in kinds.items() if place == "/dev" or _NODE.match(place.rpartition("/")[2])]
    return "/proc/%d/root/dev" % pid if "/dev" in kinds and all(kind in _MEMORY for kind in concerned) else ""


def inotify(libc: ctypes.CDLL) -> int:
    """Return a descriptor of inotify(7) that never blocks, -1 where the kernel has none."""
    return int(libc.inotify_init1(ctypes.c_int(os.O_CLOEXEC | os.O_NONBLOCK)))


def chunks(descriptor: int) -> Iterator[bytes]:
    """Yield what there is to read of a descriptor that never blocks; nothing of -1."""
    while descriptor >= 0:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            data = b""
        if not data:
            return
        yield data
