# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a process, an NPU or a CPU is where it is: what confines it, its origin, its author, and what else is there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Iterable, Iterator, Sequence, Tuple

from .._base.cpulist import compress, expand
from .._features.adopt import record as adoptions, services
from .._features.adopt.engines import program_of
from .._host.host import Forbidden, Host
from .._features.irq.affinities import predict
from .._features.irq.affinity import grouped, subject
from .._kernel.interrupts import Interrupt, KINDS, interrupt_names
from .._features.irq import binding
from .._features.slices.lending import given
from .._kernel.cpus import CPU_FOLDER, NODE_FOLDER, cpus, read_list
from .._kernel.processes import started_with
from .._base.findings import Device, noun, with_lost
from .._drift.placement import Judge
from .._state.plan_file import memory_nodes
from .._features.threads import placing
from .._features.watching import PROGRAM
from .._features.threads.tasks import ROLES, Process, cgroups, find, groups_of
from .._state.systemd import Systemd, UNIT_FOLDER, UNIT_SUFFIX, settings
from .._state.unit_environment import VARIABLES
from .._state.unit_files import drop_in_of
from .._users import pools
from .._users.finding import by_process, described_ranks, pids_of, users
from .._users.groups import classified, of_pods, path_of
from .state import HostRecord

if TYPE_CHECKING:
    from .._base.documents import AppliedState, Cpus, PlanEntry

Lines = Iterator[Tuple[str, str]]
"""Titles with sentences."""
_SHOWN = 6
_SETTINGS = ("AllowedCPUs", "AllowedMemoryNodes", "Slice", "CPUAffinity", "NUMAMask")
_ALLOWED = (("Cpus_allowed_list", "CPUs"), ("Mems_allowed_list", "memory nodes"))


def of_process(record: HostRecord, pid: int) -> Lines:
    """Yield why a process is on its CPUs. Raises ``ValueError`` if there is none."""
    host = record.host
    if not host.exists("/proc/%d" % pid):
        raise ValueError("there is no process %d" % pid)
    paths = cgroups(host, pid)
    name = host.read("/proc/%d/comm" % pid) or "ended"
    status = dict(line.partition(":")[::2] for line in (host.read("/proc/%d/status" % pid) or "").splitlines())
    has = ", ".join("%s %s" % (word, status[key].strip()) for key, word in _ALLOWED if key in status)
    yield "process", "%d (%s) may use %s" % (pid, name, has or "what it likes")
    group = (path_of(host.read("/proc/%d/cgroup" % pid)) or max(map("/".join, paths), key=len, default="")).strip("/").split("/")
    yield "group", "/" + "/".join(group)
    if any(map(of_pods, paths)):
        yield "kubelet", "it runs in a pod: the kubelet assigns its CPUs, and npu.affinity sets nothing there"
        return
    units = [unit for unit in group if UNIT_SUFFIX.search(unit)]
    confined = [line for unit in units for line in _of_unit(record, unit)] + _adopted(host, pid, group)
    yield from confined
    if not confined:
        yield "slice", "none of npu.affinity: start it with 'npu-affinity run', or name its service in npu_affinity_services"
    yield from _placed(record, pid)
    npus = _npus_of(record, units)
    for npu in npus:
        yield Device.of(npu).kind.upper(), _entry(npu)
    for process in (process for process in _users(record) if process.pid == pid):
        for other in (npu for npu in process.npus if npu not in npus):
            device, home = Device.of(other), other.get("slice") or "a slice of it"
            yield device.kind.upper(), "it has the device of %s open, and is not in %s" % (device.full_title, home)
    yield from _threads_of(record, pid)
    devices = [word for word in started_with(host, pid) if word.partition("=")[0] in VARIABLES]
    if devices:
        yield "devices", ", ".join(devices)


def _placed(record: HostRecord, pid: int) -> Lines:
    """Yield whether a process that holds NPUs is placed as planned, in the words of the comparison."""
    npus = with_lost(record.plan) if record.plan else []
    used = users(record.host, npus) if npus else []
    parts = [part for user in used for part in by_process(record.host, npus, user)]
    its_parts = [part for part in parts if part["processes"][0]["pid"] == pid]
    for user in (user for user in used if its_parts and user["group"] == its_parts[0]["group"]):
        described = described_ranks(record.host, npus, user, [])
        for rank, text in zip(described, pools.rank_titles({**user, "ranks": described}, record.plan or {"npus": []})):
            if rank["pid"] == pid:
                yield "rank", text
    judge = Judge.of(record.host, record.plan or {}, record.expected().values(), record.live)
    judged = judge.placement(its_parts) if its_parts else None
    if judged and judged.outside:
        yield "placement", "%s; %s" % (pools.sentence(judged.outside), judged.outside[0]["next"])
    elif judged and judged.inside:
        yield "placement", "all of its threads have the CPUs of their roles"


def of_container(record: HostRecord, name: str) -> Lines:
    """Yield why the processes of a container that hold NPUs are on their CPUs. Raises ``ValueError`` where no such container uses any."""
    containers = [user for user in users(record.host, with_lost(record.plan) if record.plan else []) if user["container"]]
    chosen = next((user for user in containers if name in (user["name"], user["container"], (user["container"] or "")[:12])), None)
    if chosen is None:
        there = ", ".join(user["name"] for user in containers) or "none"
        raise ValueError("no container '%s' uses an accelerator of this host; those that do: %s" % (name, there))
    yield "container", "%s of %s" % (chosen["name"], chosen["engine"] or "an unknown engine")
    pids = [process["pid"] for process in chosen["processes"]] or pids_of(record.host, chosen)[:1]
    for pid in pids:
        yield from of_process(record, pid)


def _of_unit(record: HostRecord, unit: str) -> Lines:
    """Yield what our files say of a unit."""
    for path in ("%s/%s" % (UNIT_FOLDER, unit), drop_in_of(unit)):
        text, kind = record.host.read(path), "slice" if unit.endswith(".slice") else "unit"
        now, wrote = (
            ", ".join("%s=%s" % (key, values[key]) for key in _SETTINGS if values.get(key))
            for values in (settings(text), settings(record.text_of(path) or text))
        )
        if text is not None and now != wrote:
            yield kind, "%s: %s by %s, which is not what the bind wrote: %s" % (unit, now or "nothing", path, wrote or "none of these")
        elif text is not None and now:
            yield kind, "%s: %s by %s" % (unit, now, record.origin(path))


def _adopted(host: Host, pid: int, group: Sequence[str]) -> list[tuple[str, str]]:
    """Return a line on running work that was adopted; none where the record is for root to read."""
    try:
        recorded = adoptions.entries(host)
        process_key = adoptions.process(host, pid)
    except (Forbidden, ValueError):
        return []
    user = classified("/" + "/".join(group))
    keys = [key for key, entry in recorded.items() if key in group or key.partition(":")[2] == (user.container if user else None)]
    for key in [*keys, *([process_key] if process_key in recorded else [])]:
        means = {adoptions.SERVICE: services.drop_in(key), adoptions.PROCESS: "the affinity of its threads"}
        by = means.get(adoptions.kind_of(key)) or "%s update" % program_of(key.partition(":")[0])
        sets = adoptions.last(recorded[key])
        if sets["cpus"]:
            nodes = " and memory nodes " + sets["mems"] if sets.get("mems") else ""
            return [("adopted", "CPUs %s%s by %s; an unbind gives back what it had" % (sets["cpus"], nodes, by))]
    return []


def _users(record: HostRecord) -> list[Process]:
    """Return the processes in the slices of NPUs, and those that have one open."""
    return find(record.host, record.plan, groups_of(record.plan, [{}, {"devices": True}]))[0] if record.plan else []


def _npus_of(record: HostRecord, units: Iterable[str]) -> list[PlanEntry]:
    """Return the entries of the plan whose slice, service or workload is among the units."""
    slices = set(units)
    slices.update(service["settings"].get("Slice", "") for service in record.slices["services"] if service["name"] in units)
    for workload in record.slices["workloads"]:
        slices |= set(workload["npus"]) if workload["slice"] in slices else set()
    return [npu for npu in record.npus if npu.get("slice") in slices]


def _entry(npu: PlanEntry) -> str:
    roles = ["%s %s" % (role, npu.get(role)) for role in ("irq", *ROLES) if npu.get(role)]
    mems = ", memory nodes %s" % memory_nodes(npu) if memory_nodes(npu) else ""
    return "%s has CPUs %s (%s)%s" % (Device.of(npu).full_title, npu["pool"], ", ".join(roles) or "no roles", mems)


def _threads_of(record: HostRecord, pid: int) -> Lines:
    """Yield the roles of the threads of a process, where role threads places them."""
    wanted = record.live.get("threads")
    if not wanted or not record.plan:
        return
    report = placing.place(record.host, record.plan, wanted["processes"], wanted["patterns"], check=True)
    for row in (row for row in report.processes if row["pid"] == pid):
        groups: dict[tuple[str, str | None, str | None], list[str]] = {}
        for thread in (thread for thread in row["threads"] if thread["before"] is not None):
            groups.setdefault((thread["role"], thread["before"], thread["wanted"]), []).append(thread["name"])
        for (role, before, cpus_wanted), names in groups.items():
            shown = ", ".join(sorted(set(names))[:_SHOWN])
            where = "left on CPUs %s" % before if role == "leave" else "on CPUs %s" % before
            where += "" if before == cpus_wanted else ", and should be on %s" % cpus_wanted
            yield "threads", "%d of role %s (%s) %s" % (len(names), role, shown, where)
        yield "threads", "placed by %s" % record.unit_that_runs(PROGRAM)


def of_npu(record: HostRecord, npu: PlanEntry) -> Lines:
    """Yield why an NPU has its CPUs, and what is on them."""
    plan, slice_name, kind = record.plan or {}, npu.get("slice") or "", Device.of(npu).kind.upper()
    set_by_bind = _pool_of(record.state, npu) if record.state else None
    if set_by_bind in (None, npu["pool"]):
        yield kind, _entry(npu) + record.author(partial(_pool_of, npu=npu))
    else:
        yield kind, _entry(npu) + ", which is not what the bind set: CPUs %s" % set_by_bind
    yield "why", "strategy %s: %s" % (plan.get("strategy", "unknown"), plan.get("reason") or "no reason is recorded")
    title = Device.of(npu).title
    for label, sentences in (("repaired", plan.get("repaired")), ("warning", plan.get("warnings"))):
        yield from ((label, sentence) for sentence in sentences or () if title in sentence)
    yield from _of_unit(record, slice_name)
    yield from _granted(record, slice_name)
    pool = set(expand(npu["pool"]))
    lent = {unit: has & pool for unit, has in given(record.host).items() if has & pool} if plan.get("follow") else {}
    for unit, has in lent.items():
        yield "system", "%s has CPUs %s of it until a workload uses it" % (unit, compress(has))
    if plan.get("follow") and not lent:
        yield "system", "its CPUs are not lent to the system"
    for service in record.slices["services"]:
        if service["settings"].get("Slice") == slice_name:
            yield "service", "%s by %s" % (service["name"], record.origin(drop_in_of(service["name"])))
    for workload in record.slices["workloads"]:
        if slice_name in workload["npus"]:
            yield "workload", "%s in %s" % (workload["name"], workload["slice"])
    processes = [process for process in _users(record) if npu in process.npus]
    if processes:
        shown = ", ".join("%d (%s)" % (process.pid, process.name) for process in processes[:_SHOWN])
        yield "processes", shown + (" and %d more" % (len(processes) - _SHOWN) if len(processes) > _SHOWN else "")
    yield from _interrupts_of(record, npu)


def _granted(record: HostRecord, unit: str) -> Lines:
    """Yield what the kernel grants a slice, where that is not what the bind set."""
    entry = record.expected().get(unit)
    for key, words, bound in (("cpus", "CPUs", entry["cpus"]), ("mems", "memory nodes", entry["mems"])) if entry else ():
        granted = Systemd(record.host).effective(unit, key)
        if bound and granted is not None and granted != set(expand(bound)):
            shown = compress(granted)
            yield "kernel", "%s has %s %s, and the bind set %s; 'npu-affinity verify' shows why" % (unit, words, shown, bound)


def _pool_of(state: AppliedState, npu: PlanEntry) -> str | None:
    npus = (state["plan"] or {}).get("npus", ())
    return next((entry["pool"] for entry in npus if entry.get("pci") == npu.get("pci") and entry.get("chip") == npu.get("chip")), None)


def _interrupts_of(record: HostRecord, npu: PlanEntry) -> Lines:
    for row in predict(record.host, binding.Interrupts(), {"plan": record.plan or {}}).npus:
        if row["id"] != npu["id"] or row["pci"] != (npu.get("pci") or "").lower():
            continue
        for kind in KINDS:
            for entry in grouped(row[kind]):
                wanted = "" if entry["before"] == entry["wanted"] else ", and should be on %s" % entry["wanted"]
                yield kind, "%s on CPUs %s%s" % (subject(kind, entry), entry["before"], wanted)
        if row["text"]:
            yield "interrupts", row["text"]


def of_cpu(record: HostRecord, cpu: int) -> Lines:
    """Yield what a CPU is for, and which interrupts are on it. Raises ``ValueError`` if there is none."""
    host, plan = record.host, record.plan or {}
    facts = cpus(host)
    if cpu not in expand(facts["online"]) + expand(facts["offline"]):
        raise ValueError("there is no CPU %d: this host has %s" % (cpu, facts["online"]))
    yield "CPU", _cpu(host, cpu, facts)
    owners = [npu for npu in record.npus if cpu in expand(npu["pool"])]
    for npu in owners:
        roles = [role for role in ("irq", *ROLES) if cpu in expand(npu.get(role) or "")]
        in_roles = " in role %s" % " and ".join(roles) if roles else ""
        since = record.author(partial(_pool_of, npu=npu))
        yield Device.of(npu).kind.upper(), "of %s%s, whose pool is %s%s" % (Device.of(npu).full_title, in_roles, npu["pool"], since)
    lent = [unit for unit, has in given(host).items() if owners and cpu in has] if plan.get("follow") else []
    if lent:
        yield "system", "lent to %s until a workload uses its pool" % " and ".join(lent)
    if cpu in expand(plan.get("housekeeping") or ""):
        yield "system", "housekeeping: CPUs %s are kept for the system" % plan["housekeeping"]
    elif not owners:
        divided = "the plan divides CPUs %s" % plan["cpus"] if plan.get("cpus") else "this host is not bound"
        yield "idle", "no %s has it; %s" % (noun(record.npus), divided)
    for unit, entry in record.expected().items():
        if cpu in expand(entry["cpus"]):
            yield from _of_unit(record, unit)
    yield from _interrupts_on(record, cpu)


def _cpu(host: Host, cpu: int, facts: Cpus) -> str:
    nodes = [name for name in host.names(NODE_FOLDER, "node[0-9]*") if cpu in read_list(host, "%s/%s/cpulist" % (NODE_FOLDER, name))]
    words = ["online" if cpu in expand(facts["online"]) else "offline"]
    words += ["NUMA %s" % name.replace("node", "node ") for name in nodes]
    words += ["core of CPUs %s" % core for core in facts["siblings"] if cpu in expand(core)]
    words += ["isolated"] if cpu in expand(facts["isolated"]) else []
    governor = host.read("%s/cpu%d/cpufreq/scaling_governor" % (CPU_FOLDER, cpu))
    return "%d: %s" % (cpu, ", ".join(words + (["governor %s" % governor] if governor else [])))


def _interrupts_on(record: HostRecord, cpu: int) -> Lines:
    """Yield the interrupts that come to a CPU: those of NPUs by name, others as a number."""
    host = record.host
    rows = predict(host, binding.Interrupts(), {"plan": record.plan}).npus if record.plan else ()
    ours = {entry["irq"]: row["id"] for row in rows for entry in row["interrupts"]}
    names = interrupt_names(host)
    interrupts = ((number, Interrupt(number, name)) for number, name in names.items())
    here = [number for number, interrupt in interrupts if cpu in expand(interrupt.effective(host) or interrupt.read(host) or "")]
    for npu in sorted({ours[number] for number in here if number in ours}):
        vectors = [names[number] for number in here if ours.get(number) == npu]
        counted = ", ".join("%d %s" % (vectors.count(name), name) for name in sorted(set(vectors)))
        yield "interrupts", "of NPU %s: %s, bound by %s" % (npu, counted, record.unit_that_runs(binding.PROGRAM))
    others = [number for number in here if number not in ours]
    if others:
        shown = ", ".join("%d %s" % (number, names[number]) for number in others[:_SHOWN])
        yield "interrupts", "of others: %s%s" % (shown, " and %d more" % (len(others) - _SHOWN) if len(others) > _SHOWN else "")
