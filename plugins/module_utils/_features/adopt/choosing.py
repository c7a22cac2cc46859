# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which running work is adopted, in which way, and why other work is left alone. Reads only.

Work belongs to the CPUs of exactly the NPUs that it holds. It is refused where these cannot be given to it while it runs: a cpuset that is
disjoint from that of the group around it is no error for the kernel, which then grants the whole set of that group.
"""

from __future__ import annotations

import posixpath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Container, Iterable, Iterator, Mapping, Set

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.machine import CGROUPS
from ..._kernel.masks import granted
from ..._base.findings import Device, with_lost
from ..._base.fitting import values_of
from ..._state.unit_files import withheld
from ..._users.advice import way
from ..._users.finding import by_process, has_pods, is_whole, members_of, user_of
from ..._users.ranks import ranks
from . import services
from .engines import ENGINES, Engines, are_all, program_of
from .memory import Nodes
from .pods import Pods
from .record import CONTAINER, PROCESS, SERVICE, Entry, entries, given, given_cpus, kind_of, last, process
from .target import ADOPTED, REFUSED, THREADS, Target

if TYPE_CHECKING:
    from ..._base.documents import NpuUser

Expected = Mapping[str, Set[int]]
"""CPUs by unit."""
NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Of what the desired state has of the feature, where nothing but CPUs is wanted."""


def targets(
    host: Host,
    plan: Mapping[str, Any],
    users: Iterable[NpuUser],
    expected: Expected,
    wanted: Mapping[str, Any],
    engines: Engines,
    groups: services.Groups,
    state: Mapping[str, Any] | None = None,
    is_part: bool = False,
) -> list[Target]:
    """Return the users that hold NPUs of a plan, with what would become of each: inside, adopted or refused.

    ``expected`` has the CPUs that units get in the same transaction: what runs in them follows. ``wanted``, ``state`` and ``is_part``: see
    :class:`.work.Work`.
    """
    planned = {(Device.of(npu).kind, npu["id"]) for npu in plan["npus"]}
    there = {(Device.of(npu).kind, npu["id"]): npu for npu in with_lost(plan)}
    online = set(expand(host.read("/sys/devices/system/cpu/online") or ""))
    recorded, nodes, pods = entries(host), Nodes(host, wanted.get("move_memory", False)), Pods(host, wanted.get("pods", False))
    found: list[Target] = []
    users = list(users)
    users += [] if is_part else _idle(host, recorded, groups, {posixpath.basename(user["group"]) for user in users})
    engines.expect((user["engine"], user["container"] or "") for user in users if is_whole(user) and user["engine"] in ENGINES)
    for user in (part for whole in users for part in _parts(host, plan, whole, pods, is_part)):
        keys = sorted((npu["kind"], npu["id"]) for npu in user["npus"])
        refused = {target.user["group"] for target in found if target.state == REFUSED} if "rank" in user else ()
        if planned.isdisjoint(keys) or user["group"] in refused:
            continue
        npus = [there[key] for key in keys if key in there]
        pools = {cpu for npu in npus for cpu in expand(npu["pool"])}
        target = Target(host, user, npus, pools & online if online else pools)
        found.append(target)
        follows = any("/%s/" % unit in user["group"] + "/" and cpus <= target.wanted for unit, cpus in expected.items())
        known = _recorded(host, target, recorded)
        if not (known or target.is_rank) and any("rank" in recorded.get(process(host, pid), ()) for pid in target.pids(host)):
            target.before |= target.granted(host)  # its ranks alone were placed, at an open
        is_inside = target.before and target.before <= target.wanted
        written = [last(entry).get("mems", "") for key, entry in known.items() if target.by_group or kind_of(key) == PROCESS]
        is_outdated = any(len(entry["given"]) > 1 or given_cpus(entry) not in ([], [target.wanted]) for entry in known.values())
        if not any("/%s/" % unit in user["group"] + "/" for unit in expected):
            target.find_handed_down(host)
        if target.way == SERVICE:
            switches = wanted.get("environment") or {}
            target.variables, target.kept = services.variables(host, target.unit, npus, compress(target.wanted), switches)
            is_outdated = is_outdated or bool(known) and target.variables_before != values_of(target.variables)
            named = services.configured(host, target.unit, state)
            if named is not None and named != target.wanted:
                target.refuse("npu_affinity_services gives it CPUs %s at its next start; restart it" % compress(named))
                continue
        is_moved = not follows and (not is_inside or is_outdated or bool(target.handed_down))
        if is_moved:
            _judge(host, target, known, expected, engines, pods)
        if (target.state == ADOPTED or written and not (is_moved or follows)) and not (target.is_of_pod and pods.keep_memory()):
            nodes.choose(target, written)
        if target.changes_memory and not is_moved:
            _judge(host, target, known, expected, engines, pods)
    return found


def _idle(host: Host, recorded: Mapping[str, Entry], groups: services.Groups, found: Container[str]) -> Iterator[NpuUser]:
    """Yield the adopted services that run and have no NPU open at the moment: they follow the plan, because they will open one again."""
    missing = [key for key in recorded if kind_of(key) == SERVICE and key not in found]
    for unit, group in groups.of(missing).items():
        pids = members_of(host, group) if group else []
        user = user_of(host, group, pids, [Device(kind, number, "") for kind, number in recorded[unit]["npus"]]) if pids else None
        if user and is_whole(user):  # else it starts the work of others now
            yield user


def _recorded(host: Host, target: Target, recorded: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return what the record has of a target, by its group or of its processes."""
    own = {} if target.by_group else {key: recorded.get(key, {}) for key in (process(host, pid) for pid in target.pids(host))}
    keys = [target.group_key, *(key for key, entry in own.items() if target.is_rank or "rank" not in entry)]
    return {key: recorded[key] for key in keys if key in recorded}


def _parts(host: Host, plan: Mapping[str, Any], user: NpuUser, pods: Pods, is_part: bool) -> Iterator[NpuUser]:
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


def _judge(host: Host, target: Target, known: Mapping[str, Entry], expected: Expected, engines: Engines, pods: Pods) -> None:
    """Have a target adopted, or refuse what cannot be."""
    user = target.user
    target.state, target.after, target.variables_after = ADOPTED, target.wanted, values_of(target.variables)
    if target.is_of_pod and pods.refusal(user):
        target.refuse(pods.refusal(user))
    elif ".." in user["group"].split("/"):
        target.refuse("its control group lies outside the root of this system's")
    elif target.way != THREADS and has_pods(host, user["group"]):
        target.refuse("pods run in it, whose CPUs the kubelet assigns: it is a node, such as of kind or k3d")
    elif user.get("unassigned"):
        devices = " and ".join("/dev/" + name for name in user["unassigned"])
        verb = "may also open" if user["witness"] == "allowed" else "also holds"
        target.refuse("it %s %s, which the plan does not have" % (verb, devices))
    elif user["witness"] == "allowed" and len(target.npus) > 1 and not target.is_of_pod:
        target.refuse("it may open several devices and has opened none; which ones it uses is not known yet")
    elif not target.pids(host):
        target.refuse("it has no process")
    elif not target.wanted:
        target.refuse("no CPU of the pool is online")
    else:
        _judge_place(host, target, expected)
        if target.state == ADOPTED and target.way == CONTAINER:
            _judge_container(host, target, known, engines)
        elif target.state == ADOPTED and target.way == SERVICE:
            why = withheld(host, posixpath.dirname(user["group"])) if target.by_group else ""
            if why:
                target.refuse(why)
            ours = [one for entry in known.values() for one in given(entry)]  # and all, of an unbind that was killed
            paths = services.by_hand(host, target.unit, [*ours, services.everything(host)] if ours else ())
            if paths and not why:
                target.refuse("its CPUs are overridden by %s; remove the file and run 'systemctl daemon-reload'" % ", ".join(paths))


def _judge_place(host: Host, target: Target, expected: Expected) -> None:
    """Refuse what runs in a group whose surroundings do not grant the wanted CPUs, or that has no cpuset to set."""
    folder = target.folder(host)
    if folder is None:
        if target.way == CONTAINER:
            target.refuse("this kernel has no cpuset for containers (%s/cpuset/cpuset.cpus is missing)" % CGROUPS)
        return
    if (host.read(folder + "/cpuset.cpus.partition") or "member") != "member":
        target.refuse("its cpuset is a partition (%s/cpuset.cpus.partition)" % folder)
        return
    around = granted(host, folder if target.way == THREADS and not target.is_rank else posixpath.dirname(folder))
    around = set(expand(host.read("/sys/devices/system/cpu/online") or "")) if around is None else around
    for unit, cpus in expected.items():
        if "/%s/" % unit in folder:
            around &= cpus
    if not target.wanted <= around:
        target.refuse("the group around it grants CPUs %s only; %s" % (compress(around) or "(none)", way(target.user)))


def _judge_container(host: Host, target: Target, known: Mapping[str, Entry], engines: Engines) -> None:
    """Refuse a container that asked for CPUs itself, or whose engine does not answer."""
    if not host.live:
        target.refuse("its engine does not run below %s" % host.root)
        return
    try:
        sets = engines.sets_of(target.engine, target.user["container"] or "", target.user["group"])
    except (CommandError, ValueError) as error:
        target.refuse(str(error))
        return
    found = sets["cpus"] if sets else ""
    if sets is None:
        target.refuse("it is gone")
    elif not are_all(host, "cpus", found) and found not in [one["cpus"] for entry in known.values() for one in given(entry)]:
        target.refuse("it was given CPUs %s when it was created; change them with '%s update'" % (found, program_of(target.engine)))
