# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a mixed fleet, in the shape of NPUs: what nvidia-smi lists, with NUMA nodes from sysfs.

Where the kernel knows no node (numa_node is -1), nvidia-smi prints the node whose CPUs are closest: ``topo -C -M -i`` prints nodes, older
releases have only the matrix of ``topo -m``, which has CPUs, and can cut them short (NVIDIA/cuCascade PR 119).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterable, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.pci import numa_node
from .._nvidia_smi import parse_nvidia_closest, parse_nvidia_csv, parse_nvidia_list, parse_nvidia_mig, parse_nvidia_topo
from .._smi.text import cpulist_of
from .._smi.tool import Tool, find
from .._users.finding import NVIDIA_FOLDERS
from .._users.devices import register_gpus
from .npus import blank

if TYPE_CHECKING:
    from .._base.documents import Node, Npu, PciDevice

_QUERY = ("--query-gpu=index,uuid,pci.bus_id,name,memory.total", "--format=csv")
_MIG = ("--query-gpu=index,mig.mode.current", "--format=csv")
_LOST = re.compile(r"device handle for GPU|GPU is lost")


def gather(host: Host, command: str | None, devices: Mapping[str, PciDevice], nodes: Iterable[Node], problems: list[str]) -> list[Npu]:
    """Return the GPUs, ascending by index. ``command`` is the one to use instead of an nvidia-smi that is looked for.

    ``devices`` are the accelerators of the PCI bus (:func:`_kernel.pci.accelerators`), ``nodes`` the NUMA nodes. What goes wrong is added
    to ``problems``.
    """
    present = {pci: device for pci, device in devices.items() if device["family"] == "gpu"}
    if not present and not command:
        return []
    tool = find(host, command, "nvidia-smi", NVIDIA_FOLDERS, problems, present)
    if not tool:
        return []
    aside = Tool(host, tool.argv, [])
    aside.ask_ahead(_MIG)
    answer = tool.ask(parse_nvidia_csv, *_QUERY)
    if answer is None and any(map(_LOST.search, problems)):  # one that is lost can hide the others
        aside.ask_ahead(_MIG, *((*_QUERY, "-i", pci) for pci in sorted(present)))
        answer = [row for pci in sorted(present) for row in aside.ask(parse_nvidia_csv, *_QUERY, "-i", pci) or ()] or None
    in_mig = aside.ask(parse_nvidia_mig, *_MIG) or set()
    if answer is None:
        return []
    rows = sorted(((row["index"], row) for row in answer if row["index"] is not None), key=lambda pair: pair[0])
    unlisted = sorted(set(present) - {row["pci"] for _index, row in rows})
    if unlisted:
        problems.append("The PCI bus has NVIDIA GPUs that nvidia-smi does not list: %s." % ", ".join(unlisted))
    gpus = [blank("gpu", index, index, row["name"], row["pci"], row["memory_mib"]) for index, row in rows]
    for gpu in gpus:
        gpu.update({"family": "gpu", "numa": numa_node(host, gpu["pci"]) if gpu["pci"] else None, "busy": False})
    register_gpus(host, gpus, problems)
    listed = (aside.ask(parse_nvidia_list, "-L") or {}) if in_mig else {}
    for gpu in gpus:
        if gpu["id"] in in_mig:
            gpu["mig"] = listed.get(gpu["id"], [])  # programs name these, not the GPU
    without_node = [gpu for gpu in gpus if gpu["pci"] in present and gpu["numa"] is None]
    _add_closest(aside, without_node, {node["id"]: set(expand(node["cpus"])) for node in nodes if node["cpus"]})
    numberless = compress(gpu["id"] for gpu in without_node if gpu["affinity"] is None)
    if numberless:
        problems.append("GPU %s: neither the kernel (numa_node is -1) nor nvidia-smi has a NUMA node for it." % numberless)
    return gpus


def _add_closest(aside: Tool, gpus: Sequence[Npu], cpus: Mapping[int, set[int]]) -> None:
    """Give GPUs whose node the kernel does not know the node with CPUs that nvidia-smi prints, and the CPUs of all that it prints.

    One that names all nodes tells nothing.
    """
    queries = {gpu["id"]: ("topo", "-C", "-M", "-i", str(gpu["id"])) for gpu in gpus}
    aside.ask_ahead(*queries.values())
    closest = {}
    for number, words in queries.items():
        text = aside.ask(parse_nvidia_closest, *words)
        if not aside.failure:
            closest[number] = set(expand(text or ""))
    rows = (aside.ask(parse_nvidia_topo, "topo", "-m") or []) if len(closest) < len(gpus) else []
    for row in rows:
        affinity = set(expand(row["affinity"] or ""))
        by_cpus = {node for node in cpus if cpus[node] & affinity}
        closest.setdefault(int(row["label"][len("GPU") :]), set(expand(cpulist_of(row["numa"] or "") or "")) or by_cpus)
    for gpu in gpus:
        near = closest.get(gpu["id"], set()) & cpus.keys()
        if near and near < cpus.keys():
            gpu["affinity"] = compress(set().union(*(cpus[node] for node in near)))
            gpu["numa"] = near.pop() if len(near) == 1 else None
