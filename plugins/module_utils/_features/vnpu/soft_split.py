# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds containers to their share of an NPU: is it on the host, and does each container have it? Reads only.

Every process of such a container has loaded hami-vnpu-core's library, by the preload file that the container mounts over its own, and
stands still without the limiter where the library has one (Project-HAMi/hami-vnpu-core@f795831b; ``docs/developers`` of HAMi). A container
that got its devices another way runs without any limit, and nothing else reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Mapping, Sequence

from ..._base.findings import EDIT, OLD_PROCESS, Cause, Device, Findings, coded
from ..._host.host import Host
from ..._kernel.processes import started_with
from ..._users.finding import processes_below, users
from ..._users.groups import in_group, listed
from ..feature import Comparing
from .layout import IN_CONTAINER, LIBRARY, PRELOAD, Layout, checksum, layout_of, look

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

QUOTA = "NPU_MEM_QUOTA="
"""Start of the variable that every container with a share has."""


def require(host: Host, folder: str) -> None:
    """Refuse containers of vNPUs that would run without any limit, where this host gets the files of soft split from elsewhere."""
    for path, what in lacking(host, folder):
        raise ValueError(
            "%s is not on the host (%s), and containers of vNPUs would run without any limit. Place it (npu_affinity_vnpu_enabled with "
            "npu_affinity_vnpu_files)" % (path, what)
        )


def lacking(host: Host, folder: str) -> list[tuple[str, str]]:
    """Return ``[(path, what it is)]`` of the files that are not on the host and without which no container has a limit."""
    preload = "%s/%s" % (folder, PRELOAD)
    preloaded = [path for path in (host.read(preload) or "").split() if path.rpartition("/")[2] == LIBRARY]
    missing = [] if preloaded else [(preload, "a file that names %s" % LIBRARY)]
    inside = [path[len(IN_CONTAINER) :] for path in preloaded if path.startswith(IN_CONTAINER + "/")] if preloaded else ["/" + LIBRARY]
    return missing + [(folder + path, "the library that limits containers") for path in inside if not host.exists(folder + path)]


def compare(comparing: Comparing) -> None:
    """Compare the layout of this host, and what limits processes that hold an NPU, wherever its files come from.

    Without a vNPU in the plan, HAMi's device plugin brings the files, and their lack is a remark.
    """
    host, findings, wanted = comparing.host, comparing.findings, comparing.wanted
    live, slices = wanted.live.get("vnpu"), wanted.live.get("slices")
    layout = layout_of(live) if live else None
    if layout:
        _check_layout(findings, host, layout)
    if not wanted.soft_split:
        return
    vnpus = [vnpu for vnpu in slices.get("vnpus", ()) if "template" not in vnpu] if slices else []
    _check_files(findings, host, wanted.soft_split, [vnpu["name"] for vnpu in vnpus], layout.files if layout else ())
    others = users(host)
    for vnpu in vnpus:
        inside = [user for user in others if in_group(user["group"], vnpu["slice"])]
        others = [user for user in others if user not in inside]
        limiter = vnpu.get("limiter")
        members = _commands(user for user in inside if not limiter or not in_group(user["group"], limiter))
        if members:
            _check_library(findings, host, "vNPU " + vnpu["name"], members, findings.devices.get(vnpu["slice"]))
            if limiter and limiter not in comparing.idle:
                _check_limiter(findings, host, "limiter of vNPU " + vnpu["name"], limiter, members)
    for user in others:
        members = {pid: name for pid, name in _commands([user]).items() if any(text.startswith(QUOTA) for text in started_with(host, pid))}
        if members:
            _check_library(findings, host, user["group"].rpartition("/")[2] or "/", members)


def _check_layout(findings: Findings, host: Host, layout: Layout) -> None:
    """Compare the directories and files for soft split; a file that someone else placed is drift with the reason why it stays."""
    try:
        report = look(host, layout)
    except ValueError as error:
        findings.differs("files", layout.folder, "as npu_affinity_vnpu_files says", str(error), Cause(EDIT, "placed by someone else"))
        return
    for path in (layout.folder, layout.shared_region):
        if path in report.folders:
            before, after = report.folders[path]
            present = "no such directory" if before is None else "permissions %04o" % before
            findings.differs("files", path, "permissions %04o" % after, present, Cause(EDIT, "changed or removed by hand"))
        else:
            findings.same("files", path)
    for path, digest in layout.files.items():
        if path in report.files:
            other = checksum(host, path)
            cause = Cause(EDIT, "removed, or other files were named since the last bind")
            findings.differs("files", path, "SHA-256 " + digest, "SHA-256 " + other if other else "no such file", cause)
        else:
            findings.same("files", path)
    findings.remarks += coded("NPU_VNPU_UNSURE", report.warnings)


def _commands(group: Iterable[NpuUser]) -> dict[int, str]:
    return {process["pid"]: process["command"] for user in group for process in user["processes"]}


def _check_files(findings: Findings, host: Host, folder: str, vnpus: Sequence[str], ours: Iterable[str]) -> None:
    missing = [(path, what) for path, what in lacking(host, folder) if path not in ours]
    if not vnpus:
        text = "%s is not there (%s): until HAMi's device plugin has placed it, containers run without any limit"
        findings.remarks += coded("NPU_VNPU_UNSURE", [text % file for file in missing])
        return
    for path, what in missing:
        cause = Cause(EDIT, "removed, or never placed; new containers of vNPU %s run without any limit" % " and ".join(vnpus))
        findings.differs("files", path, what, "no such file" if not host.exists(path) else "a file that does not", cause)
    if not missing:
        findings.same("files", "%s/%s" % (folder, PRELOAD))


def _check_library(findings: Findings, host: Host, title: str, members: Mapping[int, str], device: Device | None = None) -> None:
    """Compare the libraries of processes, as far as they may be read."""
    maps = {process: host.read("/proc/%s/maps" % process) for process in members}
    without = [process for process, text in maps.items() if text is not None and "/" + LIBRARY not in text]
    if not without:
        findings.same("processes", "%s of %s" % (LIBRARY, title))
        return
    cause = Cause(OLD_PROCESS, "started without the volumes and variables of its share; until it is started with them it has no limit")
    without_it = "none in process " + _listed(members, without)
    findings.differs("processes", "%s of %s" % (LIBRARY, title), "in every process", without_it, cause, device)


def _check_limiter(findings: Findings, host: Host, name: str, unit: str, members: Mapping[int, str]) -> None:
    if processes_below(host, unit):
        findings.same("processes", name)
        return
    remark = "stopped by hand, or it ended; the container hangs: 'systemctl start %s', then start the container again" % unit
    alone = "none next to process " + _listed(members, list(members))
    findings.differs("processes", name, "a process of " + unit, alone, Cause(EDIT, remark), unit)


def _listed(members: Mapping[int, str], processes: Sequence[int]) -> str:
    return listed(["%d %s" % (process, members[process]) for process in processes])
