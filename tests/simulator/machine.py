# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine description made explicit: every CPU, core, cache, NUMA node, PCI function and chip. The language: ``README.md``."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand

SQ_IRQ = "sq_send_trigger_irq"
CQ_IRQ = "cq_update_irq"
CQ_PER_FUNCTION = 16
VECTOR_STRIDE = 256
WORKER_MIB = 4096
"""The memory of a worker, spread evenly over its nodes as it is without a binding."""

PCI_IDS = {"310": "d100", "310p": "d500", "910": "d801", "a2": "d802", "a3": "d803", "a5": "d806"}
NPU_DRIVER = "devdrv_device_driver"
DEFAULTS = {"product": "Simulated server", "vendor": "Huawei", "systemd": 249}
DEFAULTS |= {"soft_split": False, "kubelet": None, "units": (), "faults": {}}
DEFAULTS_OF_SECTIONS = {
    "driver": {"version": "25.5.1", "npu_smi": None, "installed": True, "layout": "newest"},
    "irqbalance": {"installed": True, "active": True, "unit": "rhel", "options": ""},
}


@dataclass(frozen=True)
class Node:
    """A NUMA node: its present CPUs (offline ones too), its memory, its distances in the order of all nodes."""

    id: int
    package: int
    cpus: tuple[int, ...]
    memory_mib: int
    distances: tuple[int, ...]


@dataclass(frozen=True)
class Core:
    """A physical core: its threads, and the index of its last-level cache and its cluster (None when not described)."""

    id: int
    package: int
    threads: tuple[int, ...]
    cache: int
    cluster: int | None


@dataclass(frozen=True)
class Vector:
    """One interrupt of a PCI function; ``name`` is None for a vector that is allocated and not requested."""

    irq: int
    name: str | None
    managed: bool = False


@dataclass(frozen=True)
class Function:
    """A PCI function: ids as sysfs prints them (without 0x), its NUMA node (-1: unknown), its vectors."""

    bdf: str
    vendor: str
    device: str
    pci_class: str
    node: int
    driver: str
    vectors: tuple[Vector, ...] = ()

    @property
    def path(self) -> str:
        return "/sys/devices/pci%s/%s" % (self.bdf.rpartition(":")[0], self.bdf)


@dataclass(frozen=True)
class Chip:
    """One NPU as the driver numbers it."""

    card: int
    chip: int
    phy: int
    bdf: str
    name: str
    memory_mib: int
    health: str
    device_share: bool


@dataclass(frozen=True)
class Process:
    """A process that uses one NPU (``card``, ``chip``), or a GPU (both are None), by its device ``files``. ``mib``: its memory by node."""

    card: int | None
    chip: int | None
    pid: int
    comm: str
    memory_mib: int
    cpus: str
    mems: str
    mib: dict[int, int]
    files: tuple[str, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True)
class Gpu:
    """A GPU. ``memory_node`` is the NUMA node that its memory is, ``closest`` the one that nvidia-smi prints (None: the node of sysfs).

    ``mig`` are the UUIDs of its MIG devices, None where MIG mode is off.
    """

    bdf: str
    uuid: str
    name: str
    memory_mib: int
    memory_node: int | None = None
    closest: int | None = None
    mig: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Machine:
    """Everything that the writers need. ``text`` values (kernel, product ...) are as files print them."""

    architecture: str
    kernel: str
    product: str
    vendor: str
    os_id: str
    os_version: str
    systemd: int
    cgroup: str
    nodes: tuple[Node, ...]
    cores: tuple[Core, ...]
    offline: frozenset[int]
    isolated: str
    possible: int
    functions: tuple[Function, ...]
    family: str | None
    chips: tuple[Chip, ...]
    gpus: tuple[Gpu, ...]
    processes: tuple[Process, ...]
    driver: dict[str, Any]
    soft_split: bool
    irqbalance: dict[str, Any]
    kubelet: dict[str, Any] | None
    units: tuple[str, ...]
    npu_tool: dict[str, Any]
    gpu_driver: str
    faults: dict[str, Any]

    @functools.cached_property
    def present(self) -> list[int]:
        return sorted(cpu for core in self.cores for cpu in core.threads)

    @functools.cached_property
    def online(self) -> list[int]:
        return [cpu for cpu in self.present if cpu not in self.offline]

    @functools.cached_property
    def online_list(self) -> str:
        return compress(self.online)

    @functools.cached_property
    def memory_nodes(self) -> str:
        return compress(node.id for node in self.nodes if node.memory_mib)

    @functools.cached_property
    def chips_on_bus(self) -> list[Chip]:
        """The chips that are not lost with their function."""
        addresses = {function.bdf for function in self.functions}
        return [chip for chip in self.chips if chip.bdf in addresses]

    def visible(self, cpus) -> str:
        """Return the cpulist of CPUs as sysfs shows it: without the offline ones."""
        return compress(cpu for cpu in cpus if cpu not in self.offline)

    def near(self, node: int) -> str:
        """Return the online CPUs of a PCI function's node; all of them when the kernel knows no node."""
        return self.node_lists.get(node, self.online_list)

    @functools.cached_property
    def node_lists(self) -> dict[int, str]:
        return {node.id: self.visible(node.cpus) for node in self.nodes}

    def mask(self, cpulist: str) -> str:
        """Return a CPU mask as wide as the kernel prints it: one bit per possible CPU, in groups of 32."""
        bits = sum(1 << cpu for cpu in expand(cpulist))
        return re.sub("(?!^)(?=(.{8})+$)", ",", "%0*x" % (-(-self.possible // 4), bits))


def resolve(description: dict[str, Any]) -> Machine:
    """Return the machine that a description describes.

    Raises ``ValueError`` naming the key that is unknown or contradicts another one.
    """
    reader = _Reader(description, "machine")
    cpus = reader.section("cpus")
    nodes_section = reader.section("nodes")
    nodes, cores = _processors(cpus, nodes_section)
    present = {cpu for core in cores for cpu in core.threads}
    offline = frozenset(expand(cpus.get("offline", "")))
    if not offline < present:
        raise ValueError("machine: cpus.offline '%s' must be some of the CPUs %s" % (compress(offline), compress(present)))
    architecture = reader.get("architecture", "aarch64")
    npus, gpus = reader.section("npus"), reader.section("gpus")
    first_irq = 2752 if architecture == "aarch64" else 512
    functions: list[Function] = []
    chips = _npus(npus, functions, first_irq)
    cards = _gpus(gpus, functions, first_irq)
    functions += _other_functions(architecture, next(node.id for node in nodes if node.cpus))
    processes = [_npu_process(entry, nodes, chips) for entry in npus.get("processes", ())]
    processes += [_gpu_process(entry, nodes) for entry in gpus.get("processes", ())]
    os_id, os_version = reader.get("os", "openEuler 22.03").split()
    machine = Machine(
        architecture=architecture,
        kernel=reader.get("kernel", "5.10.0-216.0.0.115.oe2203sp4.%s" % architecture),
        os_id=os_id,
        os_version=os_version,
        cgroup=reader.choice("cgroup", ("v2", "v1", "hybrid")),
        nodes=nodes,
        cores=cores,
        offline=offline,
        isolated=cpus.get("isolated", ""),
        possible=int(cpus.get("possible", max(present) + 1)),
        functions=tuple(functions),
        family=npus.get("family", None),
        chips=chips,
        gpus=cards,
        processes=tuple(processes),
        npu_tool={"mesh": npus.get("mesh", None), "affinity": npus.get("affinity", None)},
        gpu_driver=gpus.get("driver", "550.54.15"),
        **{key: reader.get(key, value) for key, value in DEFAULTS.items()},
        **{key: {**values, **reader.get(key, {})} for key, values in DEFAULTS_OF_SECTIONS.items()},
    )
    reader.get("about", "")
    for part in (reader, cpus, nodes_section, npus, gpus):
        part.finish()
    _check(machine)
    return machine


class _Reader:
    """A mapping that knows which of its keys were read: a misspelt key of a description is found."""

    def __init__(self, values: dict[str, Any], name: str):
        self._values = values or {}
        self._name = name
        self._asked: set[str] = set()

    def get(self, key: str, default: Any) -> Any:
        self._asked.add(key)
        return self._values.get(key, default)

    def need(self, key: str) -> Any:
        if key not in self._values:
            raise ValueError("%s: the key '%s' is missing" % (self._name, key))
        return self.get(key, None)

    def choice(self, key: str, words: tuple[str, ...]) -> str:
        value = self.get(key, words[0])
        if value not in words:
            raise ValueError("%s: %s is '%s', expected one of %s" % (self._name, key, value, ", ".join(words)))
        return value

    def section(self, key: str) -> _Reader:
        return _Reader(self.get(key, {}), "%s.%s" % (self._name, key))

    def finish(self) -> None:
        unknown = sorted(set(self._values) - self._asked)
        if unknown:
            raise ValueError("%s: unknown keys %s; known are %s" % (self._name, ", ".join(unknown), ", ".join(sorted(self._asked))))


def _processors(cpus: _Reader, section: _Reader) -> tuple[tuple[Node, ...], tuple[Core, ...]]:
    """Number the CPUs: nodes in order, cores in order, threads next to each other or in a second row behind all first threads."""
    ids = section.get("ids", None) or list(range(section.get("count", 1)))
    packages, per_node = cpus.get("packages", 1), cpus.need("per_node")
    smt = cpus.choice("smt", ("none", "adjacent", "split"))
    order = cpus.choice("order", ("blocks", "round_robin"))
    threads = 1 if smt == "none" else 2
    if per_node % threads:
        raise ValueError("machine.cpus: per_node %d is not a whole number of cores of %d threads" % (per_node, threads))
    without = section.get("without_cpus", ())
    owners = [node for node in ids if node not in without]
    cores_per_node = per_node // threads
    total = cores_per_node * len(owners)
    per_cache = cpus.get("cores_per_cache", cores_per_node)
    per_cluster = cpus.get("cores_per_cluster", None)
    package_of = {node: index * packages // len(owners) for index, node in enumerate(owners)}
    cores = []
    members: dict[int, list[int]] = {node: [] for node in ids}
    for core in range(total):
        row, place = divmod(core, cores_per_node) if order == "blocks" else divmod(core, len(owners))[::-1]
        node, position = owners[row], row * cores_per_node + place
        numbers = {"none": (core,), "adjacent": (2 * core, 2 * core + 1), "split": (core, core + total)}[smt]
        members[node] += numbers
        cluster = None if per_cluster is None else position // per_cluster
        cores.append(Core(core, package_of[node], numbers, position // per_cache, cluster))
    memory = section.get("memory_mib", 65536)
    distances = section.get("distances", {})
    nodes = []
    for row, node in enumerate(ids):
        size = memory.get(node, 0) if isinstance(memory, dict) else memory
        line = distances[row] if isinstance(distances, list) else [_distance(distances, package_of, node, other) for other in ids]
        nodes.append(Node(node, package_of.get(node, 0), tuple(sorted(members[node])), size, tuple(line)))
    return tuple(nodes), tuple(cores)


def _distance(rule: dict[str, int], package_of: dict[int, int], node: int, other: int) -> int:
    if node == other:
        return 10
    if package_of.get(node) is not None and package_of.get(node) == package_of.get(other):
        return rule.get("package", 12)
    return rule.get("other", 20)


def _npus(section: _Reader, functions: list[Function], first_irq: int) -> tuple[Chip, ...]:
    cards = section.get("cards", ())
    family = section.get("family", None)
    if not cards:
        return ()
    if family not in PCI_IDS:
        raise ValueError("machine.npus: family '%s' is unknown; known are %s" % (family, ", ".join(PCI_IDS)))
    name, memory = section.need("name"), section.need("memory_mib")
    chips_per_card, default_node = section.get("chips_per_card", 1), section.get("node", 0)
    count, managed = section.get("vectors", CQ_PER_FUNCTION + 4), set(section.get("managed", ()))
    chips: list[Chip] = []
    for card in cards:
        entry = _Reader(card, "machine.npus.cards")
        number = entry.need("npu")
        addresses = _as_list(entry.need("bdf"))
        nodes = _as_list(entry.get("node", default_node), len(addresses))
        if len(addresses) not in (1, chips_per_card) or len(nodes) != len(addresses):
            raise ValueError("machine.npus: card %s needs 1 or %d functions, each with its node" % (number, chips_per_card))
        phys = _as_list(entry.get("phy", list(range(len(chips), len(chips) + chips_per_card))))
        lost = entry.get("lost", False)
        for index, (address, node) in enumerate(zip(addresses, nodes, strict=True)):
            irq = first_irq + VECTOR_STRIDE * sum(function.driver == NPU_DRIVER for function in functions)
            vectors = _npu_vectors(irq, phys[index], count, managed)
            if not lost:
                functions.append(Function(address, "19e5", PCI_IDS[family], "120000", node, NPU_DRIVER, vectors))
        for chip in range(chips_per_card):
            address = addresses[min(chip, len(addresses) - 1)]
            health = entry.get("health", "OK")
            share = entry.get("device_share", False)
            chips.append(Chip(number, chip, phys[chip], address, entry.get("name", name), memory, health, share))
        entry.finish()
    return tuple(chips)


def _as_list(value: Any, count: int = 1) -> list:
    return value if isinstance(value, list) else [value] * count


def _npu_vectors(first: int, device: int, count: int, managed: set[str]) -> tuple[Vector, ...]:
    """The vectors of one function: mailbox, submission queue, completion queues, then unnamed ones (allocated, not requested)."""
    names: list[str | None] = ["trs-mbox-%d-0" % device, SQ_IRQ] + [CQ_IRQ] * CQ_PER_FUNCTION
    names = (names + [None] * count)[:count]
    return tuple(Vector(first + index, name, name in managed) for index, name in enumerate(names))


def _gpus(section: _Reader, functions: list[Function], first_irq: int) -> tuple[Gpu, ...]:
    cards = section.get("cards", ())
    if not cards:
        return ()
    name, memory, device = section.need("name"), section.need("memory_mib"), str(section.get("device", "26b9"))
    gpus = []
    for index, card in enumerate(cards):
        entry = _Reader(card, "machine.gpus.cards")
        address, node, driver = entry.need("bdf"), entry.get("node", 0), entry.get("driver", "nvidia")
        closest, memory_node, mig = (entry.get(key, None) for key in ("closest", "memory_node", "mig"))
        entry.finish()
        irq = first_irq + 1024 + index
        functions.append(Function(address, "10de", device, "030200", node, driver, (Vector(irq, driver),)))
        parts = None if mig is None else tuple("MIG-5f0e4c1a-0000-4000-8001-%06d%06d" % (index, part) for part in range(mig))
        gpus.append(Gpu(address, "GPU-5f0e4c1a-0000-4000-8000-%012d" % index, name, memory, memory_node, closest, parts))
    return tuple(gpus)


def _other_functions(architecture: str, node: int) -> list[Function]:
    """What every server has besides accelerators: a root port, the management controller's screen, a NIC and an NVMe disk.

    The queue interrupts of the disk are managed by the kernel, as the NVMe driver asks for them.
    """
    arm = architecture == "aarch64"
    port, nic, disk = ("19e5:a120", "19e5:a222", "19e5:3714") if arm else ("8086:352a", "15b3:101d", "144d:a80a")
    slot, name = ("0000:7d:00.0", "hns3-0000:7d:00.0-TxRx-%d") if arm else ("0000:33:00.0", "mlx5_comp%d@pci:0000:33:00.0")
    rows = [
        ("0000:30:00.0" if arm else "0000:30:01.0", port, "060400", "pcieport", [Vector(96, "PCIe PME")]),
        ("0000:32:00.0", "19e5:1711", "030000", "hibmc-drm", []),
        (slot, nic, "020000", "hns3" if arm else "mlx5_core", [Vector(120 + index, name % index) for index in range(4)]),
        ("0000:35:00.0", disk, "010802", "nvme", [Vector(101 + index, "nvme0q%d" % index, managed=index > 0) for index in range(5)]),
    ]
    return [Function(bdf, *ids.split(":"), kind, node, driver, tuple(vectors)) for bdf, ids, kind, driver, vectors in rows]


def _npu_process(entry: dict[str, Any], nodes: tuple[Node, ...], chips: tuple[Chip, ...]) -> Process:
    """A worker with the threads that vLLM-Ascend gives roles of their own."""
    card, number = entry["npu"], entry.get("chip", 0)
    files = tuple("/dev/davinci%d" % chip.phy for chip in chips if (chip.card, chip.chip) == (card, number))
    return _process(entry, nodes, card=card, chip=number, files=files, threads=("acl_thread", "release_thread"))


def _gpu_process(entry: dict[str, Any], nodes: tuple[Node, ...]) -> Process:
    files = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia%d" % entry["gpu"])
    return _process(entry, nodes, card=None, chip=None, files=files, threads=("cuda-EvtHandlr", "pt_nccl_watchdg"))


def _process(entry: dict[str, Any], nodes: tuple[Node, ...], **own: Any) -> Process:
    mems = entry.get("mems", compress(node.id for node in nodes if node.memory_mib))
    return Process(
        pid=entry["pid"],
        comm=entry.get("comm", "python"),
        memory_mib=entry.get("memory_mib", 1024),
        cpus=entry.get("cpus", compress(cpu for node in nodes for cpu in node.cpus)),
        mems=mems,
        mib=entry.get("mib", {node: WORKER_MIB // len(expand(mems)) for node in expand(mems)}),
        **own,
    )


def _check(machine: Machine) -> None:
    known = {node.id for node in machine.nodes} | {-1}
    seen: set[str] = set()
    for function in machine.functions:
        if function.bdf in seen:
            raise ValueError("machine: two PCI functions have the address %s" % function.bdf)
        seen.add(function.bdf)
        if function.node not in known:
            raise ValueError("machine: %s is on NUMA node %d, but the nodes are %s" % (function.bdf, function.node, sorted(known)))
    irqs = [vector.irq for function in machine.functions for vector in function.vectors]
    if len(set(irqs)) != len(irqs):
        raise ValueError("machine: two vectors have one interrupt number; give fewer vectors")
