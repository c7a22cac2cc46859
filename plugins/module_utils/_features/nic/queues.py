# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place the queues of network functions on the CPUs that a desired state has for them, and report the result.

Queue N of a function goes to the Nth of its CPUs, and those after the last begin again. Functions with the same CPUs begin at different
ones. The number of queues, RPS and XPS are left alone.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import coded
from ..._base.outside import require_shape
from ..._base.table import count
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Interrupt, Vector, interrupt_names
from ..._kernel.nics import RPS, XPS, managed_disks, name_of, queue_name, queues, steered_cpus
from ..._kernel.pci import DEVICE_FOLDER
from ..._state.value_kind import Change
from ..irq.affinities import Affinities
from ..irq.affinity import Row, Step
from .feature import ADDRESS, NEAR

TITLE = "queue interrupts"
"""How diffs and sentences call all queues of a function together."""
_NUMBER = re.compile(r"\d+\Z")
_OVERLOAD = 4
"""Queues for each CPU from which on these CPUs are probably too few."""


class Queues(Affinities):
    """The queues of network functions. ``live`` is ``{mode, functions}``; a report places nothing, and restores what a bind placed."""

    noun = TITLE
    pause = 1

    def __init__(self) -> None:
        Affinities.__init__(self, "nic", "network interrupts")

    def awaited(self, live: Mapping[str, Any]) -> list[str]:
        return [pci for pci in live["functions"] if pci == self.pci]

    def counted(self, host: Host, pci: str, names: dict[int, str], before: int) -> tuple[int, bool]:
        found = len(queues(host, pci, names))
        return found, 0 < found == before

    def key_of(self, vector: Vector) -> str:
        """Return what identifies the interrupt of a queue, whatever the name of its interface is."""
        return "%d %s" % (vector.ordinal, queue_name(vector.name))

    def title_of(self, host: Host, pci: str) -> str:
        found = name_of(host, "%s/%s" % (DEVICE_FOLDER, pci))
        return "%s (%s)" % (found, pci) if found else pci

    def survey(self, host: Host, live: Mapping[str, Any]) -> list[Row]:
        wanted = functions_of(live)
        online, names, rows = read_list(host, CPU_FOLDER + "/online"), interrupt_names(host), []
        for function, cpus in sorted(wanted.items()) if live.get("mode", NEAR) == NEAR else ():
            if self.pci not in (None, function):
                continue
            row = Row(function, title=self.title_of(host, function))
            rows.append(row)
            able = [cpu for cpu in sorted(expand(cpus)) if not online or cpu in online]
            found = queues(host, function, names)
            if not able and found:
                self.refused.append("%s: no CPU of %s is online; bring one online or bind again" % (row.title, cpus))
            same = sorted(other for other, theirs in wanted.items() if theirs == cpus)
            first = same.index(function) * len(able) // len(same)
            for number, vector in found if able else ():
                start = (first + number) % len(able)
                order = [str(cpu) for cpu in able[start:] + able[:start]]
                row.add(Step(Interrupt(vector.irq, TITLE), order, self.key_of(vector)))
        return rows

    def keeps(self, host: Host, key: str, original: str) -> bool:
        """Whether it exists and is not as it was: one that no longer exists is reported once."""
        gone = self.is_over(key) and self.read(host, key) is None
        return not gone and Affinities.keeps(self, host, key, original)

    def lost(self, host: Host) -> list[str]:
        text = "%s: %d of %d recorded queue interrupts cannot be restored, because its driver no longer has them (queues %s)"
        found = []
        for row in [row for row in self.rows if row.missing]:
            numbers = compress(int(number) for key in row.missing for number in _NUMBER.findall(key))
            found.append(text % (row.title, len(row.missing), len(row.missing) + len(row.all_steps()), numbers))
        return found

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        """Return what to know about the queues of functions and the interrupts of NVMe disks."""
        wanted, names, sentences = functions_of(live), interrupt_names(host), list(self.report().unchangeable)
        found = {pci: len({number for number, _vector in queues(host, pci, names)}) for pci in wanted}
        for pci, cpus in sorted(wanted.items()):
            title, own = self.title_of(host, pci), set(expand(cpus))
            if not found[pci]:
                sentences.append("%s: its driver has requested no queue interrupts, as while the interface is down" % title)
            together = sum(found[other] for other, theirs in wanted.items() if theirs == cpus)
            sentences += _shared(title, found[pci], together, cpus)
            for kind in (RPS, XPS):
                others = steered_cpus(host, pci, kind)
                sentences += ["%s: %s also uses CPUs %s, and is not changed" % (title, kind, compress(others))] if others - own else []
        disks = managed_disks(host)
        sentences += ["%s: the kernel places their interrupts itself" % ", ".join(disks)] if disks else []
        return coded("NPU_NIC_UNPLACED", sentences)


def functions_of(live: Mapping[str, Any]) -> dict[str, str]:
    """Return the CPUs of each function that a desired state, or the feature's file, wants. Raises ``ValueError`` for another shape."""
    require_shape(live, {"functions": {str: str}, "mode?": str}, "it")
    for pci, cpus in live["functions"].items():
        if not (ADDRESS.match(pci) and expand(cpus, "CPUs of %s" % pci)):
            raise ValueError("%r with CPUs %r is not a network function" % (pci, cpus))
    return dict(live["functions"])


def _shared(title: str, number: int, together: int, cpus: str) -> list[str]:
    """Return a sentence where a function has more queues than CPUs; ``together``: those of all functions on these CPUs."""
    most = len(expand(cpus))
    if number and together > _OVERLOAD * most:
        return [
            "%s: %s on %s (%s), which %d queues can overload; keep more CPUs of the node with npu_affinity_housekeeping, or reduce the "
            "queues with ethtool -L" % (title, count(number, "queue"), count(most, "CPU"), cpus, together)
        ]
    if number <= most:
        return []
    return ["%s: %d queues share %s (%s); %s would do" % (title, number, count(most, "CPU"), cpus, count(most, "queue"))]
