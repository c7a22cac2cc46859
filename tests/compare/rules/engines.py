# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What inference engines bind their workers to, one for each card.

vLLM's ``--numa-bind`` and both bindings of SGLang are those of the released packages. What they read of the host is stubbed, and what
they decide is recorded: the page can be made without them. TensorRT-LLM is restated, because the index of pip has no package
of it: NVIDIA/TensorRT-LLM@08314e8e, ``docs/source/deployment-guide/configuring-cpu-affinity.md``, without
``TLLM_NUMA_AWARE_WORKER_AFFINITY``. A worker gets the CPUs near its GPU, or all if something has restricted them.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from itertools import chain
from types import SimpleNamespace
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of, mask, mask_of, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare import packages
from tests.compare.rules import Rule, found_for, save
from tests.compare.machines import Subject

FILE = pathlib.Path(__file__).parents[1] / "engines.json"
VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
SOURCES = {"vllm": ["vllm/utils/numa_utils.py"], "sglang": ["sglang/srt/utils/common.py", "sglang/srt/utils/numa_utils.py"]}
NUMACTL = re.compile(r"--(physcpubind|cpunodebind)=(\S+)")


def recorded() -> dict[str, Any]:
    """Return ``{versions, sets}``: for every machine by its digest and every rule, CPU lists by card with blanks between them, or
    ``{refused: sentence}``.
    """
    return json.loads(FILE.read_text())


def record(subjects: list[Subject]) -> None:
    """Run the programs on these machines and record what they bind to. Raises one of ``packages.CONNECTION_FAILED`` without packages."""
    for package in SOURCES:
        _source(package)
    sets = {
        subject.digest: {rule.name: _outcome(PROGRAMS[rule.name], subject) for rule in RULES[:-1] if rule.is_for(subject)}
        for subject in subjects
    }
    save(FILE, sets, versions=VERSIONS)


def _source(package: str) -> pathlib.Path:
    return packages.files(package, VERSIONS[package], SOURCES[package])


def _outcome(divide: Callable[[Subject], list[int]], subject: Subject) -> str | dict[str, str]:
    try:
        return " ".join(map(text_of, divide(subject)))
    except (OSError, RuntimeError) as refusal:
        return {"refused": str(refusal)}


def _sglang_slices(subject: Subject) -> list[int]:
    """Run ``set_gpu_proc_affinity`` (``SGLANG_SET_CPU_AFFINITY``) for one server with one rank for each card."""
    machine, bound = subject.machine, list[int]()

    def bind(cpus: list[int] | None = None) -> None:
        if cpus is not None:
            bound.append(mask_of(cpus) & machine.usable)
            if not bound[-1]:
                raise OSError(f"CPUs {text_of(mask_of(cpus))} are not eligible")

    counts = {True: machine.online.bit_count(), False: machine.cores(machine.online).bit_count()}
    stubs = {
        "os": os,
        "itertools": SimpleNamespace(chain=chain),
        "logger": packages.QUIET,
        "get_parallel": lambda: SimpleNamespace(nnodes=1, pp_size=1, tp_size=len(subject.cards)),
        "psutil": SimpleNamespace(Process=lambda _pid: SimpleNamespace(cpu_affinity=bind), cpu_count=lambda logical=True: counts[logical]),
    }
    source = _source("sglang") / "common.py"
    tree = ast.parse(source.read_text())
    tree.body = [part for part in tree.body if getattr(part, "name", "") == "set_gpu_proc_affinity"]
    exec(compile(tree, str(source), "exec"), stubs)
    for number in range(len(subject.cards)):
        stubs["set_gpu_proc_affinity"](number)  # type: ignore[operator]
    return bound


def _sglang_nodes(subject: Subject) -> list[int]:
    always = SimpleNamespace(get=lambda: True)
    stubs = {
        "torch": {},
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.environ": {
            "envs": SimpleNamespace(SGLANG_AUTO_NUMA_BIND=always, SGLANG_NUMA_BIND_V2=always, SGLANG_CRASH_ON_NUMA_BIND_FAILURE=always)
        },
        "sglang.srt.server_args": {"ServerArgs": None},
        "sglang.srt.utils": {"get_cpu_ids_by_node": None, "is_cuda": lambda: True, "is_xpu": lambda: False},
    }
    with packages.loaded(_source("sglang") / "numa_utils.py", stubs) as program:
        program.os = SimpleNamespace(sched_getaffinity=lambda _pid: set(cpus_of(subject.machine.usable)))
        program._is_numa_available = lambda: 1 in subject.machine.nodes
        program._query_numa_node_for_gpu = lambda number: [subject.cards[number].numa]
        program._node_cpus = lambda node: set(cpus_of(subject.machine.nodes[node].cpus))
        asked = SimpleNamespace(numa_node=None)
        nodes = [program.get_numa_node_if_available(asked, number) for number in range(len(subject.cards))]
        return [_of_numactl(subject, program._numactl_cpu_mem_args(node, number)) for number, node in enumerate(nodes)]


def _vllm(subject: Subject) -> list[int]:
    cpus, online = cpus_of(subject.machine.usable), subject.machine.online.bit_count()
    nodes = [card.numa for card in subject.cards]
    stubs = {
        "psutil": {
            "Error": OSError,
            "Process": lambda _pid: SimpleNamespace(cpu_affinity=lambda: cpus),
            "cpu_count": lambda: online,
        },
        "vllm": {"envs": None},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cuda_alike=lambda: True, get_all_device_numa_nodes=lambda: nodes)},
    }
    asked = SimpleNamespace(numa_bind_nodes=None, numa_bind_cpus=None, get_local_gpu_index=lambda rank, _shard: rank)
    with packages.loaded(_source("vllm") / "numa_utils.py", stubs) as program:
        program.os = SimpleNamespace(getpid=os.getpid, path=SimpleNamespace(isdir=lambda _path: 1 in subject.machine.nodes))
        program._can_set_mempolicy = lambda: True
        program._PROC_CPUINFO_PATH = os.devnull
        return [_of_numactl(subject, program._get_numactl_worker_args(asked, rank)) for rank in range(len(subject.cards))]


def _of_numactl(subject: Subject, arguments: str) -> int:
    """Return the CPUs that numactl's arguments give to a process."""
    found = NUMACTL.search(arguments)
    assert found, arguments
    cpus = mask(found[2]) if found[1] == "physcpubind" else subject.machine.nodes[int(found[2])].cpus
    return cpus & subject.machine.usable


def _tensorrt(subject: Subject) -> Mapping[Card, int]:
    restricted = subject.machine.usable != subject.machine.online
    return {card: subject.machine.usable if restricted else subject.near(card) for card in subject.cards}


def _as_recorded(name: str) -> Callable[[Subject], Mapping[Card, int]]:
    def divide(subject: Subject) -> Mapping[Card, int]:
        found = found_for(subject, recorded()["sets"], name)[name]
        if not isinstance(found, str):
            raise ValueError(found["refused"])
        return dict(zip(subject.cards, map(mask, found.split()), strict=True))

    return divide


PROGRAMS: dict[str, Callable[[Subject], list[int]]] = {
    "SGLang, slices": _sglang_slices,
    "SGLang, automatic": _sglang_nodes,
    "vLLM, --numa-bind": _vllm,
}
RULES = (
    *(Rule(name, _as_recorded(name), ("npu", "gpu") if name == "SGLang, slices" else ("gpu",)) for name in PROGRAMS),
    Rule("TensorRT-LLM, automatic", _tensorrt, ("gpu",)),
)
