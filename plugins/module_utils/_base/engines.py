# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that serve or train models and bind themselves to CPUs: what switches that off in each. Looks at no host.

Sources: sgl-project/sglang issues 20077, 39348 and 39552; vllm-project/vllm-ascend@182b75ea ``worker.py`` and ``platform.py``, PR 11307
(OMP_PROC_BIND) and vllm-project/vllm ``--numa-bind``; MindIE-LLM, "environment_variable.md" (``BIND_CPU``, on where it is not set), and
``atb_llm/utils/cpu_binding.py``; verl, whose set_numa_affinity does nothing on NPUs, so its rollout engine is set.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple


class Engine(NamedTuple):
    """``environment`` switches its binding off; ``arguments`` says what to run where no variable does, or is empty."""

    title: str
    environment: Mapping[str, str]
    arguments: str = ""


ENGINES = {
    "sglang": Engine("SGLang", {"SGLANG_SET_CPU_AFFINITY": "0"}, "SGLang: leave --numa-node out."),
    "vllm": Engine("vLLM", {}, "vLLM: leave --numa-bind, --numa-bind-nodes and --numa-bind-cpus out."),
    "vllm_ascend": Engine(
        "vLLM-Ascend",
        {"OMP_PROC_BIND": "false"},
        "vLLM-Ascend: add --additional-config '{\"enable_cpu_binding\": false}', and leave --numa-bind out.",
    ),
    "mindie": Engine("MindIE", {"BIND_CPU": "0"}),
    "verl": Engine(
        "verl",
        {"SGLANG_SET_CPU_AFFINITY": "0", "OMP_PROC_BIND": "false"},
        "verl: with rollouts by vLLM-Ascend add +actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.enable_cpu_binding=false.",
    ),
}
SWITCHES = tuple(sorted({name for engine in ENGINES.values() for name in engine.environment}))
