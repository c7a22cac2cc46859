# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs that a plan needs and the kubelet has given to containers, by pod, and the names under which device plugins offer NPUs to pods.

A plan does not look at these CPUs: pods come and go, and a plan that followed them would move. With a static CPU manager, a bind places the
interrupts alone, elsewhere the pools and what is kept for the system. Pods that got CPUs of a plan in force afterwards refuse nothing.

Sources of names: Ascend/mind-cluster@22bb3d98, ``component/ascend-common/api/default_name.go``; NVIDIA/k8s-device-plugin. HAMi's device
plugin has names of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of, union

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

Plan = Mapping[str, Any]
_NEXT = (
    "Let the kubelet reserve these CPUs (reservedSystemCPUs, role kubelet with npu_affinity_kubelet_enabled), bind when these pods have "
    "ended, or allow other CPUs with npu_affinity_cpus."
)


def refusals(topology: Topology, plan: Plan) -> list[Sentence]:
    """Return why a plan cannot be applied now: it would take CPUs that it does not have yet from containers."""
    static = _is_static(topology)
    return _sentences(topology, static, _needed(plan, static) & ~_needed(topology.get("applied") or {}, static), "would take")


def remarks(topology: Topology, plan: Plan) -> list[Sentence]:
    static = _is_static(topology)
    return _sentences(topology, static, _needed(plan, static), "needs")


def _is_static(topology: Topology) -> bool:
    return (topology.get("kubelet") or {}).get("policy") == "static"


def _needed(plan: Plan, static: bool) -> int:
    cpus = union(mask(entry.get("irq" if static else "pool") or "") for entry in plan.get("npus") or ())
    return cpus if static else cpus | mask(plan.get("housekeeping") or "")


def _sentences(topology: Topology, static: bool, needed: int, verb: str) -> list[Sentence]:
    holders = [
        f"{text_of(mask(cpulist) & needed)} of {name} (which holds {cpulist})"
        for name, cpulist in sorted(_exclusive((topology.get("kubelet") or {}).get("exclusive") or {}))
        if mask(cpulist, f"kubelet's CPUs of {name}") & needed
    ]
    if not holders:
        return []
    what = "for interrupts" if static else "for pools and the system"
    return [Sentence("NPU_PODS_IN_POOL", f"The plan {verb} CPUs {what} that the kubelet gave to containers: {', '.join(holders)}. {_NEXT}")]


def _exclusive(sets: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``(pod/container, cpulist)`` of the kubelet's exclusive sets, whether nested by pod or flat."""
    for name, value in sets.items():
        if isinstance(value, Mapping):
            yield from _exclusive(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", str(value)


RESOURCES = {
    "910": "huawei.com/Ascend910",
    "a2": "huawei.com/Ascend910",
    "a3": "huawei.com/Ascend910",
    "a5": "huawei.com/npu",
    "310p": "huawei.com/Ascend310P",
    "310": "huawei.com/Ascend310",
    "gpu": "nvidia.com/gpu",
}


_TEMPLATE = re.compile(r"vir(\d\d)(?:_(\d)c)?(?:_(\d+)g)?(?:_(nm|ndvpp|m|dvpp))?")
_VIDEO = {"nm": "ndvpp", "ndvpp": "ndvpp", "m": "dvpp", "dvpp": "dvpp"}
TEMPLATES = {
    "a2": (
        *("vir06_1c_16g", "vir12_3c_32g", "vir03_1c_8g", "vir05_1c_8g", "vir05_1c_16g"),
        *("vir10_3c_16g", "vir10_3c_32g", "vir10_3c_16g_nm", "vir10_4c_16g_m"),
    ),
    "a3": ("vir06_1c_16g", "vir12_3c_32g", "vir05_1c_16g", "vir10_3c_32g"),
    "310p": ("vir01", "vir02", "vir04", "vir02_1c", "vir04_3c", "vir04_3c_ndvpp", "vir04_4c_dvpp"),
}
"""Templates of hard vNPUs that MindCluster offers to pods, by family (``docs/zh/scheduling/04_usage/02_virtual_instance``)."""


def vnpu_resource(families: Iterable[str | None], template: str) -> str:
    """Return the name for hard vNPUs of a template: ``huawei.com/Ascend910-5c.1cpu.16g`` for ``vir05_1c_16g``."""
    known = sorted(set(families), key=str)
    offered = TEMPLATES.get(known[0] or "", ()) if len(known) == 1 else ()
    found = _TEMPLATE.fullmatch(template)
    if template not in offered or not found:
        raise ValueError(
            f"template: MindCluster offers no vNPU {template!r} of the family {', '.join(map(str, known)) or 'unknown'}; "
            f"it has {', '.join(offered) or 'none'}"
        )
    cores, cpus, memory, video = found.groups()
    parts = [f"{int(cores)}c", *([f"{cpus}cpu"] if cpus else []), *([f"{memory}g"] if memory else []), *([_VIDEO[video]] if video else [])]
    return f"{RESOURCES[known[0] or '']}-{'.'.join(parts)}"


def resource_of(families: Iterable[str | None]) -> str | None:
    """Return the name for NPUs of these families, None where a family is not known. ``ValueError``: they have several names."""
    names = {RESOURCES.get(family or "") for family in families}
    if None in names or not names:
        return None
    if len(names) > 1:
        raise ValueError(f"resource: the NPUs are offered as {', '.join(sorted(filter(None, names)))}; name the one that is wanted")
    return names.pop()
