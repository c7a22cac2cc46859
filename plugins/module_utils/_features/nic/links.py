# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links that come up, as rtnetlink(7) announces them. Many drivers request their interrupts again then, also after ``ethtool -L``."""

from __future__ import annotations

import errno
import select
import socket
import struct
import time

_RTMGRP_LINK, _RTM_NEWLINK, _IFF_RUNNING = 1, 16, 0x40
_HEADER, _LINK = struct.Struct("=IHHII"), struct.Struct("=BxHiII")
"""``nlmsghdr`` (length, type, ...) and ``ifinfomsg`` (family, type, index, flags, change)."""
_SETTLE = 2.0
"""Seconds after the first message: drivers announce a link before they have placed their last interrupt."""


def _socket() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.bind((0, _RTMGRP_LINK))
    return opened


def running(data: bytes) -> set[int]:
    """Return the numbers of the interfaces that have a link, by messages of the kernel."""
    found, start = set(), 0
    while start + _HEADER.size + _LINK.size <= len(data):
        length, kind = _HEADER.unpack_from(data, start)[:2]
        _family, _type, index, flags, _change = _LINK.unpack_from(data, start + _HEADER.size)
        if kind == _RTM_NEWLINK and flags & _IFF_RUNNING:
            found.add(index)
        start += max(_HEADER.size, length + 3 & ~3)
    return found


class Links:
    """Tells which links come up."""

    def __init__(self) -> None:
        self._socket = _socket()

    def wait(self) -> set[int] | None:
        """Wait for a link, and return the numbers of the interfaces that have one, or None where the kernel dropped messages."""
        found = self._read()
        if found is None or found:
            time.sleep(_SETTLE)
        while select.select([self._socket], [], [], 0)[0]:
            more = self._read()
            found = None if found is None or more is None else found | more
        return found

    def _read(self) -> set[int] | None:
        try:
            return running(self._socket.recv(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return None
