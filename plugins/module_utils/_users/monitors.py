# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that keep accelerators open and compute nothing on them: they watch all of a host and belong to the pool of none.

Their name tells, as the kernel has it (15 characters of ``/proc/<pid>/comm``). Sources: the README of nvidia-persistenced ("does not
actually use any device resources itself"); kubernetes-sigs/dra-driver-nvidia-gpu issue 1076 for dcgm-exporter, which embeds the host engine
of DCGM, on all ``/dev/nvidia<N>``; the build scripts of Ascend's mind-cluster for npu-exporter, device-plugin and noded. Which device files
the last three open was not seen; they ask the driver by DCMI, as ``npu-smi`` does.
"""

from __future__ import annotations

from .._host.host import Host

MONITORS = frozenset(
    [
        "nvidia-persistenced",
        "nv-hostengine",
        "dcgm-exporter",
        "dcgmi",
        "nvidia-smi",
        "nvidia-device-plugin",
        "nvtop",
        "npu-smi",
        "npu-exporter",
        "device-plugin",
        "noded",
    ]
)
_SHORT = frozenset(name[:15] for name in MONITORS)


def is_monitor(host: Host, pid: int) -> bool:
    """Whether a process is one of these programs."""
    return (host.read("/proc/%d/comm" % pid) or "") in _SHORT
