# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a whole host with the plan in force and with the files that a bind writes. Reads only, and never asks systemd to reload.

This module is private to the collection.
"""

from __future__ import annotations

import collections
import json

from .. import _tuning
from .._cpulist import compress, expand
from .._kernel.pci import DEVICE_FOLDER
from .._plan_file import PATH as PLAN
from .._plan_file import Newer, plan_npus, refuse_newer
from .._state import previous
from .._state.files import is_ours
from .._state.systemd import Systemd, unit_of
from .._transaction.host_files import Request, compare
from .._vnpu_layout import checksum, complete, look
from .driver import check_device_share, check_interrupts, title_of
from .findings import (
    CHANGED_SETTINGS,
    EDIT,
    LOST_CARD,
    NEVER_BOUND,
    NEW_CARD,
    OFFLINE_CPU,
    Findings,
    because,
    cause_of_file,
    differing_lines,
)
from .soft_split import check_soft_split
from .threads import check_threads
from .units import available, check_cpusets, check_failures, check_services, check_units

_SETS = ("pool", "irq", "mems")


Wanted = collections.namedtuple(
    "Wanted",
    "files owned folders binding enabled started stopped interrupts device_share topology npu_smi must_be_bound threads layout tuning"
    " irq_failure programs soft_split",
    defaults=((), (), {}, {}, (), (), (), True, None, None, None, False, None, None, None, "fail", (), None),
)
"""What a host is compared with.

``files``, ``owned``: as :class:`_transaction.host_files.Request` has them; ``folders``: ``{folder: {name: text}}``, files that count as one
object; ``binding``: the result of filter ``npu.affinity.binding``; ``enabled``, ``started``, ``stopped``: further units; ``interrupts``:
whether to look at them; ``device_share``, ``topology``, ``npu_smi``: as :func:`_drift.driver.check_device_share` has them, where it is
looked at; ``must_be_bound``: whether a host without a plan is drift; ``threads``: ``{processes, patterns}`` of
:func:`_processes.placing.place`, where the threads of processes are looked at; ``layout``: a :class:`_vnpu_layout.Layout` that the host
should have, or None; ``tuning``: ``{setting: value}`` as :func:`_tuning.settle` has them; ``irq_failure``: ``warn`` where interrupts that
cannot be bound are no drift; ``programs``: paths of what units start; ``soft_split``: the directory of hami-vnpu-core, where containers
share NPUs.
"""


def verify(host, wanted, given=None):
    """Return ``(bound, Findings)`` of a host. ``given`` is a plan to compare with instead of the one in force.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` for what could not be compared, such as a file that may not be read.
    """
    findings = Findings()
    plan, bound = _plan_in_force(findings, host, wanted, given)
    if plan is None:
        return bound, findings
    online = available(host)["cpus"]
    present = (wanted.topology or {}).get("npus") or []
    there = _check_npus(findings, host, plan, online, present)
    _check_new_npus(findings, plan, present)
    edited = _check_files(findings, host, wanted)
    for path in wanted.programs:
        if host.exists(path):
            findings.same("files", path)
        else:
            cause = because(EDIT, "removed, or never placed; containers of vNPUs find no limiter")
            findings.differs("files", path, "a program that units start", "no such file", cause)
    systemd = Systemd(host)
    texts = {entry["path"]: entry["content"] for entry in wanted.files}
    enabled, started = (list(wanted.binding.get(kind, ())) + list(getattr(wanted, kind)) for kind in ("enabled", "started"))
    idle = set(check_units(findings, host, systemd, texts, enabled, started, wanted.stopped))
    check_failures(findings, host)
    others = [entry["unit"] for entry in wanted.binding.get("expected", ()) if entry["unit"] not in started]
    idle.update(unit for unit in others if host.live and systemd.cgroup(unit) is None)  # gets its sets when it starts
    expected, services = (wanted.binding.get(key, ()) for key in ("expected", "services"))
    with_sets = check_services(findings, host, systemd, services, edited, expected, bool(plan.get("lost")))
    expected = [entry for entry in expected if entry["unit"] not in idle]
    check_cpusets(findings, host, systemd, expected + with_sets, edited)
    _check_tuning(findings, host, wanted.tuning or {})
    if wanted.interrupts:
        check_interrupts(findings, host, plan, online, there, wanted.irq_failure == "warn")
    if wanted.device_share and any(title_of(npu).startswith("NPU") for npu in plan["npus"]):
        check_device_share(findings, host, wanted.device_share, wanted.topology, wanted.npu_smi)
    if wanted.threads:
        check_threads(findings, host, plan, wanted.threads["processes"], wanted.threads["patterns"])
    if wanted.layout:
        _check_layout(findings, host, wanted.layout)
    if wanted.soft_split:
        ours = ["%s/%s" % (wanted.layout.folder, name) for name in complete(wanted.layout).files] if wanted.layout else []
        check_soft_split(findings, host, wanted.soft_split, wanted.binding.get("vnpus") or (), idle, ours)
    return bound, findings


def _plan_in_force(findings, host, wanted, given):
    """Return ``(plan or None, whether the host was ever bound)`` and note what is to be said of plan.json."""
    text = host.read(PLAN)
    if text is None:
        left = [path for path, (_before, after) in compare(host, Request(owned=wanted.owned)).items() if after.text is None]
        left += [previous.PATH] if host.exists(previous.PATH) else []
        if left or given is not None or wanted.must_be_bound:
            cause = because(EDIT, "removed by hand; %s is still there" % left[0]) if left else because(NEVER_BOUND, "bind the host")
            findings.differs("plan", PLAN, "the plan in force", "no such file", cause)
        return given, bool(left)
    _check_record(findings, host)
    try:
        found = _parsed(text)
        pools = _sets_of(found)
    except Newer as error:
        findings.differs("plan", PLAN, "the plan in force", str(error), because(CHANGED_SETTINGS, "a newer version bound this host"))
        return given, True
    except ValueError as error:
        findings.differs("plan", PLAN, "the plan in force", str(error), because(EDIT, "bind the host again, and it is written anew"))
        return given, True
    other = [] if given is None else _differing(_sets_of(given), pools)
    if other:
        cause = because(CHANGED_SETTINGS, "the given plan was not bound here, or someone edited the file")
        findings.differs("plan", PLAN, "; ".join(mine for mine, _theirs in other), "; ".join(theirs for _mine, theirs in other), cause)
    else:
        findings.same("plan", PLAN)
    return found if given is None else given, True


def _parsed(text):
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError("no JSON: %s" % error)
    refuse_newer(PLAN, found)
    return found


def _check_record(findings, host):
    """Look whether unbind could use previous.json, where it may be read."""
    try:
        if host.read(previous.PATH) is not None:
            previous.verified(host)
    except ValueError as error:
        expected = "what was there before the first bind"
        findings.differs("plan", previous.PATH, expected, str(error), because(EDIT, "neither bind nor unbind would touch this host"))


def _sets_of(plan):
    """Return ``{title: {pool, irq, mems}}`` of a plan's NPUs, and of the poll threads. Raises ``ValueError`` for what is no plan."""
    result = {}
    for npu in plan_npus(plan):
        for key in _SETS:
            expand(npu.get(key) or "", "%s of %s" % (key, title_of(npu)))
        result[title_of(npu)] = {key: npu.get(key) or "" for key in _SETS}
    if plan.get("poll"):
        result["place for poll threads"] = {"poll": plan["poll"]}
    return result


def _differing(mine, theirs):
    """Return pairs of texts for every NPU of which two plans say different things."""

    def said(title, sets):
        return "%s has %s" % (title, ", ".join("%s %s" % pair for pair in sorted(sets.items()) if pair[1])) if sets else "no " + title

    titles = sorted(set(mine) | set(theirs))
    return [(said(title, mine.get(title)), said(title, theirs.get(title))) for title in titles if mine.get(title) != theirs.get(title)]


def _check_npus(findings, host, plan, online, present):
    """Compare the plan's NPUs and CPUs with those that are there; return the titles of the NPUs that are on the bus.

    ``present`` are the NPUs of the topology. A chip can be gone while the PCI function that it shares with another is there.
    """
    there = set()
    chips = _by_function(present)
    for npu in plan["npus"]:
        title, pci = title_of(npu), (npu.get("pci") or "").lower()
        others = chips.get(pci) or [npu.get("chip")]
        if npu.get("chip") is not None and npu["chip"] not in others:
            cause = because(LOST_CARD, "npu-smi lists other chips of its card only; bind again when it is back, or gone for good")
            expected, found = "chip %s of PCI function %s" % (npu["chip"], pci), "chip %s" % compress(others)
            findings.differs("npus", title, expected, found, cause, npu["id"])
        elif not pci or host.exists("%s/%s" % (DEVICE_FOLDER, pci)):
            there.add(title)
            findings.same("npus", title)
        else:
            cause = because(LOST_CARD, "it dropped off the bus; bind again when it is back, or gone for good")
            findings.differs("npus", title, "PCI function " + pci, "no such function", cause, npu["id"])
        _check_online(findings, "pool of " + title, npu["pool"], online, npu["id"])
    if plan.get("housekeeping"):
        _check_online(findings, "housekeeping", plan["housekeeping"], online)
    return there


def _by_function(npus):
    """Return the chips of NPUs by PCI function: ``{pci: [chip]}``."""
    chips = {}
    for npu in npus:
        chips.setdefault((npu.get("pci") or "").lower(), []).append(npu.get("chip"))
    return chips


def _check_new_npus(findings, plan, present):
    """Note the NPUs that are there and have no CPUs by the plan, but for those that it leaves out because others were asked for."""
    known, lost = _by_function(plan["npus"]), _by_function(plan.get("lost") or [])
    options = plan.get("options") or {}
    asked = [options[name] for name in ("npus", "visible_npus") if options.get(name) is not None]
    for npu in present:
        pci, chip = (npu.get("pci") or "").lower(), npu.get("chip")
        if not pci or {chip, None} & set(known.get(pci, [])):
            continue
        back = bool({chip, None} & set(lost.get(pci, [])))
        if back or all(npu["id"] in numbers for numbers in asked):
            remark = "it is back; bind again, and it has its CPUs again" if back else "it was added since; bind again, and it gets CPUs"
            title = "%s %s (PCI %s)" % ("GPU" if npu.get("kind") == "gpu" else "NPU", npu["id"], pci)
            findings.differs("npus", title, "CPUs of its own", "no entry in the plan in force", because(NEW_CARD, remark))


def _check_layout(findings, host, layout):
    """Compare the directories and files for soft split; a file that somebody else placed is drift with the reason why it stays."""
    try:
        report = look(host, layout)
    except ValueError as error:
        findings.differs("files", layout.folder, "as npu_affinity_vnpu_files says", str(error), because(EDIT, "placed by someone else"))
        return
    for path in (layout.folder, layout.shared_region):
        if path in report.folders:
            before, after = report.folders[path]
            found = "no such directory" if before is None else "permissions %04o" % before
            findings.differs("files", path, "permissions %04o" % after, found, because(EDIT, "changed or removed by hand"))
        else:
            findings.same("files", path)
    for name, digest in complete(layout).files.items():
        path = "%s/%s" % (layout.folder, name)
        if name in report.missing:
            found = checksum(host, path)
            cause = because(EDIT, "removed, or other files were named since the last bind")
            findings.differs("files", path, "SHA-256 " + digest, "SHA-256 " + found if found else "no such file", cause)
        else:
            findings.same("files", path)
    findings.remarks += report.warnings


def _check_online(findings, name, cpus, online, npu=None):
    offline = set(expand(cpus)) - online
    if not online or not offline:
        findings.same("cpus", name)
        return
    cause = because(OFFLINE_CPU, "CPU %s; bring it online, or bind again without it" % compress(offline))
    findings.differs("cpus", name, "%s online" % cpus, "%s offline" % compress(offline), cause, npu)


def _check_files(findings, host, wanted):
    """Compare the files and return the units whose files differ."""
    edited = set()
    changes = compare(host, Request(files=wanted.files, owned=wanted.owned))
    for path in [entry["path"] for entry in wanted.files if entry["path"] not in changes]:
        findings.same("files", path)
    for path, (before, after) in changes.items():
        cause = cause_of_file(before.text, after.text, before.text is not None and is_ours(before.text))
        expected, found = _file_texts(before, after)
        findings.differs("files", path, expected, found, cause, unit=unit_of(path))
        edited.add(unit_of(path))
    for folder, texts in wanted.folders.items():
        files = [{"path": "%s/%s" % (folder, name), "content": text} for name, text in texts.items()]
        different = sorted(path[len(folder) + 1 :] for path in compare(host, Request(files=files)))
        if different:
            cause = because(CHANGED_SETTINGS, "the collection was updated since the last bind, or someone edited them")
            findings.differs("files", folder, "%d files of this version" % len(texts), "other " + ", ".join(different), cause)
        else:
            findings.same("files", folder)
    return edited


def _check_tuning(findings, host, wanted):
    for setting, value in sorted(wanted.items()):
        found = {}
        for path in _tuning.places(host, setting):
            found.setdefault(_tuning.value_of(host, path), []).append(path)
        if set(found) <= {str(value)}:
            findings.same("tuning", setting)
            continue
        number = sum(map(len, found.values()))
        shown = ["%s (%d of %d)" % (text, len(found[text]), number) if len(found) > 1 else text for text in sorted(found)]
        cause = because(EDIT, "set by hand, or by another program such as TuneD")
        findings.differs("tuning", setting, str(value), ", ".join(shown), cause)
    findings.remarks += _tuning.missing(host, wanted)


def _file_texts(before, after):
    """Return what to say is expected and found of a file's :class:`FileState` before and after a bind."""
    if before.text is None:
        return "a file", "no such file"
    if after.text is None:
        return "no such file", "a file of an earlier bind"
    if before.text == after.text:
        return "mode %04o" % after.mode, "mode %04o" % before.mode
    if before.private or after.private:
        return "mode %04o and the text of the last bind" % after.mode, "another text, not shown"
    texts = differing_lines(after.text, before.text)
    return tuple(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts)
