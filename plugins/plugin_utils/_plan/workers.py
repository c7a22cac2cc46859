# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workers do on a host where they are left to bind themselves (``npu_affinity_bound_by: workers``).

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``: its workers divide the CPUs that they may use over all NPUs of
the host by the rule of the chip family, on Arm only. What goes wrong there is a warning in their log, and they stay unbound.

Releases differ. A5 was unknown before 0.22 and divided by global_slice before 0.23. 0.18 counts NPUs with a process only. From vLLM 0.24
on, the local rank of a worker is not always the place of its NPU, but chooses its pool, until pull requests 15517, 15518 (0.26.0rc) and
15596 (0.27.1rc) of September 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.binders import why_unbound
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence, coded_error, remark


if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

HOST, WORKERS = BOUND_BY = ("host", "workers")
ENGINE_VERSION = "npu_affinity_engine_version"
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:rc(\d+)|\.post\d+)?\Z")
_FINAL = 1 << 30
"""Candidate number of a final release, which comes after all of its candidates."""


class Version(NamedTuple):
    major: int
    minor: int
    patch: int
    candidate: int = _FINAL

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}" + ("" if self.candidate == _FINAL else f"rc{self.candidate}")

    @property
    def knows_hidden(self) -> bool:
        """Whether NPUs without a process count when CPUs are divided."""
        return self >= Version(0, 19, 0, 0)

    @property
    def by_rank(self) -> bool:
        """Whether a worker takes the pool at the position of its local rank, which is not always that of its NPU."""
        is_fixed = self >= Version(0, 27, 1) or Version(0, 26, 0) <= self < Version(0, 27, 0, 0)
        return self >= Version(0, 24, 0, 0) and not is_fixed


_FIRST, _UNKNOWN = Version(0, 7, 0, 0), Version(0, 28, 0, 0)
"""The first release, and the first whose source was not read."""


def version_of(value: object) -> Version | None:
    """Return the release that the setting names, None for an empty one. Raises ``ValueError`` for what is none."""
    if value is None or value == "":
        return None
    match = _VERSION.match(str(value).strip())
    if not match:
        raise ValueError(f"{ENGINE_VERSION}: expected a release of vLLM-Ascend such as 0.24.0 or 0.26.0rc1; got {value!r}")
    major, minor, patch, candidate = match.groups()
    version = Version(int(major), int(minor), int(patch or 0), _FINAL if candidate is None else int(candidate))
    if version < _FIRST:
        raise ValueError(
            f"{ENGINE_VERSION}: got {value!r}, and the first release of vLLM-Ascend is 0.7.1; write a version such as '0.20' with quotes, "
            "because YAML reads 0.20 as the number 0.2"
        )
    return version


def former_rule(rule: str, version: Version | None) -> str:
    """Return the rule by which a release divides where others do by ``rule``. Raises ``ValueError`` where it binds nothing."""
    if rule != "cluster" or version is None or version >= Version(0, 23, 0, 0):
        return rule
    if version < Version(0, 22, 0, 0):
        raise coded_error(
            "NPU_WORKERS_CONFLICT",
            f"npu_affinity_bound_by: workers, and these will bind nothing on this host: vLLM-Ascend {version} does not know the family "
            "a5; use npu_affinity_bound_by: host, with in-process binding off",
        )
    return "global_slice"


@remark("NPU_WORKERS_OVERLAP")
def taken(workloads: Mapping[str, list[tuple[str, str]]], strategy: str, version: Version) -> Iterator[str]:
    """Yield what workers of a release take.

    ``workloads`` has the names of their NPUs with pools, in the order of logic ids, and under '' the NPUs of no workload. Workers of a
    workload see its NPUs only, and their ranks start at 0. A single NPU has rank 0, which takes its own pool.
    """
    several = {name: pools for name, pools in workloads.items() if len(pools) > 1}
    if version.by_rank and several:
        ranks = "; ".join(_place(name, len(workloads)) + _ranks(pools) for name, pools in several.items())
        yield (
            f"vLLM-Ascend {version} chooses the pool of a worker by its local rank: {ranks}. Local ranks of each data-parallel shard start "
            "at 0. With several shards, workers take the same pools, while the interrupts of their NPUs stay in the pools of this plan. "
            "Update vLLM-Ascend (fixed in September 2026 for 0.26.0 and 0.27.1), or use npu_affinity_bound_by: host with in-process "
            "binding off."
        )
    elif not version.knows_hidden and strategy == "topo_affinity" and sum(map(len, workloads.values())) > 1:
        yield (
            f"vLLM-Ascend {version} divides the CPUs over the NPUs that have a process. While others are idle, workers take larger pools "
            "than these, which overlap with those of workers that start later."
        )


def _place(workload: str, workloads: int) -> str:
    return f"in workload {workload}, " if workload else "on the other NPUs, " if workloads > 1 else ""


def _ranks(pools: list[tuple[str, str]]) -> str:
    return ", ".join(f"rank {rank} takes {pool} ({name})" for rank, (name, pool) in enumerate(pools))


def in_force(topology: Topology, plan: Plan, bound_by: str) -> str:
    """Return the sentence that says who places the threads of workers on this host, and what follows from that."""
    why = why_unbound(topology)
    if bound_by == HOST:
        switch = "" if why else ": switch in-process binding off (vLLM-Ascend: enable_cpu_binding=false in additional_config)"
        return f"The host binds the workloads{switch}."
    if why:
        return f"The workers share the union of the pools and do not bind themselves: {why}. npu_affinity_bound_by: host keeps them apart."
    return (
        f"The workers bind themselves within npu.slice: vLLM-Ascend divides its CPUs by {plan.get('strategy')}, and the interrupts are "
        f"bound by the same published pools.{_ranks_of(plan)}"
    )


def _ranks_of(plan: Plan) -> str:
    version = version_of((plan.get("options") or {}).get("engine_version"))
    if len(plan["npus"]) < 2:
        return ""
    if not version:
        return f" Set {ENGINE_VERSION} to see which pool each rank takes: releases of vLLM-Ascend differ."
    if version >= _UNKNOWN:
        return f" Releases after 0.27 were not examined: compare with verify which CPUs the workers of {version} take."
    return f" In vLLM-Ascend {version}, each worker takes the pool of its NPU." if version.knows_hidden and not version.by_rank else ""


def refusal(topology: Topology, plan: Plan, bound_by: str) -> Sentence | None:
    """Return why a plan cannot be applied next to workers that bind themselves, or None."""
    if bound_by != WORKERS or why_unbound(topology) or not plan.get("repaired"):
        return None
    return Sentence(
        "NPU_WORKERS_CONFLICT",
        "npu_affinity_bound_by is workers, and this plan is not what the workers will do, because the published rule was repaired: "
        f"{' '.join(plan['repaired'])} Plan with bound_by: workers, or set npu_affinity_bound_by to host and in-process binding off.",
    )
