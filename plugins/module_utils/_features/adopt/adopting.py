# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Confine running work to the CPUs of its NPUs, and give back what it had.

Exit statuses prove nothing here: systemd and the engines answer 0 where nothing changed, and the kernel grants another set than was written
where the group around has none of it. So every thread is read afterwards, and what is not inside is undone and reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._base.device import Device
from ..._kernel.masks import cpuset
from ..._state.files import FileState
from ..._state.systemd import Systemd
from . import engines, services, tasks
from .choosing import ADOPTED, CONTAINER, FAILED, SERVICE, THREADS, Target, targets
from .leaving import Leaving
from .record import Record, identity

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

KEEPS_MASKS = (6, 2)
"""The first Linux that gives threads what they had asked for when their cpuset widens (user_cpus_ptr, :mod:`_kernel.masks`)."""


def keeps_masks(host: Host) -> bool:
    found = re.match(r"(\d+)\.(\d+)", host.read("/proc/sys/kernel/osrelease") or "0.0")
    return found is not None and tuple(map(int, found.groups())) >= KEEPS_MASKS


def _used(host: Host, targets: Sequence[Target]) -> set[str]:
    """Return the keys by which the record has users of the plan's NPUs."""
    keys = {key for target in targets for key in (target.unit, target.user["container"]) if key}
    return keys.union(str(pid) for target in targets for pid in target.pids(host))


def _stale(record: Record, targets: Sequence[Target], plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the CPUs of services whose drop-in has those of an earlier plan, and that do not run now."""
    host = record.host
    pools = {(Device.of(npu).kind, npu["id"]): expand(npu["pool"]) for npu in plan["npus"]}
    found_running = {target.unit for target in targets if target.way == SERVICE}
    found = {}
    for unit, entry in record.services.items():
        keys = [tuple(key) for key in entry["npus"]]
        cpus = compress({cpu for key in keys if key in pools for cpu in pools[key]})
        stale = cpus and services.said(host, unit) not in (None, cpus)
        if stale and unit not in found_running and not (host.live and Systemd(host).cgroup(unit)):
            found[unit] = cpus
    return found


class Adoption:
    """The adoption of one host: ``targets`` with what would or did become of each, ``refreshed`` the drop-ins that only a next start reads.

    :meth:`run` takes the host's lock to be held.
    """

    def __init__(self, host: Host, plan: Mapping[str, Any], users: Iterable[NpuUser], expected: Mapping[str, set[int]]) -> None:
        self.host = host
        self.targets = targets(host, plan, users, expected)
        self.record = Record(host)
        self.follow = services.follow_at_once(host)
        self.drop_ins: dict[str, FileState] = {}
        self.masks: dict[int, tasks.Masks] = {}
        self.former: dict[int, set[int]] = {}
        self.refreshed = _stale(self.record, self.targets, plan)
        self.leaving = Leaving(host, plan, _used(host, self.targets))
        self.leaving.look()

    @property
    def adopted(self) -> list[Target]:
        return [target for target in self.targets if target.state == ADOPTED]

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
        self._write_drop_ins(by_way[SERVICE])
        for target in by_way[CONTAINER]:
            self._attempt(target, engines.update, target.user["engine"], target.user["container"], compress(target.wanted))
        for target in by_way[THREADS] + ([] if self.follow else by_way[SERVICE]):
            for pid in target.pids(self.host):
                self._attempt(target, tasks.confine, pid, target.wanted, self.former.get(pid, set()))
        for target in self.adopted:
            self._read_back(target)
        if self.leaving.changed:
            self._give_back()

    def _write_drop_ins(self, found: Sequence[Target]) -> None:
        """Write the drop-ins of services, with one reload for all, and give those that run the same CPUs at once."""
        for unit, cpus in self.refreshed.items():
            self.drop_ins[unit] = FileState.of(self.host, services.drop_in(unit))
            services.put(self.host, unit, cpus)
        for target in found:
            self.drop_ins[target.unit] = FileState.of(self.host, services.drop_in(target.unit))
            self._attempt(target, services.put, target.unit, compress(target.wanted))
        if not self.drop_ins:
            return
        services.load(self.host, self.drop_ins)
        units = {target.unit: target for target in found if not target.text}
        for unit, why in services.follow(self.host, {unit: compress(target.wanted) for unit, target in units.items()}).items():
            units[unit].text = why

    def _give_back(self) -> None:
        """Restore the CPUs of work that has left the plan. What fails stays in the record until the next run or an unbind."""
        self.leaving.release()
        if not self.leaving.outcome.failed:
            self.record.drop(self.leaving.keys)

    def _attempt(self, target: Target, function: Any, *arguments: Any) -> None:
        try:
            function(self.host, *arguments)
        except (CommandError, OSError, ValueError) as error:
            target.text = str(error)

    def _read_back(self, target: Target) -> None:
        """Give threads again what they had asked for within the new set, as far as the kernel forgot it, and see that all are inside."""
        for pid in target.pids(self.host):
            asked = {name: set(expand(cpus)) for name, cpus in self.masks.get(pid, {}).items()}
            own = {name: compress(cpus) for name, cpus in asked.items() if cpus < target.wanted and cpus != self.former.get(pid)}
            tasks.restore(self.host, pid, own)
        found = {cpu for pid in target.pids(self.host) for cpus in tasks.masks(self.host, pid).values() for cpu in expand(cpus)}
        granted = self._granted(target)
        if not (target.text or found <= target.wanted and granted <= target.wanted):
            text = "it was given CPUs %s, and runs on %s" if granted <= found else "it was given CPUs %s, and its control group grants %s"
            target.text = text % (compress(target.wanted), compress(found if granted <= found else granted))
        if target.text:
            self._take_back(target)

    def _granted(self, target: Target) -> set[int]:
        """Return what the kernel grants to new threads of a target that was confined by its group; none where threads alone are."""
        if target.way == THREADS or (target.way == SERVICE and not self.follow):
            return set()
        return {cpu for pid in target.pids(self.host) for cpu in cpuset(self.host, pid) or ()}

    def _take_back(self, target: Target) -> None:
        """Give back what could not be adopted. Where that fails, too, the record stays for the next run or an unbind."""
        why = target.text
        try:
            self._undo(target)
            self._forget(target)
        except (CommandError, OSError, ValueError) as error:
            why += "; undoing that failed as well: %s" % error
        target.refuse(why, FAILED)

    def _note(self) -> None:
        """Note in the record what there is now."""
        self.record.forget_ended()
        for unit in self.refreshed:
            self.record.services[unit] = dict(self.record.services[unit], cpus=self.refreshed[unit])
        for target in self.adopted:
            npus = [[Device.of(npu).kind, npu["id"]] for npu in target.npus]
            cpus = compress(target.wanted)
            if target.way == SERVICE:
                known = self.record.services.get(target.unit, {"folders": services.folders(self.host, target.unit)})
                self.record.services[target.unit] = dict(known, npus=npus, cpus=cpus)
            elif target.way == CONTAINER:
                container = target.user["container"] or ""
                first = {
                    "engine": target.user["engine"],
                    "name": target.user["name"],
                    "before": target.engine_before,
                    "group": target.user["group"],
                }
                self.record.containers[container] = dict(self.record.containers.get(container, first), npus=npus, cpus=cpus)
            by_threads = target.way == THREADS or (target.way == SERVICE and not self.follow)
            for pid in target.pids(self.host) if by_threads or not keeps_masks(self.host) else ():
                self._note_process(target, pid, cpus if by_threads else "")

    def _note_process(self, target: Target, pid: int, cpus: str) -> None:
        started, self.masks[pid] = identity(self.host, pid), tasks.asked_for(self.host, pid)
        if started:
            self.former[pid] = set(expand(self.record.processes.get(str(pid), {}).get("cpus", "")))
            first = {"start": started[0], "boot": started[1], "title": target.title, "threads": self.masks[pid]}
            npus = [[Device.of(npu).kind, npu["id"]] for npu in target.npus]
            self.record.processes[str(pid)] = dict(self.record.processes.get(str(pid), first), npus=npus, cpus=cpus)

    def _forget(self, target: Target) -> None:
        """Record of a user that was not adopted in the end what was recorded before."""
        self.record.revert(target.user["container"] or target.unit, *map(str, target.pids(self.host)))
        self.record.store()

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
            self._undo_service(target.unit)
        elif target.way == CONTAINER:
            engines.update(self.host, target.user["engine"], target.user["container"] or "", target.engine_before)
        for pid in target.pids(self.host):
            if pid in self.masks:
                tasks.restore(self.host, pid, self.masks[pid], self.masks[pid].get(str(pid)))

    def _undo_service(self, unit: str) -> None:
        before = self.drop_ins.pop(unit)
        if before.text is None:
            services.take_away(self.host, {unit: self.record.services[unit]["folders"]})
        else:
            said = before.text.rstrip("\n").rpartition("=")[2]
            services.write(self.host, {unit: said})
