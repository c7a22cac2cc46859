# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What templates can name: options, parts of the workload, and what follows from both."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any, Dict, Mapping, Sequence

from .._base.binders import ENGINES
from .._base.cpulist import compress, expand
from .._base.fitting import fitting, values_of
from .._host.installed import ARCHIVE, COMMAND, relocated
from .._kernel.machine import sets_cpus
from .._smi.tool import VERSION_FILE
from .._state.plan_file import PATH, numactl_memory
from .._state.unit_environment import visible_devices
from .._state.unit_files import LISTS, affinity, unconfined
from .workload import Card, Workload

_DEVICES_OF_ALL = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
_DRIVER = ("/usr/local/Ascend/driver/lib64/", VERSION_FILE, "/etc/ascend_install.info")
_SLICES_OF_ALL = ("npu.slice", "gpu.slice")
"""They hold the CPUs of all NPUs (or GPUs) of a host; every other slice holds those of its own workload."""


def version_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


class Facts(Dict[str, Any]):
    """Facts by name. Those that can raise ``ValueError``, with a sentence on what is not known, are made when a template names them.

    ``contained``: the form starts a container, which has files and devices of its own. Device nodes and mounts are those of
    vllm-project/vllm-ascend@182b75ea ``docs/source/installation.md``. In their place, the Ascend Docker Runtime takes variables with
    physical ids, and says nothing about CPUs.
    """

    def __init__(self, workload: Workload, options: Mapping[str, Any], contained: bool) -> None:
        super().__init__({**options, **workload._asdict()})
        self.workload = workload
        self.options = options
        machine, share, arguments = workload.topology.get("machine") or {}, workload.share, options["arguments"]
        is_gpu, soft_share = workload.kind == "gpu", share if share and not share.devices else None
        ids = [card.id for card in workload.cards if card.id is not None]
        on_host = visible_devices(workload.kind, ids) if len(ids) == len(workload.cards) else {}
        numa = _numa_arguments(workload.cards) if is_gpu and options["engine"] == "vllm" else []
        program = [*options["command"], *numa] if options["command"] else []
        allocator = None if contained else workload.topology.get("allocator")
        self.update(
            contained=contained,
            is_gpu=is_gpu,
            npus=() if is_gpu else workload.cards,
            gives_devices=options["devices"],
            by_runtime=options["devices"] and options["ascend_runtime"],
            soft_share=soft_share,
            limiter=soft_share.limiter if soft_share else None,
            sets_cpus=not machine or sets_cpus(machine),  # without a topology
            held_by_slice=workload.slice not in ("", *_SLICES_OF_ALL),
            command=program,
            program=program or ["COMMAND"],
            numa_arguments=" ".join(map(shlex.quote, numa)),
            switches=ENGINES[options["engine"]].environment if options["engine"] else {},
            fitting=fitting(options["environment"] or {}, workload.cpus, [workload.kind] * len(workload.cards), allocator),
            visible_on_host=on_host,
            unknown_ids=bool(options["visible_devices"] and workload.cards and not on_host),
            all_cpus=unconfined(workload.topology, workload.cpus)["CPUAffinity"],
            node_name=options["name"],
            service="%s.service" % (workload.name or "UNIT"),
            podman_arguments=["--cpuset-cpus=" + workload.cpus, *(["--cpuset-mems=" + workload.mems] if workload.mems else []), *arguments],
            has_parent=any(argument.startswith(("--cgroup-parent", "--cgroups")) for argument in arguments),
            numactl_memory=numactl_memory(workload.nearest, workload.mems),
            has_sets=version_of(options["containerd_version"]) >= (2, 0),  # containerd pull request 8601
            splits_at_commas=version_of(options["containerd_version"]) in ((2, 4), (2, 4, 0)),  # containerd issue 14181
            too_many=len(workload.cards) if len(workload.cards) > 100 else None,
        )

    def __missing__(self, name: str) -> Any:
        self[name] = getattr(self, name)
        return self[name]

    @property
    def object_name(self) -> str:
        """A name for what must have one: that of the workload, or that of its slice."""
        ids = "-".join(str(card.number if card.id is None else card.id) for card in self.workload.cards)
        return self.workload.name or self.workload.slice[: -len(".slice")] or f"{self.workload.kind}-{ids or 'workload'}"

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that confine the program to its devices, fit it to its CPUs, and switch its own binding off."""
        tuned = values_of(self["fitting"])
        if not self["contained"]:
            return {**tuned, **(self["visible_on_host"] if self.options["visible_devices"] else {}), **self["switches"]}
        runtime = {}
        if self["by_runtime"]:  # options are empty, so that what an image may have set does not count
            runtime = {"ASCEND_VISIBLE_DEVICES": ",".join(map(str, self["numbers"])), "ASCEND_RUNTIME_OPTIONS": ""}
            runtime.update({"ASCEND_VNPU_SPECS": self.options["vnpu"]} if self.options["vnpu"] else {})
        share = self.workload.share.environment if self.workload.share else {}
        return {**runtime, **self._visible_in_container(), **share, **tuned, **self["switches"]}

    def _visible_in_container(self) -> Mapping[str, str]:
        """Return what confines the program to its devices: inside they are numbered from 0, unless a privileged container sees all."""
        if not (self["gives_devices"] and self.options["visible_devices"]):
            return {}
        if any(argument in ("--privileged", "--privileged=true") for argument in self.options["arguments"]):
            return self["visible_on_host"]  # type: ignore[no-any-return]
        return visible_devices(self.workload.kind, range(len(self.workload.cards)))

    @property
    def pairs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name, value=value) for name, value in self["variables"].items()]

    @property
    def numbers(self) -> list[int]:
        return [card.number for card in self.workload.cards]

    @property
    def assumed(self) -> str:
        """The numbers, where nothing but the names of all device files tells one of them."""
        is_named = not self["contained"] or self["gives_devices"] and not self["is_gpu"]
        return ", ".join(map(str, self["numbers"])) if is_named and any(card.assumed for card in self.workload.cards) else ""

    @property
    def mig(self) -> SimpleNamespace | None:
        """A GPU in MIG mode: a container gets one of its MIG devices, and nothing here tells which."""
        for gpu in self.workload.topology.get("npus") or ():
            if gpu.get("kind") == "gpu" and gpu["id"] in self["gpus"] and "mig" in gpu:
                return SimpleNamespace(id=gpu["id"], parts=", ".join(gpu["mig"]) or "none (nvidia-smi mig creates them)")
        return None

    @property
    def gpus(self) -> list[int]:
        cards = self.workload.cards if self["is_gpu"] and self["gives_devices"] else ()
        return [card.number if card.id is None else card.id for card in cards]

    @property
    def gpu_request(self) -> str:
        """The value of docker's and nerdctl's flag. It is read as CSV, so that several ids need quotes that the shell must leave alone."""
        ids = ",".join(map(str, self["gpus"]))
        return '"device=%s"' % ids if "," in ids else "device=%s" % ids if ids else ""

    @property
    def nodes(self) -> list[str]:
        if self["is_gpu"] or not self["gives_devices"] or self["by_runtime"]:
            return []
        parts = self.workload.share.devices if self.workload.share else ()
        return [*(parts or ("/dev/davinci%d" % number for number in self["numbers"])), *_DEVICES_OF_ALL]

    @property
    def volumes(self) -> list[str]:
        """What is mounted, ``host:container[:ro]``: the driver, the library of a vNPU, and what npu-affinity exec needs in a container.

        The latter only where a plan is in force: engines would make folders in the place of files that are missing.
        """
        driver = ["%s:%s" % (path, path) for path in ("/usr/local/dcmi", self.options["npu_smi"], *_DRIVER)] if self["nodes"] else []
        code = [relocated(path, self.options["library"]) for path in (COMMAND, ARCHIVE)] + [PATH]
        in_force = ["%s:%s:ro" % (path, path) for path in code if self.workload.topology.get("applied")]
        return [*driver, *(self["soft_share"].volumes if self["soft_share"] else ()), *in_force]

    @property
    def mounts(self) -> list[SimpleNamespace]:
        parts = [volume.split(":") for volume in self["volumes"]]
        return [SimpleNamespace(source=part[0], target=part[1], mode=part[2] if part[2:] else "rw") for part in parts]

    @property
    def settings(self) -> dict[str, str]:
        """What puts a unit on the CPUs, besides a slice: its own sets, or affinity where systemd has no sets."""
        work = self.workload
        if self["held_by_slice"]:
            return {}
        if self["sets_cpus"]:
            return {"AllowedCPUs": work.cpus, **({"AllowedMemoryNodes": work.mems} if work.mems else {})}
        return affinity(work.topology["machine"], work.cpus, work.nearest, work.mems)

    @property
    def settings_of_service(self) -> dict[str, str]:
        inherited = {"CPUAffinity": self["all_cpus"]} if self.workload.topology and self["sets_cpus"] else {}
        return {**self["settings"], **inherited}

    @property
    def emptied(self) -> list[str]:
        """The settings that are emptied first: systemd merges lists with those of the unit."""
        return [key for key in self["settings_of_service"] if key in LISTS]

    @property
    def thread_ranges(self) -> str:
        return ",".join(f"npu{place}:{part}" for place, card in enumerate(self.workload.cards) for part in self._ranges(card))

    def _ranges(self, card: Card) -> list[str]:
        """Return the ranges of an NPU's CPUs without those that take interrupts."""
        work = self.workload
        cpus = compress(set(expand(card.pool)) - set(expand(work.irq)))
        if not cpus:
            raise ValueError(f"{work.title}: nothing of CPUs {card.pool} is left without those of interrupts, {work.irq}")
        parts = [part if "-" in part else f"{part}-{part}" for part in cpus.split(",")]
        if len(parts) > 1 and version_of(self.options["torch_npu_version"]) < (26, 1):
            raise ValueError(
                f"{work.title}: CPUs {cpus} are {len(parts)} ranges, of which torch_npu before 26.1.0 takes the last one only; give "
                "torch_npu_version='26.1.0' where it is that new, or plan pools of one range"
            )
        return parts


def _numa_arguments(cards: Sequence[Card]) -> list[str]:
    """Return the plan as arguments of vLLM on GPUs, which starts each worker under numactl (``vllm/utils/numa_utils.py``).

    None where a GPU has not exactly one memory node nearest to it.
    """
    if not cards or any(len(expand(card.nearest)) != 1 for card in cards):
        return []
    return ["--numa-bind", "--numa-bind-nodes", *(card.nearest for card in cards), "--numa-bind-cpus", *(card.pool for card in cards)]
