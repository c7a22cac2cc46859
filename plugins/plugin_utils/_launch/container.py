# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a container gets besides its program: CPU sets, device nodes, mounts and variables.

Device nodes and mounts: vllm-project/vllm-ascend@182b75ea ``docs/source/installation.md``. Ascend Docker Runtime:
``ASCEND_VISIBLE_DEVICES`` (physical ids), ``ASCEND_RUNTIME_OPTIONS`` and ``ASCEND_VNPU_SPECS`` replace both and say nothing about CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._host.installed import ARCHIVE, COMMAND, placed
from ansible_collections.npu.affinity.plugins.module_utils._smi.driver import VERSION_FILE
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_environment import visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._launch import fitted
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload

OPTIONS = frozenset({"image", "command", "arguments", "devices", "npu_smi", "library", "visible_devices", "engine", "environment"})
ASCEND_RUNTIME = frozenset({"ascend_runtime", "vnpu"})
DEVICES_OF_ALL = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
DRIVER = (
    "/usr/local/Ascend/driver/lib64/",
    VERSION_FILE,
    "/etc/ascend_install.info",
)


@dataclass(frozen=True)
class Devices:
    """What a container needs to use its NPUs or GPUs. ``gpus`` are ids, ``volumes`` are ``host:container[:ro]``."""

    gpus: Sequence[int] = ()
    nodes: Sequence[str] = ()
    volumes: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def devices(workload: Workload, options: Options) -> Devices:
    """Return what the options ask for. Raises ``ValueError`` where they contradict each other or the workload."""
    found = _devices(workload, options)
    tuned = fitted.environment(workload, options, contained=True)
    environment = {**found.environment, **tuned, **options.switches}
    return replace(found, environment=environment, volumes=[*found.volumes, *_host_code(workload, options)])


def _refuse_mig(workload: Workload) -> None:
    """Refuse a GPU in MIG mode: a container gets one of its MIG devices, and nothing here tells which."""
    ids = {card.id for card in workload.cards}
    for gpu in (workload.topology or {}).get("npus") or ():
        if gpu.get("kind") == "gpu" and gpu["id"] in ids and "mig" in gpu:
            parts = ", ".join(gpu["mig"]) or "none (nvidia-smi mig creates them)"
            raise ValueError(
                f"{workload.title}: GPU {gpu['id']} is in MIG mode; give devices=false and pass one of its MIG devices: {parts}"
            )


def _devices(workload: Workload, options: Options) -> Devices:
    if options.vnpu and not (options.ascend_runtime and options.devices):
        raise ValueError(f"vnpu: only the Ascend Docker Runtime splits an NPU into {options.vnpu}; add ascend_runtime=true")
    if options.ascend_runtime and workload.kind == "gpu":
        raise ValueError(f"ascend_runtime: {workload.title} is no NPU, and the Ascend Docker Runtime serves none but NPUs")
    if options.vnpu and workload.share:
        raise ValueError(f"vnpu: {workload.title} is a part in soft split already; {options.vnpu} would split its NPU a second time")
    if not options.devices:
        return Devices(**_of_share(workload))
    if not workload.cards:
        raise ValueError(f"{workload.title} names no NPU or GPU, so its devices are unknown; give npus, or devices=false")
    visible = _visible(workload, options)
    if workload.kind == "gpu":
        _refuse_mig(workload)
        return Devices(gpus=[card.number if card.id is None else card.id for card in workload.cards], environment=visible)
    numbers = [str(card.number) for card in workload.cards]
    share = _of_share(workload)
    share["environment"] = {**visible, **share["environment"]}
    notes = [*unsure(workload), *share["notes"]]
    if options.ascend_runtime:
        split = {"ASCEND_VNPU_SPECS": options.vnpu} if options.vnpu else {}
        # Empty, so that what an image may have set does not count.
        environment = {"ASCEND_VISIBLE_DEVICES": ",".join(numbers), "ASCEND_RUNTIME_OPTIONS": "", **split, **share["environment"]}
        return Devices(environment=environment, volumes=share["volumes"], notes=notes)
    own = workload.share.devices if workload.share else ()
    nodes = [*(own or (f"/dev/davinci{number}" for number in numbers)), *DEVICES_OF_ALL]
    volumes = [f"{path}:{path}" for path in ("/usr/local/dcmi", options.npu_smi, *DRIVER)]
    return Devices(nodes=nodes, volumes=volumes + share["volumes"], environment=share["environment"], notes=notes)


def _host_code(workload: Workload, options: Options) -> list[str]:
    """Return the mounts by which a program in the container can be started by npu-affinity exec; none where no plan is in force.

    Where a file is missing, engines would make a folder in its place.
    """
    if not workload.topology.get("applied"):
        return []
    return [f"{path}:{path}:ro" for path in (*(placed(path, options.library) for path in (COMMAND, ARCHIVE)), PATH)]


def _visible(workload: Workload, options: Options) -> dict[str, str]:
    """Return what confines the program to its devices: inside they are numbered from 0, unless a privileged container sees all of them."""
    if not options.visible_devices:
        return {}
    if any(argument in ("--privileged", "--privileged=true") for argument in options.arguments):
        return workload.visible_on_host
    return visible_devices(workload.kind, range(len(workload.cards)))


def _of_share(workload: Workload) -> dict[str, Any]:
    """Return what a vNPU's container needs besides devices and driver."""
    if workload.share is None:
        return {"volumes": [], "environment": {}, "notes": []}
    if workload.share.devices:
        return {"volumes": [], "environment": dict(workload.share.environment), "notes": []}
    notes = ["Device share must be on for its card: npu-smi info -t device-share -i <card>."]
    if workload.share.limiter:
        notes.insert(0, f"The limiter must run before: systemctl start {workload.share.limiter}")
    return {"volumes": list(workload.share.volumes), "environment": dict(workload.share.environment), "notes": notes}


def unsure(workload: Workload) -> list[str]:
    """Return a sentence where nothing but the names of all device files tells their numbers."""
    if not any(card.assumed for card in workload.cards):
        return []
    numbers = ", ".join(str(card.number) for card in workload.cards)
    return [f"Device files count up from 0 like logic ids, and nothing else tells their numbers ({numbers}): check them on the host."]


def cpuset(workload: Workload) -> list[str]:
    return [f"--cpuset-cpus={workload.cpus}", *([f"--cpuset-mems={workload.mems}"] if workload.mems else [])]


def by_gpu_name(gpus: Sequence[int]) -> list[str]:
    """Return GPUs by their names of the Container Device Interface."""
    return [f"nvidia.com/gpu={number}" for number in gpus]
