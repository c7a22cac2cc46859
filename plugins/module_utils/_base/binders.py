# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The register of programs that bind themselves, or what they start, to CPUs or memory nodes (2026). Looks at no host.

Settings ``engine``, drop-ins, filter ``launch``, ``verify``, ``npu-affinity exec`` and the table of docs/binders.md read it. To
add a program, add a row to :data:`BINDERS`; if users can name it as ``engine``, one to :data:`ENGINES`, too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from .outside import json_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .documents import Topology

OPENMP = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables with which OpenMP binds the threads of a program.

With OMP_PROC_BIND=false, GCC's runtime ignores the others (libgomp manual, GOMP_CPU_AFFINITY); other runtimes may not.
"""
_ON = ("1", "true", "yes")
_NO_BINDING = ("", "0", "false", "none", "disabled")


class Binder:
    """One program. ``off`` are the variables that disable its binding, ``advice`` is what else to do, and ``signs`` tell it on a host.

    It is on where ``variable`` has a value of ``on`` (None: any but those that mean no), where its command line has one of ``options``,
    or, with ``by_default``, where it runs and neither disables it. ``lacks`` is how sentences call what is missing then. The variable is
    that of ``off`` where none is given, except for a ``launcher``, which binds what it starts.

    ``programs`` are words of its command line, and ``marks`` variables, by which it is known. ``unless`` tells by the command line that it
    is off. ``kinds`` are the devices that matter.
    """

    off: Mapping[str, str] = {}
    memory = signs = advice = variable = lacks = ""
    on: Sequence[str] | None = _ON
    by_default = launcher = False
    programs: Sequence[str] = ()
    marks: Sequence[str] = ()
    options: Sequence[str] = ()
    unless: Callable[[Sequence[str]], bool] | None = None
    kinds: Sequence[str] = ("npu", "gpu")

    def __init__(self, title: str, versions: str, effect: str, source: str, **others: Any) -> None:
        self.title, self.versions, self.effect, self.source = title, versions, effect, source
        vars(self).update(others)
        self.variable = self.variable or ("" if self.launcher else next(iter(self.off), ""))

    @property
    def switches(self) -> str:
        """What to start the program with."""
        return " ".join("%s=%s" % pair for pair in self.off.items())

    @property
    def remedy(self) -> str:
        """What disables its binding, '' if nothing is known."""
        return " and ".join(filter(None, ["start it with %s" % self.switches if self.switches else "", self.advice]))

    def is_on(self, value: str) -> bool:
        """Whether a value of its variable switches the binding on."""
        words = value.strip().lower().split(",")
        return words[0] in self.on if self.on is not None else not set(words) & set(_NO_BINDING)

    def enabled_by(self, environment: Mapping[str, str], command: Sequence[str]) -> str:
        """Return what switches it on in a process with this environment and command line, such as ``with X=1``; '' where nothing does."""
        value = environment.get(self.variable) if self.variable else None
        if value is not None and self.is_on(value) and not self.marks:
            return "with %s=%s" % (self.variable, value)
        if not self._runs(environment, command) or (self.unless and self.unless(command)):
            return ""
        options = [word.partition("=")[0] for word in command if word.partition("=")[0].replace("_", "-") in self.options]
        if options:
            return "with %s" % options[0]
        if value is not None:
            return "with %s=%s" % (self.variable, value) if self.is_on(value) else ""
        return "without %s" % (self.lacks or self.switches) if self.by_default else ""

    def _runs(self, environment: Mapping[str, str], command: Sequence[str]) -> bool:
        return any(name in environment for name in self.marks) or any(
            all(any(names(word, part) for word in command) for part in program.split()) for program in self.programs
        )


def names(word: str, program: str) -> bool:
    """Whether a word of a command line names a program: as its path, as a module or one of its parts, or as the beginning of a title."""
    begins = program + "." if "." in program else program if "::" in program else ""
    return posixpath.basename(word) == program or (bool(begins) and word.startswith(begins))


def _binding_is_off(command: Sequence[str]) -> bool:
    """Whether vLLM-Ascend does not bind by its command line: its configuration disables it, or a file that is not known may do so."""
    given = argument(command, "--additional-config")
    if given is None:
        return argument(command, "--config") is not None
    try:
        return not json_of(given or "{}").get("enable_cpu_binding", True)
    except (AttributeError, ValueError):
        return True


def argument(command: Sequence[str], name: str) -> str | None:
    """Return the value of an argument, given as ``--name value`` or ``--name=value``; None where it is not given."""
    for place, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") == name:
            return value if equals else "".join(command[place + 1 : place + 2])
    return None


VLLM = Binder(
    "vLLM --numa-bind",
    "0.33.0 read, off by default",
    "vLLM binds its processes to nodes itself, and its detection ends in an error within a narrower mask",
    "wheel 0.33.0 utils/numa_utils.py, PR 43270",
    memory="hard bind",
    signs="--numa-bind; _VLLM_INTERNAL_NUMACTL_ARGS",
    advice="leave --numa-bind, --numa-bind-nodes and --numa-bind-cpus out",
    programs=("vllm serve", "vllm.entrypoints"),
    options=("--numa-bind", "--numa-bind-nodes", "--numa-bind-cpus"),
)
VLLM_ASCEND = Binder(
    "vLLM-Ascend",
    "0.15.0rc1 and later, on by default, Arm only",
    "vLLM-Ascend divides its CPUs by all NPUs that it finds, and places threads itself",
    "182b75ea cpu_binding.py, worker.py, PR 8703",
    memory="moves pages once",
    signs="one-CPU masks of acl_thread and release_thread",
    advice="add --additional-config '{\"enable_cpu_binding\": false}', and leave --numa-bind out",
    by_default=True,
    lacks="enable_cpu_binding=false",
    programs=("vllm serve", "vllm.entrypoints"),
    unless=_binding_is_off,
    kinds=("npu",),
)
SGLANG = Binder(
    "SGLang",
    "March 2026 and later, on by default (CUDA, XPU)",
    "SGLang since March 2026 starts its workers under numactl on the first node of their GPU",
    "wheel 0.5.23 srt/utils/numa_utils.py, PRs 19452, 22989",
    memory="hard bind, else preferred",
    signs="/tmp/sglang_temp_file_*.sh, policy of sglang::scheduler",
    off={"SGLANG_AUTO_NUMA_BIND": "0"},
    advice="leave --numa-node out",
    by_default=True,
    programs=("sglang serve", "sglang.launch_server", "sglang::scheduler"),
    options=("--numa-node",),
    kinds=("gpu",),
)
SGLANG_CORES = Binder(
    "SGLang SGLANG_SET_CPU_AFFINITY",
    "off by default, set by scripts for Ascend",
    "SGLang takes cores of the whole host by number, and ends where they are not in its set",
    "sglang issues 20077, 39348, 39552",
    signs="variable",
    off={"SGLANG_SET_CPU_AFFINITY": "0"},
)
TENSORRT_LLM = Binder(
    "TensorRT-LLM",
    "on by default",
    "TensorRT-LLM binds to the CPUs near the GPU, or clears the mask that it inherited",
    "08314e8 configuring-cpu-affinity.md, PRs 9549, 13590",
    signs="leader thread with a narrow mask, older threads without",
    off={"TLLM_NUMA_AWARE_WORKER_AFFINITY": "0"},
    by_default=True,
    programs=("trtllm-serve", "trtllm-bench", "trtllm-llmapi-launch", "tensorrt_llm.commands"),
    kinds=("gpu",),
)
MINDIE = Binder(
    "MindIE",
    "on by default",
    "MindIE divides the CPUs of its NPU's node itself",
    "MindIE-LLM environment_variable.md, atb_llm/utils/cpu_binding.py",
    signs="ATB_SPEED_HOME_PATH",
    off={"BIND_CPU": "0"},
    by_default=True,
    marks=("ATB_SPEED_HOME_PATH",),
)
MINDSPORE = Binder(
    "MindSpore runtime.set_cpu_affinity",
    "2.10 read; on call",
    "MindSpore divides the CPUs near the NPU by modules of its own",
    "MindSpore 2.10 API",
    signs="masks by thread",
    advice="do not call mindspore.runtime.set_cpu_affinity",
    kinds=("npu",),
)
TORCH_NPU = Binder(
    "torch_npu CPU_AFFINITY_CONF",
    "off by default; ranges join from 26.1.0",
    "torch_npu places its threads on ranges or on its part of the host",
    "9e73e708a NPUAffinityController.cpp, NPUInterruptAffinity.cpp",
    signs="variable",
    advice="unset CPU_AFFINITY_CONF, or give it the CPUs of the plan (launch, form torch_npu)",
    variable="CPU_AFFINITY_CONF",
    on=(),
    kinds=("npu",),
)
NEMO_RL = Binder(
    "NeMo-RL",
    "0.8, on by default",
    "NeMo-RL binds its Ray workers to the CPUs near the GPU",
    "7ea279a numa_utils.py",
    memory="hard bind, 0.8 preferred",
    signs="NRL_GPU_CPU_AFFINITY_FILE, /tmp/nrl_gpu_cpu_affinity",
    off={"NRL_DISABLE_NUMA_BINDING": "1"},
    on=("", "0", "false"),
    by_default=True,
    marks=("NRL_GPU_CPU_AFFINITY_FILE",),
    kinds=("gpu",),
)
DYNAMO = Binder(
    "Dynamo KVBM",
    "1.2.1 read, on by default",
    "Dynamo places the threads that fill pinned memory on the node of the GPU",
    "dynamo-memory 1.2.1",
    memory="pinned memory on that node",
    off={"DYN_MEMORY_DISABLE_NUMA": "1"},
    on=(),
    kinds=("gpu",),
)
DLROVER = Binder(
    "DLRover --numa-affinity",
    "off by default",
    "DLRover binds each worker to the CPUs near its device, by rank",
    "dlrover issue 1386",
    signs="argument of dlrover-run",
    advice="leave --numa-affinity out",
    programs=("dlrover-run",),
    options=("--numa-affinity",),
    launcher=True,
)
UCM = Binder(
    "UCM",
    "off by default",
    "UCM divides the CPUs near the device between worker and store",
    "unified-cache-management PRs 854, 865, split_cores",
    signs="variable",
    advice="unset VLLM_CPU_AFFINITY",
    variable="VLLM_CPU_AFFINITY",
    on=("1",),
    kinds=("npu",),
)
VERL = Binder(
    "verl",
    "b178a3c: only its VLA environments",
    "verl leaves CPUs alone, and its rollout engine can bind",
    "verl b178a3c set_numa_affinity",
    memory="hard bind (VLA)",
    advice="with rollouts by vLLM-Ascend add +actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.enable_cpu_binding=false",
)
XLLM = Binder(
    "xLLM",
    "on by default (CUDA, MLU, DCU)",
    "xLLM binds engine, workers and thread pools to the node of the device",
    "87e8d6e numa_utils.cpp",
    memory="hard bind, moves pages",
    signs="policy; thread pools on one CPU each",
    advice="no switch is known",
    kinds=("gpu",),
)
OPENMP_BINDER = Binder(
    "OpenMP",
    "off by default",
    "OpenMP puts the process on one CPU before it looks at its CPUs",
    "libgomp manual, vllm-ascend PR 11307",
    signs=", ".join(OPENMP),
    off={"OMP_PROC_BIND": "false"},
    on=None,
    kinds=("npu",),
)
TORCHRUN = Binder(
    "torchrun --numa-binding",
    "2.11.0 read, off by default",
    "torchrun binds each rank to the node, socket or cores of its GPU, and counts an unknown node as 0",
    "torch 2.11.0 numa/binding.py",
    signs="argument of torchrun",
    advice="leave --numa-binding out",
    programs=("torchrun", "torch.distributed.run"),
    options=("--numa-binding",),
    launcher=True,
)
SLURM = Binder(
    "Slurm task/affinity, task/cgroup",
    "by TaskPlugin",
    "Slurm binds each task before it starts; with ConstrainCores in a cpuset",
    "srun(1), slurm.conf(5)",
    signs="SLURM_CPU_BIND, SLURM_JOB_ID",
    off={"SLURM_CPU_BIND": "none"},
    advice="srun --cpu-bind=none leaves the cpuset",
    launcher=True,
)
OPENMPI = Binder(
    "Open MPI",
    "on by default",
    "mpirun starts each rank on one core (up to 2 ranks) or one socket",
    "mpirun(1) of 4.1.4",
    signs="OMPI_COMM_WORLD_LOCAL_RANK, mask of one core",
    advice="mpirun --bind-to none",
    launcher=True,
)
MPICH = Binder(
    "MPICH, Intel MPI",
    "MPICH: off by default; Intel MPI: on",
    "mpiexec starts ranks on cores with -bind-to; Intel MPI pins by default",
    "MPICH 4.0.2 manual; Intel's default was not verified",
    signs="MPI_LOCALRANKID, PMI_RANK",
    off={"I_MPI_PIN": "0"},
    advice="leave -bind-to out",
    launcher=True,
)
BINDERS = (
    *(VLLM, VLLM_ASCEND, SGLANG, SGLANG_CORES, TENSORRT_LLM, MINDIE, MINDSPORE, TORCH_NPU, NEMO_RL, DYNAMO, UCM, VERL, XLLM),
    *(OPENMP_BINDER, TORCHRUN, DLROVER, SLURM, OPENMPI, MPICH),
)
OFF = {name: value for binder in BINDERS if not binder.launcher for name, value in binder.off.items() if binder is not DYNAMO}
"""Variables that ``npu-affinity exec`` sets: they keep a program from moving itself. Dynamo places memory only, near the same GPU."""
SWITCHES = tuple(sorted({name for binder in BINDERS if not binder.launcher for name in binder.off}))


ARM = ("aarch64", "arm64")
NPUS_ONLY = "vLLM-Ascend's workers do so for NPUs only"


def other_architecture(topology: Topology) -> str:
    """Return the architecture of a host that is not Arm, else ''."""
    architecture = (topology.get("machine") or {}).get("architecture")
    return str(architecture) if architecture and architecture not in ARM else ""


def why_unbound(topology: Topology) -> str:
    """Return why workers of this host do not bind themselves at all, or '' where they do."""
    architecture = other_architecture(topology)
    if architecture:
        return f"vLLM-Ascend's workers do so on Arm only, and this host is {architecture}"
    if any(npu.get("kind") == "gpu" for npu in topology["npus"]):
        return f"{NPUS_ONLY}, and this host has GPUs"
    return ""


class Engine:
    """What a user can name as ``engine``: ``environment`` disables its binding, ``arguments`` says what else to run, or is empty."""

    def __init__(self, title: str, *binders: Binder) -> None:
        self.title = title
        self.binders = binders
        self.environment = {name: value for binder in binders for name, value in binder.off.items()}
        advice = next((binder.advice for binder in binders if binder.advice), "")
        self.arguments = "%s: %s." % (title, advice) if advice else ""


ENGINES = {
    "dynamo": Engine("Dynamo", DYNAMO),
    "mindie": Engine("MindIE", MINDIE),
    "mindspore": Engine("MindSpore", MINDSPORE),
    "nemo_rl": Engine("NeMo-RL", NEMO_RL),
    "sglang": Engine("SGLang", SGLANG, SGLANG_CORES),
    "tensorrt_llm": Engine("TensorRT-LLM", TENSORRT_LLM),
    "verl": Engine("verl", VERL, SGLANG, SGLANG_CORES, OPENMP_BINDER),
    "vllm": Engine("vLLM", VLLM),
    "vllm_ascend": Engine("vLLM-Ascend", VLLM_ASCEND, OPENMP_BINDER),
}
