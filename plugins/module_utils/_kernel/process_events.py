# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that start, threads that get a name, and processes that end.

The process connector of Linux (``include/uapi/linux/cn_proc.h``) tells the first two. It needs the initial PID, user and network
namespaces, and before Linux 6.6 CAP_NET_ADMIN. In other namespaces events can come with the numbers of other processes, so only its
acknowledgement counts. It has no event for an open file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import time
from typing import Iterable, NamedTuple

from .._host.host import Host
from .machine import is_since

_NETLINK_CONNECTOR, _DONE = 11, 3
_INDEX = _VALUE = 1
_LISTEN, _ACKNOWLEDGEMENT = 1, 0
EXEC, COMM = 0x2, 0x200
_MESSAGE = struct.Struct("=IHHII")
_CONNECTOR = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ")
_TASK = struct.Struct("=II")
_BEGIN = _MESSAGE.size + _CONNECTOR.size
_DATA = _BEGIN + _EVENT.size
_BUFFER = 4 << 20
"""Bytes of the kernel's queue: each event takes 832, so the default has room for 256 of them."""
_PATIENCE = 1.0
"""Seconds to wait for the acknowledgement."""
_PIDFD_OPEN = 434
"""On all architectures."""
_MOST = 256


class Event(NamedTuple):
    """``what`` is :data:`EXEC` or :data:`COMM`; ``thread`` and ``process`` are numbers."""

    what: int
    thread: int
    process: int


class Lost(Exception):
    """The kernel dropped events, because nobody read them in time."""


class ProcessEvents:
    """The events of a host from now on. ``descriptor`` is -1 where there are none, and ``why`` says why."""

    def __init__(self, host: Host) -> None:
        self.descriptor = -1
        self.why = "another root is not the running system"
        self._socket: socket.socket | None = None
        if not host.live:
            return
        try:
            self._socket = _listening(is_since(host, 6, 6))
            self.descriptor, self.why = self._socket.fileno(), ""
        except OSError as error:
            self.why = "the process connector of this kernel: %s" % (error.strerror or error)

    def read(self) -> list[Event]:
        """Return what has happened since the last call. Raises :class:`Lost`."""
        events: list[Event] = []
        try:
            while self._socket:
                data = _received(self._socket)
                if len(data) >= _DATA + _TASK.size:
                    events.append(Event(_EVENT.unpack_from(data, _BEGIN)[0], *_TASK.unpack_from(data, _DATA)))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                raise Lost()
            raise
        return [event for event in events if event.what in (EXEC, COMM)]


def _listening(has_filter: bool) -> socket.socket:
    """Return a socket that gets the events. Raises ``OSError`` where the kernel does not acknowledge that it sends them."""
    connector = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, _NETLINK_CONNECTOR)
    try:
        try:
            connector.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), _BUFFER)
        except PermissionError:
            connector.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        connector.bind((0, _INDEX))
        _send(connector, struct.pack("=I", _LISTEN))
        deadline = time.monotonic() + _PATIENCE
        while select.select([connector], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = _received(connector)
            if len(data) >= _DATA + 4 and _EVENT.unpack_from(data, _BEGIN)[0] == _ACKNOWLEDGEMENT:
                number = struct.unpack_from("=I", data, _DATA)[0]
                if number:
                    raise OSError(number, os.strerror(number))
                if has_filter:
                    _send(connector, struct.pack("=II", _LISTEN, EXEC | COMM))  # which would hide the acknowledgement as well
                return connector
        raise OSError(errno.ENODATA, "it acknowledges nothing; the initial PID, user and network namespaces are needed")
    except OSError:
        connector.close()
        raise


def _send(connector: socket.socket, request: bytes) -> None:
    body = _CONNECTOR.pack(_INDEX, _VALUE, 0, 0, len(request), 0) + request
    connector.send(_MESSAGE.pack(_MESSAGE.size + len(body), _DONE, 0, 0, os.getpid()) + body)


def _received(connector: socket.socket) -> bytes:
    """Return a message of the kernel; b"" for one of another process."""
    data, (sender, _groups) = connector.recvfrom(1 << 12)
    return data if sender == 0 else b""


class Ends:
    """The ends of the processes that :meth:`watch` was given last, by pidfd_open(2), from Linux 5.3 on. ``descriptor`` is readable when one
    has ended, and -1 where no kernel tells it. The process connector would report the end of every thread of the host."""

    def __init__(self, host: Host) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._poll = select.epoll() if host.live else None
        self._watched: dict[int, int] = {}
        self.descriptor = self._poll.fileno() if self._poll else -1

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these processes in place of others: at most 256, the rest is for who looks again."""
        wanted = sorted(set(pids))[:_MOST] if self._poll else []
        for pid in self._watched.keys() - set(wanted):
            self._forget(pid)
        for pid in [pid for pid in wanted if pid not in self._watched]:
            descriptor = self._libc.syscall(ctypes.c_long(_PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0))
            if descriptor >= 0 and self._poll:
                self._watched[pid] = descriptor
                self._poll.register(descriptor, select.EPOLLIN)

    def _forget(self, pid: int) -> None:
        os.close(self._watched.pop(pid))  # which also takes it out of epoll

    def read(self) -> list[int]:
        """Return which processes have ended since the last call."""
        ready = {descriptor for descriptor, _event in self._poll.poll(0)} if self._poll else set()
        ended = [pid for pid, descriptor in self._watched.items() if descriptor in ready]
        for pid in ended:
            self._forget(pid)
        return ended
