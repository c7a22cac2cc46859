# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans in the words of vLLM-Ascend's log.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``: two blanks between the roles and double brackets around
the release CPU; NPUs without roles are those of the Ascend 950.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import expand

TITLE = "The CPU allocation plan is as follows:"


def log_lines(plan: object) -> list[str]:
    """Return the lines of a plan. Raises ``ValueError`` when it is none."""
    if not isinstance(plan, Mapping) or "npus" not in plan:
        raise ValueError(f"plan: expected a plan of npu.affinity.plan, with npus; got {type(plan).__name__}")
    return [TITLE, *_lines(plan)]


def _lines(plan: Mapping[str, Any]) -> Iterator[str]:
    for entry in plan["npus"]:
        if entry["slice"].startswith("gpu-"):
            continue
        cpus = {role: " ".join(map(str, expand(entry[role]))) for role in ("main", "acl", "release")}
        if entry["irq"]:
            yield f"NPU{entry['id']}: main=[{cpus['main']}]  acl=[{cpus['acl']}]  release=[[{cpus['release']}]]"
        else:
            yield f"Ascend 950 NPU{entry['id']}: worker=[{cpus['main']}]"
