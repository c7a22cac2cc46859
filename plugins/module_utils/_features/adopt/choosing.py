# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which running work is adopted, in which way, and why other work is left alone. Reads only.

Work belongs to the CPUs of exactly the NPUs that it holds. It is refused where these cannot be given to it while it runs: a cpuset that is
disjoint from that of the group around it is no error for the kernel, which then grants the whole set of that group.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._cpulist import compress, expand
from ..._host import CommandError, Host
from ..._kernel.machine import CGROUPS
from ..._plan_file import Device
from ..._users.devices import owners
from ..._users.sentences import title_of
from . import engines, services, tasks
from .record import Record

if TYPE_CHECKING:
    from ..._documents import NpuUser, UsedNpu, UserProcess

INSIDE, ADOPTED, REFUSED, FAILED = "inside", "adopted", "refused", "failed"
SERVICE, CONTAINER, THREADS = "service", "container", "threads"
"""By what work is confined: the drop-in of its service, its engine, or the affinity of its threads."""
_SYSTEM_UNIT = re.compile(r"(?:/[\w:.\\@-]+\.slice)*/([\w:.\\@-]+\.service)\Z")
_CPUSETS = "/cpuset"


class Target:
    """One user of NPUs, and what becomes of it. ``npus`` are the entries of the plan that it holds, ``wanted`` the CPUs of their pools."""

    def __init__(self, host: Host, user: NpuUser, npus: Sequence[Mapping[str, Any]], wanted: set[int]) -> None:
        self.user = user
        self.way = _way(host, user)
        self.npus = npus
        self.wanted = wanted
        self.before = _cpus_of(user)
        self.after = self.before
        self.state = INSIDE
        self.text = ""
        self.engine_before = ""

    @property
    def title(self) -> str:
        return "%s (%s)" % (title_of(self.user), " and ".join(Device.of(npu).title for npu in self.npus))

    @property
    def unit(self) -> str:
        return posixpath.basename(self.user["group"])

    def pids(self, host: Host) -> list[int]:
        """Return its processes: all of a service or container; of a session, and of what users run, those alone that hold NPUs."""
        holding = [process["pid"] for process in self.user["processes"]]
        if not _is_whole(self.user):
            return holding
        return sorted({*tasks.members(host, self.user["group"]), *holding})

    def refuse(self, text: str, state: str = REFUSED) -> None:
        self.state, self.text, self.after = state, text, self.before

    def row(self) -> dict[str, Any]:
        """Return ``{name, kind, npus, before, wanted, after, state, text}`` with cpulists; ``npus`` are titles."""
        return {
            "name": title_of(self.user),
            "kind": self.user["kind"],
            "npus": [Device.of(npu).title for npu in self.npus],
            "before": compress(self.before),
            "wanted": compress(self.wanted),
            "after": compress(self.after),
            "state": self.state,
            "text": self.text,
        }

    @property
    def sentence(self) -> str:
        return "%s runs on CPUs %s, outside its pool %s: %s" % (self.title, compress(self.before), compress(self.wanted), self.text)


def _is_whole(user: NpuUser) -> bool:
    """Whether a group is one piece of work: a service of the system, or a container. A user's manager has everything of that user."""
    return bool(user["container"] or user["kind"] == "service") and not user["group"].startswith("/user.slice/")


def _way(host: Host, user: NpuUser) -> str:
    """Return by what work is confined. The unit of ``systemd-run`` ends with its program, and leaves no drop-in behind."""
    match = _SYSTEM_UNIT.match(user["group"]) if _is_whole(user) else None
    if match and not host.exists("/run/systemd/transient/" + match.group(1)):
        return SERVICE
    return CONTAINER if _is_whole(user) and user["engine"] in engines.ENGINES else THREADS


def _cpus_of(user: NpuUser) -> set[int]:
    """Return the CPUs that its threads may use, all together."""
    texts = [process["cpus"] for process in user["processes"]] or [user["cpus"]]
    return {cpu for text in texts for cpu in expand(text)}


def targets(host: Host, plan: Mapping[str, Any], users: Iterable[NpuUser], expected: Mapping[str, set[int]]) -> list[Target]:
    """Return the users that hold NPUs of a plan, with what would become of each: inside, adopted or refused.

    ``expected`` has the CPUs that units get in the same transaction: what runs in them follows.
    """
    entries = {(Device.of(npu).kind, npu["id"]): npu for npu in plan["npus"]}
    online = set(expand(host.read("/sys/devices/system/cpu/online") or ""))
    record = Record(host)
    found = []
    for user in (part for whole in users for part in _parts(host, plan, whole)):
        npus = [entries[key] for key in sorted((npu["kind"], npu["id"]) for npu in user["npus"]) if key in entries]
        if not npus:
            continue
        pools = {cpu for npu in npus for cpu in expand(npu["pool"])}
        target = Target(host, user, npus, pools & online if online else pools)
        found.append(target)
        follows = any("/%s/" % unit in user["group"] + "/" and cpus <= target.wanted for unit, cpus in expected.items())
        if not (follows or target.before and target.before <= target.wanted):
            target.state, target.after = ADOPTED, target.wanted
            _judge(host, target, record, expected)
    return found


def _parts(host: Host, plan: Mapping[str, Any], user: NpuUser) -> list[NpuUser]:
    """Return the processes of a session as users of their own where they hold different NPUs: each is confined by itself."""
    if len(user["npus"]) < 2 or _is_whole(user):
        return [user]
    whose = owners(host, plan["npus"])
    together: dict[tuple[str, ...], list[UserProcess]] = {}
    for process in user["processes"]:
        together.setdefault(tuple(process["devices"]), []).append(process)
    parts: list[NpuUser] = []
    for names, processes in sorted(together.items()):
        keys = sorted({(whose[name].kind, whose[name].id) for name in names if name in whose})
        npus: list[UsedNpu] = [{"kind": kind, "id": number} for kind, number in keys]
        part = user.copy()
        part.update({"devices": list(names), "npus": npus if names else user["npus"], "processes": processes})
        parts.append(part)
    return parts or [user]


def _judge(host: Host, target: Target, record: Record, expected: Mapping[str, set[int]]) -> None:
    """Refuse what cannot be adopted."""
    user = target.user
    if user["kind"] == "pod":
        target.refuse("the kubelet places pods; use its static CPU manager policy (docs/kubelet.md)")
    elif user["witness"] == "allowed" and len(target.npus) > 1:
        target.refuse("it may open several NPUs and has opened none; which ones it uses is not known yet")
    elif not target.pids(host):
        target.refuse("it has no process")
    elif not target.wanted:
        target.refuse("no CPU of the pool is online")
    else:
        _judge_place(host, target, expected)
        if target.state == ADOPTED and target.way == CONTAINER:
            _judge_container(host, target, record)
        elif target.state == ADOPTED and target.way == SERVICE:
            paths = services.by_hand(host, target.unit)
            if paths:
                target.refuse("its CPUs are overridden by %s; remove that with 'systemctl revert'" % ", ".join(paths))


def _judge_place(host: Host, target: Target, expected: Mapping[str, set[int]]) -> None:
    """Refuse what runs in a group whose surroundings do not grant the wanted CPUs, or that has no cpuset to set."""
    folder = _cpuset_folder(host, target)
    if folder is None:
        if target.way == CONTAINER:
            target.refuse("this kernel has no cpuset for containers (%s/cpuset/cpuset.cpus is missing)" % CGROUPS)
        return
    if (host.read(folder + "/cpuset.cpus.partition") or "member") != "member":
        target.refuse("its cpuset is a partition (%s/cpuset.cpus.partition)" % folder)
        return
    around = _granted(host, folder if target.way == THREADS else posixpath.dirname(folder))
    for unit, cpus in expected.items():
        if "/%s/" % unit in folder:
            around &= cpus
    if not target.wanted <= around:
        slices = " or ".join(sorted({npu["slice"] for npu in target.npus if npu.get("slice")})) or "the slice of its NPUs"
        how = "with --cgroup-parent=%s" if target.user["container"] else "in %s (npu_affinity_services, docs/workloads.md)"
        target.refuse("the group around it grants CPUs %s only; start it again %s" % (compress(around) or "(none)", how % slices))


def _judge_container(host: Host, target: Target, record: Record) -> None:
    """Refuse a container that asked for CPUs itself, or whose engine does not answer."""
    container = target.user["container"] or ""
    try:
        found = engines.cpus_of(host, target.user["engine"], container)
    except (CommandError, ValueError) as error:
        target.refuse(str(error))
        return
    if found is None:
        target.refuse("it is gone")
    elif not engines.are_all(host, found) and found != record.containers.get(container, {}).get("cpus"):
        target.refuse("it was given CPUs %s when it was created; change them with '%s update'" % (found, target.user["engine"]))
    target.engine_before = found or ""


def _cpuset_folder(host: Host, target: Target) -> str | None:
    """Return the folder of the group whose cpuset confines a target: on v1 that of the cpuset hierarchy; None where there is none."""
    if not host.exists(CGROUPS + _CPUSETS):
        return CGROUPS + target.user["group"] if host.exists(CGROUPS + "/cgroup.controllers") else None
    for line in (host.read("/proc/%d/cgroup" % target.pids(host)[0]) or "").splitlines():
        _number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if "cpuset" in controllers.split(","):
            return CGROUPS + _CPUSETS + path
    return None


def _granted(host: Host, folder: str) -> set[int]:
    """Return the CPUs that the innermost group from a folder on outwards grants which has a cpuset."""
    while folder.startswith(CGROUPS):
        text = host.read(folder + "/cpuset.cpus.effective") or host.read(folder + "/cpuset.effective_cpus")
        if text:
            return set(expand(text))
        folder = posixpath.dirname(folder)
    return set(expand(host.read("/sys/devices/system/cpu/online") or ""))
