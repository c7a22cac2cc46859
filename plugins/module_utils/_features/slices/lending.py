# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs of idle pools, lent to the slices of the system until work starts, by a part of the watcher.

They always have the floor. While no workload holds a pool, they also have its CPUs. Taking CPUs away is never delayed, and giving them is
bounded: each change moves all work of the system. What is lent is a setting of systemd that ends with the next boot, on top of drop-ins
with the floor.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, AbstractSet, Container, Deque, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence, Set

from ..._base.cpulist import compress, expand
from ..._base.findings import Device, with_lost
from ..._base.outside import json_of, require_shape, say
from ..._host.host import CommandError, Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import granted
from ..._kernel.process_events import Ends
from ..._kernel.processes import every_pid, groups_below
from ..._state import lock
from ..._state.plan_file import read
from ..._state.systemd import RUNTIME_CONTROLS, Systemd
from ..._state.unit_files import drop_in_of
from ..._users.devices import numbers, opened, owners
from ..._users.groups import path_of
from ..._users.finding import is_monitor
from ..watching import Births, Watching
from .feature import HOUSEKEEPING, HOUSEKEEPING_UNITS

if TYPE_CHECKING:
    from ..._base.documents import Plan, PlanEntry

Holders = Dict[int, Set[int]]
"""The CPUs of the pools that a process holds, by its number."""
_TOPS = ("npu.slice", "gpu.slice")
_LOCK = "/etc/npu-affinity"
"""A folder that is there wherever something can be lent: flock(2) takes it as it is, and the kernel lets go of it."""
PATIENCE = 30.0
PER_MINUTE = 4
"""How often CPUs are given within a minute."""
MINUTE = 60.0


def has_to_wait(gifts: Sequence[float], now: float) -> bool:
    """Whether the system was given CPUs so often within a minute that it waits for more; ``gifts`` are the last times."""
    return len(gifts) == PER_MINUTE and now - gifts[0] < MINUTE


class Lending(NamedTuple):
    """What a host lends by a plan. ``floor``: what the system always has; ``most``: what it has besides while no workload runs."""

    floor: AbstractSet[int]
    most: AbstractSet[int]
    plan: Plan

    @property
    def pools(self) -> list[tuple[PlanEntry, set[int]]]:
        return [(npu, set(expand(npu["pool"]))) for npu in with_lost(self.plan)]

    def held(self, holders: Holders) -> set[int]:
        """Return the CPUs of all pools of which some are held: what shares a pool shares its caches."""
        cpus: set[int] = set().union(*holders.values())
        return cpus.union(*(pool for _npu, pool in self.pools if pool & cpus))

    def available(self, held: AbstractSet[int]) -> set[int]:
        """Return all that the system may have while workloads hold some CPUs."""
        return set(self.floor | (self.most - held))

    def changes(self, given: Mapping[str, AbstractSet[int]], held: AbstractSet[int], may_give: bool) -> dict[str, set[int]]:
        """Return ``{unit: CPUs}`` of the units that are to have others than they were ``given``, those that lose some first.

        Without ``may_give`` no unit gets more than the floor and what it has.
        """
        everything = self.available(held)
        wanted = {unit: everything if may_give else set(self.floor | (cpus & everything)) for unit, cpus in given.items()}
        changed = [unit for unit in given if wanted[unit] != given[unit]]
        return {unit: wanted[unit] for unit in sorted(changed, key=lambda unit: given[unit] <= wanted[unit])}


def lending(host: Host) -> Lending | None:
    """Return what a host lends, None where housekeeping does not follow. Raises ``ValueError`` for files that say nothing."""
    text = host.text(HOUSEKEEPING)
    plan = read(host) if text is not None else None
    if text is None or plan is None:
        return None
    limits = json_of(text)
    require_shape(limits, {"floor": str, "most": str}, HOUSEKEEPING)
    return Lending(set(expand(limits["floor"])), set(expand(limits["most"])), plan)


def holders(host: Host, plan: Plan, among: Iterable[int] | None = None) -> Holders:
    """Return what holds pools: processes with an open device, except for those that only watch it, and those in slices of workloads.

    ``among``: look at these processes only. Of a workload or vNPU that has a part of a pool, this part.
    """
    pids = every_pid(host) if among is None else list(among)
    result: Holders = {}
    files, npus = numbers(host), with_lost(plan)
    names = {pid: set(opened(host, pid, files).values()) for pid in pids}
    names = {pid: of_pid for pid, of_pid in names.items() if of_pid and not is_monitor(host, pid)}
    whose = owners(host, npus) if names else {}
    pools = {Device.of(npu): set(expand(npu["pool"])) for npu in npus}
    for pid, of_pid in names.items():
        result[pid] = set().union(*(pools[whose[name]] for name in of_pid if name in whose))
    if among is None:
        groups = [group for top in _TOPS for group in groups_below(host, "%s/%s" % (CGROUPS, top))]
    else:
        paths = [path_of(host.read("/proc/%d/cgroup" % pid)) or "" for pid in pids]
        groups = [CGROUPS + path for path in paths if path.split("/")[1:2] in [[top] for top in _TOPS]]
    for group in groups:
        members = (host.read(group + "/cgroup.procs") or "").split()
        cpus = granted(host, group) if members else None
        for name in members:
            result.setdefault(int(name), set()).update(cpus or ())
    return {pid: cpus for pid, cpus in result.items() if cpus}


def given(host: Host) -> dict[str, set[int]]:
    """Return what the slices of the system have, by unit; those without a control group are not there."""
    systemd = Systemd(host)
    folders = {unit: systemd.cgroup(unit) for unit in HOUSEKEEPING_UNITS}
    texts = {unit: host.read(folder + "/cpuset.cpus") for unit, folder in folders.items() if folder}
    everything = read_list(host, CPU_FOLDER + "/online")
    return {unit: set(expand(text)) or everything for unit, text in texts.items() if text is not None}


def give(host: Host, sets: Mapping[str, set[int]]) -> None:
    """Let units have CPUs until the next change or boot: each of them, also where another one fails."""
    failed = []
    for unit, cpus in sets.items():
        try:
            Systemd(host).set_live(unit, {"AllowedCPUs": cpus})
        except (CommandError, ValueError) as error:
            failed.append(str(error))
    if failed:
        raise ValueError("; ".join(failed))


def restore_floor(host: Host) -> None:
    """Leave the slices of the system the floor. A broken file lends nothing."""
    try:
        loan = lending(host)
    except ValueError:
        return
    if loan:
        give(host, loan.changes(given(host), loan.most, may_give=False))


@contextlib.contextmanager
def locked(host: Host, patience: float = 0.0) -> Iterator[bool]:
    """Keep others from lending and taking back meanwhile; False where another program does so."""
    try:
        descriptor = os.open(host.path(_LOCK), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    deadline, is_locked = time.monotonic() + patience, False
    try:
        while not is_locked:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            except OSError:
                if time.monotonic() >= deadline:
                    break
                time.sleep(0.01)
        yield is_locked
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def nothing_lent(host: Host, paths: Container[str], strict: bool) -> Iterator[None]:
    """Lend nothing while a transaction changes the files ``paths``: what the units have is then what these say.

    With ``strict`` it raises ``ValueError`` where the CPUs cannot be taken back.
    """
    with locked(host, PATIENCE) as is_locked:
        if strict and not is_locked:
            raise ValueError("the CPUs of the system are being changed for %d s; see 'journalctl -u npu-affinity-watch'" % PATIENCE)
        with contextlib.suppress(*(() if strict else (ValueError,))):
            restore_floor(host)
        systemd = Systemd(host)
        units = [unit for unit in HOUSEKEEPING_UNITS if host.exists(HOUSEKEEPING) and (HOUSEKEEPING in paths or drop_in_of(unit) in paths)]
        overridden = [unit for unit in units if systemd.set_by_hand(unit, RUNTIME_CONTROLS)]
        for unit in overridden:
            systemd.drop_runtime_settings(unit)
        if overridden:
            systemd.reload()
        yield


def sentence(loan: Lending, has: Mapping[str, set[int]]) -> str:
    """Return which CPUs the units of :func:`given` have beyond the floor, and whose they are."""
    lent = set().union(*has.values()) - loan.floor
    idle: dict[str, list[int]] = {}
    for device in [Device.of(npu) for npu, pool in loan.pools if pool & lent]:
        idle.setdefault(device.kind.upper(), []).append(device.id)
    whose = " and ".join("%s %s" % (kind, compress(ids)) for kind, ids in idle.items())
    values = ", ".join(has), "have" if len(has) > 1 else "has", compress(lent | loan.floor)
    lent_by = "those of %s while no workload runs there" % whose if idle else "and no pool"
    return "Housekeeping follows the workloads: %s %s CPUs %s, %s" % (*values, lent_by)


class Housekeeping(Watching):
    """Changes the slices of the system alone. A transaction lends nothing meanwhile, and what it changes is lent by the next look."""

    def __init__(self, host: Host) -> None:
        Watching.__init__(self, host)
        self._gifts: Deque[float] = collections.deque(maxlen=PER_MINUTE)
        self._ends = Ends(host)
        self._is_lending = False

    @property
    def descriptor(self) -> int:
        return self._ends.descriptor

    @property
    def is_urgent(self) -> bool:
        return self._is_lending

    def look(self) -> bool:
        self.again = not self._follow(None)
        return self.host.exists(HOUSEKEEPING)

    def concerns(self, group: str) -> bool:
        return self._is_lending and ("/npu.slice" in group or "/gpu.slice" in group)

    def born(self, births: Births) -> bool:
        pids = [pid for pid, threads in births.items() if threads is None]
        return self._is_lending and bool(pids) and not self._follow(pids)

    def announced(self) -> bool:
        return bool(self._ends.read())

    def end(self) -> None:
        """Take back what is lent: nobody would when work starts."""
        with locked(self.host) as is_locked:
            if is_locked:
                restore_floor(self.host)

    def _follow(self, pids: list[int] | None) -> bool:
        """Take back what processes hold, with None what all hold, and then give the rest. Return whether that was done."""
        try:
            loan = lending(self.host)
            if loan is None:
                self._is_lending = False
                self._ends.watch([])
                return True
            holding = holders(self.host, loan.plan, pids)
            if pids is None:
                self._ends.watch(holding)
            elif not holding:
                return True
            with locked(self.host) as is_locked:
                if is_locked:
                    self._change(loan, holding, is_all=pids is None)
                return is_locked
        except (CommandError, OSError, ValueError) as error:
            self._say(["The CPUs of the system do not follow the workloads: %s" % error], pids is None)
            return False

    def _change(self, loan: Lending, holding: Holders, is_all: bool) -> None:
        now, has, held = time.monotonic(), given(self.host), loan.held(holding)
        may_give = is_all and not has_to_wait(self._gifts, now) and lock.holder(self.host) is None
        wanted = loan.changes(has, held, may_give)
        if any(cpus - has[unit] - loan.floor for unit, cpus in wanted.items()):
            self._gifts.append(now)
        self._is_lending = True  # also where a part of the changes fails
        give(self.host, wanted)
        self._is_lending = any({**has, **wanted}[unit] - loan.floor for unit in has)
        for unit, cpus in wanted.items():
            pids = sorted(pid for pid, pools in holding.items() if pools & (has[unit] - cpus))
            why = " (for process %s%s)" % (", ".join(map(str, pids[:3])), ", …" if len(pids) > 3 else "") if pids else ""
            say("%s: CPUs %s -> %s%s" % (unit, compress(has[unit]), compress(cpus), why))
