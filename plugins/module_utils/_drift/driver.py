# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what a driver has with what it should have: interrupts, workqueues and threads of NPUs, and device share. Reads only.

This module is private to the collection.
"""

from __future__ import annotations

import time

from .._cpulist import compress, expand
from .._device_share.switching import switch
from .._device_share.tool import Cards, Refusal, ShareTool
from .._irq.affinity import KINDS, grouped
from .._irq.binding import SQ, bind, choices
from .._irq.irqbalance import irqbalance, processes, told, until_first_pass
from .findings import CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, KERNEL, UNREADABLE, because, cause_of_move

_LONGEST_WAIT = 30
_NO_ANSWER = because(UNREADABLE, "it gave no answer to compare; see what 'npu-smi info' says")
_STUCK = because(
    KERNEL, "it has the right list and does not follow it; see effective_affinity_list, and the driver of the interrupt controller"
)
_WORDS = {True: "on", False: "off", None: "unknown"}


def title_of(npu):
    """Return what drift calls an entry of the plan."""
    return "%s %s" % ("GPU" if str(npu.get("slice")).startswith("gpu-") else "NPU", npu["id"])


def check_interrupts(findings, host, plan, online, there, tolerant=False):
    """Compare the interrupts, workqueues and threads of the NPUs ``there`` (titles). What is elsewhere for a reason is a remark.

    So is, when ``tolerant``, what could not be bound.
    """
    _await_irqbalance(findings, host)
    free = _freedom_of_irqbalance(host)
    report = bind(host, plan, check=True)
    findings.remarks += report.unchangeable + (report.failed if tolerant else [])
    wrong = ("changed", "stuck") if tolerant else ("changed", "failed", "stuck")
    for npu, surveyed, row in zip(plan["npus"], report.rows, report.npus):
        if not npu.get("irq") or title_of(npu) not in there or online and not set(expand(npu["pool"])) & online:
            continue
        for name in () if tolerant else surveyed.missing:
            cause = because(DRIVER_RELOAD, "the driver is not loaded, or still loading")
            findings.differs("interrupts", "%s %s" % (title_of(npu), name), "requested", "not requested", cause, npu["id"])
        _compare_row(findings, row, wrong, online, choices(npu, set(expand(npu["irq"]))), free(row["pci"]), title_of(npu) + " ")
    for row in report.npus[len(plan["npus"]) :]:
        _compare_row(findings, row, wrong, online)
        findings.remarks += ["%s: %s" % (row["pci"], row["text"])] if row["text"] else []


def _compare_row(findings, row, wrong, online, first=None, free="", prefix=""):
    """Compare a row of the report; ``first`` is what :func:`_irq.binding.choices` gives with all IRQ CPUs online, where it is that of an
    NPU."""
    placed = [entry for kind in KINDS for entry in row[kind] if entry["state"] not in ("managed", "full")]
    everything = bool(row["workqueues"] or row["threads"]) and all(entry["state"] == "changed" for entry in placed)
    for kind in KINDS:
        for name in sorted({entry["name"] for entry in row[kind]}):
            title = prefix + name
            moved = [entry for entry in grouped(row[kind]) if entry["name"] == name and entry["state"] in wrong]
            if moved:
                own = str(first.get(name, first[SQ])[0]) if first else moved[0]["wanted"]
                offline = own if own != moved[0]["wanted"] else ""
                cause = _STUCK
                if moved[0]["state"] != "stuck":
                    cause = cause_of_move(kind, moved[0], everything, online, offline, free)
                findings.differs(kind, title, "CPUs " + moved[0]["wanted"], _places(moved), cause, row["id"])
            else:
                findings.same(kind, title)


def _places(entries):
    """Return where the entries of one name are: ``CPUs 0-7 (IRQ 30-45), CPUs 3 (IRQ 46)``."""
    texts = []
    for entry in entries:
        place = entry["text"] if entry["before"] is None or entry["state"] == "stuck" else "CPUs " + entry["before"]
        texts.append(place + (" (IRQ %s)" % entry["irqs"] if "irqs" in entry else ""))
    return ", ".join(texts)


def _freedom_of_irqbalance(host):
    """Return a function that says, for a PCI function, why irqbalance may move its interrupts; '' when it may not, or does not run."""
    found = irqbalance(host)
    if not found["active"]:
        return lambda pci: ""
    ours = any(told((host.read("/proc/%s/cmdline" % process) or "").split("\0")) for process in processes(host))
    policy = host.read(found["policy_place"])

    def free(pci):
        if found["refusal"]:
            return "it runs, and cannot be told to leave the NPUs alone: %s" % found["refusal"]
        if policy is None:
            return "it runs, and nothing tells it to leave the NPUs alone"
        if pci not in policy:
            return "it runs, and its policy does not name this PCI function"
        return "" if ours else "it runs without the policy that was written for it; restart it"

    return free


def _await_irqbalance(findings, host):
    """Wait for the first pass of an irqbalance that has just started: that it was told is no proof, what it then does is."""
    left = until_first_pass(host)
    if left > _LONGEST_WAIT:
        text = "irqbalance started a moment ago; whether it leaves the NPUs alone shows in %d s, at its first pass. Verify again then"
        findings.remarks.append(text % left)
    elif left > 0:
        time.sleep(left)


def check_device_share(findings, host, wanted, topology=None, npu_smi=None):
    """Compare the device share of every card, and the driver's recovery switch.

    ``wanted`` is ``{enabled, npus, only_ours, recover}`` as :func:`_device_share.switching.switch` takes them; ``topology`` saves asking
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
        cause = because(CHANGED_SETTINGS, "they do not fit the cards of this host")
        findings.differs("device_share", "device share", _WORDS[enabled], str(error), cause)
        return
    for card, sentence in sorted((card, text) for card, text in report.failed.items() if card is not None):
        findings.differs("device_share", "card %d" % card, _WORDS[enabled], sentence, _NO_ANSWER)
    _compare_chips(findings, report)
    if report.recover:
        found, expected = report.recover
        cause = because(EDIT, "npu-smi switched it, or the driver was installed anew")
        _compare_state(findings, "recovery by the driver", expected, found, "", cause)
    elif None in report.failed:
        findings.differs("device_share", "recovery by the driver", _WORDS[wanted["recover"]], report.failed[None], _NO_ANSWER)


def _compare_chips(findings, report):
    states = {card: {chip: report.before[card].get(chip) for chip in chips} for card, chips in report.wanted.items()}
    cause = because(EDIT, "npu-smi switched it, or the card was reset")
    if all(enabled is False for state in states.values() for enabled in state.values()):
        cause = because(DRIVER_RELOAD, "the driver forgets device share when it is loaded again and when the host boots")
    for card, state in sorted(states.items()):
        wrong = [chip for chip in state if state[chip] is not report.wanted[card][chip]]
        chip = wrong[0] if wrong else min(state)
        where = " (chips %s)" % compress(wrong) if 0 < len(wrong) < len(state) else ""
        _compare_state(findings, "card %d" % card, report.wanted[card][chip], state[chip], where, cause)


def _compare_state(findings, name, expected, found, where, cause):
    if found is expected:
        findings.same("device_share", name)
    else:
        findings.differs("device_share", name, _WORDS[expected], _WORDS[found] + where, cause)
