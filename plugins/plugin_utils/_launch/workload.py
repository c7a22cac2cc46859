# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan's entry or a workload, as the forms need it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, normalize
from ansible_collections.npu.affinity.plugins.module_utils._kernel.machine import sets_cpus
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import SLICES, way
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import device_number, unknown_device

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
SLICES_OF_ALL = ("npu.slice", "gpu.slice")
"""They hold the CPUs of all NPUs (or GPUs) of a host; every other slice holds those of its own workload."""
DEVICE = re.compile(r"^/dev/(?:davinci|nvidia)(\d+)\Z")
_NO_REGISTER = "only the topology of the host tells the device file of"
HOST_ONLY = ("strategy", "quality")
"""Keys that only a whole plan has, but none of its entries."""


@dataclass(frozen=True)
class Recipe:
    """The text of a form. ``notes`` are sentences for its user.

    ``starts`` tells texts that start the workload from those that only prepare its host. A command has no newline at its end, so that
    pasting it does not run it.
    """

    text: str
    notes: Sequence[str] = ()
    starts: bool = True


@dataclass(frozen=True)
class Card:
    """One NPU or GPU of a workload. ``id``, ``known`` (the number of its device file), ``family`` None: not known.

    ``pool`` is its own cpulist, or that of the whole workload, ``nearest`` its memory nodes. ``assumed``: nothing but the names of all
    device files tells the number.
    """

    id: int | None
    known: int | None
    pool: str
    family: str | None = None
    assumed: bool = False
    unknown: str = ""
    nearest: str = ""

    @property
    def number(self) -> int:
        """The number in the name of its device file. Raises ``ValueError`` where it is not known."""
        if self.known is None:
            raise ValueError(self.unknown)
        return self.known


@dataclass(frozen=True)
class Share:
    """The part of an NPU that a vNPU gets: variables and ``volumes`` (``host:container[:ro]``) of its container, its limiter's unit.

    ``devices``: those of a hard vNPU, ``host:container``, in place of the NPU's.
    """

    environment: Mapping[str, str]
    volumes: Sequence[str]
    limiter: str | None
    devices: Sequence[str] = ()


@dataclass(frozen=True)
class Workload:
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
    cards: tuple[Card, ...]
    topology: Topology = field(default_factory=lambda: cast("Topology", {}))
    share: Share | None = None

    @property
    def held_by_slice(self) -> bool:
        """Whether the slice alone gives exactly these CPUs and memory nodes."""
        return self.slice not in ("", *SLICES_OF_ALL)

    @property
    def cgroup_sets_cpus(self) -> bool:
        """Whether systemd can hold CPU sets on this host; without a topology it is taken to."""
        machine = self.topology.get("machine") or {}
        return not machine or sets_cpus(machine)

    @property
    def visible_on_host(self) -> dict[str, str]:
        """The variables that confine a process of the host to its devices; none where their logic ids are not known."""
        ids = [card.id for card in self.cards if card.id is not None]
        return visible_devices(self.kind, ids) if len(ids) == len(self.cards) else {}

    def named(self) -> str:
        """Return a name for what must have one: that of the workload, or that of its slice."""
        ids = "-".join(str(card.number if card.id is None else card.id) for card in self.cards)
        return self.name or self.slice.removesuffix(".slice") or f"{self.kind}-{ids or 'workload'}"


def read(entry: object, topology: object, name: str) -> Workload:
    """Return the workload of a plan's entry ``{id, pool, mems, slice, …}`` or of ``{name, npus, pool or cpus, mems, slice}``.

    A workload may have ``processes``, the plan's entries of its NPUs, or ``devices``, their nodes below ``/dev``, in place of ``npus``. A
    vNPU has ``environment``, ``volumes`` and ``limiter``, too.
    ``name`` goes before the workload's own. ``ValueError`` says what is missing or wrong.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"entry: expected an entry of npu_affinity_plan.npus or a workload; got {type(entry).__name__}")
    if any(key in entry for key in HOST_ONLY):
        raise ValueError("entry: this is a whole plan; take one of its npus, or make a workload of several with npu.affinity.workloads")
    host = _host(topology)
    name = name or ("" if "id" in entry else str(entry.get("name") or ""))
    slice_name = str(entry.get("slice") or "")
    kind = str(entry.get("kind") or ("gpu" if slice_name.startswith("gpu") else "npu"))
    title = f"{kind.upper()} {entry['id']}" if "id" in entry else f"workload {name or slice_name or 'without a name'}"
    if name and not NAME.match(name):
        raise ValueError(f"name: '{name}' is not a name; use letters, digits, '_', '.' and '-'")
    cpus = normalize(str(entry.get("pool") or entry.get("cpus") or ""), f"pool of {title}")
    if not cpus:
        raise ValueError(f"{title} has no CPUs: its pool is empty; take an entry of a plan, or give pool or cpus, such as 24-47")
    irq = union(str(part.get("irq") or "") for part in (entry, *(entry.get("processes") or ())))
    return Workload(
        title=title,
        name=name,
        kind=kind,
        cpus=cpus,
        mems=_memory_nodes(memory_nodes(entry), host, title),
        nearest=_memory_nodes(str(entry.get("mems") or ""), host, title),
        irq=irq,
        slice=slice_name if not host or way(host, cast("Plan", {"npus": [{"irq": irq}], "housekeeping": ""}))[0] == SLICES else "",
        cards=tuple(_cards(entry, host, kind, cpus)),
        topology=host,
        share=_share(entry) if "volumes" in entry else None,
    )


def _share(vnpu: Mapping[str, Any]) -> Share:
    return Share(vnpu["environment"], vnpu["volumes"], vnpu.get("limiter"), vnpu.get("devices") or ())


def _host(topology: object) -> Topology:
    if topology is not None and (not isinstance(topology, Mapping) or not {"npus", "cpus"} <= topology.keys()):
        raise ValueError("topology: expected the fact npu_affinity_topology of npu.affinity.topology_facts, with cpus and npus")
    return cast("Topology", topology or {})


def _memory_nodes(allowed: str, host: Mapping[str, Any], title: str) -> str:
    mems = str(normalize(allowed, f"mems of {title}"))
    known = {node["id"] for node in host.get("numa") or ()}
    missing = sorted(set(expand(mems)) - known) if known else []
    if missing:
        raise ValueError(f"{title} is to use memory of NUMA nodes {missing}, but the host has {sorted(known)}; plan it again")
    return mems


def _cards(entry: Mapping[str, Any], host: Mapping[str, Any], kind: str, cpus: str) -> Iterator[Card]:
    """Yield the NPUs of an entry, of a workload's processes, of its list of logic ids, or of its device nodes."""
    for path in entry.get("devices") or () if "volumes" not in entry else ():
        if not (match := DEVICE.match(str(path))):
            raise ValueError(f"devices: {path!r} is not the node of an NPU or GPU, such as /dev/davinci0")
        node = int(match[1])
        npu = _of_node(node, host, kind)
        yield Card(npu.get("id"), node, cpus, npu.get("family"))
    if entry.get("devices") and "volumes" not in entry:
        return
    if "id" in entry:
        members: Sequence[Any] = [entry]
    else:
        members = entry.get("processes") or entry.get("npus") or []
    for member in members:
        given = member if isinstance(member, Mapping) else {"id": member}
        number = given.get("id")
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"npus: expected logic ids such as [0, 1]; got {number!r}")
        npu = _of_topology(given, host, kind) if host else {}
        family = "gpu" if kind == "gpu" else npu.get("family")
        found = {**given, **npu, "kind": kind}
        assumed = (found.get("device") or {}).get("known_by") == "unknown"
        no_register = f"{_NO_REGISTER} {kind.upper()} {number}; give topology"
        unknown = unknown_device({**found, "slice": f"{kind}-{number}"}) if host else no_register
        yield Card(number, device_number(found), str(given.get("pool") or cpus), family, assumed, unknown, str(given.get("mems") or ""))


def _of_node(node: int, host: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the NPU of a device node's number; empty where no topology tells it."""
    found = [npu for npu in host.get("npus") or () if npu.get("kind", "npu") == kind and device_number(npu) == node]
    return found[0] if found else {"id": node, "family": "gpu"} if kind == "gpu" else {}


def _of_topology(given: Mapping[str, Any], host: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for npu in host["npus"]:
        same_function = given.get("pci") in (None, npu.get("pci"))
        if npu["id"] == given["id"] and npu.get("kind", "npu") == kind and same_function:
            found: Mapping[str, Any] = npu
            return found
    where = f" at {given['pci']}" if given.get("pci") else ""
    raise ValueError(f"{kind.upper()} {given['id']}{where} is not in the topology of this host; gather its facts and plan it again")
