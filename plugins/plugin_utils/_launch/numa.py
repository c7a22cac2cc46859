# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan as arguments of vLLM on GPUs, which starts each worker under numactl (``vllm/utils/numa_utils.py``)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload

ENGINE = "vllm"


def arguments(workload: Workload, engine: str) -> tuple[str, ...]:
    """Return the arguments; none for other engines and devices, and where a GPU has not exactly one memory node nearest to it."""
    if engine != ENGINE or workload.kind != "gpu" or any(len(expand(card.nearest)) != 1 for card in workload.cards):
        return ()
    nodes = ["--numa-bind-nodes", *(card.nearest for card in workload.cards)]
    cpus = ["--numa-bind-cpus", *(card.pool for card in workload.cards)]
    return ("--numa-bind", *nodes, *cpus) if workload.cards else ()


def handed_over(options: Options, words: Sequence[str]) -> Options:
    """Return the options with the arguments behind the command, if there is one."""
    return replace(options, command=(*options.command, *words)) if options.command and words else options


def note(options: Options, words: Sequence[str]) -> str:
    """Return what the user has to know about the arguments."""
    if options.command:
        return "vLLM starts each worker on the CPUs and the memory node of its GPU. It needs numactl, and binds memory to that node alone."
    return f"vLLM: add {shlex.join(words)}. It then starts each worker on the CPUs and the memory node of its GPU, with numactl."
