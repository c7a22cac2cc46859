# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of the documents that travel between controller and host, for type checkers, and for the controller, which checks archives by
them. Host code imports them for type checkers alone: Python 3.7 has no ``TypedDict``.

CPU sets are kernel cpulists (``0-23,48-71``), sizes are in MiB where their names say so.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 11):
    from typing import Any, Dict, List, Sequence, TypedDict

    if TYPE_CHECKING:
        from typing_extensions import NotRequired
    else:
        from typing import NotRequired

    class Cpus(TypedDict):
        online: str
        offline: str
        isolated: str
        siblings: List[str]
        caches: List[str]
        sockets: List[str]
        workqueues: str

    class Partition(TypedDict):
        """A cgroup that is a cpuset partition: ``kind`` is root or isolated; the kernel grants its CPUs only if it is ``valid``."""

        group: str
        kind: str
        valid: bool
        cpus: str

    class Isolation(TypedDict, total=False):
        """What sets CPUs apart: parameters of the kernel command line by their names, and partitions."""

        isolcpus: str
        flags: List[str]
        nohz_full: str
        rcu_nocbs: str
        irqaffinity: str
        partitions: List[Partition]

    class Owner(TypedDict, total=False):
        """A socket by its place in ``sockets``, or the PCI function of a GPU."""

        socket: int
        gpu: str

    class Node(TypedDict):
        """``owner`` is whose its memory is (:mod:`memory_nodes`)."""

        id: int
        cpus: str
        memory_mib: int
        distances: Dict[Any, int]
        owner: Owner | None

    class DeviceFile(TypedDict):
        """A device file by the number in its name, None where that is not known. ``known_by`` is npu-smi, sysfs, interrupts or unknown."""

        number: int | None
        file: str | None
        known_by: str

    UsedNpu = TypedDict("UsedNpu", {"kind": str, "id": int})

    class Npu(UsedNpu):
        """An NPU or GPU of a topology. ``driver`` is the one that is bound to its PCI function, ``parts`` are its hard vNPUs."""

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
        device: DeviceFile
        driver: str | None
        parts: List[Any]
        mig: NotRequired[List[str]]

    PciDevice = TypedDict("PciDevice", {"family": str, "numa": int | None})

    class Unlisted(PciDevice):
        """An accelerator on the bus that its tool does not list."""

        pci: str

    class Nic(TypedDict):
        """A network function. ``distances``: the ids of NPUs, as a cpulist, by the NUMA distance between them and this function.

        ``rdma``: the names of its RDMA devices. ``near``: the NPUs and GPUs, as in the names of slices, to which none is nearer.
        """

        pci: str
        name: str
        driver: str
        numa: int | None
        distances: Dict[str, str]
        rdma: List[str]
        near: List[str]

    class UserProcess(TypedDict):
        """A process that uses accelerators: ``start`` is field 22 of ``/proc/<pid>/stat``, which tells it from a later one of that number.

        ``devices`` are names below ``/dev`` on the host, ``cpus`` those that its threads may use, all together.
        """

        pid: int
        start: int
        command: str
        devices: List[str]
        cpus: str

    class Rank(TypedDict):
        """A process of a service or container that has some of its devices: ``local`` is the share of its pages on the nodes of these, in
        percent, by a sample; None where that is not known."""

        rank: int
        pid: int
        npus: List[UsedNpu]
        cpus: str
        local: int | None

    class _User(TypedDict):
        kind: str
        unit: str | None
        name: str
        npus: List[UsedNpu]
        cpus: str
        memory_mib: NotRequired[Dict[str, int]]

    class NpuUser(_User):
        """What uses accelerators, by cgroup: ``group`` is its path as systemd has it.

        ``kind`` is one of service, container, pod, session and other; ``unit`` the service or scope; ``engine`` one of docker,
        podman, containerd, crio and ''; ``container`` the full id of 64 digits. Sentences say ``name``: of a container that in its
        engine's files, else its short id; of a service or pod the unit; else the command. ``cpus`` and ``mems`` are those that its cgroup
        grants, '' where they are not known. ``witness``: a process has a device ``open``, the group is only ``allowed`` to open one (then
        it has no ``processes``), npu-smi (``tool``) is the only one to list it, or it had one open when it was adopted (``recorded``).
        ``unassigned``, where there are any, are its devices of other NPUs than those that were asked for; ``memory_mib`` is its memory by
        NUMA node, of a service or container where the kernel tells; ``around`` the CPUs that can be given to its threads: those of the
        group around a service or container, or of its own group, where these are not all. ``ranks`` are those of a gathered service or
        container of several devices, and ``rank`` is the number of a user that is one of them.
        """

        group: str
        engine: str
        container: str | None
        devices: List[str]
        processes: List[UserProcess]
        mems: str
        witness: str
        unassigned: NotRequired[List[str]]
        around: NotRequired[str]
        ranks: NotRequired[List[Rank]]
        rank: NotRequired[int]

    class OutsideUser(_User):
        """A user outside the pools of its NPUs: its processes may run on ``cpus``, the NPUs have ``pool``.

        ``next`` says what puts it there, ``command`` is that as a command for the host, '' where no command alone does it, and it is
        ``adoptable`` if a bind with npu_affinity_adopt: now does it. ``title`` is how sentences call it, with its processes and NPUs; the
        others are those of :class:`NpuUser`. One that is inside and has fewer CPUs than its role, or another memory policy, has the
        ``cause``.
        """

        title: str
        pids: List[int]
        pool: str
        next: str
        command: str
        adoptable: bool
        cause: NotRequired[str]

    class Driver(TypedDict):
        """``npu_smi`` is the version of the tool, ``path`` where it is if only the session of the run finds it."""

        version: str | None
        npu_smi: str | None
        path: NotRequired[str]

    class Splits(TypedDict, total=False):
        """Into what chips can be split, by their names; ``recover``: whether the driver restores hard vNPUs after a reboot."""

        templates: Dict[str, List[Any]]
        ai_cores: Dict[str, int]
        recover: bool | None

    class Kubelet(TypedDict, total=False):
        """The files of a kubelet. ``exclusive``: the CPUs of each ``pod/container``, or of each id of a container (state of version 1).

        ``version`` is None where it is not known, ``fail_cgroup_v1`` where it is not set. ``policy_without`` is the policy without the
        drop-in of npu.affinity. ``reserved_cpus`` is None where the kubelet chooses so many ``reserved_millicpus`` itself.
        """

        version: str | None
        policy: str
        policy_without: str
        options: Dict[str, str]
        topology_policy: str
        topology_options: Dict[str, str]
        topology_scope: str
        feature_gates: Dict[str, str]
        fail_cgroup_v1: str | None
        reserved_cpus: str | None
        reserved_millicpus: int
        default_cpus: str | None
        exclusive: Dict[str, str]
        config: str
        config_dir: str | None
        sources: List[str]
        warnings: List[str]

    class Topology(TypedDict):
        """The fact ``npu_affinity_topology``. Keys that are not required are there where something asked for them."""

        schema: int
        machine: Dict[str, Any]
        cpus: Cpus
        numa: List[Node]
        npus: List[Npu]
        driver: Driver
        irqbalance: Dict[str, Any]
        kubelet: Kubelet | None
        applied: Plan | None
        problems: List[str]
        users: List[NpuUser]
        hugepages: Dict[str, Dict[str, int]]
        isolation: Isolation
        unlisted: List[Unlisted]
        nics: List[Nic]
        drop_ins: Dict[str, str]
        programs: Dict[str, str | None]
        allocator: str | None
        guests: NotRequired[List[Dict[str, str]]]
        silent: NotRequired[Dict[str, str]]
        hugepages_before: NotRequired[Dict[str, Dict[str, int]]]
        adopt: NotRequired[Dict[str, Any]]
        missing_units: NotRequired[Dict[str, str]]
        unit_environment: NotRequired[Dict[str, Dict[str, Any]]]
        memory: NotRequired[Dict[str, Any]]
        others: NotRequired[List[Dict[str, Any]]]
        vnpus: NotRequired[Splits]

    class PlanEntry(UsedNpu):
        """What a plan gives one NPU or GPU."""

        card: NotRequired[int | None]
        chip: int
        phy_id: int | None
        pci: str
        pool: str
        irq: str
        main: str
        kv: NotRequired[str]
        acl: str
        release: str
        mems: str
        memory_nodes: str
        slice: str
        offline: NotRequired[str]
        released: NotRequired[str]
        unlisted: NotRequired[bool]

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
        follow: bool
        refused: str

    class FileEntry(TypedDict):
        """A file of a desired state; ``mode`` is octal."""

        path: str
        content: str
        mode: NotRequired[str]

    class Restarted(TypedDict):
        """A unit that is restarted when one of the files changed."""

        unit: str
        files: Sequence[str]

    class UnitSets(TypedDict):
        """The cpulists that the kernel must grant a unit, '' where they are not checked; ``more``: CPUs that it may have besides."""

        unit: str
        cpus: str
        mems: str
        more: NotRequired[str]

    class Traces(TypedDict):
        """By which paths, as shell patterns, and sections of previous.json one finds what an earlier bind did for a feature."""

        owned: List[str]
        sections: List[str]

    class BoundService(TypedDict):
        """``settings`` are the lines of its drop-in, in order; ``devices`` and ``switches`` the variables that it sets."""

        name: str
        description: str
        settings: Dict[str, str]
        devices: NotRequired[Dict[str, str]]
        switches: NotRequired[Dict[str, str]]

    BoundWorkload = TypedDict("BoundWorkload", {"name": str, "slice": str, "npus": List[str], "engine": NotRequired[str]})

    class SlicesLive(TypedDict):
        method: str
        services: List[BoundService]
        workloads: List[BoundWorkload]
        vnpus: List[Dict[str, Any]]
        bound_by: str

    AdoptLive = TypedDict("AdoptLive", {"mode": str, "move_memory": bool, "pods": bool, "environment": Dict[str, bool]})

    class WantedProcesses(TypedDict, total=False):
        """Processes whose threads are placed: those of a slice or unit, of numbers, or with a device of the NPUs open."""

        npus: List[int]
        slice: str
        unit: str
        pids: List[int]
        devices: bool

    class ThreadsLive(TypedDict):
        processes: List[WantedProcesses]
        patterns: Dict[str, Any]
        memory: str
        memory_limit: int

    DeviceShareLive = TypedDict("DeviceShareLive", {"npus": List[Any], "ignore_busy": bool, "npu_smi": str, "timeout": int, "wait": int})

    class HardVnpuLive(TypedDict):
        """``values``: the hard vNPUs of each NPU, by NPU ID and chip, and the switches of the driver."""

        values: Dict[str, str]
        npu_smi: str
        timeout: int

    class HugePagesLive(TypedDict):
        """``nodes``: pages by the id of a NUMA node, which is text in JSON; ``size`` is in KiB."""

        size: int
        nodes: Dict[str, int]

    class NicLive(TypedDict):
        """``mode`` is near, steering or report; ``functions``: the CPUs for the queues of each PCI function."""

        mode: str
        functions: Dict[str, str]

    LayoutFile = TypedDict("LayoutFile", {"name": str, "sha256": str})
    LayoutLive = TypedDict("LayoutLive", {"folder": str, "shared_region": str, "shared_mode": str, "files": List[LayoutFile]})
    KubeletLive = TypedDict("KubeletLive", {"path": str, "content": str})

    class Live(TypedDict, total=False):
        """What the features that are present want of the running host."""

        slices: SlicesLive
        irq: str
        adopt: AdoptLive
        threads: ThreadsLive
        tuning: Dict[str, str | int | None]
        hugepages: HugePagesLive
        hard_vnpu: HardVnpuLive
        nic: NicLive
        device_share: DeviceShareLive
        metrics: str
        vnpu: LayoutLive
        kubelet: KubeletLive

    class FilesAndUnits(TypedDict):
        """What module host_files takes of the same names, and what comes with it."""

        files: List[FileEntry]
        owned: List[str]
        enabled: List[str]
        started: List[str]
        stopped: List[str]
        released: List[str]
        restarted: List[Restarted]
        expected: List[UnitSets]
        programs: List[str]
        soft_split: str
        python: str
        runtime: bool

    class MadeState(FilesAndUnits):
        """What the controller makes of a plan for a host. ``features``: whether each is present or absent."""

        schema: int
        features: Dict[str, str]
        hardware: Dict[str, Any]
        plan: Plan | None
        live: Live
        notes: Dict[str, List[str]]
        absent: Dict[str, Traces]

    class AppliedState(MadeState, total=False):
        """What a host applies of a desired state, and what its history keeps.

        ``pending``: what features want of the running host that waits for the controller, None where they are to be absent; ``library``:
        the folder of the host code where it is not the usual one; ``npu_smi``: the command where it is not searched.
        """

        pending: Dict[str, Any]
        library: str
        npu_smi: str

    class DifferingNpu(TypedDict):
        """An NPU of the plan in force or of the one made: its pools ``now`` and ``then``, None where it is in one of them only."""

        npu: str
        pci: str
        slice: str
        now: str | None
        then: str | None
        sentence: str | None

    DifferingUser = TypedDict("DifferingUser", {"user": str, "npus": str, "cpus": str, "mems": str, "slice": str | None, "now": str | None})

    class Difference(TypedDict):
        """A plan next to the one in force."""

        in_force: bool
        slices: bool
        npus: List[DifferingNpu]
        users: List[DifferingUser]
        restart: List[str]
        changes: List[str] | None

    class Assessment(TypedDict):
        """What the controller says of a desired state. ``codes``: refusals by their code; ``muted``: until when and why, by code."""

        refusals: List[str]
        remarks: List[str]
        codes: Dict[str, List[str]]
        summary: str
        difference: Difference | None
        outside: List[str]
        processes: List[Dict[str, Any]]
        settings: Dict[str, Any]
        profile: str
        muted: Dict[str, str]

    class DesiredState(AppliedState, Assessment):
        """The fact ``npu_affinity_state``. ``digest``: that of what a host applies of it."""

        digest: str
        converged: bool

    class Drift(TypedDict):
        """An object that is not as expected, as module ``binding_info`` returns it."""

        code: str
        kind: str
        object: str
        expected: str
        found: str
        cause: str
        remark: str
        npu: int | None
        device: str | None
        pci: str | None
        unit: str | None
        expected_cpus: str | None
        found_cpus: str | None
        sentence: str

    class Run(TypedDict):
        """One call of a playbook that changes hosts, as every entry of a history has it; ``time`` is when it began, in UTC."""

        id: str
        time: str
        inventory: str

    class LastChange(TypedDict):
        """An entry of the history of a host without its state."""

        id: int
        time: str
        version: str
        action: str
        author: str
        reason: str
        run: Run

    class Comparison(TypedDict):
        """A host next to its state in force, as module ``binding_info`` returns it."""

        bound: bool
        changes: List[str]
        drift: List[Drift]
        checked: Dict[str, List[str]]
        outside: List[OutsideUser]
        outside_sentence: str
        remarks: List[str]
        last_change: LastChange | None

    class NotCompared(TypedDict):
        """Why a host could not be compared."""

        msg: str

    class ToolAnswer(TypedDict):
        """The lines that a vendor's tool printed; ``rc`` None: why it could not be judged."""

        command: str
        rc: int | None
        output: List[str]

    class Archive(TypedDict):
        """What is archived of a host. ``in_force``: the applied state, with digests for contents; ``settings``: those of its plan."""

        about: str
        schema: int
        version: str
        time: str
        host: str
        settings: Dict[str, Any]
        topology: Topology
        in_force: Dict[str, Any] | None
        compared: Comparison | NotCompared
        tools: List[ToolAnswer]

    class Cost(TypedDict):
        """What a bind would cost a host: CPUs of the smallest pool, pool CPUs that are not local, memory to move, services to restart."""

        smallest: int
        remote: int | None
        memory_mib: int | None
        restart: List[str]

    class SummaryOfHost(TypedDict):
        """The result of a run for a host; ``cost`` is that of a plan, ``run`` the one that a rollback went back to, or ''. ``codes``: until
        when and why each code is muted, '' if it is not."""

        state: str
        reasons: List[str]
        codes: Dict[str, str]
        remarks: List[str]
        restart: List[str]
        adopted: Dict[str, int]
        method: str
        cost: Cost | None
        run: str
        fails: bool

    class SummaryOfPlan(TypedDict):
        """A plan with the hosts that have it."""

        strategy: str
        housekeeping: str
        pools: Dict[str, str]
        hosts: List[str]

    NextStep = TypedDict("NextStep", {"command": str, "purpose": str})

    class Summary(TypedDict):
        """The results of a run for all hosts: ``states`` has the hosts by state."""

        playbook: str
        check: bool
        stopped: str
        states: Dict[str, List[str]]
        plans: List[SummaryOfPlan]
        hosts: Dict[str, SummaryOfHost]
        next: List[NextStep]
