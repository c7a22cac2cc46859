# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the interrupts, workqueues and threads of NPUs with their CPUs. Reads only."""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Mapping, Sequence

from ..._base.cpulist import expand
from ..._base.device import Device
from ..._base.findings import DRIVER_RELOAD, KERNEL, Cause, Findings, Value
from ..._host.host import Host
from ..._kernel.devices import SQ
from ..._kernel.interrupts import KINDS
from ..comparing import Comparing
from . import in_process
from .affinity import Row, grouped
from .binding import bind, choices
from .irqbalance import freedom, until_first_pass
from .movers import UNKNOWN, movers
from .moves import cause_of_move
from .rebinds import Rebinds

_LONGEST_WAIT = 30
_STUCK = Cause(
    KERNEL, "it has the right list and does not follow it; see effective_affinity_list, and the driver of the interrupt controller"
)


def compare(comparing: Comparing) -> None:
    """Compare the interrupts, workqueues and threads of the NPUs that are there. What is elsewhere for a reason is a remark."""
    if comparing.wanted.features.get("irq") != "present":
        return
    host, findings, plan, online, tolerant = comparing.host, comparing.findings, comparing.plan, comparing.online, comparing.tolerant
    _await_irqbalance(findings, host)
    free = freedom(host)
    mover = in_process.mover(host, plan)
    suspects = functools.lru_cache(maxsize=1)(lambda: movers(host))
    report = bind(host, plan, check=True, rebinds=Rebinds(host))
    findings.remarks += report.unchangeable + (report.failed if tolerant else [])
    wrong = ("changed", "stuck", "fought over") + (() if tolerant else ("failed",))
    for npu, row in zip(plan["npus"], report.rows):
        device = Device.of(npu)
        if not npu.get("irq") or device not in comparing.there or online and not set(expand(npu["pool"])) & online:
            continue
        for name in () if tolerant else row.missing:
            cause = Cause(DRIVER_RELOAD, "the driver is not loaded, or still loading")
            findings.differs("interrupts", "%s %s" % (device.title, name), "requested", "not requested", cause, device)
        first, suspect = choices(npu, set(expand(npu["irq"]))), functools.partial(_suspect, suspects, row.pci)
        _compare_row(findings, row, wrong, online, first, free(row.pci), device, mover, suspect)
    for row in report.rows[len(plan["npus"]) :]:
        _compare_row(findings, row, wrong, online)
        findings.remarks += ["%s: %s" % (row.pci, row.text)] if row.text else []


def _compare_row(
    findings: Findings,
    row: Row,
    wrong: Sequence[str],
    online: set[int],
    first: Mapping[str, Sequence[int]] | None = None,
    free: str = "",
    device: Device | None = None,
    mover: Callable[[Device, str], str] | None = None,
    suspect: Callable[[], str] = lambda: "",
) -> None:
    """Compare a row of the report; ``first`` is what :func:`irq.binding.choices` gives with all IRQ CPUs online, where it is that of an
    NPU, and ``mover`` tells which process has moved an interrupt of it; ``suspect``: as :func:`irq.moves.cause_of_move` has it."""
    entries = {kind: [step.entry() for step in row.steps[kind]] for kind in KINDS}
    placed = [entry for kind in KINDS for entry in entries[kind] if entry["state"] not in ("managed", "full")]
    everything = bool(entries["workqueues"] or entries["threads"]) and all(entry["state"] == "changed" for entry in placed)
    delivered = {step.target.irq: step.effective for step in row.steps["interrupts"]}
    for kind in KINDS:
        for name in sorted({entry["name"] for entry in entries[kind]}):
            title = "%s %s" % (device.title, name) if device else name
            moved = [entry for entry in grouped(entries[kind]) if entry["name"] == name and entry["state"] in wrong]
            if moved:
                own = str(first.get(name, first[SQ])[0]) if first else moved[0]["wanted"]
                offline = own if own != moved[0]["wanted"] else ""
                cause = _STUCK
                if moved[0]["state"] != "stuck":
                    process = mover(device, moved[0]["before"] or "") if mover and device and kind == "interrupts" else ""
                    cause = cause_of_move(kind, _worst(moved), everything, online, offline, free, process, suspect)
                found = [_value_of(entry, delivered) for entry in moved]
                findings.differs(kind, title, Value(cpus=moved[0]["wanted"]), found, cause, device)
            else:
                findings.same(kind, title)


def _worst(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry that says most: one that units restored no more, if there is one."""
    return next((entry for entry in entries if entry["state"] == "fought over"), entries[0])


def _suspect(suspects: Callable[[], Callable[[str], str]], pci: str) -> str:
    """Return the program that probably moves the interrupts of a function, or ''. Searches the host only when called."""
    found = suspects()(pci)
    return "" if found == UNKNOWN else found


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
        findings.remarks.append(text % left)
    elif left > 0:
        time.sleep(left)
