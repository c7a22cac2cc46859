# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a driver has on CPUs: the interrupts of a PCI function, workqueues and kernel threads; their affinity read and set.

Interrupts are found by PCI function and name each time: numbers change, and even swap, when drivers are bound again. Sources: Linux
``Documentation/core-api/irq/irq-affinity.rst``, ``Documentation/core-api/workqueue.rst`` and ``fs/proc/array.c``.

In another tree than the running machine's there is no kernel that lets derived files follow, so setting an affinity rewrites those too.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Container, Iterable, Iterator, Mapping, NamedTuple

from .._base.cpulist import compress, expand, from_mask, to_mask
from .._host.host import Host
from .cpus import UNBOUND_CPUS
from .masks import asked_for, usable
from .pci import DEVICE_FOLDER
from .processes import stat_fields

KINDS = ("interrupts", "workqueues", "threads")
"""What a driver has that runs on CPUs."""
WORKQUEUE_FOLDER = "/sys/devices/virtual/workqueue"
_MASK, _CPULIST = (re.compile(r"^(Cpus_allowed%s:[ \t]*)(\S*)" % name, re.MULTILINE) for name in ("", "_list"))
_COMM_LENGTH = 15
_FLAGS, _KERNEL_THREAD = 6, 0x00200000
"""Which of :func:`stat_fields` are the flags of a process, and PF_KTHREAD."""


class Vector(NamedTuple):
    """An interrupt that a driver requested for a PCI function.

    ``ordinal`` counts all vectors of the function, also those not requested yet, in the order of their numbers: with the name it
    identifies a vector when numbers have changed.
    """

    irq: int
    name: str
    ordinal: int


def interrupt_names(host: Host) -> dict[int, str]:
    """Return ``{number: name}`` of ``/proc/interrupts``; empty when it is missing.

    The name is the last word: those before it (chip, hardware number, trigger) differ between kernels. A line has a count of
    some ten characters per CPU, so the counts are never looked at.
    """
    names = {}
    for line in _table(host):
        number, colon, _rest = line[:16].partition(b":")
        if colon and number.strip().isdigit():
            names[int(number)] = line.rsplit(None, 1)[-1].decode("ascii", "replace")
    return names


def _table(host: Host) -> Iterator[bytes]:
    with contextlib.suppress(OSError), open(host.resolve("/proc/interrupts"), "rb") as file:
        yield from file


def requested(host: Host, pci: str, names: Mapping[int, str]) -> list[Vector]:
    """Return the interrupts that a driver requested for a PCI function; ``names`` is a result of :func:`interrupt_names`."""
    numbers = sorted(int(name) for name in host.names("%s/%s/msi_irqs" % (DEVICE_FOLDER, pci)) if name.isdigit())
    return [Vector(irq, names[irq], ordinal) for ordinal, irq in enumerate(numbers) if irq in names]


def interrupt_counts(host: Host, numbers: Container[int]) -> dict[int, dict[int, int]]:
    """Return ``{number: {CPU: how often it came there so far}}`` of those of the numbers that ``/proc/interrupts`` has."""
    counts, table = {}, _table(host)
    cpus = [int(word[3:]) for word in next(table, b"").split() if word[3:].isdigit()]
    for line in table:
        number, _colon, rest = line.partition(b":")
        if number.strip().isdigit() and int(number) in numbers:
            counts[int(number)] = {cpu: int(count) for cpu, count in zip(cpus, rest.split(None, len(cpus)))}
    return counts


def kernel_threads(host: Host, names: Iterable[str]) -> dict[str, int]:
    """Return ``{name: pid}`` of those kernel threads that run, in one pass over the processes.

    Of several with one name, by ascending number, the second is ``<name> #2``, and so on. Any process can take the name of a kernel
    thread and empty its command line; what it is, only the kernel says.
    """
    wanted = {name[:_COMM_LENGTH].encode(): name for name in names}
    pids: dict[str, int] = {}
    for pid in sorted(host.names("/proc", "[0-9]*"), key=int) if wanted else ():
        try:
            with open(host.resolve("/proc/%s/comm" % pid), "rb") as file:
                comm = file.read().rstrip(b"\n")
        except OSError:
            continue
        flags = stat_fields(host, "/proc/" + pid)[_FLAGS : _FLAGS + 1] if comm in wanted else []
        if flags and int(flags[0]) & _KERNEL_THREAD:
            name = wanted[comm]
            others = sum(base_name(taken) == name for taken in pids)
            pids["%s #%d" % (name, others + 1) if others else name] = int(pid)
    return pids


def base_name(name: str) -> str:
    """Return the name of a kernel thread without what tells it from others of the same name."""
    return name.partition(" #")[0]


class Target:
    """What has an affinity. ``path`` is the file that shows it; ``read`` returns a cpulist or None, ``write`` raises OSError."""

    name: str
    path: str
    irq: int | None = None

    def read(self, host: Host) -> str | None:
        raise NotImplementedError

    def write(self, host: Host, cpus: str) -> None:
        raise NotImplementedError

    def to_record(self, host: Host, cpus: str) -> str:
        """Return what to remember of an affinity that was read, in order to restore it."""
        return cpus

    def restored(self, host: Host, recorded: str, online: set[int]) -> str:
        """Return the affinity that a recorded one comes to now: CPUs that are all offline give way to all that are online."""
        return recorded if not online or online & set(expand(recorded)) else compress(online)

    def effective(self, host: Host) -> str | None:
        """Return the cpulist of the CPUs that are really used, or None where that is nothing else."""
        return None

    def elsewhere(self, effective: str | None) -> tuple[str, str]:
        """Return ``(state, text)`` for one that is used on other CPUs than it was put on."""
        return "pending", "follows at its next interrupt; until then it is on CPUs %s" % effective

    def fixed(self, host: Host) -> bool:
        """Whether it is known without a write that the kernel would refuse one."""
        return False


class Interrupt(Target):
    def __init__(self, irq: int, name: str) -> None:
        self.irq = irq
        self.name = name
        self._folder = "/proc/irq/%d/" % irq
        self.path = self._folder + "smp_affinity_list"

    def read(self, host: Host) -> str | None:
        return host.read(self.path)

    def effective(self, host: Host) -> str | None:
        return host.read(self._folder + "effective_affinity_list") or None

    def fixed(self, host: Host) -> bool:
        """Whether the kernel manages the interrupt itself and shows it: since Linux 6.13 its files then have no write bit.

        Older kernels only refuse the write, with EIO (newer ones with EPERM).
        """
        try:
            return not os.stat(host.resolve(self.path)).st_mode & 0o222
        except OSError:
            return False

    def write(self, host: Host, cpus: str) -> None:
        host.set_attribute(self.path, cpus)
        numbers = sorted(expand(cpus))
        for name, members in (("smp_affinity", numbers), ("effective_affinity", numbers[:1]), ("effective_affinity_list", numbers[:1])):
            path = self._folder + name
            if not host.live and host.exists(path) and not os.path.islink(host.path(path)):
                is_list = name.endswith("_list")
                host.set_attribute(path, compress(members) if is_list else _mask_like(host.read(path) or "", members))


class Workqueue(Target):
    """An unbound workqueue that its driver shows in sysfs (``WQ_SYSFS``); others have no CPU mask, and :meth:`read` returns None."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = "%s/%s/cpumask" % (WORKQUEUE_FOLDER, name)

    def read(self, host: Host) -> str | None:
        text = host.read(self.path)
        return None if text is None else compress(from_mask(text, self.path))

    def write(self, host: Host, cpus: str) -> None:
        host.set_attribute(self.path, _mask_like(host.read(self.path) or "", expand(cpus)))

    def effective(self, host: Host) -> str | None:
        """Return the CPUs that its workers get: those of its mask that unbound workqueues may use, and all of these where there are none.

        The mask itself keeps showing what was written (Linux ``kernel/workqueue.c``, since commit 042f7df15a4f).
        """
        mask, allowed = host.read(self.path), host.read(UNBOUND_CPUS)
        if mask is None or allowed is None:
            return None
        cpus = from_mask(allowed, UNBOUND_CPUS)
        return compress(from_mask(mask, self.path) & cpus or cpus)

    def elsewhere(self, effective: str | None) -> tuple[str, str]:
        text = (
            "runs on CPUs %s all the same: the kernel keeps unbound workqueues on these (%s), because the others are isolated (isolcpus, "
            "nohz_full). Plan IRQ CPUs that are not isolated (npu_affinity_isolation: exclude), or add them to that mask"
        )
        return "replaced", text % (effective, UNBOUND_CPUS)


class Thread(Target):
    """A thread by its id of the moment. One that gets all that its cpuset grants has no mask of its own (:mod:`_kernel.masks`)."""

    def __init__(self, name: str, pid: int, process: int | None = None) -> None:
        self.name = name
        self.path = "/proc/%d/status" % pid
        self._pid = pid
        self._process = pid if process is None else process

    @classmethod
    def of_process(cls, process: int, tid: int, name: str) -> Thread:
        """Return a thread of a process, which procfs shows among those of that process only."""
        thread = cls(name, tid, process)
        thread.path = "/proc/%d/task/%d/status" % (process, tid)
        return thread

    def read(self, host: Host) -> str | None:
        match = _CPULIST.search(host.read(self.path) or "")
        return match.group(2) if match else None

    def to_record(self, host: Host, cpus: str) -> str:
        return compress(asked_for(host, set(expand(cpus)), usable(host, self._process)))

    def restored(self, host: Host, recorded: str, online: set[int]) -> str:
        granted = usable(host, self._process)
        return compress(set(expand(recorded)) & granted or granted) or recorded

    def write(self, host: Host, cpus: str) -> None:
        numbers = expand(cpus)
        if host.live:
            os.sched_setaffinity(self._pid, asked_for(host, set(numbers), usable(host, self._process)))
            return
        text = _MASK.sub(lambda match: match.group(1) + _mask_like(match.group(2), numbers), host.read(self.path) or "")
        host.set_attribute(self.path, _CPULIST.sub(lambda match: match.group(1) + cpus, text))


def _mask_like(before: str, cpus: Iterable[int]) -> str:
    """Return the CPU mask in as many digits as the text that it replaces, as the kernel does."""
    digits = to_mask(cpus).lstrip("0,")
    if len(digits) > len(before):
        return to_mask(cpus)
    return "".join("," if character == "," else "0" for character in before[: len(before) - len(digits)]) + digits
