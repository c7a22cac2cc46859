# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place the threads of NPU processes on the CPUs of their roles.

The same code runs in the module and, installed on the host, in the watcher.

The rule is the published one: all threads of a worker process to the role main, then its ``acl_thread`` to acl and its
``release_thread`` to release (vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``, ``bind_threads``). There it runs
inside the worker; here from outside, for all processes in the slice of an NPU. Where a plan has no CPUs for acl or release (A5, GPUs)
these threads are main threads.
"""

from __future__ import annotations

import errno
import fnmatch
from typing import TYPE_CHECKING, Any, Collection, Iterable, Mapping, Optional, Sequence

from ..._base.outside import json_of, require_shape
from ..._base.cpulist import compress, expand
from ..._host.host import FORBIDDEN, GONE, Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Thread
from ..._kernel.masks import cpuset
from ..._kernel.processes import started_with
from ..watching import Births
from . import torch_npu
from .feature import SETTINGS
from .tasks import ROLES, Process, find, groups_of, threads

if TYPE_CHECKING:
    from typing import List, TypedDict

    from ..._base.documents import Plan, WantedProcesses

    class ThreadRow(TypedDict):
        """``state``: placed (was right), moved, left (by a pattern), gone (ended, no failure), refused (by its cpuset) or failed."""

        tid: int
        name: str
        role: str
        before: str | None
        wanted: str | None
        after: str | None
        state: str
        text: str

    class ProcessRow(TypedDict):
        pid: int
        name: str
        title: str
        npus: List[int]
        found_by: str
        threads: List[ThreadRow]


Patterns = Mapping[str, Optional[Sequence[str]]]
PATTERNS = {
    "acl": ["acl_thread*"],
    "release": ["release_thread*"],
    "kv": ["KVCache*", "ascend-wk-*", "vllm-mooncake-*", "mooncake_*", "AccWrk:*", "AccListener", "lmc-*"],
    "leave": ["uvb_poll_window*"],
}
"""Names of threads by role. All others are main threads; ``leave`` are left where they are (the published code has a CPU of its own for
that one, which polls for the whole host). Those of ``kv`` transfer KV caches, and are main threads where a plan has no CPUs for them:
``KVCacheSendingThread`` and its like of vLLM-Ascend's connectors, which the kernel knows by these names from Python 3.14 on, and
``ascend-wk-<n>`` of Mooncake's Ascend transport (kvcache-ai/Mooncake PR 2672), its senders and its programs mooncake_master and
mooncake_client (Mooncake@3b5a594), the workers of MemFabric's links (memfabric_hybrid@7171ad35, ``acc_tcp_common.h``), and LMCache-Ascend's
staging threads (LMCache-Ascend@169ee72, ``hccl_channel.py``)."""
_ALIKE = ("role", "before", "wanted", "after", "state", "text")
_ROUNDS = 3
"""How often the threads of a process are listed: threads that start meanwhile have the CPUs of the thread that started them."""
_BY_TORCH_NPU = (
    "%s has %s: torch_npu places its threads, and they are left alone; unset it where they are to be placed here, or give it the CPUs of "
    "the plan (filter npu.affinity.launch, form torch_npu)"
)
_PROCESSES = {"npus?": [int], "slice?": str, "unit?": str, "pids?": [int], "devices?": bool}


def settings_of(host: Host) -> tuple[list[WantedProcesses], dict[str, list[str]]]:
    """Return ``(processes, patterns)`` of the installed settings; none where there is no file. Raises ``ValueError`` for another shape."""
    try:
        text = host.text(SETTINGS)
        settings = json_of("{}" if text is None else text)
        require_shape(settings, {"processes?": [_PROCESSES], "patterns?": dict}, "it")
        processes, patterns = settings.get("processes") or [], settings.get("patterns") or {}
        require_shape({role: names for role, names in patterns.items() if names is not None}, {str: [str]}, "patterns")
    except ValueError as error:
        raise ValueError("%s is not what role threads writes (%s); bind the host again to write it" % (SETTINGS, error))
    return processes, patterns


def completed(patterns: Patterns | None) -> Patterns:
    """Return patterns by role, with those of :data:`PATTERNS` where none are given."""
    return dict(PATTERNS, **{role: names for role, names in (patterns or {}).items() if names is not None})


def role_of(name: str, patterns: Patterns) -> str:
    """Return the role of a thread by its name: acl, release, kv, main, or ``leave``."""
    for role in ("leave", "acl", "release", "kv"):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.get(role) or ()):
            return role
    return "main"


def kv_thread(host: Host, pids: Iterable[int], patterns: Patterns) -> str:
    """Return a thread of processes that transfers KV caches, '' for none."""
    every = ((pid, *thread) for pid in pids for thread in threads(host, pid))
    return next(("thread %d (%s) of process %d" % (tid, name, pid) for pid, tid, name in every if role_of(name, patterns) == "kv"), "")


def cpus_of_roles(
    npus: Sequence[Mapping[str, Any]], online: set[int], granted: set[int] | None = None
) -> tuple[dict[str, set[int]], list[tuple[str, str]]]:
    """Return ``({role: CPUs}, [(role, sentence)])`` for processes of these entries of the plan, within their pools.

    They may use what is online and, where it is known, ``granted`` by their cgroup. A role without CPUs is taken by main. CPUs of which
    none may be used give way to those of main, and then of the pool (a slice inside that of the NPU has a part of it); the sets are empty
    when none of the pool may be used.
    """
    pool = {cpu for npu in npus for cpu in expand(npu["pool"])}
    usable = online if granted is None else online & granted
    roles: dict[str, set[int]] = {}
    sentences = []
    for role in ROLES:
        planned = {cpu for npu in npus for cpu in expand(npu.get(role) or "")}
        roles[role] = planned & usable or roles.get("main") or pool & usable
        for lost, why in ((planned - online, "offline"), ((planned & online) - usable, "not granted by the cgroup")):
            if lost and roles[role]:
                text = "CPU %s of role %s is %s; its threads get CPUs %s"
                sentences.append((role, text % (compress(lost), role, why, compress(roles[role]))))
    return roles, sentences


class _Process:
    def __init__(self, host: Host, process: Process, online: set[int], patterns: Patterns, widen: bool) -> None:
        self.host = host
        self.process = process
        self.online = online
        self.widen = widen
        self.patterns = patterns if any(npu.get("kv") for npu in process.npus) else dict(patterns, kv=[])
        granted = cpuset(host, process.pid)
        self.usable = online if granted is None else online & granted
        self.entries: dict[int, ThreadRow] = {}
        self.roles, self.sentences = cpus_of_roles(process.npus, online, granted)
        if widen:
            self.roles, self.sentences = dict.fromkeys(ROLES, self.usable), []

    def place(self, check: bool, only: Collection[int] | None = None) -> None:
        """Place all threads, and those that appear meanwhile, or ``only`` some."""
        for _round in range(1 if check else _ROUNDS):
            new = [(tid, name) for tid, name in threads(self.host, self.process.pid, only) if tid not in self.entries]
            if not new:
                return
            self.entries.update((tid, self._place(tid, name, check)) for tid, name in new)

    def _place(self, tid: int, name: str, check: bool) -> ThreadRow:
        role = role_of(name, self.patterns)
        thread = Thread.of_process(self.process.pid, tid, name)
        before = thread.read(self.host)
        cpus = self.roles.get(role) or {cpu for npu in self.process.npus for cpu in expand(npu.get(role) or npu["pool"])}
        wanted, after, state, text = before if role == "leave" else compress(cpus), before, "left", ""
        if role == "leave":
            pass
        elif before is None:
            state = "gone"
        elif not self.roles[role]:
            state, text = "refused", "it may use CPUs %s, and none of the pool" % (compress(self.usable) or "(none)")
        elif set(expand(before)) & self.online == cpus and (check or not self.widen):
            state = "placed"
        elif check:
            state, after = "moved", wanted
        else:  # one that is let go is written whatever it shows: it may have asked for just these CPUs, and would keep them
            state, after, text = self._moved(thread, cpus, before)
        if state == "refused":
            text = "is refused the CPUs %s of role %s: %s; start it in the slice of its device, or widen its cpuset" % (wanted, role, text)
        return {"tid": tid, "name": name, "role": role, "before": before, "wanted": wanted, "after": after, "state": state, "text": text}

    def _moved(self, thread: Thread, cpus: set[int], before: str | None) -> tuple[str, str | None, str]:
        """Move a thread, and return its state, its CPUs, and the text."""
        try:
            thread.write(self.host, compress(cpus))
        except OSError as error:
            if error.errno in GONE:
                return "gone", before, ""
            if error.errno == errno.EINVAL:
                return "refused", before, "the kernel answers %s" % error.strerror
            advice = "; run as root on the machine itself" if error.errno in FORBIDDEN else ""
            return "failed", before, "could not be moved to CPUs %s (%s)%s" % (compress(cpus), error.strerror, advice)
        after = thread.read(self.host)
        if after is None:
            return "gone", before, ""
        if set(expand(after)) & self.online != cpus:
            return "failed", after, "was moved to CPUs %s and is on %s: something else moves it" % (compress(cpus), after)
        return "placed" if after == before else "moved", after, ""


class Report:
    """The results for threads. ``selected`` are the :class:`threads.tasks.Process` objects, ``warnings`` and ``failed`` sentences."""

    def __init__(self, selected: Sequence[Process] = (), warnings: Iterable[str] = ()) -> None:
        self.selected = selected
        self.warnings = list(warnings)
        self.processes: list[ProcessRow] = []
        self.failed: list[str] = []
        self.changed = False

    def add(self, placement: _Process) -> None:
        process, entries = placement.process, [placement.entries[tid] for tid in sorted(placement.entries)]
        pid, name, _npus, found_by = process
        npus = [npu["id"] for npu in process.npus]
        self.processes += [{"pid": pid, "name": name, "title": process.title, "npus": npus, "found_by": found_by, "threads": entries}]
        roles = {entry["role"] for entry in entries}
        self.warnings += ["%s: %s" % (process.title, text) for role, text in placement.sentences if role in roles]
        self.changed |= any(entry["before"] != entry["after"] for entry in entries)
        failed = [group for group in grouped(entries) if group["state"] in ("refused", "failed")]
        self.failed += ["%s: %s %s" % (process.title, subject(group), group["text"]) for group in failed]


def place(
    host: Host,
    plan: Plan,
    wanted: Iterable[WantedProcesses] = (),
    patterns: Patterns | None = None,
    check: bool = False,
    widen: bool = False,
    among: Births | None = None,
) -> Report:
    """Place the threads of processes and return the :class:`Report`.

    ``wanted``: see :func:`threads.tasks.groups_of`. ``patterns``: lists of shell patterns by role, where others than :data:`PATTERNS`.
    ``check``: read and predict only. ``widen``: give them all online CPUs instead, which is what undoes it. ``among``: place these
    processes and threads alone.

    Raises ``ValueError`` for what is not a plan or asks for an NPU that it does not have.
    """
    patterns = completed(patterns)
    online = read_list(host, CPU_FOLDER + "/online") or {cpu for npu in plan["npus"] for cpu in expand(npu["pool"])}
    report = Report(*find(host, plan, groups_of(plan, wanted), among=among))
    for process in report.selected:
        placement = _Process(host, process, online, patterns, widen)
        setting = torch_npu.setting(started_with(host, process.pid))
        if setting:
            report.warnings.append(_BY_TORCH_NPU % (process.title, setting[0]))
        else:
            placement.place(check, among[process.pid] if among else None)
        report.add(placement)
    return report


def restore(host: Host, report: Report) -> None:
    """Restore the CPUs of the threads that were moved; one that has ended needs nothing. Raises ``ValueError`` with what could not be."""
    failed = []
    for row, entry in ((process, thread) for process in report.processes for thread in process["threads"]):
        tid, name, before = entry["tid"], entry["name"], entry["before"]
        try:
            if before is not None and before != entry["after"] and entry["state"] != "gone":
                Thread.of_process(row["pid"], tid, name).write(host, before)
        except OSError as error:
            if error.errno not in GONE:
                failed.append(
                    "thread %d (%s) of %s could not be restored to CPUs %s: %s" % (tid, name, row["title"], before, error.strerror)
                )
    if failed:
        raise ValueError("; ".join(failed))


def grouped(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the threads of one process with those joined that fare alike: ``names`` and ``tids`` (in the notation of cpulists)."""
    groups: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for entry in entries:
        groups.setdefault(tuple(entry[key] for key in _ALIKE), []).append((entry["tid"], entry["name"]))
    return [
        {**dict(zip(_ALIKE, values)), "tids": compress(dict(same)), "threads": len(same), "names": sorted(set(dict(same).values()))}
        for values, same in groups.items()
    ]


def subject(group: Mapping[str, Any]) -> str:
    """Return how sentences call threads that fare alike."""
    if group["threads"] == 1:
        return "thread %s (%s)" % (group["tids"], group["names"][0])
    shown = ", ".join(group["names"][:3]) + (", ..." if len(group["names"]) > 3 else "")
    return "each of %d threads (%s)" % (group["threads"], shown)


def moves(processes: Sequence[ProcessRow]) -> list[str]:
    """Return a sentence for all threads of the processes of a report that moved together."""
    groups = [(row["title"], group) for row in processes for group in grouped(row["threads"]) if group["before"] != group["after"]]
    return ["%s: %s moved from CPUs %s to %s" % (title, subject(group), group["before"], group["after"]) for title, group in groups]
