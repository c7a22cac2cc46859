# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drift as data: what an object should be, what it is, whose it is, why that is so, and its code. Nothing here looks at a host."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence, TYPE_CHECKING

if TYPE_CHECKING:
    from .documents import OutsideUser, Plan, PlanEntry

IRQBALANCE = "irqbalance"
IN_PROCESS = "in-process binding"
DRIVER_RELOAD = "driver reload"
CHANGED_CPUSET = "changed cpuset"
OFFLINE_CPU = "offline CPU"
EDIT = "manual change"
LOST_CARD = "lost card"
NEW_CARD = "new card"
OLD_PROCESS = "not restarted"
CHANGED_SETTINGS = "changed settings"
NEVER_BOUND = "never bound"
UNREADABLE = "npu-smi"
KERNEL = "kernel"
FAILED_UNIT = "failed unit"
FOUGHT_OVER = "fought over"
SHORT_OF_MEMORY = "memory shortage"
INTERRUPTED_RUN = "interrupted run"
CAUSES = (
    *(IRQBALANCE, IN_PROCESS, DRIVER_RELOAD, CHANGED_CPUSET, OFFLINE_CPU, EDIT, LOST_CARD, NEW_CARD, OLD_PROCESS, CHANGED_SETTINGS),
    *(NEVER_BOUND, UNREADABLE, KERNEL, FAILED_UNIT, FOUGHT_OVER, SHORT_OF_MEMORY, INTERRUPTED_RUN),
)
"""All likely causes that there are."""


class Code(NamedTuple):
    """What findings of these ``causes`` have in common, of every kind, or else findings of these ``kinds``."""

    meaning: str
    causes: Sequence[str] = ()
    kinds: Sequence[str] = ()


class Cause(NamedTuple):
    """The likely cause: one of the words above, and a remark on this case."""

    word: str
    remark: str


class Value(NamedTuple):
    """What an object should have, or has: ``cpus`` and ``mems`` are cpulists, ``state`` says in words what is no such set.

    ``irqs`` are the numbers of the interrupts that have it, as a cpulist; ``task`` is the process or thread, one of ``more`` besides.
    """

    state: str = ""
    cpus: str | None = None
    mems: str | None = None
    irqs: str = ""
    task: str = ""
    more: int = 0


class Finding(NamedTuple):
    """One object that is not as expected. What it has can differ from one of its interrupts to the next."""

    kind: str
    object: str
    expected: Value
    found: tuple[Value, ...]
    cause: Cause
    device: Device | None
    unit: str | None


def coded(code: str, sentences: Iterable[str]) -> list[str]:
    """Return remarks with their code at the end, as the controller has it in its list."""
    return ["%s [%s]" % (sentence, code) for sentence in sentences]


class Findings:
    """What was compared so far.

    ``checked`` is ``{kind: [object]}``, ``drift`` has the :class:`Finding` list in the order of looking; ``remarks`` are sentences on what
    is not drift. ``outside`` is what uses NPUs and runs on other CPUs than these have, which is not drift either: it was not started where
    a bind could reach it. ``queues`` is ``{PCI function: {state: interrupts}}`` of network functions. ``devices`` are those of units, which
    a finding on the unit then has. ``pending`` are the remarks on changes that wait for the controller.
    """

    def __init__(self) -> None:
        self.checked: dict[str, list[str]] = {}
        self.drift: list[Finding] = []
        self.remarks: list[str] = []
        self.outside: list[OutsideUser] = []
        self.queues: dict[str, dict[str, int]] = {}
        self.devices: dict[str, Device] = {}
        self.pending: list[str] = []

    def same(self, kind: str, name: str) -> None:
        """Note an object that is as expected."""
        self.checked.setdefault(kind, []).append(name)

    def differs(
        self,
        kind: str,
        name: str,
        expected: Value | str,
        found: Value | str | Sequence[Value],
        cause: Cause,
        owner: Device | str | None = None,
    ) -> None:
        """Note an object that is not as expected; a text is a state. ``owner`` is the device whose it is, or the name of the unit."""
        self.same(kind, name)
        values = (Value(found),) if isinstance(found, str) else (found,) if isinstance(found, Value) else tuple(found)
        wanted = Value(expected) if isinstance(expected, str) else expected
        device, unit = (self.devices.get(owner), owner) if isinstance(owner, str) else (owner, None)
        self.drift.append(Finding(kind, name, wanted, values, cause, device, unit))


class Device(NamedTuple):
    """What an entry of a plan, or of a topology, is about: an NPU or GPU (``kind``) by its logic id and PCI function, '' where unknown."""

    kind: str
    id: int
    pci: str

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Device:
        gpu = entry.get("kind") == "gpu" or str(entry.get("slice")).startswith("gpu-")
        return cls("gpu" if gpu else "npu", entry["id"], entry.get("pci") or "")

    @property
    def title(self) -> str:
        """How sentences call it."""
        return "%s %s" % (self.kind.upper(), self.id)

    @property
    def full_title(self) -> str:
        """The same with its PCI function."""
        return "%s (%s)" % (self.title, self.pci or "no PCI function")


def noun(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return what entries of a plan or a topology are called together: NPU, GPU, or accelerator where both kinds are there, or none."""
    kinds = {Device.of(entry).kind.upper() for entry in entries}
    return kinds.pop() if len(kinds) == 1 else "accelerator"


def with_lost(plan: Plan) -> list[PlanEntry]:
    """Return a plan's NPUs, and the lost ones whose pools stay reserved, unless another NPU has their ids."""
    taken = {(Device.of(npu).kind, npu["id"]) for npu in plan["npus"]}
    lost = [npu for npu in plan.get("lost") or () if npu["pool"] and (Device.of(npu).kind, npu["id"]) not in taken]
    return [*plan["npus"], *lost]


def device_number(entry: Mapping[str, Any]) -> int | None:
    """Return the number in the name of a device file, of an entry of a topology or plan; None where it is not known.

    The register of a topology tells it, else the physical id. A GPU whose topology has no register has the number of its index.
    """
    device = entry.get("device")
    number: int | None = device["number"] if device else entry["id"] if entry.get("kind") == "gpu" else entry.get("phy_id")
    return number


def numbered(number: int, entry: Mapping[str, Any]) -> str:
    """Return the number of an entry, with the NPU ID and the chip of npu-smi where these differ: ``0 (NPU ID 4, chip 1)``."""
    card, chip = entry.get("card"), entry.get("chip") or 0
    is_same = card is None or (card, chip) == (number, 0) or entry.get("kind") == "gpu"
    return str(number) if is_same else f"{number} (NPU ID {card}, chip {chip})"


def unknown_device(number: int, entry: Mapping[str, Any]) -> str:
    """Return why the device file of an entry cannot be named, and how to find it."""
    kind = str(entry.get("kind") or "npu")
    register = "'npu-smi info -t phyid-remap -p <N>' shows the NPU of each /dev/davinci<N>"
    look = register if kind == "npu" else "'nvidia-smi -q' has Minor Number"
    return (
        f"the device file of {kind.upper()} {numbered(number, entry)} is not known: no tool, file of sysfs or interrupt shows its "
        "number, and it differs from the logic id; gather the facts of the host as root while its driver is loaded, or look yourself: "
        + look
    )
