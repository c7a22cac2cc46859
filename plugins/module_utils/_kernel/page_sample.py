# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which NUMA nodes the memory of a process lies, by a sample: move_pages(2) without targets, which moves nothing.

``numa_maps`` makes the kernel walk all page tables, seconds for hundreds of GiB. Every 512th page of each writable mapping takes 1 ms for
2 GiB; of larger processes fewer are looked at.
"""

from __future__ import annotations

import ctypes
import os

from .._host.host import Host

EVERY = 512
MOST = 4096
"""Pages of a process, which take about 10 ms."""
_SYSCALLS = {"x86_64": 279, "aarch64": 239, "ppc64le": 301}
_PAGE = os.sysconf("SC_PAGE_SIZE")


def sampled(host: Host, pid: int) -> dict[int, int]:
    """Return ``{node: pages}`` of a sample, nothing of a process that has ended or does not run here.

    Raises ``ValueError`` with the reason if it cannot be read.
    """
    syscall, maps = _SYSCALLS.get(os.uname().machine), host.text("/proc/%d/maps" % pid)
    if not host.live or maps is None:
        return {}
    if syscall is None:
        raise ValueError("The pages of process %d are not known: not on %s" % (pid, os.uname().machine))
    places = _places(maps)
    count = len(places)
    pages, nodes = (ctypes.c_void_p * count)(*places), (ctypes.c_int * count)()
    library = ctypes.CDLL(None, use_errno=True)
    arguments = ctypes.c_int(pid), ctypes.c_ulong(count), pages, ctypes.c_void_p(), nodes, ctypes.c_int(0)
    if count and library.syscall(ctypes.c_long(syscall), *arguments) != 0:
        raise ValueError("The pages of process %d are not known: move_pages: %s" % (pid, os.strerror(ctypes.get_errno())))
    found: dict[int, int] = {}
    for node in nodes:
        if node >= 0:  # others are not there, or shared with every process
            found[node] = found.get(node, 0) + 1
    return found


def _places(maps: str) -> list[int]:
    """Return the addresses to look at, of the text of ``maps``: the first page of each writable mapping, and every 512th from there."""
    mappings = []
    for line in maps.splitlines():
        span, permissions = (line.split(" ", 2) + [""])[:2]
        if permissions[1:2] == "w":
            first, last = (int(word, 16) for word in span.split("-"))
            mappings.append((first, last))
    step = _PAGE * EVERY
    total = sum((last - first + step - 1) // step for first, last in mappings)
    places = [place for first, last in mappings for place in range(first, last, step * (total // MOST + 1))]
    return places[:: len(places) // MOST + 1]
