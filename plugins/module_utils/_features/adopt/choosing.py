# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which running work is adopted, in which way, and why other work is left alone. Reads only.

Work belongs to the CPUs of exactly the NPUs that it holds. It is refused where these cannot be given to it while it runs: a cpuset that is
disjoint from that of the group around it is no error for the kernel, which then grants the whole set of that group.

Pods are left alone where something else on their node assigns CPUs to them, or an update would cost one its device. Sources: Kubernetes
``pkg/kubelet/cm``: CPU manager policy ``none`` never writes a CPU set, ``static`` overwrites foreign ones, and memory manager policy
``Static`` owns memory nodes; containerd ``docs/NRI.md``; NVIDIA/nvidia-container-toolkit issues 48 and 1227.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any, Container, Iterable, Iterator, Mapping, Set

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import granted, online
from ..._kernel.memory import patience
from ..._state import previous, values
from ..._base.findings import Device, with_lost
from ..._base.fitting import values_of
from ..._state.unit_files import withheld
from ..._users.devices import numbers
from ..._users.engines import bundle, listed_in
from ..._users.finding import by_process, has_pods, is_whole, members_of, ranks, user_of, users
from ..._users.groups import in_group
from ..._users.pools import remedy_of
from ..kubelet import settings
from ..kubelet.facts import kubelet
from . import services
from .feature import SECTION
from .engines import ENGINES, Engines, are_all, program_of
from .memory import Nodes
from .record import CONTAINER, PROCESS, SERVICE, entries, given, given_cpus, kind_of, last, process
from .target import ADOPTED, REFUSED, THREADS, Target
from .work import Scope, Work

if TYPE_CHECKING:
    from ..._base.documents import AdoptLive, AppliedState, NpuUser, Plan
    from .record import Entry

Expected = Mapping[str, Set[int]]
"""CPUs by unit."""
_NRI_PLUGINS = "/opt/nri/plugins"
_NRI = re.compile(r"^\S+ \S+ \S+ \S+ \S+ 03 +\d+ ((?:/var)?/run/nri/nri\.sock)$", re.MULTILINE)
"""A connection (state 03) that was accepted at the socket to which plugins connect, in /proc/net/unix."""


class Pods:
    """The pods of a node, which are adopted if that is ``wanted`` and nothing speaks against it."""

    def __init__(self, host: Host, wanted: bool) -> None:
        self.host = host
        self.wanted = wanted
        self._why: str | None = None

    def why(self) -> str:
        """Return why no pod of this node is adopted, '' where pods are."""
        if not self.wanted:
            return "the kubelet places pods; adopt them with npu_affinity_adopt_pods: true (docs/kubelet.md)"
        if self._why is None:
            self._why = _of_node(self.host)
        return self._why

    def refusal(self, user: NpuUser, spec: Mapping[str, Any] | None = None) -> str:
        """Return why the container of a pod is left alone, '' where it is adopted. ``spec``: that of a container that has not started."""
        listed = listed_in(bundle(self.host, user["container"] or "") if spec is None else spec, numbers(self.host))
        added = sorted(name for name in set(user["devices"]) - listed if name.startswith("nvidia"))
        text = 'NVIDIA\'s hook gave it /dev/%s, which it can lose at any update; use CDI (mode = "cdi" of nvidia-container-runtime)'
        return self.why() or (text % added[0] if added else "")

    def keep_memory(self) -> bool:
        """Whether the kubelet's memory manager sets memory nodes."""
        return (settings.settings(self.host)[0].get("memoryManagerPolicy") or "None") != "None"


def _of_node(host: Host) -> str:
    facts = kubelet(host, online(host))
    if facts is None:
        return "the CPU manager policy of this node's kubelet is not known: it has neither a configuration nor a state file"
    if facts["policy"] != "none" or facts["default_cpus"] or facts["exclusive"]:
        return "the kubelet assigns CPUs to pods (CPU manager policy %s)" % (facts["policy"] if facts["policy"] != "none" else "static")
    plugins = host.names(_NRI_PLUGINS)
    connected = _NRI.search(host.read("/proc/net/unix") or "")
    if plugins or connected:
        where = "%s has %s" % (_NRI_PLUGINS, plugins[0]) if plugins else "one is connected to %s" % (connected and connected.group(1))
        return "a plugin of the container runtime (NRI) can assign CPUs to pods: %s" % where
    return ""


def targets(
    host: Host, scope: Scope, holding: Iterable[NpuUser], expected: Expected, engines: Engines, groups: services.Groups
) -> list[Target]:
    """Return the users that hold NPUs of a plan, with what would become of each: inside, adopted or refused.

    ``expected`` has the CPUs that units get in the same transaction: what runs in them follows.
    """
    plan, wanted, state, is_part = scope
    planned = {Device.of(npu)[:2] for npu in plan["npus"]}
    there = {Device.of(npu)[:2]: npu for npu in with_lost(plan)}
    recorded, nodes, pods = entries(host), Nodes(host, wanted.get("move_memory", False)), Pods(host, wanted.get("pods", False))
    result: list[Target] = []
    holding = list(holding)
    holding += [] if is_part else _idle(host, recorded, groups, {posixpath.basename(user["group"]) for user in holding})
    engines.expect((user["engine"], user["container"] or "") for user in holding if is_whole(user) and user["engine"] in ENGINES)
    for user in (part for whole in holding for part in _parts(host, plan, whole, pods, is_part)):
        keys = sorted((npu["kind"], npu["id"]) for npu in user["npus"])
        refused = {target.user["group"] for target in result if target.state == REFUSED} if "rank" in user else ()
        if planned.isdisjoint(keys) or user["group"] in refused:
            continue
        npus = [there[key] for key in keys if key in there]
        pools = {cpu for npu in npus for cpu in expand(npu["pool"])}
        target = Target(host, user, npus, pools & (online(host) or pools))
        result.append(target)
        follows = any(in_group(user["group"], unit) and cpus <= target.wanted for unit, cpus in expected.items())
        records = _recorded(host, target, recorded)
        if not (records or target.is_rank) and any("rank" in recorded.get(process(host, pid), ()) for pid in target.pids(host)):
            target.before |= target.granted(host)  # its ranks alone were placed, at an open
        is_inside = target.before and target.before <= target.wanted
        written = [last(entry).get("mems", "") for key, entry in records.items() if target.by_group or kind_of(key) == PROCESS]
        is_outdated = any(len(entry["given"]) > 1 or given_cpus(entry) not in ([], [target.wanted]) for entry in records.values())
        if not any(in_group(user["group"], unit) for unit in expected):
            target.find_handed_down(host)
        if target.method == SERVICE:
            switches = wanted.get("environment") or {}
            target.variables, target.kept = services.variables(host, target.unit, npus, compress(target.wanted), switches)
            is_outdated = is_outdated or bool(records) and target.variables_before != values_of(target.variables)
            configured = services.configured(host, target.unit, state)
            if configured is not None and configured != target.wanted:
                target.refuse("npu_affinity_services gives it CPUs %s at its next start; restart it" % compress(configured))
                continue
        is_moved = not follows and (not is_inside or is_outdated or bool(target.handed_down))
        if is_moved:
            _judge(host, target, records, expected, engines, pods)
        if (target.state == ADOPTED or written and not (is_moved or follows)) and not (target.is_of_pod and pods.keep_memory()):
            nodes.choose(target, written)
        is_narrower = not set(expand(target.mems_before)) <= set(expand(target.mems))
        if target.mems and (target.mems != target.mems_recorded or is_narrower) and not is_moved:
            _judge(host, target, records, expected, engines, pods)
    return result


def _idle(host: Host, recorded: Mapping[str, Entry], groups: services.Groups, units: Container[str]) -> Iterator[NpuUser]:
    """Yield the adopted services that run and have no NPU open at the moment: they follow the plan, because they will open one again."""
    missing = [key for key in recorded if kind_of(key) == SERVICE and key not in units]
    for unit, group in groups.of(missing).items():
        pids = members_of(host, group) if group else []
        user = user_of(host, group, pids, [Device(kind, number, "") for kind, number in recorded[unit]["npus"]]) if pids else None
        if user and is_whole(user):  # else it starts the work of others now
            yield user


def _recorded(host: Host, target: Target, recorded: Mapping[str, Entry]) -> dict[str, Entry]:
    of_processes = {} if target.by_group else {key: recorded.get(key, {}) for key in (process(host, pid) for pid in target.pids(host))}
    keys = [target.group_key, *(key for key, entry in of_processes.items() if target.is_rank or "rank" not in entry)]
    return {key: recorded[key] for key in keys if key in recorded}


def _parts(host: Host, plan: Plan, user: NpuUser, pods: Pods, is_part: bool) -> Iterator[NpuUser]:
    """Yield each process of a session as a user of its own, because each is confined by itself; other users as they are.

    A service or container is confined as a whole, and within it each rank. Where it may open more devices, a process with all of them is
    one, too.
    """
    if is_whole(user) or not user["processes"]:
        yield user
    if is_whole(user) and (user["kind"] != "pod" or pods.wanted) and (len(user["npus"]) > 1 or is_part):
        yield from ranks(host, with_lost(plan), user, alone=is_part)
    elif not is_whole(user):
        yield from by_process(host, with_lost(plan), user)


def _judge(host: Host, target: Target, records: Mapping[str, Entry], expected: Expected, engines: Engines, pods: Pods) -> None:
    target.state, target.after, target.variables_after = ADOPTED, target.wanted, values_of(target.variables)
    why = _refusal(host, target, pods) or _refusal_by_group(host, target, expected)
    if not why and target.method == CONTAINER:
        why = _refusal_by_engine(host, target, records, engines)
    elif not why and target.method == SERVICE:
        why = _refusal_by_systemd(host, target, records)
    if why:
        target.refuse(why)


def _refusal(host: Host, target: Target, pods: Pods) -> str:
    user = target.user
    if target.is_of_pod and pods.refusal(user):
        return pods.refusal(user)
    if ".." in user["group"].split("/"):
        return "its control group lies outside the root of this system's"
    if target.method != THREADS and has_pods(host, user["group"]):
        return "pods run in it, whose CPUs the kubelet assigns: it is a node, such as of kind or k3d"
    if user.get("unassigned"):
        devices = " and ".join("/dev/" + name for name in user["unassigned"])
        verb = "may also open" if user["witness"] == "allowed" else "also holds"
        return "it %s %s, which the plan does not have" % (verb, devices)
    if user["witness"] == "allowed" and len(target.npus) > 1 and not target.is_of_pod:
        return "it may open several devices and has opened none; which ones it uses is not known yet"
    if not target.pids(host):
        return "it has no process"
    return "" if target.wanted else "no CPU of the pool is online"


def _refusal_by_group(host: Host, target: Target, expected: Expected) -> str:
    """Return why a group has no cpuset to set, or that its surroundings do not grant the wanted CPUs."""
    folder = target.folder(host)
    if folder is None:
        text = "this kernel has no cpuset for containers (%s/cpuset/cpuset.cpus is missing)" % CGROUPS
        return text if target.method == CONTAINER else ""
    if (host.read(folder + "/cpuset.cpus.partition") or "member") != "member":
        return "its cpuset is a partition (%s/cpuset.cpus.partition)" % folder
    around = granted(host, folder if target.method == THREADS and not target.is_rank else posixpath.dirname(folder))
    around = online(host) if around is None else around
    for unit, cpus in expected.items():
        if "/%s/" % unit in folder:
            around &= cpus
    if target.wanted <= around:
        return ""
    return "the group around it grants CPUs %s only; %s" % (compress(around) or "(none)", remedy_of(target.user))


def _refusal_by_engine(host: Host, target: Target, records: Mapping[str, Entry], engines: Engines) -> str:
    if not host.live:
        return "its engine does not run below %s" % host.root
    try:
        sets = engines.sets_of(target.engine, target.user["container"] or "", target.user["group"])
    except (CommandError, ValueError) as error:
        return str(error)
    if sets is None:
        return "it is gone"
    if are_all(host, "cpus", sets["cpus"]) or sets["cpus"] in [one["cpus"] for entry in records.values() for one in given(entry)]:
        return ""
    return "it was given CPUs %s when it was created; change them with '%s update'" % (sets["cpus"], program_of(target.engine))


def _refusal_by_systemd(host: Host, target: Target, records: Mapping[str, Entry]) -> str:
    why = withheld(host, posixpath.dirname(target.user["group"])) if target.by_group else ""
    managed = [one for entry in records.values() for one in given(entry)]  # and all, of an unbind that was killed
    paths = services.overrides(host, target.unit, [*managed, services.everything(host)] if managed else ())
    if why or not paths:
        return why
    return "its CPUs are overridden by %s; remove the file and run 'systemctl daemon-reload'" % ", ".join(paths)


class Adopt(values.Step):
    """Confines what holds NPUs to their pools. What cannot be adopted is a warning, and no reason to fail: it runs as before."""

    def __init__(self, host: Host, work: Work) -> None:
        values.Step.__init__(self, host, work, {})
        self.work = work
        self.key = "adopt"
        self.disruptive = False
        self._before: dict[str, Entry] = {}

    def run(self) -> None:
        self._before = entries(self.host)
        self.look(check=False)  # again, because what grants CPUs has changed
        with patience(self.host, sum(target.moved for target in self.work.adopted)):
            values.Step.run(self)

    def undo(self) -> None:
        values.Step.undo(self)
        previous.replace(self.host, SECTION, self._before or None)


def of_state(host: Host, live: AdoptLive, state: AppliedState) -> Adopt | None:
    """Return the step of a desired state: what runs in its units follows them, and cannot get other CPUs."""
    plan = state["plan"]
    if not plan:
        return None
    expected = {entry["unit"]: set(expand(entry["cpus"])) for entry in state["expected"] if entry.get("cpus")}

    scope = Scope(plan, live, state)

    def find(engines: Engines, groups: services.Groups) -> list[Target]:
        return targets(host, scope, users(host, with_lost(plan)), expected, engines, groups)

    return Adopt(host, Work(find, scope))
