# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of a host: everything that a plan needs to know, gathered in one pass, without writing anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence, cast

from .._state.history import newest
from .._state import plan_file
from .._base.cpulist import compress, expand
from .._base.memory_nodes import distances_of, owners
from .._base.outside import json_of
from .._host.host import Host
from .._features.irq.irqbalance import irqbalance
from .._kernel import cpus as _cpus
from .._kernel import hugepages as _hugepages
from .._kernel import pci
from .._kernel.isolation import isolation
from .._kernel.machine import allocator, machine
from .._kernel.memory import NVIDIA_GPUS, may_be_node, memory, nodes_of_gpus
from .._kernel.nics import bridges, hops, neighbours, nics
from .._kernel.surroundings import identity, surroundings
from .._features.kubelet.facts import kubelet
from .._state.executables import programs
from .._state.unit_environment import set_elsewhere
from .._state.unit_files import drop_ins_of_services, fragment, similar
from .._users.finding import described_ranks, users
from . import gpus as _gpus
from . import npus as _npus

if TYPE_CHECKING:
    from .._base.documents import Cpus, Nic, Node, Npu, Plan, Topology

_NO_CPUS: Cpus = {"online": "", "offline": "", "isolated": "", "siblings": [], "caches": [], "sockets": [], "workqueues": ""}
ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/"},
    "device_share": {"type": "bool", "default": False},
    "vnpus": {"type": "bool", "default": False},
    "npu_smi": {"type": "str"},
    "nvidia_smi": {"type": "str"},
    "units": {"type": "list", "elements": "str", "default": []},
    "others": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 30},
}
"""The options of modules that gather a host."""
_APPLIED = ("strategy", "requested", "cpus", "housekeeping", "options", "lost", "poll")
_APPLIED_NPU = (
    *("kind", "id", "card", "chip", "phy_id", "pci", "pool", "irq", "main", "kv", "acl", "release", "mems", "memory_nodes"),
    *("slice", "offline"),
)


def gather(
    host: Host,
    device_share: bool = False,
    npu_smi: str | None = None,
    nvidia_smi: str | None = None,
    units: Iterable[str] = (),
    others: bool = False,
    vnpus: bool = False,
) -> Topology:
    """Return the fact ``npu_affinity_topology`` of a host; what could not be read is a sentence in its ``problems``.

    ``npu_smi`` and ``nvidia_smi`` are commands, with blanks between their words; by default the tools are looked for.
    ``device_share`` queries it, with a call of npu-smi for every card. ``units`` are services that should be there: the result then
    has ``missing_units`` and ``unit_environment``. With ``vnpus`` it has ``vnpus``, into what the driver can split NPUs. With ``others`` it
    has the interrupts of other devices, which takes up to 0.1 s.
    ``memory`` is there where slices of NPUs, these services, or users of NPUs hold memory.
    """
    problems: list[str] = []
    devices, guests = pci.accelerators(host)
    tool = _npus.start(host, npu_smi, devices, problems)
    cpus = _attempt(problems, _NO_CPUS, _cpus.cpus, host)
    online = set(expand(cpus["online"]))
    if not online:
        problems.append("No CPU is online by %s." % host.path(_cpus.CPU_FOLDER + "/online"))
    nodes = _attempt(problems, [], _cpus.nodes, host, online)
    silent: dict[str, str] = {}
    npus, driver, listed = _npus.gather(host, tool, devices, nodes, device_share, problems)
    unanswered = ["'%s'" % query for query in map(" ".join, _npus.QUERIES) if tool and query in tool.unanswered]
    if unanswered:
        silent["npu"] = "npu-smi did not answer %s in time." % " and ".join(unanswered)
    elif not npus and any(device["family"] != "gpu" for device in devices.values()):
        silent["npu"] = " ".join(problems)
    before_gpus = len(problems)
    gpus = _gpus.gather(host, nvidia_smi, devices, nodes, problems)
    if not gpus and any(device["family"] == "gpu" for device in devices.values()):
        silent["gpu"] = " ".join(problems[before_gpus:])
    nodes = _owned(host, nodes, cpus["sockets"], gpus, problems)
    facts: Topology = {
        "schema": 1,
        "machine": {**machine(host), "inside": _attempt(problems, None, surroundings, host, online), "identity": identity(host)},
        "cpus": cpus,
        "numa": nodes,
        "npus": npus + gpus,
        "unlisted": _npus.unlisted(devices, npus),
        "nics": _nics(host, npus, gpus, nodes),
        "driver": driver,
        "hugepages": _hugepages.facts(host),
        "isolation": _attempt(problems, {}, isolation, host, problems),
        "irqbalance": irqbalance(host),
        "kubelet": kubelet(host, online),
        "applied": _attempt(problems, None, applied, host),
        "drop_ins": drop_ins_of_services(host),
        "programs": programs(host),
        "users": _attempt(problems, [], users, host, npus + gpus, listed, problems),
        "allocator": allocator(host),
        "problems": problems,
    }
    for user in facts["users"]:
        ranks = described_ranks(host, facts["npus"], user, problems) if len(user["npus"]) > 1 else []
        if ranks:
            user["ranks"] = ranks
    elsewhere = {unit: set_elsewhere(host, unit) for unit in units}
    optional = {
        "guests": guests or None,
        "silent": silent or None,
        "missing_units": {unit: similar(host, unit) for unit in units if fragment(host, unit) is None} if units else None,
        "unit_environment": {unit: variables for unit, variables in elsewhere.items() if variables} if units else None,
        "vnpus": _npus.splits(tool, npus) if vnpus and tool else None,
        "others": neighbours(host) if others else None,
        "adopt": _adopted(host) or None,
        "hugepages_before": _pages_before(host) or None,
        "memory": memory(host, set(units), any("memory_mib" in user for user in facts["users"])) or None,
    }
    facts.update(cast("Topology", {key: value for key, value in optional.items() if value is not None}))
    return facts


def _owned(host: Host, nodes: list[Node], sockets: list[str], gpus: Iterable[Npu], problems: list[str]) -> list[Node]:
    """Return the nodes with the ``owner`` of their memory, and with those that a driver has announced and that are not online yet."""
    of_gpus = nodes_of_gpus(host)
    coming = sorted(of_gpus.keys() - {node["id"] for node in nodes})
    without_node = [gpu for gpu in gpus if gpu["pci"] and may_be_node(host, gpu["pci"], of_gpus)]
    owner_of, guessed = owners(nodes, sockets, of_gpus, sorted(without_node, key=lambda gpu: str(gpu["pci"])))
    if guessed:
        text = "Memory nodes %s are taken for those of GPUs by distance and order, because %s does not show their owners."
        problems.append(text % (compress(guessed), NVIDIA_GPUS))
    for node in nodes:
        node["owner"] = owner_of[node["id"]]
    for number in coming:
        nodes.append({"id": number, "cpus": "", "memory_mib": 0, "distances": {}, "owner": {"gpu": of_gpus[number]}})
    return sorted(nodes, key=lambda node: node["id"])


def _adopted(host: Host) -> dict[str, Any]:
    """Return how running work is adopted by the state in force: ``{mode, move_memory, pods}``. Empty if not, or if only root may know."""
    entry = newest(host)
    live: Any = (entry.state.get("live", {}).get("adopt") if entry else None) or {}
    return {name: live[name] for name in ("mode", "move_memory", "pods") if name in live}


def _pages_before(host: Host) -> dict[str, dict[str, int]]:
    """Return the huge pages that nodes had before binds changed them; none of a broken record, which a bind names."""
    try:
        recorded: Any = json_of(host.read(plan_file.RECORD) or "{}")
        pages: dict[str, dict[str, int]] = {}
        for path, entry in recorded.get("hugepages", {}).items():
            size, node = _hugepages.place_of(path)
            pages.setdefault(str(size), {})[str(node)] = int(entry["original"])
        return pages
    except (AttributeError, LookupError, TypeError, ValueError):
        return {}


def _nics(host: Host, npus: Sequence[Npu], gpus: Sequence[Npu], nodes: Iterable[Node]) -> list[Nic]:
    """Return the network functions with the NUMA distance between each NPU and each of them, as far as nodes are known."""
    between: dict[Any, dict[Any, int]] = {node["id"]: distances_of(node) for node in nodes}
    functions = nics(host)
    paths = {function["pci"]: bridges(host, function["pci"]) for function in [*functions, *npus, *gpus] if function["pci"]}
    for nic in functions:
        ids: dict[int, list[int]] = {}
        for npu in npus:
            distance = between.get(npu["numa"], {}).get(nic["numa"])
            if distance is not None:
                ids.setdefault(distance, []).append(npu["id"])
        nic["distances"] = {str(distance): compress(members) for distance, members in sorted(ids.items())}
    for device in [*npus, *gpus]:
        for nic in _nearest(paths.get(device["pci"] or "", []), functions, paths, between.get(device["numa"], {})):
            nic["near"].append("%s-%d" % (device["kind"], device["id"]))
    return functions


def _nearest(path: list[str], nics: Sequence[Nic], paths: Mapping[str, list[str]], distances: Mapping[Any, int]) -> list[Nic]:
    """Return the nearest network functions of a device with this path: by the NUMA distance, then by the bridges in between.

    Of functions with RDMA only, where there are any. None of a device whose node is not known.
    """
    ranks = []
    for nic in [nic for nic in nics if nic["rdma"]] or nics:
        steps = hops(path, paths[nic["pci"]])
        if nic["numa"] in distances:
            ranks.append((distances[nic["numa"]], sys.maxsize if steps is None else steps, nic))
    return [nic for distance, steps, nic in ranks if (distance, steps) == min(rank[:2] for rank in ranks)]


def _attempt(problems: list[str], fallback: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:
        problems.append("%s." % error)
        return fallback


def applied(host: Host) -> Plan | None:
    """Return the parts of the plan in force that a later plan must respect, or None when there is none.

    Raises ``ValueError`` when the file is there but is not a plan.
    """
    plan = plan_file.read(host)
    if plan is None:
        return None
    kept: dict[str, Any] = {key: value for key, value in plan.items() if key in _APPLIED}
    kept["npus"] = [{key: value for key, value in npu.items() if key in _APPLIED_NPU} for npu in plan["npus"]]
    return cast("Plan", kept)


def gathered(params: Mapping[str, Any]) -> tuple[Host, Topology]:
    """Return the host of these options and its topology. Raises ``ValueError`` for a time limit in which no command can answer."""
    if params["timeout"] < 1:
        raise ValueError("npu_affinity_timeout is %d s; a command needs at least 1 s to answer" % params["timeout"])
    host = Host(params["root"], params["timeout"])
    topology = gather(host, **{name: params[name] for name in ARGUMENTS if name not in ("root", "timeout")})
    return host, topology
