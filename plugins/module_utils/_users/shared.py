# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services that start the work of others: what runs in them belongs to many, and one of their processes holds an NPU for itself alone.

Three things tell: a program that is known for it; ``KillMode=process``, with which a unit says that what it starts outlives it
(systemd.kill(5); sshd, cron, slurmd and docker ship with it); and processes of several users.
"""

from __future__ import annotations

import re
from typing import Iterable

from .._host.host import Host
from .._state.unit_files import values

LAUNCHERS = frozenset(
    [
        *("cron", "crond", "atd", "anacron", "sshd", "sshd-session", "inetd", "xinetd", "tmux: server", "screen", "code-server"),
        *("slurmd", "slurmstepd", "pbs_mom", "sge_execd", "sbatchd", "nomad", "raylet"),
        *("jupyterhub", "jupyter-lab", "jupyter-notebook", "jupyterhub-singleuser", "configurable-http-proxy"),
        *("supervisord", "circusd", "runsvdir", "s6-svscan", "monit", "pm2"),
        *("gitlab-runner", "buildkite-agent", "Runner.Listener", "act_runner"),
        *(
            "dockerd",
            "containerd",
            "podman",
            "crio",
            "buildkitd",
            "kubelet",
            "k3s",
            "k3s-server",
            "k3s-agent",
            "rke2",
            "libvirtd",
            "incusd",
            "lxd",
        ),
    ]
)
"""Programs, as the kernel has their names: 15 characters of each."""
_SHORT = frozenset(name[:15] for name in LAUNCHERS)
_USER = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)


def is_shared(host: Host, unit: str, pids: Iterable[int]) -> bool:
    """Whether a service starts the work of others; ``pids`` are all processes in it."""
    modes = [value for _path, value in values(host, unit).get("KillMode", ())]
    if modes[-1:] in (["process"], ["none"]):
        return True
    users = set()
    for pid in pids:
        if (host.read("/proc/%d/comm" % pid) or "") in _SHORT:
            return True
        users.update(_USER.findall(host.read("/proc/%d/status" % pid) or ""))
    return len(users) > 1
