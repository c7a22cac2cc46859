# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of the documents that travel between controller and host, for type checkers alone: Python 3.7 has no ``TypedDict``.

CPU sets are kernel cpulists (``0-23,48-71``), sizes are in MiB where their names say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, TypedDict

    class Cpus(TypedDict, total=False):
        online: str
        offline: str
        isolated: str
        siblings: List[str]
        caches: List[str]
        sockets: List[str]

    class Node(TypedDict):
        id: int
        cpus: str
        memory_mib: int
        distances: Dict[Any, int]

    class Npu(TypedDict, total=False):
        """An NPU or GPU of a topology."""

        kind: str
        id: int
        card: int
        chip: int
        phy_id: int | None
        name: str | None
        family: str | None
        pci: str | None
        numa: int | None
        affinity: str | None
        memory_mib: int | None
        device_share: bool | None
        busy: bool | None

    class Unlisted(TypedDict):
        """An accelerator on the bus that its tool does not list."""

        pci: str
        family: str
        numa: int | None

    class UserProcess(TypedDict):
        """A process that uses accelerators: ``start`` is field 22 of ``/proc/<pid>/stat``, which tells it from a later one of that number.

        ``devices`` are names below ``/dev`` on the host, ``cpus`` those that its threads may use, all together.
        """

        pid: int
        start: int
        command: str
        devices: List[str]
        cpus: str

    class UsedNpu(TypedDict):
        kind: str
        id: int

    class NpuUser(TypedDict):
        """What uses accelerators, by cgroup: ``group`` is its path as systemd has it.

        ``kind`` is one of service, container, pod, session and other; ``unit`` the service or scope; ``engine`` one of docker,
        podman, containerd, crio and ''; ``container`` the full id of 64 digits. Sentences say ``name``: of a container that in its
        engine's files, else its short id; of a service or pod the unit; else the command. ``cpus`` and ``mems`` are those that its cgroup
        grants, '' where they are not known. ``witness``: a process has a device ``open``, the group is only ``allowed`` to open one (then
        it has no ``processes``), or npu-smi (``tool``) is the only one to list it.
        """

        group: str
        kind: str
        unit: str | None
        engine: str
        container: str | None
        name: str
        devices: List[str]
        npus: List[UsedNpu]
        processes: List[UserProcess]
        cpus: str
        mems: str
        witness: str

    class OutsideUser(TypedDict):
        """A user outside the pools of its NPUs: its processes may run on ``cpus``, the NPUs have ``pool``; ``next`` puts it there.

        ``title`` is how sentences call it, with its processes and NPUs; the others are those of :class:`NpuUser`.
        """

        title: str
        name: str
        kind: str
        unit: str | None
        npus: List[UsedNpu]
        pids: List[int]
        cpus: str
        pool: str
        next: str

    class _Topology(TypedDict):
        schema: int
        machine: Dict[str, Any]
        cpus: Cpus
        numa: List[Node]
        npus: List[Npu]
        driver: Dict[str, Any]
        irqbalance: Dict[str, Any]
        kubelet: Dict[str, Any] | None
        applied: Plan | None
        problems: List[str]

    class Topology(_Topology, total=False):
        """The fact ``npu_affinity_topology``. The keys below are there where something asked for them, ``users`` but in old records."""

        users: List[NpuUser]
        unlisted: List[Unlisted]
        drop_ins: Dict[str, str]
        programs: Dict[str, str | None]
        missing_units: List[str]
        unit_environment: Dict[str, Dict[str, Any]]
        memory: Dict[str, Any]
        others: List[Dict[str, Any]]

    class PlanEntry(TypedDict, total=False):
        """What a plan gives one NPU or GPU."""

        kind: str
        id: int
        chip: int
        phy_id: int | None
        pci: str
        pool: str
        irq: str
        main: str
        kv: str
        acl: str
        release: str
        mems: str
        memory_nodes: str
        slice: str
        offline: str
        released: str
        unlisted: bool

    class Plan(TypedDict, total=False):
        """The fact ``npu_affinity_plan``; in a topology, what a later plan needs of the one in force."""

        schema: int
        strategy: str
        requested: str
        reason: str
        cpus: str
        housekeeping: str
        npus: List[PlanEntry]
        repaired: List[str]
        warnings: List[str]
        quality: Dict[str, Any]
        options: Dict[str, Any]
        lost: List[PlanEntry]
        violations: List[str]
        poll: str
        refused: str
