# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network device of several queues for QEMU, which leads nowhere: a tap device in a network of its own, which ends with its last queue.

``python queues.py SOCKET NUMBER`` opens it, and sends its queues over the socket.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys

TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TAP, _NO_PI, _VNET_HDR, _MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100


def opened(number: int) -> list[int]:
    """Return the queues of a fresh device, or none where this machine or its user cannot make one."""
    here, there = socket.socketpair()
    with here, there:
        command = ["unshare", "--map-root-user", "--net", sys.executable, __file__, str(there.fileno()), str(number)]
        done = subprocess.run(command, pass_fds=[there.fileno()], stderr=subprocess.DEVNULL, check=False)
        return [] if done.returncode else socket.recv_fds(here, 1, number)[1]


def main(target: int, number: int) -> None:
    queues = [os.open(TUN, os.O_RDWR) for _queue in range(number)]
    for queue in queues:
        fcntl.ioctl(queue, _TUNSETIFF, struct.pack("16sH22x", b"near", _TAP | _NO_PI | _VNET_HDR | _MULTI_QUEUE))
    socket.send_fds(socket.socket(fileno=target), [b"."], queues)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
