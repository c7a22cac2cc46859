# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work as values (:mod:`_state.value_kind`): the sets of services and containers, and the masks of the threads of processes.

Exit statuses prove nothing here: systemd and the engines answer 0 where nothing changed, and the kernel grants another set than was written
where the group around has none of it. So every thread is read afterwards, and what is not inside is taken back and reported. What fails is
no reason to take back the rest.
"""

from __future__ import annotations

import posixpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Mapping, NamedTuple, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import Device, coded
from ..._base.fitting import Variables, values_of
from ..._host.host import CommandError, Host
from ..._kernel.device_access import device_access
from ..._kernel.machine import CONTROLLERS, is_since
from ..._kernel.masks import cpuset
from ..._kernel.memory import nodes_with_memory
from ..._state import diffs
from ..._state.files import FileState
from ..._state.plan_file import memory_nodes
from ..._state.value_kind import Change, Values
from ..._state.values import carry_out, look, undo
from ..._users.devices import numbers
from ..._users.engines import CRI, allowed_to, stores
from ..._users.finding import is_whole, members_of
from . import record, services, tasks
from .engines import Engines, are_all
from .memory import move
from .feature import SECTION
from .record import CONTAINER, LEFT, PROCESS, SERVICE, SETS, WORDS, kind_of, last, pairs, text_of
from .target import ADOPTED, FAILED, REFUSED, Target

if TYPE_CHECKING:
    from ..._base.documents import AdoptLive, AppliedState, Plan
    from typing import Iterable

NOTHING: Any = MappingProxyType({})
Find = Callable[[Engines, services.Groups], List[Target]]


class Scope(NamedTuple):
    """By what work is adopted: ``wanted`` is what the desired state has of the feature, empty where that is nothing but CPUs.

    ``state``: the one that is applied, None where that in force is followed. ``is_part``: a part of the work of the host is looked at; of
    that, processes in sessions alone are adopted.
    """

    plan: Plan = NOTHING
    wanted: AdoptLive = NOTHING
    state: AppliedState | None = None
    is_part: bool = False


class Work(Values):
    """``find`` returns the ``targets``, with what is to become of each; without it, work is given back and nothing is adopted."""

    part = diffs.WORK
    key = ""
    forwards = True

    def __init__(self, find: Find | None = None, scope: Scope | None = None) -> None:
        Values.__init__(self, SECTION, {}, "CPUs of running work")
        self._find, self.scope = find, scope or Scope()
        self.targets: list[Target] = []
        self.sentences: list[str] = []
        self._host: Host | None = None
        self._wanted: dict[str, str] = {}
        self._by_key: dict[str, Target] = {}
        self._leaving_keys: set[str] = set()
        self._heirs: dict[str, str] = {}
        self._planned: dict[str, Change] = {}
        self._stuck: set[str] = set()
        self._variables: dict[str, Variables] = {}
        self._before: dict[str, FileState] = {}
        self._put: dict[str, dict[str, str]] = {}
        self._removed: list[str] = []
        self._failures: list[str] = []

    @property
    def adopted(self) -> list[Target]:
        targets = [target for target in self.targets if target.state == ADOPTED]
        return [target for target in targets if not (self.scope.is_part and target.user["processes"] and is_whole(target.user))]

    def _begin(self, host: Host) -> None:
        if self._host is not host:
            self._host, self._recorded = host, record.entries(host)
            self._engines, self._groups = Engines(host), services.Groups(host)
            self._engines.expect([(key.partition(":")[0], key.partition(":")[2]) for key in self._keys(CONTAINER)])

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        """Return ``{key: value}`` of what is to be adopted. What fails alone leaves it."""
        self._host = None
        self._begin(host)
        self.sentences = []
        self.targets = self._find(self._engines, self._groups) if self._find else []
        self._groups.paths.update((target.unit, target.user["group"]) for target in self.targets if target.method == SERVICE)
        self._leaving_keys = set() if self.scope.is_part else self._leaving(host)
        self._stuck, self._by_key, self._wanted = set(), {}, {} if self.scope.is_part else dict(self._next_starts(host))
        groups = {target.user["group"] for target in self.adopted if not target.is_rank}
        again = [target for target in self.targets if target.is_rank and target.is_kept and target.user["group"] in groups]
        for target in [*self.adopted, *again]:  # ranks whose service is widened, or forgets their CPUs with the new set (before Linux 6.2)
            self._give(host, target)
        return self._wanted

    def _leaving(self, host: Host) -> set[str]:
        """Return the keys of work whose NPUs have all left the plan, or that settings name for others or do not adopt any more.

        The pools of lost cards stay reserved, and so does what was adopted for these.
        """
        plan = self.scope.plan
        planned = [[Device.of(npu).kind, npu["id"]] for npu in [*plan["npus"], *(plan.get("lost") or ())] if npu["pool"]]
        configured = {unit: services.configured(host, unit, self.scope.state) for unit in self._keys(SERVICE)}
        moved = {unit for unit, cpus in configured.items() if cpus is not None and cpus != set(expand(last(self._recorded[unit])["cpus"]))}
        pods = {self._recorded[key]["group"] for key in self._keys(CONTAINER) if key.startswith(CRI) and not self.scope.wanted.get("pods")}
        held = {key for target in self.targets for key in (target.group_key, *target.processes(host))}
        gone = {key for key, entry in self._recorded.items() if entry["npus"] and not any(npu in planned for npu in entry["npus"])} - held
        return gone | {
            key for key, entry in self._recorded.items() if posixpath.basename(entry["group"]) in moved or entry["group"] in pods
        }

    def _keys(self, kind: str) -> list[str]:
        return [key for key in self._recorded if kind_of(key) == kind]

    def _next_starts(self, host: Host) -> Iterator[tuple[str, str]]:
        """Yield the drop-ins of services that stay: those that somebody removed or edited are written again, and where a service does not
        run those of an earlier plan or setting."""
        npus, switches = {Device.of(npu)[:2]: npu for npu in self.scope.plan["npus"]}, self.scope.wanted.get("environment") or {}
        running = {target.unit: target for target in self.targets if target.method == SERVICE}
        stopped = [unit for unit in self._keys(SERVICE) if unit not in self._leaving_keys and unit not in running]
        for unit, target in running.items():
            entry = self._recorded.get(unit)
            if entry and target.is_kept and target.wanted == set(expand(last(entry)["cpus"])) and not services.is_foreign(host, unit):
                self._variables[unit] = target.variables
                yield unit, text_of({**{kind: last(entry)[kind] for kind in SETS if kind in last(entry)}, **values_of(target.variables)})
        for unit, group in self._groups.of([unit for unit in stopped if services.drop_in_sets(host, unit) is not None]).items():
            held = [npus[(kind, number)] for kind, number in self._recorded[unit]["npus"] if (kind, number) in npus]
            sets = {"cpus": compress({cpu for npu in held for cpu in expand(npu["pool"])})}
            if "mems" in last(self._recorded[unit]):
                lists = [memory_nodes(npu) for npu in held]
                sets["mems"] = compress({node for text in lists for node in expand(text)} if all(lists) else nodes_with_memory(host))
            if sets["cpus"] and not members_of(host, group or "/none"):
                self._variables[unit], _kept = services.variables(host, unit, held, sets["cpus"], switches)
                yield unit, text_of({**sets, **values_of(self._variables[unit])})

    def _give(self, host: Host, target: Target) -> None:
        if target.group_key:
            self._wanted[target.group_key] = text_of({**target.sets, **values_of(target.variables)})
            self._by_key[target.group_key], self._variables[target.unit] = target, target.variables
        if target.by_group and not target.handed_down and is_since(host, 6, 2):
            return  # the kernel gives threads what they had asked for when their cpuset widens (user_cpus_ptr)
        ranks = set() if target.is_rank else {pid for rank in self.targets if rank.is_rank for pid in rank.pids(host)}
        sets = {"cpus": ""} if target.by_group else {**target.sets, **({"mems": target.mems} if target.mems else {})}
        for key, pid in target.processes(host).items():
            if pid not in ranks:
                self._wanted[key], self._by_key[key] = text_of(sets), target

    def is_over(self, key: str) -> bool:
        return key in self._leaving_keys

    def heirs(self, host: Host, originals: Mapping[str, str]) -> dict[str, str]:
        self._begin(host)
        self._heirs = tasks.heirs(host, self._recorded, originals, self._groups)
        self._note(*tasks.unrecorded(host, self._recorded, originals, self._heirs))
        return self._heirs

    def _note(self, *sentences: str) -> None:
        self.sentences += [text for text in sentences if text not in self.sentences]

    def read(self, host: Host, key: str) -> str | None:
        self._begin(host)
        kinds = {SERVICE: self._read_service, CONTAINER: self._read_container, PROCESS: self._read_process}
        try:
            return kinds[kind_of(key)](host, key)
        except (CommandError, OSError, ValueError) as error:
            if not self.is_over(key):
                raise
            self._note(str(error))
            self._stuck.add(key)
            return None

    def _read_service(self, host: Host, unit: str) -> str:
        return text_of(services.in_force(host, unit, self._groups.of([unit, *self._keys(SERVICE)])[unit]))

    def _read_container(self, host: Host, key: str) -> str | None:
        """Return both sets, '' for all. Podman 4 does not write down what it was given, and then the group tells."""
        engine, container = key.split(":")
        group = self._by_key[key].user["group"] if key in self._by_key else self._recorded[key]["group"]
        given = self._engines.sets_of(engine, container, group)
        if given is None:
            return None
        sets = {kind: "" if are_all(host, kind, given[kind]) else given[kind] for kind in SETS}
        granted = {kind: [cpuset(host, pid, kind) for pid in members_of(host, group)] for kind in SETS}
        entry = self._recorded.get(key, {"original": "", "given": []})
        for one in [*record.given(entry), pairs(self._wanted.get(key, ""))]:
            for kind in (kind for kind in SETS if sets[kind] in ("", pairs(entry["original"]).get(kind))):
                sets[kind] = one[kind] if set(expand(one.get(kind, ""))) in granted[kind] else sets[kind]
        return text_of(sets)

    def _read_process(self, host: Host, key: str) -> str | None:
        if not record.lives(host, key):
            return None
        masks = tasks.asked_for(host, record.pid_of(key))
        if not masks:
            title = self._recorded[key]["title"] if key in self._recorded else "adopted work"
            raise ValueError("the CPUs of process %d of %s cannot be read" % (record.pid_of(key), title))
        return text_of(masks)

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        """Return what is wanted, and of an original what somebody else has not changed since."""
        entry = self._recorded.get(key)
        if self.undoing or self._wanted.get(key) == wanted or entry is None:
            return wanted
        originals = {SERVICE: services.original, CONTAINER: record.original, PROCESS: tasks.original}
        value, remarks = originals[kind_of(key)](host, key, before, entry)
        self._note(*remarks)
        return value

    def original(self, host: Host, key: str, value: str) -> str:
        if kind_of(key) == SERVICE:
            return ""
        return value + " cpus=" if self._wanted.get(key) == "cpus=" else self._heirs.get(key, value)

    def about(self, host: Host, key: str) -> dict[str, Any]:
        target, is_new = self._by_key.get(key), key not in self._recorded
        if target is None:
            return {"npus": [], "group": "/", "title": "adopted work"} if is_new else {}
        rank = {"rank": target.user["rank"]} if target.is_rank else {}
        entry = {"npus": [[Device.of(npu).kind, npu["id"]] for npu in target.npus], **rank}
        if not is_new:
            return entry
        title = target.user["name"] if kind_of(key) != PROCESS else target.title
        of_service = services.entry(host, key) if kind_of(key) == SERVICE else {}
        return {**entry, "group": target.user["group"], "title": title, **of_service}

    def planned(self, host: Host, changes: list[Change], check: bool) -> list[Change]:
        """Return groups before the threads in them, and ranks after all of their service, also where they are given back."""
        self._planned = {change.key: change for change in changes}
        return sorted(changes, key=lambda change: self._order(change.key))

    def _order(self, key: str) -> int:
        is_rank = self._by_key[key].is_rank if key in self._by_key else "rank" in self._recorded.get(key, ())
        return (SERVICE, CONTAINER, PROCESS).index(kind_of(key)) + is_rank

    def write(self, host: Host, key: str, value: str) -> str:
        """What fails is a sentence where work is adopted, and raised where it is given back."""
        kinds = {SERVICE: self._write_service, CONTAINER: self._write_container, PROCESS: self._write_process}
        if kind_of(key) != SERVICE:
            self._follow(host)
        try:
            kinds[kind_of(key)](host, key, value)
        except (CommandError, OSError, ValueError) as error:
            if self._find is None or self.undoing:
                raise
            self._failed(key, str(error))
        return value

    def _failed(self, key: str, why: str) -> None:
        if self._find is None or self.undoing:
            self._failures.append(why)
        elif key in self._by_key:
            self._by_key[key].text = self._by_key[key].text or why
        else:
            self._stuck.add(key)
            self._note(why)

    def _write_service(self, host: Host, unit: str, value: str) -> None:
        """Write or remove a drop-in. :meth:`_follow` makes systemd read all of them at once."""
        values, drop_in = pairs(value), services.drop_in_sets(host, unit) or {}
        before = self._before.setdefault(unit, FileState.of(host, services.drop_in(unit)))
        if value == LEFT:
            services.restore(host, unit, record.entries(host)[unit])
        elif "cpus" not in values:
            self._removed.append(unit)
        else:
            sets = {kind: values[kind] for kind in SETS if kind in values}
            if self._wanted.get(unit) == value and not self.undoing:
                services.write(host, unit, sets, self._variables[unit])
            else:
                before.write(host, services.drop_in(unit))
            self._put[unit] = {**({"mems": compress(nodes_with_memory(host))} if "mems" in drop_in else {}), **sets}

    def _follow(self, host: Host) -> None:
        """Give services the sets of the drop-ins that were written, and all of them where one was removed."""
        put, removed, self._put, self._removed = self._put, self._removed, {}, []
        if put:
            running = [unit for unit, group in self._groups.of(put).items() if group]
            for unit, why in services.follow(host, put, running).items():
                self._failed(unit, why)
        recorded = record.entries(host) if removed else {}
        try:
            services.remove(host, {unit: recorded[unit] for unit in removed})
        except (CommandError, OSError, ValueError) as error:
            self._stuck.update(removed)
            self._failed("", str(error))

    def _write_container(self, host: Host, key: str, value: str) -> None:
        """Give a container its sets, by which one of a pod must not lose a device."""
        engine, container = key.split(":")
        target = None if self.undoing else self._by_key.get(key)
        now = {} if target else pairs(self.read(host, key) or "")
        sets = {kind: values for kind, values in pairs(value).items() if values != now.get(kind)}
        pids = target.pids(host) if target and engine == CRI and host.live else []
        access = device_access(host, pids[0]) if pids else ()
        self._engines.update(engine, container, sets)
        if target and pids and device_access(host, pids[0]) != access:
            by_systemd = allowed_to(host, target.unit, numbers(host)) if host.exists(CONTROLLERS) else set()  # a program besides runc's
            if not set(target.user["devices"]) <= by_systemd:
                raise ValueError("its runtime changed which devices it may open; if it has lost one, delete its pod")

    def _write_process(self, host: Host, key: str, value: str) -> None:
        if not record.lives(host, key):
            return
        values, pid = pairs(value), record.pid_of(key)
        threads = {name: cpus for name, cpus in values.items() if name.isdecimal()}
        if threads:
            tasks.restore(host, pid, threads, threads.get(str(pid)))
            return
        target = self._by_key[key]
        former = [*record.given_cpus(self._recorded.get(key, {"given": []})), *target.handed_down]
        if values["cpus"]:
            tasks.confine(host, pid, target.wanted, former)
            return
        asked = {name: set(expand(cpus)) for name, cpus in pairs(self._planned[key].before).items()}
        masks = {name: compress(cpus) for name, cpus in asked.items() if cpus < target.wanted and cpus not in former}
        masks.update((name, compress(target.wanted)) for name, cpus in asked.items() if cpus in target.handed_down)
        tasks.restore(host, pid, masks)

    def done(self, host: Host, changes: Sequence[Change], undone: bool = False) -> None:
        """See that all is inside, what has started meanwhile, too; what is not gets back what it had."""
        self._follow(host)
        failures, self._failures = self._failures, []
        if failures:
            raise ValueError("; ".join(failures))
        if undone or self._find is None:
            return
        begun = changes if isinstance(changes, list) else list(changes)
        earlier = set(self._wanted)
        for target in (target for target in self.adopted if not target.by_group):
            self._give(host, target)
        new = {key: value for key, value in self._wanted.items() if key not in earlier}
        if new:
            carry_out(host, self, look(host, self, new), begun)
            return
        for target in self.adopted:
            target.text = target.text or target.shortfall(host)
            if target.text:
                self._take_back(host, target, begun)
            else:
                move(host, target)

    def _take_back(self, host: Host, target: Target, begun: list[Change]) -> None:
        """Give back what could not be adopted. Where that fails, too, the record stays for the next run or an unbind."""
        changes = [change for change in begun if self._by_key.get(change.key) is target]
        failed = undo(host, self, changes)
        for key in [key for key in self._wanted if self._by_key.get(key) is target]:
            del self._wanted[key]
        self._stuck.update(change.key for change in changes if failed)
        begun[:] = [change for change in begun if change not in changes]
        target.refuse("; undoing that failed as well: ".join([target.text, *failed]), FAILED)

    def keeps(self, host: Host, key: str, original: str) -> bool:
        """Whether there still is what is recorded, and it is not as it was: it is not to be, or that failed."""
        if key not in self._stuck and (self._find is None or key in self._leaving_keys or key not in self._recorded):
            return False
        if kind_of(key) == CONTAINER:
            engine, container = key.split(":")
            group = self._by_key[key].user["group"] if key in self._by_key else self._recorded[key]["group"]
            return bool(members_of(host, group)) or stores(host, engine, container)
        return kind_of(key) == SERVICE or record.lives(host, key)

    def check(self, recorded: Mapping[str, Any]) -> None:
        record.check(recorded)

    def warnings(self, host: Host, live: Mapping[str, Any]) -> list[str]:
        refused = [target.sentence for target in self.targets if target.state in (REFUSED, FAILED)]
        remarks = [target.remark for target in self.targets if target.remark]
        services_of = {target.unit: compress(target.wanted) for target in self.targets if target.has_drop_in(host)}
        starts = [text for unit, cpus in services_of.items() for text in services.hazards(host, unit, cpus)]
        return list(dict.fromkeys([*refused, *remarks, *starts, *self.sentences]))

    def remarks(self, host: Host, live: Mapping[str, Any], changes: Sequence[Change], ahead: bool = False) -> list[str]:
        return coded("NPU_VARIABLE_KEPT", [text for target in self.targets if target.has_drop_in(host) for text in target.kept])

    def lost(self, host: Host) -> list[str]:
        return self.sentences

    def result(self, changes: Sequence[Change]) -> dict[str, Any]:
        """Return ``{changed, users}``; a user is what :meth:`Target.row` returns."""
        return {"changed": bool(changes), "users": [target.row() for target in self.targets]}

    def lines(self, host: Host, changes: Iterable[Change]) -> list[str]:
        others = [change for change in changes if change.key not in self._by_key and change.key not in self._heirs]
        return [line for target in self.targets for line in target.lines()] + [line for change in others for line in self._line(change)]

    def _line(self, change: Change) -> Iterator[str]:
        entry = self._recorded.get(change.key)
        if change.key in self._wanted:
            yield "~ %s: CPUs %s at its next start" % (change.key, pairs(change.wanted)["cpus"])
        elif entry and kind_of(change.key) == PROCESS and last(entry)["cpus"]:
            pid = record.pid_of(change.key)
            row = pid, entry["title"], last(entry)["cpus"], pairs(entry["original"]).get(str(pid)) or "all"
            yield "~ process %d of %s: CPUs %s -> %s" % row
        elif entry and kind_of(change.key) != PROCESS and change.after != LEFT:
            before, after = pairs(change.before.replace("now.", "")), pairs(change.after)
            kinds = [kind for kind in SETS if before.get(kind, "") != after.get(kind, "")]
            moved = ["%s %s -> %s" % (WORDS[kind], before.get(kind) or "all", after.get(kind) or "all") for kind in kinds]
            yield "~ %s: %s" % (entry["title"], ", ".join(moved))
