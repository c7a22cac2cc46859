# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a mixed fleet, in the shape of NPUs: what nvidia-smi lists, with NUMA nodes from sysfs."""

from __future__ import annotations

from typing import Any, Mapping

from .._base.cpulist import compress
from .._host.host import Host
from .._kernel.pci import numa_node
from .._smi import tool as _tool
from .._users.register import register_gpus

FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/opt/bin")
_QUERY = ("--query-gpu=index,uuid,pci.bus_id,name,memory.total", "--format=csv")


def gather(host: Host, named: str | None, devices: Mapping[str, dict[str, Any]], problems: list[str]) -> list[dict[str, Any]]:
    """Return the GPUs, ascending by index. ``named`` is the command to use instead of an nvidia-smi that is looked for.

    ``devices`` are the accelerators of the PCI bus (:func:`_kernel.pci.accelerators`). What goes wrong is added to ``problems``.
    """
    present = {pci: device for pci, device in devices.items() if device["family"] == "gpu"}
    if not present and not named:
        return []
    from .._nvidia_smi import parse_nvidia_csv

    tool = _tool.find(host, named, "nvidia-smi", FOLDERS, problems, present)
    answer = tool.ask(parse_nvidia_csv, *_QUERY) if tool else None
    if answer is None:
        return []
    rows = [row for row in answer if row["index"] is not None]
    unlisted = sorted(set(present) - {row["pci"] for row in rows})
    if unlisted:
        problems.append("The PCI bus has NVIDIA GPUs that nvidia-smi does not list: %s." % ", ".join(unlisted))
    gpus = [
        {
            "kind": "gpu",
            "id": row["index"],
            "card": row["index"],
            "chip": 0,
            "phy_id": None,
            "name": row["name"],
            "family": "gpu",
            "pci": row["pci"],
            "numa": numa_node(host, row["pci"]) if row["pci"] else None,
            "affinity": None,
            "memory_mib": row["memory_mib"],
            "device_share": None,
            "busy": False,
        }
        for row in sorted(rows, key=lambda row: row["index"])
    ]
    register_gpus(host, gpus, problems)
    without_node = compress(gpu["id"] for gpu in gpus if gpu["pci"] in present and gpu["numa"] is None)
    if without_node:
        problems.append("GPU %s: the kernel has no NUMA node for it (numa_node is -1)." % without_node)
    return gpus
