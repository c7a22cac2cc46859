# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the interrupts, workqueues and threads of NPUs with their CPUs. Reads only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import Device
from ..._base.findings import DRIVER_RELOAD, KERNEL, Cause, Findings, Value, coded
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.devices import SQ
from ..._kernel.interrupts import KINDS
from ..._kernel.processes import started_with
from ..comparing import Comparing
from ..threads import torch_npu
from ..threads.tasks import Process, find, groups_of
from .affinity import Row, grouped
from .binding import bind, choices
from .irqbalance import freedom, until_first_pass
from .moves import Seen, cause_of_move
from .rebinds import Rebinds

if TYPE_CHECKING:
    from ..._base.documents import Plan

_LONGEST_WAIT = 30
_STUCK = Cause(
    KERNEL, "it has the right list and does not follow it; see effective_affinity_list, and the driver of the interrupt controller"
)


class _Npu(NamedTuple):
    """The NPU of a row: ``first`` is what :func:`irq.binding.choices` gives with all IRQ CPUs online, ``moved_by`` tells which process
    has moved an interrupt of it, and ``free`` is ``irqbalance`` of :class:`irq.moves.Seen`."""

    device: Device
    first: Mapping[str, Sequence[int]]
    free: str
    moved_by: Callable[[Device, str], str]


def compare(comparing: Comparing) -> None:
    """Compare the interrupts, workqueues and threads of the NPUs that are there. What is elsewhere for a reason is a remark."""
    if comparing.wanted.features.get("irq") != "present":
        return
    host, findings, plan, online, tolerant = comparing.host, comparing.findings, comparing.plan, comparing.online, comparing.tolerant
    _await_irqbalance(findings, host)
    free = freedom(host)
    moved_by = _moved_by(host, plan)
    report = bind(host, plan, check=True, rebinds=Rebinds(host))
    findings.remarks += coded("NPU_IRQ_UNPLACED", report.unchangeable) + coded("NPU_IRQ_FAILED", report.failed if tolerant else [])
    for npu, row in zip(plan["npus"], report.rows):
        device = Device.of(npu)
        if not npu.get("irq") or device not in comparing.there or online and not set(expand(npu["pool"])) & online:
            continue
        for name in () if tolerant else row.missing:
            cause = Cause(DRIVER_RELOAD, "the driver is not loaded, or still loading")
            findings.differs("interrupts", "%s %s" % (device.title, name), "requested", "not requested", cause, device)
        _compare_row(comparing, row, _Npu(device, choices(npu, set(expand(npu["irq"]))), free(row.pci), moved_by))
    for row in report.rows[len(plan["npus"]) :]:
        _compare_row(comparing, row)
        findings.remarks += coded("NPU_IRQ_UNPLACED", ["%s: %s" % (row.pci, row.text)] if row.text else [])


def _compare_row(comparing: Comparing, row: Row, npu: _Npu | None = None) -> None:
    """Compare a row of the report, which is of an NPU, or of no NPU."""
    findings, wrong = comparing.findings, ("changed", "stuck", "fought over") + (() if comparing.tolerant else ("failed",))
    entries = {kind: [step.entry() for step in row.steps[kind]] for kind in KINDS}
    placed = [entry for kind in KINDS for entry in entries[kind] if entry["state"] not in ("managed", "full")]
    everything = bool(entries["workqueues"] or entries["threads"]) and all(entry["state"] == "changed" for entry in placed)
    delivered = {step.target.irq: step.effective for step in row.steps["interrupts"]}
    for kind in KINDS:
        for name in sorted({entry["name"] for entry in entries[kind]}):
            title = "%s %s" % (npu.device.title, name) if npu else name
            moved = [entry for entry in grouped(entries[kind]) if entry["name"] == name and entry["state"] in wrong]
            if moved:
                cause = _STUCK
                if moved[0]["state"] != "stuck":
                    seen = _seen(npu, kind, moved[0]) if npu else Seen()
                    worst = next((entry for entry in moved if entry["state"] == "fought over"), moved[0])
                    cause = cause_of_move(kind, worst, everything, comparing.online, seen)
                found = [_value_of(entry, delivered) for entry in moved]
                findings.differs(kind, title, Value(cpus=moved[0]["wanted"]), found, cause, npu and npu.device)
            else:
                findings.same(kind, title)


def _seen(npu: _Npu, kind: str, entry: Mapping[str, Any]) -> Seen:
    own = str(npu.first.get(entry["name"], npu.first[SQ])[0])
    process = npu.moved_by(npu.device, entry["before"] or "") if kind == "interrupts" else ""
    return Seen(own if own != entry["wanted"] else "", npu.free, process)


def _value_of(entry: Mapping[str, Any], delivered: Mapping[int | None, str | None]) -> Value:
    """Return where what was grouped to one entry is; ``delivered``: the effective CPUs of interrupts that do not follow their list."""
    irqs = entry.get("irqs", "")
    if entry["state"] == "stuck":
        return Value(entry["text"], cpus=delivered[min(expand(irqs))], irqs=irqs)
    return Value(entry["text"], irqs=irqs) if entry["before"] is None else Value(cpus=entry["before"], irqs=irqs)


def _await_irqbalance(findings: Findings, host: Host) -> None:
    """Wait for the first pass of an irqbalance that has just started: its command line is not proof, what it then does is."""
    left = until_first_pass(host)
    if left > _LONGEST_WAIT:
        text = "irqbalance started a moment ago; whether it leaves the NPUs alone shows in %d s, at its first pass. Verify again then"
        findings.remarks += coded("NPU_IRQBALANCE_ACTIVE", [text % left])
    elif left > 0:
        time.sleep(left)


def _moved_by(host: Host, plan: Plan) -> Callable[[Device, str], str]:
    """Return a function that says, for a device and the CPUs of its interrupt, which process has put that there; '' where none has.

    torch_npu with ``bind_irq`` takes the two lowest CPUs of a device. The first query searches for processes, also in pods.
    """
    found: list[list[tuple[Process, str, torch_npu.Setting, list[int]]]] = []

    def sentence(device: Device, cpus: str) -> str:
        if not found:
            found.append(_with_bind_irq(host, plan))
        for process, word, made, ids in found[0]:
            devices = [Device.of(npu) for npu in process.npus]
            if device not in devices:
                continue
            order = ids if device.id in ids else sorted(entry.id for entry in devices)
            readings = [torch_npu.cpus_of(made, order.index(device.id), len(order), online, release) for release in torch_npu.READINGS]
            for taken in [sorted(reading)[:2] for reading in readings if reading]:
                if set(expand(cpus)) <= set(taken):
                    text = "%s in %s was started with %s, by which torch_npu puts them on CPUs %s; remove bind_irq"
                    return text % (process.title, process.found_by, word, compress(taken))
        return ""

    online = read_list(host, CPU_FOLDER + "/online")
    return sentence


def _with_bind_irq(host: Host, plan: Plan) -> list[tuple[Process, str, torch_npu.Setting, list[int]]]:
    """Return the processes of NPUs that move interrupts, with what tells torch_npu to, and the NPUs that they see."""
    settings = {}
    for pid in map(int, host.names("/proc", "[0-9]*")):
        environment = started_with(host, pid)
        setting = torch_npu.setting(environment)
        if setting and torch_npu.BIND_IRQ in setting[1].switches:
            settings[pid] = (*setting, torch_npu.visible_ids(environment))
    if not settings:
        return []
    processes = find(host, plan, groups_of(plan, [{}, {"devices": True}]), pods=True).processes
    return [(process, *settings[process.pid]) for process in processes if process.pid in settings]
