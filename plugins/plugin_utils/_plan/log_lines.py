# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans in the words of vLLM-Ascend's log.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``: two blanks between the roles and double brackets around
the release CPU; NPUs without roles are those of the Ascend 950.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

TITLE = "The CPU allocation plan is as follows:"


def log_lines(plan: object, rank: int | None = None, topology: Topology | None = None) -> list[str]:
    """Return the lines of all NPUs of a plan, or with ``rank`` those of one worker, which start with its mode.

    ``topology`` is the fact of the host: the mode is that of the chip family, also where npu-smi printed no affinity and the worker slices
    all the same. Without it the mode is the plan's strategy. Raises ``ValueError`` when there is no such plan or rank.
    """
    if not isinstance(plan, Mapping) or "npus" not in plan:
        raise ValueError(f"plan: expected a plan of npu.affinity.plan, with npus; got {type(plan).__name__}")
    npus = [entry for entry in plan["npus"] if not entry["slice"].startswith("gpu-")]
    if rank is None:
        return [TITLE, *_lines(npus)]
    if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < len(npus):
        raise ValueError(f"rank: the plan has {len(npus)} NPUs, one for each rank from 0; got {rank!r}")
    visible = [entry["id"] for entry in npus]
    return [f"[cpu_bind_mode] mode={_mode(plan, topology)} rank={rank} visible_npus={visible}", TITLE, *_lines([npus[rank]])]


def _mode(plan: Mapping[str, Any], topology: Topology | None) -> str:
    if topology is None:
        return "global_slice" if plan["strategy"] == "global_slice" else "topo_affinity"
    families = {npu["family"] for npu in topology["npus"] if npu["kind"] == "npu"}
    return "global_slice" if families == {"a3"} else "topo_affinity"


def _lines(npus: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for entry in npus:
        cpus = {role: " ".join(map(str, expand(entry[role]))) for role in ("main", "acl", "release")}
        if entry["irq"]:
            yield f"NPU{entry['id']}: main=[{cpus['main']}]  acl=[{cpus['acl']}]  release=[[{cpus['release']}]]"
        else:
            yield f"Ascend 950 NPU{entry['id']}: worker=[{cpus['main']}]"
