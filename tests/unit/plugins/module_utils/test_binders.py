# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The register of programs that bind themselves: what switches each on, by its environment and command line."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base import binders
from ansible_collections.npu.affinity.plugins.module_utils._base.binders import ENGINES


def on(environment, command):
    """Return the titles of what is on, with how."""
    found = {one.title: one.enabled_by(environment, command.split()) for one in binders.BINDERS}
    return {title: how for title, how in found.items() if how}


ROWS = [
    ({}, "python3 serve.py", {}),
    ({}, "python3 -m sglang.launch_server --model m", {"SGLang": "without SGLANG_AUTO_NUMA_BIND=0"}),
    ({}, "sglang::scheduler_TP0_EP0", {"SGLang": "without SGLANG_AUTO_NUMA_BIND=0"}),
    ({"SGLANG_AUTO_NUMA_BIND": "0"}, "sglang serve m", {}),
    ({"SGLANG_AUTO_NUMA_BIND": "0"}, "sglang serve m --numa-node 0", {"SGLang": "with --numa-node"}),
    ({"SGLANG_SET_CPU_AFFINITY": "True"}, "x", {"SGLang SGLANG_SET_CPU_AFFINITY": "with SGLANG_SET_CPU_AFFINITY=True"}),
    ({}, "/opt/venv/bin/trtllm-serve m", {"TensorRT-LLM": "without TLLM_NUMA_AWARE_WORKER_AFFINITY=0"}),
    ({"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"}, "trtllm-serve m", {}),
    ({"TLLM_NUMA_AWARE_WORKER_AFFINITY": "1"}, "trtllm-serve m", {"TensorRT-LLM": "with TLLM_NUMA_AWARE_WORKER_AFFINITY=1"}),
    ({"NRL_GPU_CPU_AFFINITY_FILE": "/x"}, "ray::worker", {"NeMo-RL": "without NRL_DISABLE_NUMA_BINDING=1"}),
    ({"NRL_GPU_CPU_AFFINITY_FILE": "/x", "NRL_DISABLE_NUMA_BINDING": "1"}, "ray::worker", {}),
    ({"BIND_CPU": "1"}, "x", {}),
    ({"ATB_SPEED_HOME_PATH": "/x", "BIND_CPU": "1"}, "x", {"MindIE": "with BIND_CPU=1"}),
    ({"ATB_SPEED_HOME_PATH": "/x"}, "x", {"MindIE": "without BIND_CPU=0"}),
    ({"ATB_SPEED_HOME_PATH": "/x", "BIND_CPU": "0"}, "x", {}),
    ({"VLLM_CPU_AFFINITY": "1"}, "x", {"UCM": "with VLLM_CPU_AFFINITY=1"}),
    ({"OMP_PROC_BIND": "close,spread"}, "x", {"OpenMP": "with OMP_PROC_BIND=close,spread"}),
    ({"OMP_PROC_BIND": "FALSE"}, "x", {}),
    ({}, "torchrun --numa-binding=node t.py", {"torchrun --numa-binding": "with --numa-binding"}),
    ({}, "dlrover-run --numa_affinity t.py", {"DLRover --numa-affinity": "with --numa_affinity"}),
    ({}, "numactl --numa-binding t.py", {}),
    ({}, "vllm serve m --config c.yaml", {}),
    ({"": ""}, "vllm serve m", {"vLLM-Ascend": "without enable_cpu_binding=false"}),
    ({"": ""}, "python3 -m vllm.entrypoints.openai.api_server --additional-config={}", {"vLLM-Ascend": "without enable_cpu_binding=false"}),
    ({"": ""}, 'vllm serve m --additional_config {"enable_cpu_binding":false}', {}),
    ({"": ""}, "vllm bench serve --additional-config {", {}),
    ({"": ""}, "serve vllm.toml", {}),
    ({}, "vllm serve m --config=a --numa-bind-cpus all", {"vLLM --numa-bind": "with --numa-bind-cpus"}),
    ({}, 'vllm serve m --additional-config {"enable_cpu_binding":false} --numa-bind', {"vLLM --numa-bind": "with --numa-bind"}),
]


@pytest.mark.parametrize("environment, command, found", ROWS)
def test_a_binder_is_found_by_variable_argument_or_program(environment, command, found):
    assert on(environment, command) == found


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_told_to_be_off_is_off(name):
    programs = {part for one in ENGINES[name].binders for part in one.programs}
    marks = {mark: "/x" for one in ENGINES[name].binders for mark in one.marks}
    for program in programs or {"x"}:
        assert set(on({**ENGINES[name].environment, **marks}, program)) <= {"vLLM-Ascend"}  # which no variable switches off


def test_every_row_is_complete():
    for one in binders.BINDERS:
        assert one.title and one.versions and one.effect and one.source and (one.off or one.advice), one.title
        assert one.memory or "memory" not in one.effect, one.title
        assert vars(one).keys() - {"title", "versions", "effect", "source"} <= vars(binders.Binder).keys(), one.title
