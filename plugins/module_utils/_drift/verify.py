# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as drift: :func:`verify` has every comparison of a host with its plan and with what a bind writes, in order. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, cast

from .._base.findings import Cause, Device, EDIT, FAILED_UNIT, Findings, with_lost
from .._base.table import count
from .._features.feature import Comparing, Wanted
from .._features.register import FEATURES
from .._host.host import Host
from .._host.installed import installed_version, is_archive
from .._kernel.cpus import CPU_FOLDER, read_list
from .._kernel.machine import slice_path
from .._state.executables import unusable
from .._state.files import FileState, is_managed, states_of
from .._state.systemd import UNIT_FOLDER, Systemd, unit_of, units_of
from .._transaction.programs import failed, WHY_FAILED
from .._transaction.request import Request, compare
from .._transaction.stopped_units import runs_or_would
from .._users.finding import users
from .plan import check_new_npus, check_npus, check_plan, check_tools
from .placement import check_users

if TYPE_CHECKING:
    from .._base.documents import FileEntry, Npu, Plan, SlicesLive

_SHOWN = 3
_OTHER_CODE = Cause(EDIT, "changed by hand, or bound from another build of this version; bind again")


def verify(host: Host, wanted: Wanted, given: Plan | None = None) -> tuple[bool, Findings]:
    """Return ``(whether the host was ever bound, Findings)``. ``given`` is a plan to compare with instead of the one in force.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` for what could not be compared, such as a file that may not be read.
    """
    findings = Findings()
    plan, bound = check_plan(findings, host, given, wanted.owned, wanted.must_be_bound)
    if plan is None:
        return bound, findings
    slices = cast("SlicesLive", wanted.live.get("slices") or {})
    findings.devices = _devices_of_units(plan, slices)
    online = read_list(host, CPU_FOLDER + "/online")
    present: Sequence[Npu] = wanted.topology.get("npus") or [] if wanted.topology else []
    silent = wanted.topology.get("silent") or {} if wanted.topology else {}
    check_tools(findings, plan, silent)
    there = check_npus(findings, host, plan, online, present, silent)
    check_new_npus(findings, plan, present)
    edited = check_files(findings, host, wanted.files, wanted.owned)
    check_programs(findings, host, wanted.programs)
    check_executables(findings, host, wanted.files)
    comparing = Comparing(findings, host, plan, wanted, online, there, check_units(findings, host, wanted), edited)
    for feature in sorted(FEATURES.values(), key=lambda feature: feature.compared):
        if feature.compare:
            feature.compare(comparing)
    npu_users = wanted.topology["users"] if wanted.topology and "users" in wanted.topology else users(host, with_lost(plan))
    compared = [*(entry["unit"] for entry in wanted.expected), *(service["name"] for service in slices.get("services") or ())]
    check_users(comparing, npu_users, compared)
    return bound, findings


def _devices_of_units(plan: Plan, slices: SlicesLive) -> dict[str, Device]:
    """Return whose each slice of the plan is, and each service, slice and limiter in one of these."""
    devices = {npu["slice"]: Device.of(npu) for npu in plan["npus"] if npu.get("slice")}
    homes = {service["name"]: service["settings"].get("Slice") for service in slices.get("services") or ()}
    homes.update((unit, vnpu["slice"]) for vnpu in slices.get("vnpus") or () for unit in (vnpu["slice"], vnpu.get("limiter")) if unit)
    above = {unit: [name for name in slice_path(home).split("/") if name in devices] for unit, home in homes.items() if home}
    return {**devices, **{unit: devices[names[0]] for unit, names in above.items() if names}}


def check_units(findings: Findings, host: Host, wanted: Wanted) -> set[str]:
    """Compare what starts at boot and what runs now; return the units that do not run, and so have no sets yet.

    On the running machine an absent cgroup is a finding. Another tree has no running units: there only what it shows is compared.
    """
    systemd, texts = Systemd(host), {entry["path"]: entry["content"] for entry in wanted.files}

    def note(unit: str, expected: str, actual: str | None, by_whom: str, when: str = "") -> None:
        if actual:
            findings.differs("units", unit + when, expected, actual, Cause(EDIT, by_whom), unit)
        else:
            findings.same("units", unit + when)

    for unit in wanted.enabled:
        path = "%s/%s" % (UNIT_FOLDER, unit)
        is_enabled = systemd.enabled(unit, texts.get(path) or host.read(path))
        note(unit, "enabled", None if is_enabled else "not enabled", "disabled by hand", " at boot")
    for unit in wanted.stopped:
        note(unit, "stopped and disabled", runs_or_would(host, systemd, unit), "started by hand or by an update")
    active = systemd.active(wanted.started) if host.live else wanted.started
    idle = {unit for unit in wanted.started if unit not in active}
    for unit in wanted.started if host.live else ():
        note(unit, "active", "inactive" if unit in idle else None, "stopped by hand")
    for unit, result in failed(host).items():
        findings.differs("units", unit + " last run", "success", result, Cause(FAILED_UNIT, WHY_FAILED % unit), unit)
    others = [entry["unit"] for entry in wanted.expected if entry["unit"] not in wanted.started]
    return idle.union(unit for unit in others if host.live and systemd.cgroup(unit) is None)


def check_files(findings: Findings, host: Host, files: Sequence[FileEntry], owned: Sequence[str]) -> set[str]:
    """Compare the files and return the units whose files differ."""
    changes = compare(host, Request(states_of(files), owned))
    for path in [entry["path"] for entry in files if entry["path"] not in changes]:
        findings.same("files", path)
    for path, (before, after) in changes.items():
        if before.text is None:
            cause = Cause(EDIT, "removed")
        elif is_archive(path):
            cause = _OTHER_CODE
        elif after.text is None:
            cause = Cause(EDIT, "added since the last bind; the next one removes it")
        else:
            cause = Cause(EDIT, "changed by hand" if is_managed(before.text) else "another file took its place")
        if is_archive(path) and before.text is not None and after.text not in (None, before.text):
            expected, actual = "version %s" % installed_version(after.text), "other content"
        else:
            expected, actual = _file_texts(before, after)
        findings.differs("files", path, expected, actual, cause, unit_of(path))
    return set(units_of(changes))


def check_programs(findings: Findings, host: Host, programs: Sequence[str]) -> None:
    """Look whether the programs are there that units start."""
    for path in programs:
        if host.exists(path):
            findings.same("files", path)
        else:
            cause = Cause(EDIT, "removed, or never placed; containers of vNPUs find no limiter")
            findings.differs("files", path, "a program that units start", "no such file", cause)


def check_executables(findings: Findings, host: Host, files: Sequence[FileEntry]) -> None:
    """Look whether the programs that units, udev rules and scripts name can be executed."""
    for wrong in unusable(host, {entry["path"]: entry["content"] for entry in files}):
        cause = Cause(EDIT, "removed or moved since the last bind, perhaps by a package; bind again, which names the one that is there")
        findings.differs("files", wrong.program, "a program that %s runs" % wrong.file, wrong.problem, cause, unit_of(wrong.file))


def _file_texts(before: FileState, after: FileState) -> tuple[str, str]:
    """Return what a file should be and what it is, by its state before and after a bind."""
    if before.text is None:
        return "a file", "no such file"
    if after.text is None:
        return "no such file", "a file that no bind in force has"
    if before.text == after.text:
        return "mode " + after.octal, "mode " + before.octal
    if before.private or after.private:
        return "mode %s and the text of the last bind" % after.octal, "another text, not shown"
    missing, added = (text.encode("utf-8", "surrogateescape") for text in differing_lines(after.text, before.text))
    return missing.decode("utf-8", "replace"), added.decode("utf-8", "replace")


def differing_lines(expected: str, actual: str) -> tuple[str, str]:
    """Return the lines that only the one, and only the other of two texts has, each as a short text."""
    lines = [text.splitlines() for text in (expected, actual)]
    missing, added = ([line for line in lines[mine] if line not in lines[1 - mine]] for mine in (0, 1))
    if not missing and not added:
        return "its lines", "its lines in another order or number"
    return _shortened(missing) or "no further line", _shortened(added) or "no such line"


def _shortened(lines: list[str]) -> str:
    rest = len(lines) - _SHOWN
    return " / ".join(lines[:_SHOWN]) + (" and %s" % count(rest, "more line") if rest > 0 else "")
