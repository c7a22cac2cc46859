# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the accelerators that a process can open its runtime shows to it, in what order it numbers them, and which one is its own.

Sources: CANN manual, ASCEND_RT_VISIBLE_DEVICES; CUDA C++ programming guide, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; NVML manual (MIG).
Slurm sets CUDA_VISIBLE_DEVICES, too: from 0 on with ConstrainDevices, where a process cannot open the other files, else as in gres.conf.

Of what launchers give a rank when they start it: PyTorch ``local_elastic_agent.py``; Open MPI 5.0 and MPICH manuals; srun(1); DeepSpeed
``launch.py``; MindIE-LLM ``executor.cpp``; xLLM ``spawn_worker_server_process.cpp``. PMI_RANK and RANK count over all hosts, and say
nothing here.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence

from .devices import GPU, NPU, Accelerator

VARIABLES = {NPU: "ASCEND_RT_VISIBLE_DEVICES", GPU: "CUDA_VISIBLE_DEVICES"}
ORDER = "CUDA_DEVICE_ORDER"
BY_PCI = "PCI_BUS_ID"
RANKS = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""The inner launcher first: srun gives 0 to a torchrun that it starts."""
_OPTIONS = ("--npu_device_id", "--devices", "--local_rank", "--local-rank")
_PLACES = {"spawn_worker": 5, "mindieservice_backend_connector": 3}
"""Programs with the index of the device in this place of their arguments."""


def visible(kind: str, there: Sequence[Accelerator], environment: Mapping[str, str]) -> list[Accelerator]:
    """Return the accelerators that a process sees, in its order. Raises ``ValueError`` where its variables do not tell them."""
    text = environment.get(VARIABLES[kind])
    if kind == GPU:
        return _gpus(there, text, environment.get(ORDER))
    return list(there) if text is None else _npus(there, text)


def _npus(there: Sequence[Accelerator], text: str) -> list[Accelerator]:
    """Return NPUs by their logic ids. CANN stops reading at another character, or at an id that does not exist."""
    ids: list[int] = []
    for part in text.split(","):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits or int(digits) >= len(there):
            break
        ids.append(int(digits))
        if digits != part:
            break
    if ids != sorted(set(ids)):
        raise ValueError("%s=%s is not in ascending order, as CANN requires" % (VARIABLES[NPU], text))
    return [there[number] for number in ids]


def _gpus(there: Sequence[Accelerator], text: str | None, order: str | None) -> list[Accelerator]:
    """Return GPUs by their indexes, or by their UUIDs or those of their MIG instances. CUDA stops reading at what does not exist."""
    parts = [str(number) for number in range(len(there))] if text is None else [part.strip() for part in text.split(",")]
    instances: dict[str, str] = {}
    found: list[Accelerator] = []
    for part in parts:
        if part.startswith("MIG-") and not part.startswith("MIG-GPU-"):
            instances = instances or _instances()
            of_gpu = instances.get(part, "")
        else:
            of_gpu = (part[4:].partition("/")[0] if part.startswith("MIG-") else part) if "GPU-" in part else ""
        same = [gpu for gpu in there if of_gpu and gpu.uuid.startswith(of_gpu)]
        if part.isascii() and part.isdigit() and int(part) < len(there):
            if order != BY_PCI and len({gpu.model for gpu in there}) > 1:
                raise ValueError("CUDA numbers GPUs of different models by their speed; set %s=%s" % (ORDER, BY_PCI))
            same = [there[int(part)]]
        if len(same) != 1:
            break
        found += same
    return found


def _instances() -> dict[str, str]:
    """Return the UUIDs of GPUs by those of their MIG instances, which nvidia-smi alone lists. Nothing without it."""
    found: dict[str, str] = {}
    gpu = ""
    for line in _listed().splitlines():
        uuid = line.rpartition("(UUID: ")[2].strip().rstrip(")")
        if line.startswith("GPU "):
            gpu = uuid
        elif uuid.startswith("MIG-"):
            found[uuid] = gpu
    return found


def _listed() -> str:
    import subprocess  # which costs more than all the rest, and is needed for MIG instances alone

    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function # there is no AnsibleModule
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, LC_ALL="C"),
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def index_of(environment: Mapping[str, str], command: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of a process's device among those that it sees, and its source; None without one."""
    for name in RANKS:
        value = environment.get(name, "")
        if value not in ("", "-1"):
            return _number(value, "%s=%s" % (name, value))
    place = _PLACES.get(posixpath.basename(command[0])) if command else None
    if place is not None and len(command) > place:
        return _number(command[place], "argument %d of %s" % (place, command[0]))
    for option in _OPTIONS:
        for number, word in enumerate(command):
            name, equals, value = word.partition("=")
            value = value if equals else "".join(command[number + 1 : number + 2])
            if name == option and value and "," not in value:
                return _number(value.rpartition(":")[2], "%s %s" % (option, value))
    return None


def _number(text: str, source: str) -> tuple[int, str]:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("%s is not the number of a rank or device" % source)
    return int(text), source
