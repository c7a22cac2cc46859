# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What moves work to the CPUs of its NPUs: a command that moves it while it runs, or another way to start it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .groups import is_of_login

if TYPE_CHECKING:
    from .._base.documents import NpuUser

_WORKLOAD = "add {name: NAME, npus: [%s]} to npu_affinity_workloads, bind, and start it again in the slice of this workload"


def command(user: NpuUser, pool: str) -> str:
    """Return the command that moves a user to its CPUs, '' where it has to be started in another way."""
    if user["engine"] in ("docker", "podman") and not _is_rootless(user) and not _is_service(user):
        return "%s update --cpuset-cpus %s %s" % (user["engine"], pool, user["name"])
    return ""


def way(user: NpuUser, adopt: str = "") -> str:
    """Return what moves a user to its CPUs that no command alone can move. ``adopt``: how it is adopted, '' where it cannot be."""
    first, ways = "%(kind)s-%(id)d" % user["npus"][0], [adopt] if adopt else []
    npus = ", ".join(str(npu["id"]) if npu["kind"] == "npu" else "gpu-%d" % npu["id"] for npu in user["npus"])
    if user["kind"] == "pod":
        return adopt or "see docs/kubelet.md"
    if _is_rootless(user):
        return "%s (a rootless container cannot start in such a slice)" % (adopt or "run it as root")
    if _is_service(user):
        ways.append("add {unit: %s, npus: [%s]} to npu_affinity_services, bind and restart it" % (user["unit"], npus))
    elif len(user["npus"]) > 1:
        ways.append(_WORKLOAD % npus)
    elif user["container"]:
        ways.append("start it again with --cgroup-parent=%s.slice" % first)
    elif user["kind"] == "other" and not user["unit"]:
        ways.append("start it again in %s.slice (filter npu.affinity.launch)" % first)
    else:
        ways.append("start it again: npu-affinity run %s -- COMMAND" % first)
    return ", or ".join(ways)


def _is_rootless(user: NpuUser) -> bool:
    return bool(user["container"]) and is_of_login(user["group"])


def _is_service(user: NpuUser) -> bool:
    return bool(user["unit"]) and str(user["unit"]).endswith(".service") and user["kind"] != "session"
