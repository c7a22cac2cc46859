# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which numbers of NPUs a job may ask for, over all its tasks.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/ascend910/ascend910a3/superpod`` and ``internal/npu/policy/chip8node8sp``
(checkSpBlock, checkRequireNPU) and the sizes of every product's rule.
"""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress


def of_superpod(single: Collection[int], per_task: int | None, replicas: int | None, sp_block: int | None, node_npus: int) -> str | None:
    """Return why a job in SuperPods of so many tasks with so many NPUs each is not allowed, None where it is.

    ``single`` are the sizes of a task that is its job, ``sp_block`` the NPUs of a block in a logical SuperPod, ``node_npus`` those of a
    host. What is None is not looked at.
    """
    total = None if per_task is None else per_task * (replicas or 1)
    block = total if sp_block is None else sp_block
    if block is not None and block < 1:
        return f"size not allowed: sp-block {block} is not a number of NPUs; give 1 or more"
    if block is not None and block != total and block % node_npus:
        return f"size not allowed: sp-block {block} is not a multiple of the {node_npus} NPUs of a host"
    if per_task is None or total is None or block is None:
        return None
    if (replicas or 1) == 1:
        allowed = [size for size in single if size <= node_npus]
        if per_task not in allowed:
            return f"size not allowed: a single task in a SuperPod has {compress(allowed).replace(',', ', ')} NPUs, not {per_task}"
        return None if block == per_task else f"size not allowed: a single task has {per_task} NPUs, which must equal sp-block {block}"
    if total % block:
        return f"size not allowed: the {total} NPUs of the job are not a multiple of sp-block {block}"
    return None if per_task == node_npus else f"size not allowed: tasks of one job in a SuperPod have {node_npus} NPUs each, not {per_task}"
