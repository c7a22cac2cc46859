# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bind the interrupts, workqueues and kernel threads of NPUs to the CPUs of the plan, and restore them.

The same code runs in the module and, installed on the host, in the boot units: ``python3 -m npu_affinity irq``.

What the driver has per device N (open CANN driver, task scheduler): interrupts ``trs-mbox-<N>-<scheduler>``, one
``sq_send_trigger_irq`` and on a physical function 16 ``cq_update_irq``; workqueues ``dev<N>_sq_send_wq`` and ``dev<N>_sq_fair_wq``,
which do the sending that the SQ interrupt only triggers; a kernel thread ``dev<N>_sq_task``. N is the driver's number of the device,
read from the mailbox interrupt's name; the plan's physical id stands in where there is no such interrupt.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Container, Iterable, Iterator, Mapping, Sequence

from ..._base.table import count
from ..._base.cpulist import compress, expand
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.devices import SQ, share_out
from ..._kernel.interrupts import (
    KINDS,
    Interrupt,
    Target,
    Thread,
    Vector,
    Workqueue,
    base_name,
    interrupt_names,
    kernel_threads,
    requested,
)
from ..._kernel.pci import DEVICE_FOLDER
from ..._base.outside import say
from ..._state.plan_file import PATH as PLAN
from ..._state.plan_file import plan_npus, read
from ..._state.lock import changing
from ..._state.log import Change, log_change
from . import counters
from .places import REBINDS, SECTION, UNCHANGEABLE
from .affinity import Report, Row, Step, grouped, settle, subject
from .placing import place, remembered, rows_of_record, vector_key
from .rebinds import Rebinds, forget

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


def choices(npu: Mapping[str, Any], online: Container[int], turn: int = 0) -> dict[str, list[int]]:
    """Return ``{interrupt name: CPUs}`` of an entry of the plan, best first, of the set of CPUs that are online.

    SQ goes to the first IRQ CPU, CQ to the second (the first if there is one only); of more than two, each CQ whose ``turn`` it is
    goes to another than the one before. The other IRQ CPUs and then the rest of the pool stand in for a CPU that is offline or full.
    """
    role, pool = (expand(npu[key], "%s of NPU %s" % (key, npu["id"])) for key in ("irq", "pool"))
    others = role[1:] or role
    turn %= len(others)
    first = {SQ: role[:1], CQ: others[turn:] + others[:turn]}
    return {name: [cpu for cpu in dict.fromkeys(cpus + role + pool) if cpu in online] for name, cpus in first.items()}


def wanted(npu: Mapping[str, Any], found: Sequence[Vector], online: Container[int]) -> dict[int, list[int]]:
    """Return ``{irq: CPUs}`` of :func:`choices` for every SQ and CQ interrupt among an NPU's vectors; others are left alone."""
    turns = max(1, len(expand(npu["irq"])) - 1)
    orders = [choices(npu, online, turn) for turn in range(turns)]
    cpus = {vector.irq: orders[0][SQ] for vector in found if vector.name == SQ}
    completions = [vector.irq for vector in found if vector.name == CQ]
    cpus.update((irq, orders[place % turns][CQ]) for place, irq in enumerate(completions))
    return cpus


class _Survey:
    """The NPUs of a plan, or those of one PCI function, with a step for everything of theirs that has a place."""

    def __init__(self, host: Host, plan: Mapping[str, Any], pci: str | None = None) -> None:
        self.host = host
        self.memory = remembered(host)
        self.online = read_list(host, CPU_FOLDER + "/online")
        self.rows = []
        self.warnings: list[str] = []
        self.failed: list[str] = []
        self.sending: dict[int, tuple[Row, str]] = {}
        functions: dict[str, list[tuple[Row, dict[str, Any]]]] = {}
        for npu in plan_npus(plan):
            row = Row((npu.get("pci") or "").lower(), npu["id"])
            if pci is not None and row.pci != pci.lower():
                continue
            self.rows.append(row)
            row.text = self._nothing_to_bind(row, npu)
            if not row.text:
                functions.setdefault(row.pci, []).append((row, npu))
        names = interrupt_names(host) if functions else {}
        for address, members in functions.items():
            found = requested(host, address, names)
            for (row, npu), (_npu, device, own) in zip(members, share_out([npu for _row, npu in members], found)):
                self._place(row, npu, device, own, bool(found))
        self._threads()
        if pci is None and plan.get("poll"):
            self.rows.append(self._poll_threads(plan["poll"]))

    def _nothing_to_bind(self, row: Row, npu: Mapping[str, Any]) -> str:
        if not npu.get("irq"):
            return "the plan has no IRQ CPUs for it; its interrupts are not moved"
        if not row.pci:
            return self._warn(row, "the plan has no PCI function for it, so its interrupts cannot be found; gather and plan again")
        if not self.host.exists("%s/%s" % (DEVICE_FOLDER, row.pci)):
            return self._warn(row, "it is not on the PCI bus, so nothing of it is bound; plan again when it is back, or gone for good")
        return ""

    def _warn(self, row: Row, text: str) -> str:
        self.warnings.append("%s: %s" % (row.title, text))
        return text

    def _fail(self, row: Row, text: str) -> str:
        self.failed.append("%s: %s" % (row.title, text))
        return text

    def _place(self, row: Row, npu: Mapping[str, Any], device: int | None, found: list[Vector], driver: bool) -> None:
        online = self.online or set(expand(npu["pool"]))
        orders = choices(npu, online)
        if not orders[SQ]:
            row.text = self._fail(row, "no CPU of its pool %s is online; bring one online or plan again" % npu["pool"])
            return
        missing = [name for name in (SQ, CQ) if name not in {vector.name for vector in found}]
        if driver and not found:
            row.text = "the interrupts of its PCI function are those of another NPU"
        elif missing:
            row.missing = missing
            row.text = self._fail(row, "its driver has not requested %s; bind again when it is loaded" % " and ".join(missing))
        offline = set(expand(npu["irq"])) - online
        if offline:
            row.text = self._warn(row, "IRQ CPU %s is offline; another CPU of its pool stands in" % compress(offline))
        known = self.memory.get(row.pci, {})
        cpus = wanted(npu, found, online)
        for vector in found:
            if vector.irq in cpus:
                key = vector_key(vector)
                order = [str(cpu) for cpu in cpus[vector.irq]]
                row.steps["interrupts"].append(Step(Interrupt(vector.irq, vector.name), order, key, known.get(key)))
        if driver and device is None:
            row.text = self._warn(row, "the number of its device is not known, so its workqueues and thread are left alone")
        elif driver and device is not None:
            row.device = device
            self.sending[device] = (row, str(orders[SQ][0]))
            for queue in [Workqueue(name % device) for name in WORKQUEUES]:
                if self.host.exists(queue.path):
                    row.steps["workqueues"].append(Step(queue, [str(orders[SQ][0])], queue.name, known.get(queue.name)))

    def _threads(self) -> None:
        names = {THREAD % device: share for device, share in self.sending.items()}
        for name, pid in kernel_threads(self.host, names).items():
            row, cpus = names[base_name(name)]
            self._thread(row, cpus, name, pid)

    def _poll_threads(self, poll: str) -> Row:
        """Return the row of the host itself: they belong to no NPU."""
        row = Row(HOST)
        cpus = set(expand(poll, "poll")) & (self.online or set(expand(poll)))
        threads = kernel_threads(self.host, [POLL_THREAD])
        if not threads:
            row.text = "it runs no kernel thread %s, which would be placed on CPUs %s" % (POLL_THREAD, poll)
        elif not cpus:
            row.text = self._warn(row, "no CPU of %s for its threads %s is online; they are left alone" % (poll, POLL_THREAD))
        else:
            for name, pid in threads.items():
                self._thread(row, compress(cpus), name, pid)
        return row

    def _thread(self, row: Row, cpus: str, name: str, pid: int) -> None:
        row.steps["threads"].append(Step(Thread(name, pid), [cpus], name, self.memory.get(row.pci, {}).get(name)))


def bind(
    host: Host,
    plan: Mapping[str, Any],
    pci: str | None = None,
    check: bool = False,
    tolerant: bool = False,
    rebinds: Rebinds | None = None,
) -> Report:
    """Bring every SQ and CQ interrupt, workqueue and kernel thread of the plan's NPUs to its CPU, and return the :class:`Report`.

    ``pci``: only the NPUs of this PCI function. ``check``: read and predict only. ``tolerant``: what fails is remembered, so a later
    check expects no better. ``rebinds``: counts what is restored, and names what is left where another program moves it; without it
    everything is restored. States of an entry: bound (was right), changed,
    pending (right, but the interrupt has to fire once), stuck (it did, and is still elsewhere), managed (the kernel refuses for good), full
    (on another CPU, since the wanted one has no interrupt vectors left), replaced (a workqueue whose CPUs are isolated), fought over (left
    where it is), busy and failed.
    NPUs without IRQ CPUs (A5, GPUs) have no entries, and a text as reason. Where the plan has CPUs for the host's poll threads, a last
    row has them (:data:`HOST`). Before the first write what was there is recorded in previous.json, where it is not yet.
    """
    survey = _Survey(host, plan, pci)
    place(host, survey.rows, lambda: _record(host, survey), check, tolerant, rebinds)
    return Report(survey.rows, survey.warnings, survey.failed)


def _record(host: Host, survey: _Survey) -> None:
    from ..._state import previous as _previous  # needed by a run that changes something only

    _previous.record(host, SECTION, _places(survey))


def previous(host: Host, plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the affinities before the first bind, for section ``interrupts`` of previous.json.

    ``{functions: {pci: {"<ordinal> <name>": cpulist}}, workqueues: {name: cpulist}, threads: {name: cpulist}}``, only of what
    :func:`bind` would place.
    """
    survey = _Survey(host, plan)
    for row in survey.rows:
        for step in row.all_steps():
            step.before = step.target.read(host)
    return _places(survey)


def _places(survey: _Survey) -> dict[str, Any]:
    """Return where everything of a survey was, without what could not be read."""
    state: dict[str, dict[str, Any]] = {"functions": {}, "workqueues": {}, "threads": {}}
    for row in survey.rows:
        for kind, steps in row.steps.items():
            found = {step.key: step.target.to_record(survey.host, step.before) for step in steps if step.before is not None}
            if found:
                (state["functions"].setdefault(row.pci, {}) if kind == "interrupts" else state[kind]).update(found)
    return state


def restore(host: Host, state: Mapping[str, Any], check: bool = False) -> Report:
    """Restore what :func:`previous` returned; the :func:`report` has a row per PCI function, and one for the driver's queues and threads.

    Vectors are found by their place in the function and their name. What is no longer there needs nothing.
    """
    online = read_list(host, CPU_FOLDER + "/online")

    def step(target: Target, cpus: str, key: str) -> Step:
        return Step(target, [target.restored(host, cpus, online)], key)

    rows = rows_of_record(host, state["functions"])
    driver = Row("driver")
    for name, cpus in sorted(state["workqueues"].items()):
        if cpus and host.exists(Workqueue(name).path):
            driver.steps["workqueues"].append(step(Workqueue(name), cpus, name))
    for name, pid in sorted(kernel_threads(host, map(base_name, state["threads"])).items()):
        if state["threads"].get(name):
            driver.steps["threads"].append(step(Thread(name, pid), state["threads"][name], name))
    rows.append(driver)
    settle(host, [step for row in rows for step in row.all_steps()], check)
    if not check:
        from ..._state.files import remove_file

        for path in (UNCHANGEABLE, REBINDS):
            remove_file(host, path)
    return Report(rows)


def await_vectors(host: Host, plan: Mapping[str, Any], seconds: float, pci: str | None = None) -> None:
    """Wait until the SQ and CQ interrupts of the plan's functions are there, at most so many seconds: drivers request them late.

    They are all there when they are as many as a physical function has, or no more than at the look before.
    """
    deadline = time.monotonic() + seconds
    addresses = {npu["pci"].lower() for npu in plan_npus(plan) if npu.get("irq") and npu["pci"]}
    if pci is not None:
        addresses &= {pci.lower()}
    waiting = {address: 0 for address in addresses if host.exists("%s/%s" % (DEVICE_FOLDER, address))}
    pause = 0.2
    while waiting:
        names = interrupt_names(host)
        for address, before in sorted(waiting.items()):
            found = [vector.name for vector in requested(host, address, names) if vector.name in (SQ, CQ)]
            complete = SQ in found and found.count(CQ) >= _CQ_OF_A_PHYSICAL_FUNCTION
            if complete or (len(set(found)) == 2 and len(found) == before):
                del waiting[address]
            else:
                waiting[address] = len(found)
        left = deadline - time.monotonic()
        if not waiting or left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, 2)


def lines(bound: Report) -> Iterator[str]:
    """Yield a sentence for every entry of a report that moved or did not do what was wanted, and for every remark on an NPU."""
    for npu in bound.npus:
        title = npu["pci"] if npu["id"] is None else "NPU %s (%s)" % (npu["id"], npu["pci"])
        if npu["text"]:
            yield "%s: %s" % (title, npu["text"])
        for kind in KINDS:
            for entry in grouped(npu[kind]):
                if entry["before"] != entry["after"]:
                    yield _move(title, kind, entry)
                if entry["text"]:
                    yield "%s: %s %s" % (title, subject(kind, entry), entry["text"])


def moves(npus: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for all interrupts, workqueues and threads of the NPUs of a report that moved together."""
    titles = [npu["pci"] if npu["id"] is None else "NPU %s (%s)" % (npu["id"], npu["pci"]) for npu in npus]
    entries = [(title, kind, entry) for title, npu in zip(titles, npus) for kind in KINDS for entry in grouped(npu[kind])]
    return [_move(*entry) for entry in entries if entry[2]["before"] != entry[2]["after"]]


def _left(rows: Iterable[Row], stopped: Container[tuple[str, str]]) -> list[str]:
    """Return sentences on those that are restored no more, given by PCI function and key."""
    sentences = []
    for row in rows:
        for kind in KINDS:
            entries = [step.entry() for step in row.steps[kind] if (row.pci, step.key) in stopped]
            sentences += ["%s: %s %s" % (row.title, subject(kind, entry), entry["text"]) for entry in grouped(entries)]
    return sentences


def _move(title: str, kind: str, entry: Mapping[str, Any]) -> str:
    return "%s: %s moved from CPUs %s to %s" % (title, subject(kind, entry), entry["before"], entry["after"])


def main(argv: Sequence[str] | None = None) -> int:
    """Bind by an installed plan and print :func:`lines`; role irq's units run it at boot, when a driver was bound, and by a timer.

    Returns 0 when everything is bound except for what the kernel manages itself, and when there is no plan, or no NPU of it at the PCI
    function, for then nothing is wanted; 1 otherwise, unless ``--failure warn`` says that this is not a failure.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Bind the interrupts of NPUs to the CPUs of the plan.")
    parser.add_argument("--plan", default=PLAN, help="the plan as applied (default: %(default)s)")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    parser.add_argument("--pci", help="only the NPUs of this PCI function, e.g. 0000:c1:00.0")
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait for interrupts that a loading driver requests late")
    parser.add_argument(
        "--rebind-limit", type=int, default=0, help="how often to put an object back within an hour (default: without limit)"
    )
    parser.add_argument("--failure", choices=("fail", "warn"), default="fail", help="what to do when not everything could be bound")
    options = parser.parse_args(argv)
    tolerant = options.failure == "warn"
    host = Host(options.root)
    try:
        early = read(host, options.plan) if options.wait else None
        if early is not None:
            await_vectors(host, early, options.wait, options.pci)
        with changing(host, PROGRAM):  # what was waited for may have taken long: the plan can be another one, or gone
            plan = read(host, options.plan)
            rebinds = Rebinds(host, options.rebind_limit) if options.rebind_limit and not options.pci else None
            if rebinds is None:
                forget(host, options.pci)
            bound = None if plan is None else bind(host, plan, options.pci, tolerant=tolerant, rebinds=rebinds)
            if bound and bound.changed:
                moved_interrupts = sum(step.before != step.after for row in bound.rows for step in row.steps["interrupts"])
                counters.add(host, counters.DRIVER if options.pci else counters.CHECK, moved_interrupts)
    except (OSError, ValueError) as error:
        say("Nothing is bound: %s" % error)
        return 1
    if bound is None:
        say("There is no %s: nothing is bound." % options.plan)
        return 0
    if not bound.npus:
        say("%s has no NPU%s: nothing is bound." % (options.plan, " at " + options.pci if options.pci else ""))
    if bound.changed:
        moved = moves(bound.npus)
        log_change(host, Change("rebind", PROGRAM, count(len(moved), "change") + " of interrupts", moved))
    if rebinds and rebinds.stopped:
        left = _left(bound.rows, rebinds.stopped)
        log_change(host, Change("stop", PROGRAM, "%d objects are no longer restored" % len(rebinds.stopped), left, rebinds.who))
    for line in lines(bound):
        say(line)
    return 1 if bound.failed and not tolerant else 0
