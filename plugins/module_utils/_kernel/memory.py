# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which NUMA nodes the memory of a control group or process lies, and how much more the nodes can hold.

Sources: Linux ``Documentation/admin-guide/cgroup-v2.rst`` (``memory.numa_stat``, since 5.10) and ``cgroup-v1/memory.rst`` (the same in
pages), ``drivers/base/node.c`` (``meminfo``), and NVIDIA's open-gpu-kernel-modules (``nv-procfs.c``, ``numa_status``).

A cpuset that is too small kills: with ``cpuset.mems`` of a group cut to a node that cannot hold its pages, the kernel ends a process of the
group while it moves them (6.12) or at the next allocation (6.1), with ``oom-kill:constraint=CONSTRAINT_CPUSET``, however much memory other
nodes have.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import posixpath
import re
from collections import Counter
from typing import Any, Container, Iterable, Iterator, Mapping

from .._base.cpulist import expand
from .._host.host import Host, Unreadable
from .cpus import NODE_FOLDER, numbers, read_list
from .machine import CGROUPS

NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
_GIB = 1024.0**3
_RATE = 50e6
"""Bytes per second that the kernel moves at least."""
_HELD = re.compile(r"^(?:anon|file) (.*)$", re.MULTILINE)
_HELD_PAGES = re.compile(r"^hierarchical_(?:anon|file)=\d+ (.*)$", re.MULTILINE)
_OF_NODE = re.compile(r"\bN(\d+)=(\d+)")
_POLICY = re.compile(r"[0-9a-f]+ (bind|prefer|interleave|weighted interleave|prefer \(many\))(?:=\w+)?:([\d,-]+) ")
_FIRST_LINE = 512
EVERY = 512
MOST = 4096
"""Pages of a process in a sample, which take about 10 ms."""
_SYSCALLS = {"x86_64": 279, "aarch64": 239, "ppc64le": 301}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WRITABLE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .w", re.MULTILINE)
_FREE = re.compile(r"\b(?:MemFree|Inactive\(file\)):\s+(\d+) kB")


def used_by_node(host: Host, folder: str) -> dict[int, int] | None:
    """Return ``{node: bytes}`` of a control group and all below it, or None where the kernel does not tell.

    Memory that processes share counts as ``file``.
    """
    text = host.read(folder + "/memory.numa_stat")
    if text is None:
        return None
    used: dict[int, int] = Counter()
    for lines, size in ((_HELD.findall(text), 1), (_HELD_PAGES.findall(text), _PAGE)):
        for node, amount in (pair for line in lines for pair in _OF_NODE.findall(line)):
            used[int(node)] += int(amount) * size
    return used


def used_by_group(host: Host, path: str) -> dict[int, int] | None:
    """Return the same of a control group by its path as systemd has it."""
    tops = [CGROUPS + "/memory", CGROUPS] if host.exists(CGROUPS + "/memory") else [CGROUPS]
    return next((used for used in (used_by_node(host, top + path) for top in tops) if used), None)


def mib_of_group(host: Host, path: str) -> dict[str, int]:
    """Return ``{node: MiB}`` of a control group by its path; nodes are texts, as in JSON, and empty ones are left out."""
    used = used_by_group(host, path) or {}
    return {str(node): amount >> 20 for node, amount in sorted(used.items()) if amount >> 20}


def policy_of(host: Host, pid: int) -> tuple[str, set[int]] | None:
    """Return the memory policy of a process that names nodes, such as ``("bind", {0})``; None for any other, and where it is not told.

    Mappings without a policy of their own show that of the process, and a program's own mappings come first. A line costs the kernel a
    walk over its pages, so only the first one is read.
    """
    try:
        file = host.open("/proc/%d/numa_maps" % pid)
        with file or io.BytesIO() as lines:
            text = lines.read(_FIRST_LINE)
    except (OSError, Unreadable):
        return None
    match = _POLICY.match(text.decode("ascii", "replace"))
    return (match.group(1), set(expand(match.group(2)))) if match else None


def sampled(host: Host, pid: int) -> dict[int, int]:
    """Return ``{node: pages}`` of a sample of a process's memory, nothing of one that has ended or does not run here.

    move_pages(2) without targets moves nothing. ``numa_maps`` would make the kernel walk all page tables, seconds for hundreds of GiB.
    Every 512th page of each writable mapping takes 1 ms for 2 GiB; of larger processes fewer are looked at. Raises ``ValueError`` with the
    reason if it cannot be read.
    """
    syscall, maps = _SYSCALLS.get(os.uname().machine), host.text("/proc/%d/maps" % pid)
    if not host.live or maps is None:
        return {}
    if syscall is None:
        raise ValueError("The pages of process %d are not known: not on %s" % (pid, os.uname().machine))
    places = _places(maps)
    count = len(places)
    pages, nodes = (ctypes.c_void_p * count)(*places), (ctypes.c_int * count)()
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = ctypes.c_int(pid), ctypes.c_ulong(count), pages, ctypes.c_void_p(), nodes, ctypes.c_int(0)
    if count and libc.syscall(ctypes.c_long(syscall), *arguments) != 0:
        raise ValueError("The pages of process %d are not known: move_pages: %s" % (pid, os.strerror(ctypes.get_errno())))
    return Counter(node for node in nodes if node >= 0)  # others are not there, or shared with every process


def _places(maps: str) -> list[int]:
    """Return the addresses to look at, of the text of ``maps``: the first page of each writable mapping, and every 512th from there."""
    mappings = [(int(first, 16), int(last, 16)) for first, last in _WRITABLE.findall(maps)]
    step = _PAGE * EVERY
    total = sum((last - first + step - 1) // step for first, last in mappings)
    places = [place for first, last in mappings for place in range(first, last, step * (total // MOST + 1))]
    return places[:: len(places) // MOST + 1]


def nodes_with_memory(host: Host) -> set[int]:
    return read_list(host, NODE_FOLDER + "/has_memory")


def nodes_of_gpus(host: Host) -> dict[int, str]:
    """Return the nodes whose memory the NVIDIA driver says is that of a GPU, with its PCI function: also those that are not online yet.

    The file is there only where the memory of GPUs can be a node.
    """
    nodes = {}
    for pci in host.names(NVIDIA_GPUS):
        text = (host.read("%s/%s/numa_status" % (NVIDIA_GPUS, pci)) or "").lower()
        fields = {name.strip(): value.strip() for name, _colon, value in (line.partition(":") for line in text.splitlines())}
        if fields.get("node", "").isdigit() and fields.get("status") != "disabled":
            nodes[int(fields["node"])] = pci.lower()
    return nodes


def may_be_node(host: Host, pci: str, of_gpus: Mapping[int, str]) -> bool:
    """Return whether the memory of a GPU may be a node that the driver does not tell of.

    A driver that tells of no GPU of a host, although it has files on them, has no such nodes. ``of_gpus`` are those that it tells of.
    """
    folder = "%s/%s" % (NVIDIA_GPUS, pci)
    if not host.exists(folder):
        return True
    return bool(of_gpus) and pci not in of_gpus.values() and "disabled" not in (host.read(folder + "/numa_status") or "").lower()


def room_of_nodes(host: Host) -> dict[int, int]:
    """Return ``{node: bytes}`` that nodes can still hold: free pages and inactive ones of the page cache, less what the kernel keeps.

    The memory of GPUs is left to these: their nodes have no room. Nodes whose room is not known are left out.
    """
    kept = (host.read_number("/proc/sys/vm/min_free_kbytes") or 0) * 1024
    room, of_gpus = {}, nodes_of_gpus(host)
    for node in numbers(host, NODE_FOLDER, "node"):
        free = _FREE.findall(host.read("%s/node%d/meminfo" % (NODE_FOLDER, node)) or "")
        if node in of_gpus:
            room[node] = 0
        elif free:
            room[node] = max(0, sum(map(int, free)) * 1024 - kept)
    return room


class Room:
    """What memory nodes can still hold while control groups move there one after the other."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.free: dict[int, int] = {}
        self._coming: list[tuple[str, set[int], int]] = []

    def take(self, folder: str, amount: int, nodes: set[int]) -> int | None:
        """Return the bytes that nodes have left for a group, and take the amount that moves there if it fits. None: it is not known
        whether it fits.

        The memory of a group counts in those around it, too.
        """
        self.free = self.free or room_of_nodes(self.host)
        apart = [row for row in self._coming if not (folder + "/").startswith(row[0] + "/") and not row[0].startswith(folder + "/")]
        space = max(0, sum(self.free.get(node, 0) for node in nodes) - sum(taken for _other, its, taken in apart if its & nodes))
        self._coming += [(folder, nodes, amount)] if amount <= space else []
        return space if amount <= space or nodes <= self.free.keys() else None


def outside(used: Mapping[int, int], nodes: Iterable[int]) -> int:
    return sum(used[node] for node in used.keys() - set(nodes))


def gib(amount: float) -> str:
    """Return bytes as text: ``12.3 GiB``."""
    return "%.1f GiB" % (amount / _GIB)


def memory(host: Host, units: Container[str], has_users: bool = False) -> dict[str, Any]:
    """Return ``{room_mib: {node: MiB}, units: {unit: {mems, mib: {node: MiB}}}}`` of slices of NPUs and of named services.

    Only those that hold memory are there; none on cgroup v1. ``mems`` are the memory nodes that a unit may use now, and nodes are texts, as
    in JSON; ``mib`` is None where the kernel does not tell what running processes hold (before 5.10). Empty without any, and where no
    others that ``has_users`` tells of hold memory.
    """
    held = {}
    for name, folder in _groups(host, units):
        mib = mib_of_group(host, folder[len(CGROUPS) :])
        unknown = not mib and used_by_node(host, folder) is None and "populated 1" in (host.read(folder + "/cgroup.events") or "")
        if mib or unknown:
            held[name] = {"mems": host.read(folder + "/cpuset.mems.effective") or "", "mib": None if unknown else mib}
    if not held and not has_users:
        return {}
    return {"room_mib": {str(node): amount >> 20 for node, amount in sorted(room_of_nodes(host).items())}, "units": held}


def _groups(host: Host, units: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the units, and the folders of their control groups, that are slices of NPUs or named services in these or in system.slice."""
    outer = ["%s/%s.slice" % (CGROUPS, kind) for kind in ("npu", "gpu")]
    slices = outer + ["%s/%s" % (folder, name) for folder in outer for name in host.names(folder, "*.slice")]
    yield from ((posixpath.basename(folder), folder) for folder in slices)
    for folder in [*slices, CGROUPS + "/system.slice"]:
        yield from ((name, "%s/%s" % (folder, name)) for name in host.names(folder, "*.service") if name in units)


@contextlib.contextmanager
def patience(host: Host, moved: int) -> Iterator[None]:
    """Let commands take as long as the memory that they move needs; ``moved`` is in bytes."""
    usual = host.timeout
    host.timeout += moved / _RATE
    try:
        yield
    finally:
        host.timeout = usual
