# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place the queues of network functions on the CPUs that a desired state has for them, report the result, and compare it.

Queue N of a function goes to the Nth of its CPUs, and those after the last begin again. Functions with the same CPUs begin at different
ones. The number of queues, RPS and XPS are left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import KERNEL, Cause, Value, coded
from ..._base.outside import require_shape
from ..._base.table import count
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Interrupt, Vector, interrupt_names
from ..._kernel.nics import RPS, XPS, managed_disks, name_of, queue_name, queues, steered_cpus
from ..._kernel.pci import DEVICE_FOLDER
from ..._state.value_kind import Change
from ..feature import Comparing
from ..irq.affinities import Affinities, predict
from ..irq.affinity import Row, Step
from ..irq.rebinds import Rebinds
from .feature import ADDRESS, NEAR

if TYPE_CHECKING:
    from ..._base.documents import NicLive

TITLE = "queue interrupts"
"""How diffs and sentences call all queues of a function together."""
_NUMBER = re.compile(r"\d+\Z")
_STUCK = Cause(KERNEL, "they have the right list and do not follow it; see effective_affinity_list")
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
        number = len(queues(host, pci, names))
        return number, 0 < number == before

    def key_of(self, vector: Vector) -> str:
        """Return what identifies the interrupt of a queue, whatever the name of its interface is."""
        return "%d %s" % (vector.ordinal, queue_name(vector.name))

    def title_of(self, host: Host, pci: str) -> str:
        name = name_of(host, "%s/%s" % (DEVICE_FOLDER, pci))
        return "%s (%s)" % (name, pci) if name else pci

    def survey(self, host: Host, live: Mapping[str, Any]) -> list[Row]:
        wanted = functions_of(live)
        online, names, rows = read_list(host, CPU_FOLDER + "/online"), interrupt_names(host), []
        for function, cpus in sorted(wanted.items()) if live.get("mode", NEAR) == NEAR else ():
            if self.pci not in (None, function):
                continue
            row = Row(function, title=self.title_of(host, function))
            rows.append(row)
            able = [cpu for cpu in sorted(expand(cpus)) if not online or cpu in online]
            vectors = queues(host, function, names)
            if not able and vectors:
                self.refused.append("%s: no CPU of %s is online; bring one online or bind again" % (row.title, cpus))
            same = sorted(other for other, theirs in wanted.items() if theirs == cpus)
            first = same.index(function) * len(able) // len(same)
            for number, vector in vectors if able else ():
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
        lost = []
        for row in [row for row in self.rows if row.missing]:
            numbers = compress(int(number) for key in row.missing for number in _NUMBER.findall(key))
            lost.append(text % (row.title, len(row.missing), len(row.missing) + len(row.all_steps()), numbers))
        return lost

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        wanted, names, sentences = functions_of(live), interrupt_names(host), list(self.report().unchangeable)
        counts = {pci: len({number for number, _vector in queues(host, pci, names)}) for pci in wanted}
        for pci, cpus in sorted(wanted.items()):
            title = self.title_of(host, pci)
            if not counts[pci]:
                sentences.append("%s: its driver has requested no queue interrupts, as while the interface is down" % title)
            together = sum(counts[other] for other, theirs in wanted.items() if theirs == cpus)
            sentences += _shared(title, counts[pci], together, cpus)
            for kind in (RPS, XPS):
                steered = steered_cpus(host, pci, kind)
                if steered - set(expand(cpus)):
                    sentences.append("%s: %s also uses CPUs %s, and is not changed" % (title, kind, compress(steered)))
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


def compare(comparing: Comparing, wanted: NicLive) -> None:
    """Compare the queues of each function, and add what there is to know about them."""
    from ..irq.drift import cause_of_move  # which needs more than all the rest, that units import
    from ..irq.irqbalance import freedom

    host, findings, affinities, free = comparing.host, comparing.findings, Queues(), freedom(comparing.host)
    report = predict(host, affinities, wanted, Rebinds(host))
    findings.remarks += affinities.remarks(host, wanted, ()) + coded("NPU_IRQ_FAILED", report.failed if comparing.tolerant else [])
    for row in report.rows:
        steps, title = row.all_steps(), "%s of %s" % (TITLE, row.title)
        fixed = sum(step.state in ("managed", "full") for step in steps)
        elsewhere = [step for step in steps if step.state in ("changed", "stuck", "fought over", "failed")]
        findings.queues[row.pci] = {"near": len(steps) - fixed - len(elsewhere), "elsewhere": len(elsewhere), "fixed": fixed}
        wrong = [step for step in elsewhere if step.state != "failed" or not comparing.tolerant]
        if not wrong:
            findings.same("interrupts", title)
            continue
        groups: dict[str | None, list[int]] = {}
        for step in wrong:
            irqs = groups.setdefault(step.effective or step.before, [])
            irqs += [] if step.target.irq is None else [step.target.irq]
        values = [
            Value("cannot be read") if cpus is None else Value(cpus=cpus, irqs=compress(irqs))
            for cpus, irqs in sorted(groups.items(), key=lambda group: group[0] or "")
        ]
        worst, irqbalance = next((step for step in wrong if step.state == "fought over"), wrong[0]), free(row.pci)
        everything = len(wrong) == len(steps) > 1 and not irqbalance
        cause = cause_of_move("interrupts", worst.entry(), everything, comparing.online, irqbalance=irqbalance)
        expected = compress({cpu for step in wrong for cpu in expand(step.choices[0])})
        findings.differs("interrupts", title, Value(cpus=expected), values, _STUCK if worst.state == "stuck" else cause)
