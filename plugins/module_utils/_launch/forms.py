# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which a workload is launched on a host, as data: what each writes, which options it takes, when it refuses.

Texts, notes and refusals are templates (``filling.py``) of facts (``facts.py``).
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence, Type

from .facts import Facts
from .filling import command, file
from .slurm import SlurmFacts


class Form(NamedTuple):
    """``write`` fills in ``text``. The first of ``refusals`` that is there refuses; ``notes`` stand above the text.

    ``starts`` tells texts that start the workload from those that only prepare its host. In Kubernetes (``for_pods``) the kubelet or its
    neighbours give CPUs to pods, so that pods on them are no contradiction.
    """

    write: Callable[[Any, Facts], str]
    text: Any
    options: Sequence[str] = ()
    notes: Sequence[str] = ()
    refusals: Sequence[str] = ()
    facts: Type[Facts] = Facts
    starts: bool = True
    for_pods: bool = False


_PROGRAM = ("visible_devices", "engine", "environment")
_CONTAINER = ("image", "command", "devices", "npu_smi", "library", *_PROGRAM)
_WITH_RUNTIME = (*_CONTAINER, "ascend_runtime", "vnpu")
_UNSURE = "Device files count up from 0 like logic ids, and nothing else shows their numbers ({assumed}): check them on the host."
_NOTES = (
    _UNSURE,
    "The limiter must run before: systemctl start {limiter}",
    "Device share must be on for its card: npu-smi info -t device-share -i <card>.{soft_share:?}",
)
_NO_DEVICES = (
    "{title} names no NPU or GPU, so its devices are unknown; give npus, or devices=false{gives_devices:?}{cards:!}",
    "{title}: GPU {mig.id} is in MIG mode; give devices=false and pass one of its MIG devices: {mig.parts}",
)
_NO_RUNTIME = (
    "vnpu: only the Ascend Docker Runtime splits an NPU into {vnpu}; add ascend_runtime=true{by_runtime:!}",
    "ascend_runtime: {title} is not an NPU, and the Ascend Docker Runtime serves only NPUs{ascend_runtime:?}{is_gpu:?}",
    "vnpu: {title} is a part in soft split already; {vnpu} would split its NPU a second time{share:?}",
    *_NO_DEVICES,
)
_UNKNOWN_IDS = (
    "Set ASCEND_RT_VISIBLE_DEVICES: device nodes are numbered by physical id, and only topology has the logic ids.{unknown_ids:?}",
)
_SETS = "--name={name} --cgroup-parent={slice} --cpuset-cpus={cpus} --cpuset-mems={mems}"
_GIVEN = "--device={nodes} --volume={volumes} --env={variables} {arguments} {image} {command}"
_START = "env{variables:?} {variables} {program}"

FORMS = {
    **{
        name: Form(command, f"{name} run {_SETS} --gpus={{gpu_request}} {_GIVEN}", (*_WITH_RUNTIME, "arguments"), _NOTES, _NO_RUNTIME)
        for name in ("docker", "nerdctl")
    },
    "podman": Form(  # as root: rootless containers cannot join the slices of the system
        command, f"podman run {_SETS} --device=nvidia.com/gpu={{gpus}} {_GIVEN}", (*_CONTAINER, "arguments"), _NOTES, _NO_DEVICES
    ),
    "ctr": Form(  # with the systemd cgroup driver of runc
        command,
        "ctr run --runc-systemd-cgroup{slice:?} --cgroup={slice}:ctr:{object_name} --cpuset-cpus={cpus}{has_sets:?} "
        "--cpuset-mems={mems}{has_sets:?} --gpus={gpus} --device={nodes} "
        "--mount=type=bind,src={mounts.source},dst={mounts.target},options=rbind:{mounts.mode} --env={variables} "
        "{arguments} {image} {object_name} {command}",
        (*_CONTAINER, "arguments", "containerd_version"),
        (*_NOTES, "ctr of containerd 2.4.0 splits --mount and --env at commas and fails; use a later one.{splits_at_commas:?}"),
        (
            "{title}: ctr of containerd {containerd_version} has no flags for CPU sets, and no slice holds CPUs {cpus} for this workload "
            "alone; use nerdctl, or containerd 2.0 and containerd_version='2.0'{has_sets:!}{held_by_slice:!}",
            *_NO_DEVICES,
        ),
    ),
    "compose": Form(
        file,
        (
            """\
services:
  {object_name:yaml}:
    image: {image:compose}
    cgroup_parent: {slice:yaml}
    cpuset: {cpus:yaml}
    deploy:{gpus:?}
      resources:{gpus:?}
        reservations:{gpus:?}
          devices:{gpus:?}
          - driver: nvidia{gpus:?}
            device_ids:{gpus:?}
            - '{gpus}'
            capabilities:{gpus:?}
            - gpu{gpus:?}
    devices:{nodes:?}
    - {nodes}:{nodes}
    volumes:{volumes:?}
    - {volumes:yaml}
    environment:{variables:?}
      {pairs.name}: {pairs.value:yaml}
    command:{command:?}
    - {command:compose}
""",
        ),
        _WITH_RUNTIME,
        (
            *_NOTES,
            "Compose has no key for memory nodes and no slice holds them: memory is not bound to nodes {mems}.{held_by_slice:!}",
        ),
        _NO_RUNTIME,
    ),
    "quadlet": Form(  # it runs with --cgroups=split inside its service, so the service is put into the slice; old runtimes hand masks down
        file,
        (
            """\
[Container]
Image={image:unit}
ContainerName={name}
PodmanArgs={podman_arguments:line}
AddDevice=nvidia.com/gpu={gpus}
AddDevice={nodes}
Volume={volumes}
Environment={variables}
Exec={command:line}

[Service]
Slice={slice}
CPUAffinity=
CPUAffinity={all_cpus}
""",
        ),
        (*_CONTAINER, "arguments"),
        (
            "Save it as /etc/containers/systemd/{object_name}.container, then: systemctl daemon-reload",
            "At boot it starts with a section [Install] and WantedBy=multi-user.target in it.",
            *_NOTES,
        ),
        (
            "{title}: Quadlet needs cgroup v2, which this host does not have; use podman{sets_cpus:!}",
            "arguments: Quadlet splits the cgroup of its service, which Slice= puts into the slice; leave --cgroup-parent out"
            "{has_parent:?}",
            *_NO_DEVICES,
        ),
    ),
    "systemd": Form(
        file,
        ("[Service]\n{emptied}=\nSlice={slice}\n{settings_of_service}\nEnvironment={variables}",),
        _PROGRAM,
        (
            "Paste it into the editor of: systemctl edit {service}. It takes effect when the service is restarted.",
            *_UNKNOWN_IDS,
        ),
    ),
    "systemd_run": Form(
        command,
        f"systemd-run --scope --slice={{slice}} --unit={{name}}.scope --property={{settings}} -- {_START}",
        ("command", *_PROGRAM),
        _UNKNOWN_IDS,
        ("{title}: systemd cannot hold CPU sets for a scope on this host (cgroup v1); use numactl or taskset{sets_cpus:!}",),
    ),
    "taskset": Form(
        command,
        f"taskset --cpu-list {{cpus}} {_START}",
        ("command", *_PROGRAM),
        ("taskset does not bind memory to nodes {mems}; numactl does.", *_UNKNOWN_IDS),
    ),
    "numactl": Form(command, f"numactl --physcpubind={{cpus}} {{numactl_memory}} -- {_START}", ("command", *_PROGRAM), _UNKNOWN_IDS),
    # Ascend/pytorch@9e73e708a NPUAffinityController.cpp: mode 2 gives the four lowest CPUs of an NPU's range to the main thread, ACL,
    # release and the HCCL watchdog, one each, and the rest to all others. npu<N> counts visible devices, in two digits. Several ranges of
    # an NPU are a union from 26.1.0 on; before, the last one wins. When a CPU of any visible device's range is not in the mask of the
    # process, nothing is bound.
    "torch_npu": Form(
        file,
        ("{variables}\nCPU_AFFINITY_CONF=2,{thread_ranges}",),
        ("torch_npu_version", *_PROGRAM),
        (
            "Lines of an environment file. The mask of the process must hold all of CPUs {cpus}, or torch_npu binds nothing.",
            "torch_npu places the threads: leave npu_affinity_threads_enabled off, or these processes are skipped. Leave bind_irq out, "
            "which moves the interrupts and stops irqbalance.",
            *_UNKNOWN_IDS,
        ),
        (
            "{title} names no NPU, and torch_npu binds to NPUs; give npus{npus:!}",
            "{title} has {too_many} NPUs, and CPU_AFFINITY_CONF has room for 100",
        ),
    ),
    "slurm": Form(
        file,
        (
            "NodeName={node_name} Name={kind} File={lines.file} Cores={lines.cores}",
            "Name={kind} File={lines.file} Cores={lines.cores}{node_name:!}",
        ),
        ("slurm_version", "slurm_sockets"),
        (
            "slurm.conf needs {conf.as_socket}NodeName={conf.node} CPUs={conf.cpus} Sockets={conf.sockets} CoresPerSocket={conf.cores} "
            "ThreadsPerCore={conf.threads} Gres={kind}:{conf.devices}; without it Slurm drains the node (core specification doesn't match "
            "socket boundaries).",
            "Compare with Core L# of lstopo -l on the host. A job that must have no other cores asks for --gres-flags=enforce-binding.",
            "CpuSpecList={busy} of the node in slurm.conf keeps jobs off the cores that take interrupts, in numbers of Slurm.",
            "Slurm takes whole {conf.socket}s only: {shared} besides its own. Which of them a job gets, Slurm decides, unless a TaskProlog "
            "binds it to the CPUs of its NPU (docs/workloads.md has one).",
            "CPUs {left_out} are left out: other threads of their cores are not in the pool.",
            _UNSURE,
        ),
        (
            "{title}: Slurm counts whole cores, and CPUs are all that a plan has; give topology{topology:!}",
            "{title} names no NPU, and gres.conf has a line for each; give npus{cards:!}",
        ),
        SlurmFacts,
        starts=False,
    ),
}
