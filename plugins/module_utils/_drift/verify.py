# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as drift: :func:`verify` has every comparison of a host with its plan and with what a bind writes, in order.

How plan and files are compared is in the files next to this one, units are compared here, and the rest in the packages of features.
Nothing is written, and systemd is never asked to reload.
"""

from __future__ import annotations

from typing import Any, Mapping, TYPE_CHECKING

from .._base.findings import Cause, Device, EDIT, FAILED_UNIT, Findings, with_lost
from .._features.comparing import Comparing, Wanted
from .._features.register import FEATURES
from .._host.host import Host
from .._kernel.cpus import CPU_FOLDER, read_list
from .._kernel.machine import slice_path
from .._state.systemd import Systemd, UNIT_FOLDER
from .._transaction.programs import failed, WHY_FAILED
from .._transaction.stopped_units import runs_or_would
from .._users.finding import users
from .files import check_executables, check_files, check_programs
from .plan import check_new_npus, check_npus, check_plan, check_tools
from .users import check_users

if TYPE_CHECKING:
    from .._base.documents import Plan


def verify(host: Host, wanted: Wanted, given: Plan | None = None) -> tuple[bool, Findings]:
    """Return ``(whether the host was ever bound, Findings)``. ``given`` is a plan to compare with instead of the one in force.

    Raises ``OSError``, ``ValueError`` or ``CommandError`` for what could not be compared, such as a file that may not be read.
    """
    findings = Findings()
    plan, bound = check_plan(findings, host, given, wanted.owned, wanted.must_be_bound)
    if plan is None:
        return bound, findings
    slices: Mapping[str, Any] = wanted.live.get("slices") or {}
    findings.devices = _devices_of_units(plan, slices)
    online = read_list(host, CPU_FOLDER + "/online")
    present = (wanted.topology or {}).get("npus") or []
    silent = (wanted.topology or {}).get("silent") or {}
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
    found = wanted.topology["users"] if wanted.topology and "users" in wanted.topology else users(host, with_lost(plan))
    compared = [*(entry["unit"] for entry in wanted.expected), *(service["name"] for service in slices.get("services") or ())]
    check_users(comparing, found, compared)
    return bound, findings


def _devices_of_units(plan: Plan, slices: Mapping[str, Any]) -> dict[str, Device]:
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
    for unit in wanted.enabled:
        path = "%s/%s" % (UNIT_FOLDER, unit)
        if systemd.enabled(unit, texts.get(path) or host.read(path)):
            findings.same("units", unit + " at boot")
        else:
            findings.differs("units", unit + " at boot", "enabled", "not enabled", Cause(EDIT, "disabled by hand"), unit)
    for unit in wanted.stopped:
        found = runs_or_would(host, systemd, unit)
        if found:
            findings.differs("units", unit, "stopped and disabled", found, Cause(EDIT, "started by hand or by an update"), unit)
        else:
            findings.same("units", unit)
    active = systemd.active(wanted.started) if host.live else wanted.started
    idle = {unit for unit in wanted.started if unit not in active}
    for unit in wanted.started if host.live else ():
        if unit in idle:
            findings.differs("units", unit, "active", "inactive", Cause(EDIT, "stopped by hand"), unit)
        else:
            findings.same("units", unit)
    for unit, result in failed(host).items():
        findings.differs("units", unit + " last run", "success", result, Cause(FAILED_UNIT, WHY_FAILED % unit), unit)
    others = [entry["unit"] for entry in wanted.expected if entry["unit"] not in wanted.started]
    return idle.union(unit for unit in others if host.live and systemd.cgroup(unit) is None)
