# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which NUMA nodes the memory of processes lies, and moving it to the nodes of their NPUs.

Source of the table: ``/proc/<pid>/numa_maps`` (Linux ``Documentation/filesystems/proc.rst``), which the kernel makes by walking all page
tables: seconds for hundreds of GiB. A page that several processes share is counted in each of them.

Moving is what ``migratepages`` of numactl does. It stalls the process, at some hundred MB/s (vllm-project/vllm-ascend PR 12977 and issue
17286: 430 MB/s), so it happens on request only, up to a limit, one source node after the other.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from typing import Any, Iterable, Mapping

from ..._base.table import count
from ..._base.cpulist import compress, expand
from ..._state.plan_file import memory_nodes
from ..._host.host import GONE, CommandError, Host
from ..._state.files import write_note, remove_file
from .feature import PROGRESS
from .tasks import Process

FOLDERS = ["/usr/bin", "/usr/local/bin", "/bin"]
_NODE = re.compile(r" N(\d+)=(\d+)")
_SIZE = re.compile(r" kernelpagesize_kB=(\d+)")
_KIB = 1024.0
SMALL = 1.0
"""MiB on remote nodes below which a process is left alone: pages of libraries that others use as well do not move."""
_SPEED = 430.0
"""MiB/s that were seen on Ascend hosts (source above)."""
_SLOWEST = 50.0
"""MiB/s below which a call is given up."""
_AGAIN = "the next bind with npu_affinity_threads_memory_limit moves the rest"
_STAYS = "it is pinned, by the NPU driver for instance, or memory nodes %s have no room; restart it when they have"


class Unreadable(Exception):
    """The memory of a process could not be read; the text is a sentence."""


def pages_by_node(text: str, page_kib: int = 4) -> dict[int, float]:
    """Return ``{node: MiB}`` of the text of numa_maps. Lines of old kernels do not tell the page size; then it is ``page_kib``."""
    kib: dict[int, int] = Counter()
    for line in text.splitlines():
        size = _SIZE.search(line)
        for node, pages in _NODE.findall(line):
            kib[int(node)] += int(pages) * (int(size.group(1)) if size else page_kib)
    return {node: amount / _KIB for node, amount in kib.items()}


def memory_of(host: Host, pid: int) -> dict[int, float] | None:
    """Return ``{node: MiB}`` of a process, or None when it has ended. Raises :class:`Unreadable`."""
    path = "/proc/%d/numa_maps" % pid
    try:
        with open(host.resolve(path), encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError as error:
        if error.errno in GONE:
            if not host.exists("/proc/%d" % pid):
                return None
            raise Unreadable("%s does not exist: this kernel is built without NUMA" % path)
        raise Unreadable("%s could not be read (%s); run as root" % (path, error.strerror))
    return pages_by_node(text, os.sysconf("SC_PAGE_SIZE") // 1024)


def wanted_nodes(process: Process) -> set[int]:
    """Return the memory nodes of a process's NPUs as the plan has them; an empty set where it has none."""
    return {node for npu in process.npus for node in expand(memory_nodes(npu), "memory nodes of NPU %s" % npu["id"])}


def _nearest(process: Process) -> set[int]:
    return {node for npu in process.npus for node in expand(npu.get("mems") or memory_nodes(npu))}


def missing_tool(host: Host) -> str:
    """Return a sentence where nothing can move memory, '' otherwise."""
    return "" if _tool(host) else "migratepages was not found in %s; install numactl on this host" % ", ".join(FOLDERS)


def _tool(host: Host) -> str | None:
    return host.find_program("migratepages", FOLDERS)


def remote(table: Mapping[int, float], wanted: set[int]) -> dict[int, float]:
    """Return the part of a table that lies on other nodes than the wanted ones; none where no node is wanted."""
    return {node: amount for node, amount in table.items() if amount and wanted and node not in wanted}


def tables(host: Host, processes: Iterable[Process]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return ``{pid, name, npus, wanted, mib, remote_mib}`` of every process that can be read, and sentences on the others.

    ``mib`` is by node (as text), ``wanted`` are nodes as a cpulist is written.
    """
    rows, warnings = [], []
    for process in processes:
        try:
            table = memory_of(host, process.pid)
        except Unreadable as error:
            warnings.append("the memory of %s is not known: %s" % (process.title, error))
            continue
        if table is not None:
            wanted = wanted_nodes(process)
            row = {"pid": process.pid, "name": process.name, "npus": [npu["id"] for npu in process.npus], "wanted": compress(wanted)}
            mib = {str(node): round(amount, 1) for node, amount in sorted(table.items())}
            rows.append({**row, "mib": mib, "remote_mib": round(sum(remote(table, wanted).values()), 1)})
    return rows, warnings


class Migration:
    """What lies on remote nodes, and moving it. ``steps`` has ``{pid, source, target, mib, left_mib, seconds}`` of each call, in order.

    The order is that of the processes, then the nodes with most memory first. What a run did not get to, the next one finds again by the
    tables: there is no other state that a killed run could leave behind.
    """

    def __init__(self, host: Host, processes: Iterable[Process], timeout: float = 30) -> None:
        self.host = host
        self.timeout = timeout
        self.steps: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.warnings: list[str] = []
        self.todo: list[tuple[Process, dict[int, float], float]] = []
        for process in processes:
            try:
                table = memory_of(host, process.pid) or {}
            except Unreadable:
                continue
            amount = sum(remote(table, wanted_nodes(process)).values())
            if amount >= SMALL:
                self.todo.append((process, table, amount))
        self.total = sum(amount for _process, _table, amount in self.todo)

    def moved(self, pid: int | None = None) -> float:
        return float(sum(step["mib"] - step["left_mib"] for step in self.steps if pid in (None, step["pid"])))

    def lines(self, check: bool) -> list[str]:
        """Return a line for every process with MiB on remote nodes, as predicted in check mode."""
        rows = [(process.title, amount, 0 if check else amount - self.moved(process.pid)) for process, _table, amount in self.todo]
        return ["~ %s: MiB on remote nodes %.1f -> %.1f" % row for row in rows]

    def refuse_above(self, limit: float) -> None:
        """Raise ``ValueError`` with the numbers when there is more to move than ``limit`` MiB, or no tool to move it."""
        if self.total > limit:
            shown = []
            for process, table, amount in self.todo:
                nodes = compress(remote(table, wanted_nodes(process))), compress(_nearest(process))
                shown.append("%s has %.0f MiB on nodes %s and belongs on %s" % (process.title, amount, *nodes))
            more = "; and " + count(len(shown) - 3, "more process", "more processes") if len(shown) > 3 else ""
            raise ValueError(
                "%.0f MiB of memory would move, and npu_affinity_threads_memory_limit is %d MiB: %s%s. The processes would stall for "
                "about %.0f s. Raise npu_affinity_threads_memory_limit to %d, or restart them in the slice of their device, where their "
                "memory comes from the right node at once"
                % (self.total, limit, "; ".join(shown[:3]), more, self.total / _SPEED, int(self.total) + 1)
            )
        if self.todo and missing_tool(self.host):
            raise ValueError(missing_tool(self.host))

    def carry_out(self) -> None:
        """Move everything, and write :data:`PROGRESS` meanwhile."""
        try:
            for process, table, _amount in self.todo:
                if not self._move(process, table):
                    return
        finally:
            remove_file(self.host, PROGRESS)

    def _move(self, process: Process, table: dict[int, float]) -> bool:
        """Move what a process has on each other node to the nearest wanted one with room. Return whether that could be judged."""
        wanted, near = wanted_nodes(process), _nearest(process)
        for source in sorted(remote(table, wanted), key=lambda node: -table[node]):
            for target in [*sorted(near), *sorted(wanted - near)]:
                before = table.get(source, 0)
                step: dict[str, Any] = {"pid": process.pid, "source": source, "target": str(target), "mib": round(before, 1)}
                progress = {"total_mib": round(self.total, 1), "moved_mib": round(self.moved(), 1), "now": step, "done": self.steps}
                write_note(self.host, PROGRESS, progress)
                start = time.monotonic()
                try:
                    words = [_tool(self.host) or "migratepages", str(process.pid), str(source), str(target)]
                    answer = self.host.run(words, timeout=self.timeout + before / _SLOWEST)
                    after = memory_of(self.host, process.pid)
                except (CommandError, Unreadable) as error:
                    self.failed.append("%s: moving %.0f MiB from node %d: %s; %s" % (process.title, before, source, error, _AGAIN))
                    return False
                if after is None:
                    return True
                table = after
                step.update(left_mib=round(table.get(source, 0), 1), seconds=round(time.monotonic() - start, 2))
                self.steps.append(step)
                if step["left_mib"] < SMALL:
                    break
            else:
                why = answer.output.strip() if answer.rc else _STAYS % compress(wanted)
                self.warnings.append("%s: %.0f MiB stay on node %d: %s" % (process.title, step["left_mib"], source, why))
        return True


def move_all(host: Host, processes: Iterable[Process], title: str) -> list[str]:
    """Move what processes of ``title`` have on remote nodes, however much it is. Return sentences on what stays there."""
    migration = Migration(host, processes, host.timeout)
    try:
        migration.refuse_above(float("inf"))
    except ValueError as error:
        return ["%s: %.0f MiB stay on other memory nodes than its own: %s" % (title, migration.total, error)]
    migration.carry_out()
    return migration.failed + migration.warnings
