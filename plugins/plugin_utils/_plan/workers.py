# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workers do on a host where they are left to bind themselves (``npu_affinity_bound_by: workers``).

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``: its workers divide the CPUs that they may use over all NPUs of
the host by the rule of the chip family, on Arm only. What goes wrong there is a warning in their log, and they stay unbound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology

HOST, WORKERS = BOUND_BY = ("host", "workers")
ARM = ("aarch64", "arm64")
NPUS_ONLY = "vLLM-Ascend's workers do so for NPUs only"


def why_unbound(topology: Topology) -> str:
    """Return why workers of this host do not bind themselves at all, or '' where they do."""
    architecture = (topology.get("machine") or {}).get("architecture")
    if architecture and architecture not in ARM:
        return f"vLLM-Ascend's workers do so on Arm only, and this host is {architecture}"
    if any(npu.get("kind") == "gpu" for npu in topology["npus"]):
        return f"{NPUS_ONLY}, and this host has GPUs"
    return ""


def in_force(topology: Topology, plan: Plan, bound_by: str) -> str:
    """Return the sentence that says who places the threads of workers on this host, and what follows from that."""
    if bound_by == HOST:
        return "The host binds the workloads: switch in-process binding off (vLLM-Ascend: enable_cpu_binding=false in additional_config)."
    if why := why_unbound(topology):
        return f"The workers share the union of the pools and do not bind themselves: {why}. npu_affinity_bound_by: host keeps them apart."
    return (
        f"The workers bind themselves within npu.slice: vLLM-Ascend divides its CPUs by {plan.get('strategy')}, and the interrupts are "
        "bound by the same published pools."
    )


def refusal(topology: Topology, plan: Plan, bound_by: str) -> str:
    """Return why a plan cannot be applied beside workers that bind themselves, or ''."""
    if bound_by != WORKERS or why_unbound(topology) or not plan.get("repaired"):
        return ""
    return (
        "npu_affinity_bound_by is workers, and this plan is not what the workers will do, because the published rule was repaired: "
        f"{' '.join(plan['repaired'])} Plan with bound_by: workers, or set npu_affinity_bound_by to host and in-process binding off."
    )
