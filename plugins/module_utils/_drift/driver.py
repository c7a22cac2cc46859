# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what a driver has with what it should have: interrupts, workqueues and threads of NPUs, and device share. Reads only."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._features.device_share.switching import Report, switch
from .._features.device_share.tool import Cards, Refusal, ShareTool
from .._host.host import Host
from .._features.irq.affinity import Row, grouped
from .._kernel.devices import SQ
from .._kernel.interrupts import KINDS
from .._features.irq.binding import bind, choices
from .._features.irq.irqbalance import freedom, until_first_pass
from .._features.irq.movers import UNKNOWN, movers
from .._features.irq.rebinds import Rebinds
from . import causes
from .binders import mover_of_interrupts
from .._base.device import Device
from .findings import CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, KERNEL, UNREADABLE, Cause, Findings, Value

if TYPE_CHECKING:
    from .._base.documents import Plan

_LONGEST_WAIT = 30
_NO_ANSWER = Cause(UNREADABLE, "it did not answer; run 'npu-smi info'")
_STUCK = Cause(
    KERNEL, "it has the right list and does not follow it; see effective_affinity_list, and the driver of the interrupt controller"
)
_WORDS = {True: "on", False: "off", None: "unknown"}


def check_interrupts(findings: Findings, host: Host, plan: Plan, online: set[int], there: set[Device], tolerant: bool = False) -> None:
    """Compare the interrupts, workqueues and threads of the NPUs ``there``. What is elsewhere for a reason is a remark.

    So is, when ``tolerant``, what could not be bound.
    """
    _await_irqbalance(findings, host)
    free = freedom(host)
    mover = mover_of_interrupts(host, plan)
    suspects = functools.lru_cache(maxsize=1)(lambda: movers(host))
    report = bind(host, plan, check=True, rebinds=Rebinds(host))
    findings.remarks += report.unchangeable + (report.failed if tolerant else [])
    wrong = ("changed", "stuck", "fought over") + (() if tolerant else ("failed",))
    for npu, row in zip(plan["npus"], report.rows):
        device = Device.of(npu)
        if not npu.get("irq") or device not in there or online and not set(expand(npu["pool"])) & online:
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
    NPU, and ``mover`` tells which process has moved an interrupt of it; ``suspect``: as :func:`_drift.causes.of_move` has it."""
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
                    cause = causes.of_move(kind, _worst(moved), everything, online, offline, free, process, suspect)
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


def check_device_share(
    findings: Findings, host: Host, wanted: Mapping[str, Any], topology: Mapping[str, Any] | None = None, npu_smi: str | None = None
) -> None:
    """Compare the device share of every card, and the driver's recovery switch.

    ``wanted`` is ``{enabled, npus, only_ours, recover}`` as :func:`device_share.switching.switch` takes them; ``topology`` saves asking
    for cards.
    """
    enabled = wanted["enabled"]
    try:
        tool = ShareTool(host, npu_smi)
        known = Cards.of_topology(topology) if topology else None
        cards = known if known and known.chips else tool.cards()
        report = switch(host, tool, cards, enabled, wanted["npus"], wanted["recover"], wanted["only_ours"], check=True)
    except Refusal as error:
        findings.differs("device_share", "device share", _WORDS[enabled], str(error), _NO_ANSWER)
        return
    except ValueError as error:
        cause = Cause(CHANGED_SETTINGS, "they do not fit the cards of this host")
        findings.differs("device_share", "device share", _WORDS[enabled], str(error), cause)
        return
    for card, sentence in sorted((card, text) for card, text in report.failed.items() if card is not None):
        findings.differs("device_share", "card %d" % card, _WORDS[enabled], sentence, _NO_ANSWER)
    _compare_chips(findings, report, (topology or {}).get("npus") or ())
    if report.recover:
        found, expected = report.recover
        cause = Cause(EDIT, "npu-smi switched it, or the driver was installed again")
        _compare_state(findings, "recovery by the driver", expected, found, "", cause, None)
    elif None in report.failed:
        findings.differs("device_share", "recovery by the driver", _WORDS[wanted["recover"]], report.failed[None], _NO_ANSWER)


def _compare_chips(findings: Findings, report: Report, npus: Sequence[Mapping[str, Any]]) -> None:
    states = {card: {chip: report.before[card].get(chip) for chip in chips} for card, chips in report.wanted.items()}
    cause = Cause(EDIT, "npu-smi switched it, or the card was reset")
    if all(enabled is False for state in states.values() for enabled in state.values()):
        cause = Cause(DRIVER_RELOAD, "the driver forgets device share when it is loaded again and when the host boots")
    for card, state in sorted(states.items()):
        wrong = [chip for chip in state if state[chip] is not report.wanted[card][chip]]
        chip = wrong[0] if wrong else min(state)
        where = " (chips %s)" % compress(wrong) if 0 < len(wrong) < len(state) else ""
        on_it = [Device.of(npu) for npu in npus if npu.get("card") == card and npu.get("chip") in (wrong or state)]
        device = on_it[0] if len(on_it) == 1 else None
        _compare_state(findings, "card %d" % card, report.wanted[card][chip], state[chip], where, cause, device)


def _compare_state(
    findings: Findings, name: str, expected: bool | None, found: bool | None, where: str, cause: Cause, device: Device | None
) -> None:
    if found is expected:
        findings.same("device_share", name)
    else:
        findings.differs("device_share", name, _WORDS[expected], _WORDS[found] + where, cause, device)
