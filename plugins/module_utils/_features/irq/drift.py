# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the interrupts, workqueues and threads of NPUs with their CPUs, and say why one is elsewhere. Reads only.

The causes rest on what Linux 6.1 and irqbalance 1.9 were seen to do: a driver that is loaded again has its interrupts, workqueues and
threads on all CPUs of before; irqbalance moves interrupts and nothing else; an interrupt whose only CPU goes offline gets all others, and
keeps them when the CPU is back.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Callable, Mapping

from ..._base.cpulist import compress, expand
from ..._base.findings import DRIVER_RELOAD, EDIT, FOUGHT_OVER, IN_PROCESS, IRQBALANCE, KERNEL, OFFLINE_CPU, Cause, Device, Value, coded
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import KINDS
from ..._kernel.processes import started_with
from ..feature import Comparing
from ..threads import torch_npu
from ..threads.tasks import Process, find, groups_of
from .affinity import Row, grouped
from .affinities import predict
from .binding import CQ, Interrupts
from .irqbalance import freedom, until_first_pass
from .rebinds import Rebinds

if TYPE_CHECKING:
    from ..._base.documents import Plan, PlanEntry
    from .affinity import Entry

_LONGEST_WAIT = 30
FINDER = "bpftrace -e 'kprobe:irq_affinity_proc_write,kprobe:irq_affinity_list_proc_write { printf(\"%s %d\\n\", comm, pid); }'"
"""The command that prints which program moves an interrupt."""


_STUCK = Cause(
    KERNEL, "it has the right list and does not follow it; see effective_affinity_list, and the driver of the interrupt controller"
)


def cause_of_move(
    kind: str, entry: Entry, everything: bool, online: set[int], offline: str = "", irqbalance: str = "", process: str = ""
) -> Cause:
    """Return the likely cause why an interrupt, workqueue or thread is not where it should be.

    ``entry`` is that of a report; ``everything``: whether all that the driver has on this NPU moved; ``online``: the set
    of CPUs. ``offline``: the plan's CPUs for it that are offline; ``irqbalance``: a sentence when it runs and is not configured to leave
    this NPU alone, or may not know it; ``process``: one when a process of the NPU is configured to move it to where it is.
    """
    if entry["state"] == "fought over":
        return Cause(FOUGHT_OVER, "it %s; bind when that is settled" % entry["text"])
    if offline:
        return Cause(OFFLINE_CPU, "IRQ CPU %s; it should be on another one meanwhile" % offline)
    before = set(expand(entry["before"] or ""))
    if kind == "interrupts" and 2 * len(before) > len(online) > 1 and not before & set(expand(entry["wanted"])):
        return Cause(OFFLINE_CPU, "CPU %s was offline for a while; what the kernel moved off it does not come back" % entry["wanted"])
    if process:
        return Cause(IN_PROCESS, process)
    if everything:
        return Cause(DRIVER_RELOAD, "the driver was loaded again, or the host booted, and nothing has bound it since")
    if kind != "interrupts":
        return Cause(EDIT, "moved by hand or by another program")
    if irqbalance:
        return Cause(IRQBALANCE, irqbalance)
    return Cause(EDIT, "moved by hand or by another program; at the next write, %s shows it" % FINDER)


def compare(comparing: Comparing) -> None:
    """Compare the interrupts, workqueues and threads of the NPUs that are there. What is elsewhere for a reason is a remark."""
    if comparing.wanted.features.get("irq") != "present":
        return
    host, findings, plan, online, tolerant = comparing.host, comparing.findings, comparing.plan, comparing.online, comparing.tolerant
    seconds = until_first_pass(host)  # the command line of an irqbalance that has just started is not proof, what it then does is
    if seconds > _LONGEST_WAIT:
        text = "irqbalance started a moment ago; whether it leaves the NPUs alone shows in %d s, at its first pass. Verify again then"
        findings.remarks += coded("NPU_IRQBALANCE_ACTIVE", [text % seconds])
    elif seconds > 0:
        time.sleep(seconds)
    free, moved_by = freedom(host), _moved_by(host, plan)
    report = predict(host, Interrupts(), {"plan": plan}, Rebinds(host))
    findings.remarks += coded("NPU_IRQ_UNPLACED", report.unchangeable) + coded("NPU_IRQ_FAILED", report.failed if tolerant else [])
    for npu, row in zip(plan["npus"], report.rows):
        device = Device.of(npu)
        if not npu.get("irq") or device not in comparing.there or online and not set(expand(npu["pool"])) & online:
            continue
        for name in () if tolerant else row.missing:
            cause = Cause(DRIVER_RELOAD, "the driver is not loaded, or still loading")
            findings.differs("interrupts", "%s %s" % (device.title, name), "requested", "not requested", cause, device)
        _compare_row(comparing, row, npu, free(row.pci), moved_by)
    for row in report.rows[len(plan["npus"]) :]:
        _compare_row(comparing, row)
        findings.remarks += coded("NPU_IRQ_UNPLACED", ["%s: %s" % (row.pci, row.text)] if row.text else [])


def _compare_row(
    comparing: Comparing, row: Row, npu: PlanEntry | None = None, irqbalance: str = "", moved_by: Callable[[Device, str], str] | None = None
) -> None:
    """Compare a row of the report, which is of an NPU, or of no NPU. ``moved_by`` tells which process has moved an interrupt of it."""
    findings, wrong = comparing.findings, ("changed", "stuck", "fought over") + (() if comparing.tolerant else ("failed",))
    device, role = (Device.of(npu), expand(npu["irq"])) if npu else (None, [])
    entries = {kind: [step.entry() for step in row.steps[kind]] for kind in KINDS}
    placed = [entry for kind in KINDS for entry in entries[kind] if entry["state"] not in ("managed", "full")]
    everything = bool(entries["workqueues"] or entries["threads"]) and all(entry["state"] == "changed" for entry in placed)
    delivered = {step.target.irq: step.effective for step in row.steps["interrupts"]}
    objects = [(kind, name) for kind in KINDS for name in sorted({entry["name"] for entry in entries[kind]})]
    for kind, name in objects:
        title = "%s %s" % (device.title, name) if device else name
        moved = [entry for entry in grouped(entries[kind]) if entry["name"] == name and entry["state"] in wrong]
        if not moved:
            findings.same(kind, title)
            continue
        if moved[0]["state"] == "stuck":
            cause = _STUCK
        else:
            worst = next((entry for entry in moved if entry["state"] == "fought over"), moved[0])
            planned = (role[1:] or role) if name == CQ else role[:1]
            offline = compress(set(planned) - comparing.online) if comparing.online else ""
            process = moved_by(device, moved[0]["before"] or "") if device and moved_by and kind == "interrupts" else ""
            cause = cause_of_move(kind, worst, everything, comparing.online, offline, irqbalance, process)
        values = [_value_of(entry, delivered) for entry in moved]
        findings.differs(kind, title, Value(cpus=moved[0]["wanted"]), values, cause, device)


def _value_of(entry: Entry, delivered: Mapping[int | None, str | None]) -> Value:
    """Return where what was grouped to one entry is; ``delivered``: the effective CPUs of interrupts that do not follow their list."""
    irqs = entry.get("irqs", "")
    if entry["state"] == "stuck":
        return Value(entry["text"], cpus=delivered[min(expand(irqs))], irqs=irqs)
    return Value(entry["text"], irqs=irqs) if entry["before"] is None else Value(cpus=entry["before"], irqs=irqs)


def _moved_by(host: Host, plan: Plan) -> Callable[[Device, str], str]:
    """Return a function that says, for a device and the CPUs of its interrupt, which process has put that there; '' where none has.

    torch_npu with ``bind_irq`` takes the two lowest CPUs of a device. The first query searches for processes, also in pods.
    """
    online = read_list(host, CPU_FOLDER + "/online")
    binding = functools.lru_cache(maxsize=None)(functools.partial(_with_bind_irq, host, plan))

    def sentence(device: Device, cpus: str) -> str:
        for process, word, setting, ids in binding():
            devices = [Device.of(npu) for npu in process.npus]
            if device not in devices:
                continue
            order = ids if device.id in ids else sorted(entry.id for entry in devices)
            readings = [torch_npu.cpus_of(setting, order.index(device.id), len(order), online, version) for version in torch_npu.READINGS]
            for taken in [sorted(reading)[:2] for reading in readings if reading]:
                if set(expand(cpus)) <= set(taken):
                    text = "%s in %s was started with %s, by which torch_npu puts them on CPUs %s; remove bind_irq"
                    return text % (process.title, process.found_by, word, compress(taken))
        return ""

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
    processes = find(host, plan, groups_of(plan, [{}, {"devices": True}]), pods=True)[0]
    return [(process, *settings[process.pid]) for process in processes if process.pid in settings]
