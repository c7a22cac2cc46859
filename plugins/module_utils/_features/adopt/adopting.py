# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Confine running work to the CPUs of its NPUs, and give back what it had.

Exit statuses prove nothing here: systemd and the engines answer 0 where nothing changed, and the kernel grants another set than was written
where the group around has none of it. So every thread is read afterwards, and what is not inside is undone and reported.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Sequence, Tuple

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._base.findings import Device
from ..._base.fitting import Variables, values_of
from ..._kernel.device_access import device_access
from ..._kernel.machine import CONTROLLERS
from ..._kernel.memory import nodes_with_memory, patience
from ..._state.files import FileState
from ..._state.plan_file import memory_nodes
from ..._state.systemd import Systemd
from ..._users.devices import numbers
from ..._users.engines import CRI, allowed_to
from ..._users.finding import is_whole
from . import services, tasks
from .choosing import NOTHING, Expected, targets
from .engines import Engines
from .target import ADOPTED, CONTAINER, FAILED, SERVICE, THREADS, Target
from .leaving import Leaving
from .memory import move
from .record import Record

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

DropIn = Tuple[Dict[str, str], Variables]
"""The sets and the variables that the drop-in of a service has."""


def _used(host: Host, targets: Sequence[Target]) -> set[str]:
    """Return the keys by which the record has users of the plan's NPUs."""
    keys = {key for target in targets for key in (target.unit, target.user["container"]) if key}
    return keys.union(str(pid) for target in targets for pid in target.pids(host))


def _stale(record: Record, targets: Sequence[Target], plan: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, DropIn]:
    """Return the drop-ins of services that somebody removed or edited, or, where a service does not run, of an earlier plan or setting."""
    host = record.host
    npus = {(Device.of(npu).kind, npu["id"]): npu for npu in plan["npus"]}
    running = {target.unit: target for target in targets if target.way == SERVICE}
    found = {}
    for unit, entry in record.services.items():
        held = [npus[(kind, number)] for kind, number in entry["npus"] if (kind, number) in npus]
        lists = [memory_nodes(npu) for npu in held]
        sets = {"cpus": compress({cpu for npu in held for cpu in expand(npu["pool"])})}
        if entry.get("mems"):
            nodes = {node for text in lists for node in expand(text)} if all(lists) else nodes_with_memory(host)
            sets["mems"] = compress(nodes)
        said = services.said(host, unit)
        if unit in running:
            target, written = running[unit], {kind: entry[kind] for kind in ("cpus", "mems") if entry.get(kind)}
            if target.is_kept and target.wanted == set(expand(entry["cpus"])) and said != written and not services.is_others(host, unit):
                found[unit] = written, target.variables
            continue
        if not sets["cpus"] or said is None:
            continue
        variables, _kept = services.variables(host, unit, held, sets["cpus"], wanted.get("environment") or {})
        is_stale = said != sets or services.variables_said(host, unit) != values_of(variables)
        if is_stale and not (host.live and Systemd(host).cgroup(unit)):
            found[unit] = sets, variables
    return found


class Adoption:
    """The adoption of one host: ``targets`` with what would or did become of each, ``refreshed`` the drop-ins that only a next start reads.

    :meth:`run` takes the host's lock to be held. ``wanted``: ``move_memory``, whether memory may move, too, and ``environment``, which
    variables the drop-ins of services set. ``state``: the desired state that is applied, None where that in force is followed. ``is_part``:
    ``users`` are some of those of the host, of which processes in sessions alone are adopted.
    """

    def __init__(
        self,
        host: Host,
        plan: Mapping[str, Any],
        users: Iterable[NpuUser],
        expected: Expected,
        wanted: Mapping[str, Any] = NOTHING,
        state: Mapping[str, Any] | None = None,
        is_part: bool = False,
    ) -> None:
        self.host = host
        self.is_part = is_part
        self.engines = Engines(host)
        self.targets = targets(host, plan, users, expected, wanted, self.engines, state, is_part)
        self.record = Record(host)
        self.follow = services.follow_at_once(host)
        self.drop_ins: dict[str, FileState] = {}
        self.refreshed = {} if is_part else _stale(self.record, self.targets, plan, wanted)
        named = {unit: services.configured(host, unit, state) for unit in self.record.services}
        moved = [unit for unit, cpus in named.items() if cpus is not None and cpus != set(expand(self.record.services[unit]["cpus"]))]
        moved += [pid for pid, entry in self.record.processes.items() if posixpath.basename(entry["group"]) in moved]
        if not wanted.get("pods"):
            moved += self.record.of_pods()
        self.leaving = Leaving(host, plan, _used(host, self.targets).difference(moved), moved)
        if not is_part:
            self.leaving.look()

    @property
    def adopted(self) -> list[Target]:
        return [target for target in self.targets if target.state == ADOPTED and not (self.is_part and is_whole(target.user))]

    @property
    def changed(self) -> bool:
        return bool(self.adopted or self.refreshed or self.leaving.changed)

    def run(self) -> None:
        """Adopt what is to be adopted. What fails alone is undone and reported; raises what systemd raises."""
        if not self.changed:
            return
        self._note()
        self.record.store()
        by_way = {way: [target for target in self.adopted if target.way == way] for way in (SERVICE, CONTAINER, THREADS)}
        with patience(self.host, sum(target.moved for target in self.adopted)):
            self._write_drop_ins(by_way[SERVICE])
            for target in by_way[CONTAINER]:
                self._attempt(target, self._update, target)
        for target in ([] if self.follow else by_way[SERVICE]) + by_way[THREADS]:  # ranks after all of their service
            self._confine(target)
        groups = {target.user["group"] for target in self.adopted if not target.is_rank}
        for target in (rank for rank in self.targets if rank.is_rank and rank.is_kept and rank.user["group"] in groups):
            self._confine(target)  # all of its service were widened, or forgot their CPUs with the new set (before Linux 6.2)
        for target in self.adopted:
            self._read_back(target)
            move(self.host, target)
        self.record.store()
        if self.leaving.changed:
            self._give_back()

    def _write_drop_ins(self, found: Sequence[Target]) -> None:
        """Write the drop-ins of services, with one reload for all, and give those that run the same CPUs at once."""
        for unit, (sets, variables) in self.refreshed.items():
            self.drop_ins[unit] = FileState.of(self.host, services.drop_in(unit))
            services.put(self.host, unit, sets, variables)
        for target in found:
            self.drop_ins[target.unit] = FileState.of(self.host, services.drop_in(target.unit))
            self._attempt(target, services.put, self.host, target.unit, target.sets, target.variables)
        if not self.drop_ins:
            return
        services.load(self.host, self.drop_ins)
        self.record.confirm(*self.refreshed)
        units = {target.unit: target for target in found if not target.text}
        for unit, why in services.follow(self.host, {unit: target.sets for unit, target in units.items()}).items():
            units[unit].text = why

    def _give_back(self) -> None:
        """Restore the CPUs of work that has left the plan. What fails stays in the record until the next run or an unbind."""
        self.leaving.release()
        if not self.leaving.outcome.failed:
            self.record.drop(self.leaving.keys)

    def _confine(self, target: Target) -> None:
        """Keep the threads of processes on the CPUs of a target. What has started since it was noted is noted first."""
        for pid in target.pids(self.host):
            if str(pid) not in self.record.processes:
                self._note_process(target, pid)
                self.record.store()
            if self.record.lives(str(pid)):
                former = [*self.record.former(pid), *target.handed_down]
                self._attempt(target, tasks.confine, self.host, pid, target.wanted, former)

    def _update(self, target: Target) -> None:
        """Give a container its sets, by which one of a pod must not lose a device."""
        pids = target.pids(self.host) if target.engine == CRI and self.host.live else []
        before = device_access(self.host, pids[0]) if pids else ()
        self.engines.update(target.engine, target.user["container"] or "", target.sets)
        if pids and device_access(self.host, pids[0]) != before and not self._allows(target):
            raise ValueError("its runtime changed which devices it may open; if it has lost one, delete its pod")

    def _allows(self, target: Target) -> bool:
        """Whether systemd allows the devices of a container: on cgroup v2, it adds a program to that of runc when it changes a scope."""
        return self.host.exists(CONTROLLERS) and set(target.user["devices"]) <= allowed_to(self.host, target.unit, numbers(self.host))

    def _attempt(self, target: Target, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except (CommandError, OSError, ValueError) as error:
            target.text = str(error)

    def _read_back(self, target: Target) -> None:
        """Give threads again what they had asked for within the new set, as far as the kernel forgot it, and see that all are inside."""
        for pid in target.pids(self.host):
            asked = {name: set(expand(cpus)) for name, cpus in self.record.masks.get(pid, {}).items()}
            former = [*self.record.former(pid), *target.handed_down]
            own = {name: compress(cpus) for name, cpus in asked.items() if cpus < target.wanted and cpus not in former}
            inherited = [name for name, cpus in asked.items() if target.by_group and cpus in target.handed_down]
            if self.record.lives(str(pid)):
                tasks.restore(self.host, pid, dict(own, **dict.fromkeys(inherited, compress(target.wanted))))
        found = {cpu for pid in target.pids(self.host) for cpus in tasks.masks(self.host, pid).values() for cpu in expand(cpus)}
        granted = target.granted(self.host) if target.by_group else set()
        mems = target.granted(self.host, "mems") if "mems" in target.sets else set()
        if not (target.text or found <= target.wanted and granted <= target.wanted):
            text = "it was given CPUs %s, and runs on %s" if granted <= found else "it was given CPUs %s, and its control group grants %s"
            target.text = text % (compress(target.wanted), compress(found if granted <= found else granted))
        elif not (target.text or mems <= set(expand(target.mems))):
            target.text = "it was given memory nodes %s, and its control group grants %s" % (target.mems, compress(mems))
        elif target.by_group and target.moved and not (target.text or mems):
            target.text = "it ended while its memory was moved to nodes %s" % target.mems
        if target.text:
            self._take_back(target)
        else:
            self.record.confirm(*self._keys(target))

    def _keys(self, target: Target) -> list[str]:
        return [target.user["container"] or "", target.unit, *map(str, target.pids(self.host))]

    def _take_back(self, target: Target) -> None:
        """Give back what could not be adopted. Where that fails, too, the record stays for the next run or an unbind."""
        why = target.text
        try:
            self._undo(target)
            self.record.revert(*self._keys(target))
            self.record.store()
        except (CommandError, OSError, ValueError) as error:
            why += "; undoing that failed as well: %s" % error
        target.refuse(why, FAILED)

    def _note(self) -> None:
        """Note in the record what there is now."""
        self.record.forget_ended()
        for unit, (sets, _variables) in self.refreshed.items():
            self.record.note_service(unit, sets)
        ranks = {pid for rank in self.targets if rank.is_rank for pid in rank.pids(self.host)}
        for target in self.adopted:
            if target.way == SERVICE:
                self.record.note_service(target.unit, dict(target.sets, npus=target.keys))
            elif target.way == CONTAINER:
                self.record.note_container(target.user, target.engine, target.engine_before, dict(target.sets, npus=target.keys))
            is_remembered = target.by_group and not target.handed_down and tasks.are_remembered(self.host)
            for pid in () if is_remembered else set(target.pids(self.host)) - (set() if target.is_rank else ranks):
                self._note_process(target, pid)

    def _note_process(self, target: Target, pid: int) -> None:
        sets: dict[str, Any] = {"cpus": ""} if target.by_group else dict(target.sets, **({"mems": target.mems} if target.mems else {}))
        if target.is_rank:
            sets["rank"] = target.user["rank"]
        self.record.note_process(pid, target.user, target.title, dict(sets, npus=target.keys))

    def undo(self) -> None:
        """Give back what this run changed, in the reverse order. Raises ``ValueError`` with what failed; then the record stays."""
        failed = []
        try:
            self.leaving.take_back()
        except ValueError as error:
            failed.append(str(error))
        for target in reversed(self.adopted):
            try:
                self._undo(target)
            except (CommandError, OSError, ValueError) as error:
                failed.append("%s: %s" % (target.title, error))
        left = [unit for unit in self.refreshed if unit in self.drop_ins]
        for unit in left:
            self.drop_ins[unit].put(self.host, services.drop_in(unit))
        if left:
            services.reload(self.host)
        if failed:
            raise ValueError("running work could not all be given back its CPUs: " + "; ".join(failed))
        self.record.take_back()

    def _undo(self, target: Target) -> None:
        if target.way == SERVICE and target.unit in self.drop_ins:
            services.put_back(self.host, target.unit, self.drop_ins.pop(target.unit), self.record.services[target.unit])
        elif target.way == CONTAINER:
            before = dict({"cpus": target.engine_before}, **({"mems": target.mems_recorded} if target.mems else {}))
            self.engines.update(target.engine, target.user["container"] or "", before)
        for pid in target.pids(self.host):
            masks = self.record.masks.get(pid, {})
            if self.record.lives(str(pid)):
                tasks.restore(self.host, pid, masks, masks.get(str(pid)))
