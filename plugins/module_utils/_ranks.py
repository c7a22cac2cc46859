# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators that a process can open, on the host or in a container, their entries of the plan, those that its runtime shows to it,
and which one is its own.

A container has device files of some of them only, with the numbers of the host, and its runtime numbers these from 0 on. A cgroup can deny
the others (Slurm, ConstrainDevices): access(2) tells that without opening a device (``devcgroup_inode_permission``, Linux
``fs/namei.c``).

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

from ._base.device_files import DAVINCI, NVIDIA, device_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._base.documents import PlanEntry

NPU, GPU = "npu", "gpu"
_FILES = {NPU: DAVINCI, GPU: NVIDIA}
_FUNCTIONS = "sys/bus/pci/devices"
_DRIVER = "proc/driver/nvidia/gpus"
_RENUMBERED = "%s %s, and the numbers of device files and NPUs can have changed: bind the host again, or name the NPU with --device"
VARIABLES = {NPU: "ASCEND_RT_VISIBLE_DEVICES", GPU: "CUDA_VISIBLE_DEVICES"}
ORDER = "CUDA_DEVICE_ORDER"
BY_PCI = "PCI_BUS_ID"
RANKS = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""The inner launcher first: srun gives 0 to a torchrun that it starts."""
_OPTIONS = ("--npu_device_id", "--devices", "--local_rank", "--local-rank")
_PLACES = {"spawn_worker": 5, "mindieservice_backend_connector": 3}
"""Programs with the index of the device in this place of their arguments."""


class Accelerator:
    """A device file with the entry of the plan for its NPU or GPU, None where the plan has none."""

    def __init__(self, file: str, entry: PlanEntry | None, pci: str = "", uuid: str = "", model: str = "") -> None:
        self.file, self.entry, self.pci, self.uuid, self.model = file, entry, pci, uuid, model


def kind_of(entry: PlanEntry) -> str:
    return GPU if entry.get("kind") == GPU or str(entry.get("slice")).startswith("gpu-") else NPU


def title(entry: PlanEntry) -> str:
    """Return how sentences call an entry of the plan."""
    return "%s %s (%s)" % (kind_of(entry).upper(), entry["id"], entry.get("pci") or "no PCI function")


def matching(npus: Sequence[PlanEntry], name: str) -> list[PlanEntry]:
    """Return the entries of a plan that a name can stand for: ``3``, ``npu3``, ``npu-3``, ``npu-3.slice``, or a PCI function.

    The number is that of the slice. On a host with both kinds, a plain number means the NPU.
    """
    wanted = name.lower()
    same = []
    for npu in npus:
        unit = npu.get("slice") or "%s-%s.slice" % (kind_of(npu), npu["id"])
        stem = unit[: -len(".slice")]
        if wanted in (unit, stem, stem.replace("-", "")):
            return [npu]
        pci = str(npu.get("pci") or "").lower()
        if (wanted.isdigit() and stem.endswith("-%d" % int(wanted))) or (pci and wanted in (pci, pci.partition(":")[2])):
            same.append(npu)
    npus_only = [npu for npu in same if kind_of(npu) == NPU]
    return npus_only or same


def accessible(root: str, kind: str, npus: Sequence[PlanEntry], lost: Sequence[PlanEntry] = ()) -> list[Accelerator]:
    """Return the accelerators of a kind that this process can open, in the order of their logic ids or, of GPUs, of their PCI functions.

    ``npus`` are the entries of the plan, ``lost`` those that were lost when it was made. Raises ``ValueError`` where the NPU or GPU of a
    device file is not known.
    """
    numbers = _numbers(root, _FILES[kind])
    entries, before = ([npu for npu in listed if kind_of(npu) == kind] for listed in (npus, lost))
    return _accessible_npus(root, numbers, entries, before) if kind == NPU else _accessible_gpus(root, numbers, [*entries, *before])


def _numbers(root: str, stem: str) -> list[int]:
    folder = os.path.join(root, "dev")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    numbers = [int(name[len(stem) :]) for name in names if name.startswith(stem) and name[len(stem) :].isdecimal()]
    return [number for number in sorted(numbers) if os.access("%s/%s%d" % (folder, stem, number), os.R_OK | os.W_OK)]


def _accessible_npus(root: str, numbers: Sequence[int], entries: Sequence[PlanEntry], lost: Sequence[PlanEntry]) -> list[Accelerator]:
    by_number = {entry["phy_id"]: entry for entry in entries if entry.get("phy_id") is not None}
    if not by_number and len(numbers) == len(entries):
        by_number = dict(zip(numbers, sorted(entries, key=lambda entry: entry["id"])))
    for number, entry in by_number.items():
        if number in numbers and _is_gone(root, entry):
            raise ValueError(_RENUMBERED % (title(entry), "dropped off the PCI bus"))
    gone = [entry["phy_id"] for entry in lost if entry.get("phy_id") not in (None, *by_number) and _is_gone(root, entry)]
    for entry in lost:
        back = entry.get("phy_id") is not None and not _is_gone(root, entry)
        if back and by_number.setdefault(entry["phy_id"], entry) is not entry:
            raise ValueError(_RENUMBERED % (title(entry), "is on the PCI bus again"))
    present = [number for number in numbers if number not in gone]
    return [Accelerator("/dev/davinci%d" % number, by_number.get(number, by_number.get(device_of(number)))) for number in present]


def _is_gone(root: str, entry: PlanEntry) -> bool:
    """Whether the function of an NPU is not on the PCI bus, as far as this process sees the bus."""
    folder = os.path.join(root, _FUNCTIONS)
    return bool(entry.get("pci")) and os.path.isdir(folder) and not os.path.exists("%s/%s" % (folder, entry["pci"]))


def _accessible_gpus(root: str, minors: Sequence[int], entries: Sequence[PlanEntry]) -> list[Accelerator]:
    by_function = {str(entry.get("pci")).lower(): entry for entry in entries}
    folder = os.path.join(root, _DRIVER)
    functions = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    information = {pci: _information("%s/%s/information" % (folder, pci)) for pci in functions}
    by_minor = {values.get("Device Minor"): pci for pci, values in information.items()}
    if minors and not information and len(minors) == len(entries):
        return [Accelerator("/dev/nvidia*", by_function[pci], pci) for pci in sorted(by_function)]
    gpus = []
    for minor in minors:
        pci = by_minor.get(str(minor))
        if pci is None:
            raise ValueError("the driver does not show which GPU /dev/nvidia%d is (/%s); name the GPU with --device" % (minor, _DRIVER))
        uuid, model = (information[pci].get(key, "") for key in ("GPU UUID", "Model"))
        gpus.append(Accelerator("/dev/nvidia%d" % minor, by_function.get(pci.lower()), pci, uuid, model))
    return sorted(gpus, key=lambda gpu: gpu.pci)


def _information(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = [line.partition(":") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _colon, value in pairs}


def visible(kind: str, devices: Sequence[Accelerator], environment: Mapping[str, str]) -> list[Accelerator]:
    """Return the accelerators that a process sees, in its order. Raises ``ValueError`` where its variables do not tell them."""
    text = environment.get(VARIABLES[kind])
    if kind == GPU:
        return _visible_gpus(devices, text, environment.get(ORDER))
    return list(devices) if text is None else _visible_npus(devices, text)


def _visible_npus(devices: Sequence[Accelerator], text: str) -> list[Accelerator]:
    """Return NPUs by their logic ids. CANN stops reading at another character, or at an id that does not exist."""
    ids: list[int] = []
    for part in text.split(","):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits or int(digits) >= len(devices):
            break
        ids.append(int(digits))
        if digits != part:
            break
    if ids != sorted(set(ids)):
        raise ValueError("%s=%s is not in ascending order, as CANN requires" % (VARIABLES[NPU], text))
    return [devices[number] for number in ids]


def _visible_gpus(devices: Sequence[Accelerator], text: str | None, order: str | None) -> list[Accelerator]:
    """Return GPUs by their indexes, or by their UUIDs or those of their MIG instances. CUDA stops reading at what does not exist."""
    parts = [str(number) for number in range(len(devices))] if text is None else [part.strip() for part in text.split(",")]
    instances: dict[str, str] = {}
    gpus: list[Accelerator] = []
    for part in parts:
        if part.startswith("MIG-") and not part.startswith("MIG-GPU-"):
            instances = instances or _instances()
            of_gpu = instances.get(part, "")
        else:
            of_gpu = (part[4:].partition("/")[0] if part.startswith("MIG-") else part) if "GPU-" in part else ""
        same = [gpu for gpu in devices if of_gpu and gpu.uuid.startswith(of_gpu)]
        if part.isascii() and part.isdigit() and int(part) < len(devices):
            if order != BY_PCI and len({gpu.model for gpu in devices}) > 1:
                raise ValueError("CUDA numbers GPUs of different models by their speed; set %s=%s" % (ORDER, BY_PCI))
            same = [devices[int(part)]]
        if len(same) != 1:
            break
        gpus += same
    return gpus


def _instances() -> dict[str, str]:
    """Return the UUIDs of GPUs by those of their MIG instances, which nvidia-smi alone lists. Nothing without it."""
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
        return {}
    gpus: dict[str, str] = {}
    gpu = ""
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        uuid = line.rpartition("(UUID: ")[2].strip().rstrip(")")
        if line.startswith("GPU "):
            gpu = uuid
        elif uuid.startswith("MIG-"):
            gpus[uuid] = gpu
    return gpus


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
