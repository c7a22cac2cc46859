# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan in force, its NPUs and its CPUs. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from .._base.version import Newer
from .._base.cpulist import compress, expand
from .._host.host import Forbidden, Host
from .._kernel.pci import DEVICE_FOLDER, driver_of
from .._state.plan_file import PATH as PLAN, Broken, plan_npus, read
from .._base.findings import Device
from .._state import previous
from .._transaction.request import Request, compare
from .._base.findings import CHANGED_SETTINGS, EDIT, LOST_CARD, NEVER_BOUND, NEW_CARD, OFFLINE_CPU, UNREADABLE, Cause, Findings, Value

if TYPE_CHECKING:
    from .._base.documents import Npu, Plan, PlanEntry

_IN_FORCE = "the plan in force"
_SETS = ("pool", "irq", "mems", "memory_nodes")


def check_plan(findings: Findings, host: Host, given: Plan | None, owned: Sequence[str], must_be_bound: bool) -> tuple[Plan | None, bool]:
    """Return ``(the plan to compare with or None, whether the host was ever bound)`` and note what is to be said of plan.json.

    ``given``: the plan of the state in force; ``owned``: patterns of files by which a host without plan.json was bound.
    """
    if host.text(PLAN) is None:
        return given, _check_unbound(findings, host, owned, must_be_bound, given is not None)
    _check_record(findings, host)
    try:
        plan = read(host) or {}
    except Newer as error:
        findings.differs("plan", PLAN, _IN_FORCE, str(error), Cause(CHANGED_SETTINGS, "a newer version bound this host"))
        return given, True
    except Broken as error:
        findings.differs("plan", PLAN, _IN_FORCE, error.why, Cause(EDIT, "bind the host again to write it"))
        return given, True
    other = [] if given is None else _differing(_sets_of(given), _sets_of(plan))
    if other:
        cause = Cause(EDIT, "the file was edited since the last bind; bind again to write it")
        findings.differs("plan", PLAN, "; ".join(mine for mine, _theirs in other), "; ".join(theirs for _mine, theirs in other), cause)
    else:
        findings.same("plan", PLAN)
    return plan if given is None else given, True


def _check_unbound(findings: Findings, host: Host, owned: Sequence[str], must_be_bound: bool, has_history: bool) -> bool:
    traces = [path for path, (_before, after) in compare(host, Request(owned=owned)).items() if after.text is None]
    traces += [previous.PATH] if host.exists(previous.PATH) else []
    was_bound = has_history or bool(traces)
    if was_bound or must_be_bound:
        remark = "removed by hand; %s" % ("%s is still there" % traces[0] if traces else "bind the host again")
        cause = Cause(EDIT, remark) if was_bound else Cause(NEVER_BOUND, "bind the host")
        findings.differs("plan", PLAN, _IN_FORCE, "no such file", cause)
    return was_bound


def _check_record(findings: Findings, host: Host) -> None:
    """Look whether unbind could use previous.json, where it may be read."""
    try:
        previous.recorded(host)
    except Forbidden:
        return
    except ValueError as error:
        expected = "what was there before the first bind"
        findings.differs("plan", previous.PATH, expected, str(error), Cause(EDIT, "neither bind nor unbind would touch this host"))


def _sets_of(plan: Plan) -> dict[str, dict[str, str]]:
    """Return ``{title: {set: cpulist}}`` of a plan's NPUs, and of the poll threads. Raises ``ValueError`` for what is not a plan."""
    result = {Device.of(npu).title: {key: str(npu.get(key) or "") for key in _SETS} for npu in plan_npus(plan)}
    if plan.get("poll"):
        result["place for poll threads"] = {"poll": plan["poll"]}
    return result


def _differing(mine: dict[str, dict[str, str]], theirs: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """Return pairs of texts for every NPU of which two plans say different things."""

    def text(title: str, sets: dict[str, str] | None) -> str:
        return "%s has %s" % (title, ", ".join("%s %s" % pair for pair in sorted(sets.items()) if pair[1])) if sets else "no " + title

    titles = sorted(set(mine) | set(theirs))
    return [(text(title, mine.get(title)), text(title, theirs.get(title))) for title in titles if mine.get(title) != theirs.get(title)]


def check_tools(findings: Findings, plan: Plan, silent: Mapping[str, str]) -> None:
    """Note the tools that tell nothing of accelerators that the plan has. ``silent`` are the reasons by kind, as in a topology."""
    for kind, why in silent.items():
        if any(Device.of(npu).kind == kind for npu in plan["npus"]):
            command = "nvidia-smi" if kind == "gpu" else "npu-smi info"
            cause = Cause(UNREADABLE, "run '%s' on the host" % command)
            findings.differs("npus", command.split()[0], "the %ss of the plan" % kind.upper(), why.rstrip("."), cause)


def check_npus(
    findings: Findings, host: Host, plan: Plan, online: set[int], present: Sequence[Npu], silent: Mapping[str, str]
) -> set[Device]:
    """Compare the plan's NPUs and CPUs with those that are there; return the NPUs that are on the bus. ``present`` are the NPUs of the
    topology, except for kinds whose tool is ``silent``. A chip can be gone while the PCI function that it shares with another is there."""
    there = set()
    chips = _by_function(present)
    reported = {Device.of(npu).kind for npu in present if npu.get("pci")} - {Device.of(npu).kind for npu in present if not npu.get("pci")}
    for npu in plan["npus"]:
        device, pci = Device.of(npu), (npu.get("pci") or "").lower()
        others, folder = chips.get(pci) or [npu.get("chip")], "%s/%s" % (DEVICE_FOLDER, pci)
        expected, actual, why = "PCI function " + pci, "", ""
        if pci and pci not in chips and device.kind in reported - silent.keys() and host.exists(folder):
            actual = "not listed, with " + (driver_of(host, folder) or "no driver")
            why = "it fell off the bus, or was given to a guest"
        elif npu.get("chip") is not None and npu["chip"] not in others:
            expected, actual = "chip %s of PCI function %s" % (npu["chip"], pci), "chip %s" % compress(others)
            why = "npu-smi lists other chips of its card only"
        elif pci and not host.exists(folder):
            actual, why = "no such function", "it dropped off the bus"
        if why:
            cause = Cause(LOST_CARD, why + "; bind again when it is back or permanently removed")
            findings.differs("npus", device.title, expected, actual, cause, device)
        else:
            there.add(device)
            findings.same("npus", device.title)
        _check_online(findings, "pool of " + device.title, npu["pool"], online, device)
    if plan.get("housekeeping"):
        _check_online(findings, "housekeeping", plan["housekeeping"], online)
    return there


def _by_function(npus: Iterable[Npu | PlanEntry]) -> dict[str, list[Any]]:
    """Return the chips of NPUs by PCI function: ``{pci: [chip]}``."""
    chips: dict[str, list[Any]] = {}
    for npu in npus:
        chips.setdefault((npu.get("pci") or "").lower(), []).append(npu.get("chip"))
    return chips


def check_new_npus(findings: Findings, plan: Plan, present: Sequence[Npu]) -> None:
    """Note the NPUs that are there and have no CPUs by the plan, except for those that it leaves out because others were asked for."""
    planned, lost = _by_function(plan["npus"]), _by_function(plan.get("lost") or [])
    options = plan.get("options") or {}
    asked = [options[name] for name in ("npus", "visible_npus") if options.get(name) is not None]
    for npu in present:
        pci, chip = (npu.get("pci") or "").lower(), npu.get("chip")
        if not pci or {chip, None} & set(planned.get(pci, [])):
            continue
        back = bool({chip, None} & set(lost.get(pci, [])))
        if back or all(npu["id"] in numbers for numbers in asked):
            remark = "it is back; bind again, and it has its CPUs again" if back else "it was added since; bind again, and it gets CPUs"
            device = Device.of(npu)
            title = "%s (PCI %s)" % (device.title, pci)
            findings.differs("npus", title, "CPUs of its own", "no entry in the plan in force", Cause(NEW_CARD, remark), device)


def _check_online(findings: Findings, name: str, cpus: str, online: set[int], device: Device | None = None) -> None:
    wanted = set(expand(cpus))
    offline = wanted - online
    if not online or not offline:
        findings.same("cpus", name)
        return
    cause = Cause(OFFLINE_CPU, "CPU %s; bring it online, or bind again without it" % compress(offline))
    findings.differs("cpus", name, Value(cpus=cpus), Value(cpus=compress(wanted & online)), cause, device)
