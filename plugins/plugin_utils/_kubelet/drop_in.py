# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's drop-in that agrees with a plan: a static CPU manager that keeps off the CPUs of interrupts and of the system.

Sources: Kubernetes, "Control CPU Management Policies on the Node", "Reserve Compute Resources for System Daemons" and
``pkg/kubelet/cm/cpumanager/{policy_options,policy_static}.go``. Reserving CPUs confines nothing by itself; it only keeps the kubelet from
giving them to containers.

A kubelet does not start with an option that it does not know, or whose feature gate is off. Alpha options share one gate, which is off by
default, and beta options another, which is on. Sources: ``pkg/kubelet/cm/{cpumanager,topologymanager}/policy_options.go`` and KEPs 2625,
2902, 3327, 3545, 4176, 4540, 4622 and 5109.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.state_file import minor_of
from ansible_collections.npu.affinity.plugins.module_utils._state.files import MARKER
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist, mask, text_of, union
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import CORES, PolicyOptions, allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import POLICIES, SINGLE, units_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Kubelet, Plan, Topology

CPU_POLICIES = ("none", "static")
NODES, MOST_NODES = "max-allowable-numa-nodes", 8
"""The option that the topology manager needs with more NUMA nodes, and its least value (KEP 4622)."""

Version = tuple[int, int]
NEVER: Version = (1 << 16, 0)


class Stages(NamedTuple):
    """The first releases in which an option was alpha, beta and stable."""

    alpha: Version
    beta: Version = NEVER
    stable: Version = NEVER


CPU_MANAGER = {
    "full-pcpus-only": Stages((1, 22), (1, 23), (1, 33)),
    "distribute-cpus-across-numa": Stages((1, 23), (1, 33)),
    "align-by-socket": Stages((1, 25)),
    "distribute-cpus-across-cores": Stages((1, 31)),
    "strict-cpu-reservation": Stages((1, 32), (1, 33), (1, 35)),
    "prefer-align-cpus-by-uncorecache": Stages((1, 32), (1, 34), (1, 36)),
}
STAGES = {
    **CPU_MANAGER,
    "prefer-closest-numa-nodes": Stages((1, 26), (1, 28), (1, 32)),
    "max-allowable-numa-nodes": Stages((1, 31), (1, 33), (1, 35)),
}
"""The options of the CPU manager, and those of the topology manager."""


def kubelet_drop_in(
    plan: Plan,
    topology: Topology,
    policy: str = "static",
    options: Mapping[str, object] | None = None,
    topology_policy: str = "none",
    reserved: object = "",
) -> str:
    """Return the text of the drop-in.

    ``options`` are those of the CPU manager and of the topology manager, by the kubelet's names for them. ``reserved`` are CPUs that are
    reserved besides housekeeping and those of interrupts.

    Whole cores are reserved, and options that need a feature gate get it. Raises ``ValueError`` for settings that exclude each other, or
    with which no kubelet would start.
    """
    given = _texts(options)
    chosen = {option: value for option, value in given.items() if option in CPU_MANAGER}
    further = {option: value for option, value in given.items() if option not in CPU_MANAGER}
    if policy not in CPU_POLICIES:
        raise ValueError(f"policy: expected one of {', '.join(CPU_POLICIES)}; got {policy!r}")
    if topology_policy not in POLICIES:
        raise ValueError(f"topology_policy: expected one of {', '.join(POLICIES)}; got {topology_policy!r}")
    keep = reserved_cpus(plan, topology, reserved)
    if policy == "static":
        _refuse_static(topology, chosen, topology_policy, keep)
    nodes = [node for node in topology.get("numa") or () if node.get("cpus")]
    if topology_policy != "none" and len(nodes) > MOST_NODES and NODES not in further:
        raise ValueError(
            f"topology_policy: {topology_policy} on a host with {len(nodes)} NUMA nodes needs options "
            f"{{{NODES}: '{len(nodes)}'}} (Kubernetes 1.31 or newer); the kubelet starts with up to {MOST_NODES} only"
        )
    kubelet = topology.get("kubelet") or {}
    gated = gates_of("options", [*chosen, *further], kubelet)
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": str(policy),
        **({"cpuManagerPolicyOptions": chosen} if chosen else {}),
        "topologyManagerPolicy": str(topology_policy),
        **({"topologyManagerPolicyOptions": further} if further else {}),
        **({"reservedSystemCPUs": keep} if keep else {}),
        **({"featureGates": gated} if gated else {}),
    }
    return f"# {MARKER}: changes are overwritten.\n" + yaml.safe_dump(configuration, sort_keys=False, width=1000)


def knows(option: str, kubelet: Kubelet) -> bool:
    return _version(kubelet) >= STAGES[option].alpha


def gates_of(name: str, options: Iterable[str], kubelet: Kubelet) -> dict[str, bool]:
    """Return the feature gates that options need; ``name`` is what the user calls these.

    A kubelet of unknown version is taken for a current one. Raises ``ValueError`` for an option that the kubelet does not know, or whose
    gate its own configuration switches off.
    """
    version, gates = kubelet.get("version"), {}
    for option in options:
        stages, prefix = STAGES[option], "CPUManager" if option in CPU_MANAGER else "TopologyManager"
        if not knows(option, kubelet):
            first = ".".join(map(str, stages.alpha))
            raise ValueError(
                f"{name}: {option} came with Kubernetes {first}, and the kubelet is {version}, which would not start with it; leave it "
                "out, or update the kubelet first"
            )
        if _version(kubelet) < stages.beta:
            gates[f"{prefix}PolicyAlphaOptions"] = True
        elif _version(kubelet) < stages.stable and (kubelet.get("feature_gates") or {}).get(f"{prefix}PolicyBetaOptions") == "false":
            raise ValueError(
                f"{name}: {option} is beta in Kubernetes {version or 'of today'}, and the kubelet's configuration switches feature gate "
                f"{prefix}PolicyBetaOptions off; remove that, or leave the option out"
            )
    return gates


def _version(kubelet: Kubelet) -> Version:
    version = kubelet.get("version")
    return minor_of(version) if version else (NEVER[0] - 1, 0)


def reserved_cpus(plan: Plan, topology: Topology, more: object = "") -> str:
    """Return the CPUs of housekeeping, of all NPUs' interrupts and those named, as whole cores."""
    cpus = union(mask(entry["irq"], "irq of the plan") for entry in plan["npus"])
    extra, units = mask(as_cpulist(more, "reserved")), units_of(topology)
    if absent := extra & ~units.cpus:
        raise ValueError(f"reserved: the host has no CPUs {text_of(absent)}; it has {text_of(units.cpus)}")
    cpus |= mask(plan.get("housekeeping") or "", "housekeeping of the plan") | extra
    return text_of(units.around(CORES, cpus & units.cpus))


def _refuse_static(topology: Topology, options: Mapping[str, str], topology_policy: str, reserved: str) -> None:
    if not reserved:
        raise ValueError(
            "reserved: the static CPU manager needs at least one reserved CPU, and the plan has none for interrupts or housekeeping; set "
            "npu_affinity_housekeeping, or name some with npu_affinity_kubelet_reserved"
        )
    units = units_of(topology)
    kept = mask(reserved)
    if not units.cpus & ~kept:
        raise ValueError(f"reserved: {reserved} are all CPUs of the host, and none would be left for containers; reserve fewer")
    if options.get("align-by-socket") == "true" and topology_policy == SINGLE:
        raise ValueError(f"options: align-by-socket and topology_policy {SINGLE} exclude each other; choose one of them")
    switches = {name.replace("-", "_"): value == "true" for name, value in options.items()}
    fields = {name: value for name, value in switches.items() if name in PolicyOptions.__dataclass_fields__}
    allocate(units, units.cpus, units.threads_per_core, PolicyOptions(**fields), kept)


def _texts(given: Mapping[str, object] | None) -> dict[str, str]:
    """Return options as the texts that the kubelet expects."""
    given = given or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"options: expected a dictionary with some of {', '.join(STAGES)}; got {given!r}")
    if unknown := [str(option) for option in given if option not in STAGES]:
        raise ValueError(f"options: {', '.join(unknown)} is not known; known are {', '.join(STAGES)}")
    texts = {str(option): str(value).lower() if isinstance(value, bool) else str(value) for option, value in given.items()}
    for option, text in texts.items():
        if option == NODES and not (text.isdecimal() and int(text) >= MOST_NODES):
            raise ValueError(f"options: {option} takes a whole number from {MOST_NODES} on; got {text!r}")
        if option != NODES and text not in ("true", "false"):
            raise ValueError(f"options: {option} takes true or false; got {text!r}")
    return texts
