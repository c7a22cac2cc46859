# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts at boot, what runs now, and how the managed units ran last. Reads only."""

from __future__ import annotations

from .._base.findings import EDIT, FAILED_UNIT, Cause, Findings
from .._features.comparing import Wanted
from .._host.host import Host
from .._state.systemd import UNIT_FOLDER, Systemd
from .._transaction.programs import WHY_FAILED, failed
from .._transaction.stopped_units import runs_or_would


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
