# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature nic: queues of network functions on CPUs of their NUMA node that are in no pool, now, at boot, and when a driver binds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Nic, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown
from ansible_collections.npu.affinity.plugins.module_utils._features.nic.feature import FILE, NEAR, NIC_INSTANCE
from ansible_collections.npu.affinity.plugins.module_utils._features.nic.feature import NIC_SERVICE, NIC_TIMER, OFF, RULES
from ansible_collections.npu.affinity.plugins.module_utils._kernel.nics import DRIVERS
from ansible_collections.npu.affinity.plugins.module_utils._state.executables import USUAL
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import dump
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, managed, no_effect, oneshot, unit
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.irq import check_timer, rebind_limit
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.conflicts import SLICES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

_ABOUT = f"{MARKER}: the CPUs of network queues. Changes are overwritten."
_ORDER = "After=systemd-modules-load.service network.target irqbalance.service\n"


def is_on(settings: OfRole) -> bool:
    return settings["nic"] != OFF


def left_alone(topology: Topology, plan: Plan, settings: OfRole) -> tuple[str, list[str]]:
    """Return the PCI functions whose interrupts irqbalance must leave alone, behind the file without which it need not."""
    return FILE, list(_targets(topology, plan)[0]) if settings["nic"] == NEAR and plan["npus"] else []


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """Return the CPUs of each network function, and the units that place its queues."""
    if not plan["npus"]:
        return Feature()
    functions, unplaced = _targets(topology, plan)
    mode = settings["nic"]
    live = {"mode": mode, "functions": functions}
    placed = _lines(topology, functions, mode)
    if mode != NEAR:
        return Feature(live=live, notes=tuple(Sentence("NPU_NIC_ADVICE", text) for text in (*placed, *unplaced)))
    notes = [Sentence("NPU_NIC_PLACED", text) for text in placed] + [Sentence("NPU_NIC_UNPLACED", text) for text in unplaced]
    if not functions:
        if not unplaced:
            notes.append(Sentence("NPU_NO_EFFECT", f"{no_effect('npu_affinity_nic', 'this host')}: it has no network function."))
        return Feature(live=live, notes=tuple(notes))
    if topology["irqbalance"].get("active") and not settings["irq_enabled"]:
        notes.append(
            Sentence(
                "NPU_IRQBALANCE_ACTIVE",
                "irqbalance is active and may move network interrupts until the timer restores them, because role irq, which configures "
                "it, is off; set npu_affinity_irq_enabled to true.",
            )
        )
    run, wait = f"{settings['python']} -m npu_affinity nic", int(settings["wait"])
    service = oneshot("Place network interrupts near their functions", FILE, run + rebind_limit(settings), 240, _ORDER, "multi-user.target")
    instance = oneshot("Place the interrupts of the network function %I", FILE, f"{run} --pci %i --wait {wait}", wait + 240)
    systemctl = (topology.get("programs") or {}).get("systemctl") or USUAL["systemctl"]
    return Feature(
        files=(
            {"path": FILE, "content": dump(_ABOUT, live), "mode": "0644"},
            unit(NIC_SERVICE, service),
            unit(NIC_INSTANCE, instance),
            unit(NIC_TIMER, check_timer("Check that network interrupts are near their functions", settings)),
            managed(RULES, _rules(list(functions), systemctl)),
        ),
        enabled=(NIC_SERVICE, NIC_TIMER),
        started=(NIC_TIMER,),
        python=settings["python"],
        needs_plan=True,
        notes=tuple(notes),
        live=live,
    )


def _targets(topology: Topology, plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Return the CPUs of each function, and a sentence for each that has none."""
    choices = list(_choices(topology, plan))
    nodes = {node["id"]: set(expand(node["cpus"])) & set(expand(topology["cpus"]["online"])) for node in topology["numa"]}
    functions, notes = {}, []
    for nic in topology.get("nics") or ():
        cpus = nodes.get(nic["numa"], set()) if nic["numa"] is not None else set()
        near = next((cpus & choice for choice in choices if cpus & choice), None)
        if nic["driver"] not in DRIVERS:
            notes.append(f"{_title(nic)}: its interrupts stay, because the names that this driver gives them are not known.")
        elif nic["numa"] is None:
            notes.append(f"{_title(nic)}: its interrupts stay, because the kernel does not know its NUMA node.")
        elif not near:
            why = _why_none(topology, plan, f"node {nic['numa']}", cpus)
            notes.append(f"{_title(nic)}: its interrupts stay, because {why}.")
        else:
            functions[nic["pci"].lower()] = compress(near)
    return functions, notes


def _choices(topology: Topology, plan: Plan) -> Iterator[set[int]]:
    """Yield the CPUs for network interrupts, best first: those kept for the system, those left of the divided ones, and IRQ CPUs.

    CPUs that are isolated or tickless are the last resort, as IRQ CPUs. CPUs of a partition belong to its cgroup.
    """
    apart, partitions = _apart(topology)
    others = {cpu for group, cpus in partitions.items() if not group.startswith(SLICES) for cpu in cpus}
    barred = apart.union(*partitions.values())
    pools = _pools(plan)
    of_irq = {cpu for entry in plan["npus"] for cpu in expand(entry.get("irq") or "")} - others
    yield set(expand(plan.get("housekeeping") or "")) - pools - barred
    yield set(expand(plan["cpus"])) - pools - barred
    yield of_irq - apart
    yield of_irq


def _apart(topology: Topology) -> tuple[set[int], dict[str, set[int]]]:
    """Return the CPUs that are isolated or tickless, and those of each partition by its cgroup."""
    isolation = topology.get("isolation") or {}
    partitions = {part["group"]: set(expand(part["cpus"])) for part in isolation.get("partitions") or () if part["valid"]}
    return {cpu for text in (topology["cpus"].get("isolated"), isolation.get("nohz_full")) for cpu in expand(text or "")}, partitions


def _pools(plan: Plan) -> set[int]:
    return {cpu for entry in plan["npus"] for cpu in expand(entry["pool"])} | set(expand(plan.get("poll") or ""))


def _why_none(topology: Topology, plan: Plan, node: str, cpus: set[int]) -> str:
    """Return why none of :func:`_choices` has a CPU of a node, and what to do; ``cpus`` are those of the node that are online."""
    apart, partitions = _apart(topology)
    outside = cpus - _pools(plan)
    left_out = outside.difference(apart, *partitions.values())
    if not cpus:
        return f"{node} has no online CPU"
    if left_out:
        return (
            f"CPUs {compress(left_out)} of {node} are neither kept for the system nor among those that the plan divides ({plan['cpus']}); "
            "add some to npu_affinity_housekeeping or npu_affinity_cpus"
        )
    if outside:
        return f"CPUs {compress(outside)}, which {node} has outside the pools, are isolated, tickless or in a cpuset partition; free some"
    return f"{node} has no CPU outside the pools and no IRQ CPU; set npu_affinity_housekeeping to keep some"


def _lines(topology: Topology, functions: Mapping[str, str], mode: str) -> Iterator[str]:
    """Yield where queues go, one sentence for all functions of the same CPUs."""
    groups: dict[str, list[str]] = {}
    for nic in topology.get("nics") or ():
        if nic["pci"].lower() in functions:
            groups.setdefault(functions[nic["pci"].lower()], []).append(_title(nic))
    verb = "go" if mode == NEAR else "would, with npu_affinity_nic: near, go"
    for cpus, titles in groups.items():
        yield f"Network interrupts of {', '.join(titles)} {verb} to CPUs {cpus}."


def _title(nic: Nic) -> str:
    node = f", node {nic['numa']}" if nic["numa"] is not None else ""
    return f"{shown(nic['name'])} ({shown(nic['driver'])}, {nic['pci']}{node})"


def _rules(functions: list[str], systemctl: str) -> str:
    kernels = "|".join(functions)
    return (
        "# A driver that binds, or an interface that appears, requests interrupts again.\n"
        f'ACTION=="bind", SUBSYSTEM=="pci", KERNEL=="{kernels}", RUN+="{systemctl} --no-block start npu-affinity-nic@%k.service"\n'
        f'ACTION=="add", SUBSYSTEM=="net", SUBSYSTEMS=="pci", KERNELS=="{kernels}", '
        f'RUN+="{systemctl} --no-block start npu-affinity-nic@%b.service"\n'
    )
