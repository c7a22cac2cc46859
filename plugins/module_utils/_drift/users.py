# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work that uses NPUs, wherever it runs: whether it stays in the pools of its NPUs, and what in it binds itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Sequence

from .._base.cpulist import compress, expand
from .._base.findings import Device, with_lost
from .._base.findings import coded
from .._features.adopt import record
from .._features.comparing import Comparing
from .._features.slices.binders import check_binders
from .._host.host import Forbidden, Host
from .._kernel.machine import architecture
from .._users import ranks
from .._users.finding import by_process, pids_of
from .._users.groups import in_group
from .._users.pools import in_other_pools, pool_of
from .._users.sentences import title_of
from .codes import WORK_OUTSIDE_POOL
from .placement import Judge

if TYPE_CHECKING:
    from .._base.documents import NpuUser

ARM = "aarch64"
"""Where workers bind themselves, by the kernel's name."""


def check_users(comparing: Comparing, users: Sequence[NpuUser], compared: Collection[str] = ()) -> None:
    """Note what uses NPUs and runs outside their pools, except for units that are drift by themselves, and what binds itself.

    Workers that bind themselves have a pool each, whatever service they are of. ``compared`` are the units whose processes were looked at.
    """
    host, findings, plan = comparing.host, comparing.findings, comparing.plan
    alone = not comparing.host_binds and architecture(host) == ARM and all(Device.of(npu).kind == "npu" for npu in plan["npus"])
    _check_binders(comparing, [user for user in users if not any(in_group(user["group"], unit) for unit in compared)])
    if alone:
        users = [part for user in users for part in (by_process(host, with_lost(plan), user) if user["processes"] else [user])]
    found = Judge.of(host, plan, comparing.wanted.expected, comparing.wanted.live).placed(users)
    drifted = {finding.unit for finding in findings.drift if finding.unit}
    findings.outside = [user for user in found.outside if user["unit"] not in drifted]
    if alone:
        findings.remarks += coded(WORK_OUTSIDE_POOL, in_other_pools([user for user in findings.outside if "cause" not in user], plan))
    findings.remarks += coded(WORK_OUTSIDE_POOL, found.remarks()) + coded("NPU_RANKS_PLACED", ranks.remarks(users, plan))


def _check_binders(comparing: Comparing, users: Sequence[NpuUser]) -> None:
    """Name what binds itself in work that is confined to the pools of its NPUs without a slice or drop-in of these, as adopted work is."""
    host, findings = comparing.host, comparing.findings
    adopted = _adopted(host) if users else {}
    for user in users:
        pool, granted = pool_of(user, comparing.plan), set(expand(user["cpus"]))
        pids = {process["pid"] for process in user["processes"]}
        groups = {entry["group"] for key, entry in adopted.items() if record.kind_of(key) != record.PROCESS}
        is_adopted = user["group"] in groups or any(record.pid_of(key) in pids for key, _entry in record.processes(adopted))
        if user["kind"] == "pod" or not pool or not (is_adopted or granted and granted <= pool):
            continue
        title = title_of(user)
        findings.devices.setdefault(title, Device(user["npus"][0]["kind"], user["npus"][0]["id"], ""))
        check_binders(comparing, title, ["/proc/%d" % pid for pid in pids_of(host, user)], compress(pool))


def _adopted(host: Host) -> dict[str, record.Entry]:
    """Return what is recorded as adopted, as far as the record can be read."""
    try:
        return record.entries(host)
    except (Forbidden, ValueError):
        return {}
