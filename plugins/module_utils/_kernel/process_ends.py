# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When processes end: pidfd_open(2), from Linux 5.3 on. The process connector would report the end of every thread of the host."""

from __future__ import annotations

import ctypes
import os
import select
from typing import Iterable

from .._host.host import Host

_PIDFD_OPEN = 434
"""On all architectures."""
_MOST = 256


class Ends:
    """The ends of the processes that :meth:`watch` was given last. ``descriptor`` is readable when one has ended, and -1 where no kernel
    tells it."""

    def __init__(self, host: Host) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._poll = select.epoll() if host.live else None
        self._watched: dict[int, int] = {}
        self.descriptor = self._poll.fileno() if self._poll else -1

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these processes in place of others: at most 256, the rest is for who looks again."""
        wanted = sorted(set(pids))[:_MOST] if self._poll else []
        for pid in [pid for pid in self._watched if pid not in wanted]:
            self._forget(pid)
        for pid in [pid for pid in wanted if pid not in self._watched]:
            descriptor = self._library.syscall(ctypes.c_long(_PIDFD_OPEN), ctypes.c_long(pid), ctypes.c_long(0))
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
