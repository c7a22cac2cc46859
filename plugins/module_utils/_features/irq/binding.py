# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interrupts, workqueues and kernel threads of NPUs, and the CPUs that a plan has for them.

What the driver has per device N (open CANN driver, task scheduler): interrupts ``trs-mbox-<N>-<scheduler>``, one
``sq_send_trigger_irq`` and on a physical function 16 ``cq_update_irq``; workqueues ``dev<N>_sq_send_wq`` and ``dev<N>_sq_fair_wq``,
which do the sending that the SQ interrupt only triggers; a kernel thread ``dev<N>_sq_task``. N is the driver's number of the device,
read from the mailbox interrupt's name; the plan's physical id stands in where there is no such interrupt.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Container, Iterable, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.devices import SQ, share_out
from ..._base.findings import coded
from ..._kernel.interrupts import KINDS, Interrupt, Thread, Vector, Workqueue, base_name, interrupt_names, kernel_threads, requested
from ..._kernel.pci import DEVICE_FOLDER
from ..._state.plan_file import PATH as PLAN
from ..._state.plan_file import plan_npus, read
from ..._state.value_kind import Change
from .affinities import THREAD as THREADS
from .affinities import WORKQUEUE, Affinities
from .affinity import Row, Step, grouped

if TYPE_CHECKING:
    import argparse

    from ..._base.documents import AppliedState, Plan, PlanEntry

CQ = "cq_update_irq"
WORKQUEUES = ("dev%d_sq_send_wq", "dev%d_sq_fair_wq")
THREAD = "dev%d_sq_task"
POLL_THREAD = "uvb_poll_window"
"""A kernel thread of the 950's bus that polls for the whole host (vllm-project/vllm-ascend@182b75ea, ``uvb_poll_window_thread``; the kernel
keeps 15 characters)."""
HOST = "host"
"""In the place of a PCI function: what belongs to no NPU."""
PROGRAM = "npu_affinity irq"
_CQ_OF_A_PHYSICAL_FUNCTION = 16


def choices(role: Sequence[int], pool: Sequence[int], vectors: Iterable[Vector], online: Container[int]) -> dict[int, list[int]]:
    """Return ``{irq: CPUs}``, best first, of the set of CPUs that are online, for every SQ and CQ interrupt; others are left alone.

    SQ goes to the first IRQ CPU, CQ to the second (the first if there is one only); of more than two, each CQ goes to another than the one
    before. The other IRQ CPUs and then the rest of the pool stand in for a CPU that is offline or full.
    """
    others = role[1:] or role
    turns = itertools.cycle([*others[turn:], *others[:turn]] for turn in range(len(others)))
    first = {vector.irq: next(turns) if vector.name == CQ else [] for vector in vectors if vector.name in (SQ, CQ)}
    return {irq: [cpu for cpu in dict.fromkeys([*cpus, *role, *pool]) if cpu in online] for irq, cpus in first.items()}


class Interrupts(Affinities):
    """What the drivers of NPUs have. ``live`` is ``{plan}``.

    NPUs without IRQ CPUs (A5, GPUs) have no entries, and a text as reason. Where the plan has CPUs for the host's poll threads, a last row
    has them (:data:`HOST`).
    """

    key = "interrupts"

    def __init__(self) -> None:
        Affinities.__init__(self, "irq", "interrupts")
        self._plan = PLAN
        self._sending: dict[int, tuple[Row, str]] = {}

    def of_state(self, state: AppliedState) -> dict[str, Plan] | None:
        return {"plan": state["plan"]} if Affinities.of_state(self, state) and state["plan"] else None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        Affinities.add_arguments(self, parser)
        parser.add_argument("--plan", default=PLAN, help="the plan as applied (default: %(default)s)")

    def begin(self, host: Host, options: argparse.Namespace) -> None:
        self._plan = options.plan
        Affinities.begin(self, host, options)

    def applied(self, host: Host) -> dict[str, Plan] | None:
        plan = read(host, self._plan)
        return None if plan is None else {"plan": plan}

    def awaited(self, live: Mapping[str, Any]) -> set[str]:
        return {npu["pci"].lower() for npu in plan_npus(live["plan"]) if npu.get("irq") and npu["pci"]}

    def counted(self, host: Host, pci: str, names: dict[int, str], before: int) -> tuple[int, bool]:
        """They are all there when they are as many as a physical function has, or of both kinds and no more than before."""
        kinds = [vector.name for vector in requested(host, pci, names) if vector.name in (SQ, CQ)]
        complete = SQ in kinds and kinds.count(CQ) >= _CQ_OF_A_PHYSICAL_FUNCTION
        return len(kinds), complete or len(set(kinds)) == 2 and len(kinds) == before

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        return coded("NPU_IRQ_UNPLACED", self.report().unchangeable)

    def result(self, changes: Sequence[Change]) -> dict[str, Any]:
        report = self.report()
        return {
            "npus": [dict(npu, **{kind: grouped(npu[kind]) for kind in KINDS}) for npu in report.npus],
            "unchangeable": report.unchangeable,
            "failures": report.failed,
        }

    def survey(self, host: Host, live: Mapping[str, Any]) -> list[Row]:
        self._host, self._online, self._sending, plan = host, read_list(host, CPU_FOLDER + "/online"), {}, live["plan"]
        rows = []
        functions: dict[str, list[tuple[Row, PlanEntry]]] = {}
        for npu in plan_npus(plan):
            row = Row((npu.get("pci") or "").lower(), npu["id"])
            if self.pci not in (None, row.pci):
                continue
            rows.append(row)
            row.text = self._nothing_to_bind(row, npu)
            if not row.text:
                functions.setdefault(row.pci, []).append((row, npu))
        names = interrupt_names(host) if functions else {}
        for address, members in functions.items():
            vectors = requested(host, address, names)
            for (row, npu), (_npu, device, share) in zip(members, share_out([npu for _row, npu in members], vectors)):
                self._place(row, npu, device, share, bool(vectors))
        threads = {THREAD % device: share for device, share in self._sending.items()}
        for name, pid in kernel_threads(host, threads).items():
            row, cpus = threads[base_name(name)]
            row.add(Step(Thread(name, pid), [cpus], THREADS + name))
        if self.pci is None and plan.get("poll"):
            rows.append(self._poll_threads(plan["poll"]))
        return rows

    def _nothing_to_bind(self, row: Row, npu: PlanEntry) -> str:
        if not npu.get("irq"):
            return "the plan has no IRQ CPUs for it; its interrupts are not moved"
        text = ""
        if not row.pci:
            text = "the plan has no PCI function for it, so its interrupts cannot be found; gather and plan again"
        elif not self._host.exists("%s/%s" % (DEVICE_FOLDER, row.pci)):
            text = "it is not on the PCI bus and was not bound; bind again when it is back or permanently removed"
        return self._say(self.warned, row, text) if text else ""

    def _say(self, sentences: list[str], row: Row, text: str) -> str:
        sentences.append("%s: %s" % (row.title, text))
        return text

    def _place(self, row: Row, npu: PlanEntry, device: int | None, vectors: list[Vector], driver: bool) -> None:
        role, pool = (expand(npu[key], "%s of NPU %s" % (key, npu["id"])) for key in ("irq", "pool"))
        online = self._online or set(pool)
        near = [str(cpu) for cpu in role + pool if cpu in online]
        if not near:
            row.text = self._say(self.refused, row, "no CPU of its pool %s is online; bring one online or plan again" % npu["pool"])
            return
        missing = [name for name in (SQ, CQ) if name not in {vector.name for vector in vectors}]
        if driver and not vectors:
            row.text = "the interrupts of its PCI function are those of another NPU"
        elif missing:
            row.missing = missing
            row.text = self._say(self.refused, row, "its driver has not requested %s; bind again when it is loaded" % " and ".join(missing))
        offline = set(role) - online
        if offline:
            row.text = self._say(self.warned, row, "IRQ CPU %s is offline; another CPU of its pool is used" % compress(offline))
        orders = choices(role, pool, vectors, online)
        for vector in vectors:
            if vector.irq in orders:
                row.add(Step(Interrupt(vector.irq, vector.name), list(map(str, orders[vector.irq])), self.key_of(vector)))
        if driver and device is None:
            row.text = self._say(self.warned, row, "the number of its device is not known, so its workqueues and thread are left alone")
        elif driver and device is not None:
            row.device = device
            self._sending[device] = (row, near[0])
            for queue in [Workqueue(name % device) for name in WORKQUEUES]:
                if self._host.exists(queue.path):
                    row.add(Step(queue, [near[0]], WORKQUEUE + queue.name))

    def _poll_threads(self, poll: str) -> Row:
        """Return the row of the host itself: they belong to no NPU."""
        row = Row(HOST)
        cpus = set(expand(poll, "poll")) & (self._online or set(expand(poll)))
        threads = kernel_threads(self._host, [POLL_THREAD])
        if not threads:
            row.text = "it runs no kernel thread %s, which would be placed on CPUs %s" % (POLL_THREAD, poll)
        elif not cpus:
            row.text = self._say(self.warned, row, "no CPU of %s for its threads %s is online; they are left alone" % (poll, POLL_THREAD))
        else:
            for name, pid in threads.items():
                row.add(Step(Thread(name, pid), [compress(cpus)], THREADS + name))
        return row
