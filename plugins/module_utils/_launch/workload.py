# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan's entry or a workload, as the forms need it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple, Sequence, cast

from .._base import device_files
from .._base.cpulist import expand, normalize, union
from .._base.findings import device_number, unknown_device
from .._kernel.machine import sets_cpus

if TYPE_CHECKING:
    from .._base.documents import Topology

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
DEVICE = re.compile(r"/dev/(?!v)%s\Z" % device_files.NAME)


class Card(NamedTuple):
    """One NPU or GPU of a workload. ``id``, ``file_number`` (that of its device file), ``family`` None: not known.

    ``pool`` is its own cpulist, or that of the whole workload, ``nearest`` its memory nodes. ``assumed``: nothing but the names of all
    device files tells the number, and ``unknown`` says why none is known.
    """

    id: int | None
    file_number: int | None
    pool: str
    family: str | None = None
    assumed: bool = False
    unknown: str = ""
    nearest: str = ""

    @property
    def number(self) -> int:
        """The number in the name of its device file. Raises ``ValueError`` where it is not known."""
        if self.file_number is None:
            raise ValueError(self.unknown)
        return self.file_number


class Share(NamedTuple):
    """The part of an NPU that a vNPU gets: variables and ``volumes`` (``host:container[:ro]``) of its container, its limiter's unit.

    ``devices``: those of a hard vNPU, ``host:container``, in place of the NPU's.
    """

    environment: Mapping[str, str]
    volumes: Sequence[str]
    limiter: str | None
    devices: Sequence[str]


class Workload(NamedTuple):
    """What runs where. CPUs and memory nodes are cpulists, ``slice`` is empty where the host has none.

    ``mems`` are the memory nodes that it may use, ``nearest`` those of its CPUs.
    """

    title: str
    name: str
    kind: str
    cpus: str
    mems: str
    nearest: str
    irq: str
    slice: str
    cards: Sequence[Card]
    topology: Topology
    share: Share | None


def read(entry: object, topology: object, name: str) -> Workload:
    """Return the workload of a plan's entry ``{id, pool, mems, slice, …}`` or of ``{name, npus, pool or cpus, mems, slice}``.

    A workload may have ``processes``, the plan's entries of its NPUs, or ``devices``, their nodes below ``/dev``, in place of ``npus``. A
    vNPU has ``environment``, ``volumes`` and ``limiter``, too.
    ``name`` goes before the workload's own. ``ValueError`` says what is missing or wrong.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"entry: expected an entry of npu_affinity_plan.npus or a workload; got {type(entry).__name__}")
    if "strategy" in entry or "quality" in entry:
        raise ValueError("entry: this is a whole plan; take one of its npus, or make a workload of several with npu.affinity.workloads")
    if topology is not None and (not isinstance(topology, Mapping) or not {"npus", "cpus"} <= topology.keys()):
        raise ValueError("topology: expected the fact npu_affinity_topology of npu.affinity.topology_facts, with cpus and npus")
    host = cast("Topology", topology or {})
    name = name or ("" if "id" in entry else str(entry.get("name") or ""))
    slice_name = str(entry.get("slice") or "")
    kind = str(entry.get("kind") or ("gpu" if slice_name.startswith("gpu") else "npu"))
    title = f"{kind.upper()} {entry['id']}" if "id" in entry else f"workload {name or slice_name or 'without a name'}"
    if name and not NAME.match(name):
        raise ValueError(f"name: '{name}' is not a name; use letters, digits, '_', '.' and '-'")
    cpus = normalize(str(entry.get("pool") or entry.get("cpus") or ""), f"pool of {title}")
    if not cpus:
        raise ValueError(f"{title} has no CPUs: its pool is empty; take an entry of a plan, or give pool or cpus, such as 24-47")
    parts, is_vnpu = [entry, *(entry.get("processes") or ())], "volumes" in entry
    has_slices = not host or (host.get("kubelet") or {}).get("policy") != "static" and sets_cpus(host.get("machine") or {})
    return Workload(
        title=title,
        name=name,
        kind=kind,
        cpus=cpus,
        mems=_memory_nodes(str(entry.get("memory_nodes", entry.get("mems")) or ""), host, title),
        nearest=_memory_nodes(str(entry.get("mems") or ""), host, title),
        irq=union(str(part.get("irq") or "") for part in parts),
        slice=slice_name if has_slices else "",
        cards=tuple(_cards(entry, host, kind, cpus)),
        topology=host,
        share=Share(entry["environment"], entry["volumes"], entry.get("limiter"), entry.get("devices") or ()) if is_vnpu else None,
    )


def _memory_nodes(allowed: str, host: Topology, title: str) -> str:
    mems = normalize(allowed, f"mems of {title}")
    ids = {node["id"] for node in host.get("numa") or ()}
    missing = sorted(set(expand(mems)) - ids) if ids else []
    if missing:
        raise ValueError(f"{title} is to use memory of NUMA nodes {missing}, but the host has {sorted(ids)}; plan it again")
    return mems


def _cards(entry: Mapping[str, Any], host: Topology, kind: str, cpus: str) -> Iterator[Card]:
    """Yield the NPUs of an entry, of a workload's processes, of its list of logic ids, or of its device nodes."""
    npus = [npu for npu in host.get("npus") or () if npu.get("kind", "npu") == kind]
    if entry.get("devices") and "volumes" not in entry:
        for path in entry["devices"]:
            if not DEVICE.match(str(path)):
                raise ValueError(f"devices: {path!r} is not the node of an NPU or GPU, such as /dev/davinci0")
            node = int(re.sub("[^0-9]", "", path))
            same = next((npu for npu in npus if device_number(npu) == node), None)
            number, family = (same["id"], same.get("family")) if same else (node, "gpu") if kind == "gpu" else (None, None)
            yield Card(number, node, cpus, family)
        return
    for member in [entry] if "id" in entry else entry.get("processes") or entry.get("npus") or []:
        given = member if isinstance(member, Mapping) else {"id": member}
        number, pci = given.get("id"), given.get("pci")
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"npus: expected logic ids such as [0, 1]; got {number!r}")
        same = next((npu for npu in npus if npu["id"] == number and pci in (None, npu.get("pci"))), None)
        title = f"{kind.upper()} {number}"
        if host and not same:
            where = f" at {pci}" if pci else ""
            raise ValueError(f"{title}{where} is not in the topology of this host; gather its facts and plan it again")
        facts = {**given, **(same or {}), "kind": kind}
        no_register = f"only the topology of the host has the device file of {title}; give topology"
        yield Card(
            number,
            device_number(facts),
            str(given.get("pool") or cpus),
            "gpu" if kind == "gpu" else same and same.get("family"),
            (facts.get("device") or {}).get("known_by") == "unknown",
            unknown_device(number, facts) if host else no_register,
            str(given.get("mems") or ""),
        )
