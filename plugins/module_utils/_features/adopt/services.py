# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs and memory nodes of a running service: a drop-in, which lasts, and on cgroup v2 the same sets at once.

Sets are cpulists by ``cpus``, and ``mems`` where the memory nodes are set, too.

Seen on systemd 247 to 257: on cgroup v2 a reload alone need not change a running unit, ``set-property`` does; the drop-ins of a unit add up
unless the later one resets the key first. On cgroup v1 systemd has no CPU sets; ``CPUAffinity=`` counts from the next start on.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Container, Iterable, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import Device
from ..._base.fitting import Variables, fitting, overridden
from ..._host.host import CommandError, Host
from ..._kernel.machine import allocator
from ..._kernel.machine import CGROUPS, machine, sets_cpus
from ..._kernel.masks import possible
from ..._kernel.memory import nodes_with_memory
from ..._state.files import MARKER, FileState, is_managed, missing_folders, remove_empty, restore_labels
from ..._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, UNIT_FOLDER, Systemd, settings
from ..._state.unit_environment import environment
from ..._state.unit_files import drop_in_of, numbers, values
from . import record
from .feature import DROP_IN
from .record import KEPT, LEFT, SETS, WORDS, pairs

if TYPE_CHECKING:
    from ..._base.documents import AppliedState, PlanEntry
    from .record import Entry


_VARIABLE = "Environment="
_OWN_CPUS = re.compile(r"\b(taskset|numactl)\b[^;]*?\s(?:-\w*[cC]|--cpu-list|--physcpubind)[ =]?\s*(\d[\d,-]*)")
_RESET = re.compile(r"^CPUAffinity=\s*$", re.MULTILINE)
"""What takes away the affinity that files before give."""
_OWN_MEMORY = re.compile(r"\bnumactl\b[^;]*?\s(?:-[mipP]|--membind|--interleave|--preferred)")


class Groups:
    """The control groups of services, ``{unit: path}``, by one query for all that are not known yet."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.paths: dict[str, str] = {}

    def of(self, units: Iterable[str]) -> dict[str, str]:
        units = list(units)
        missing = sorted(set(units) - set(self.paths)) if self.host.live else []
        shown = Systemd(self.host).show(["ControlGroup"], missing)
        self.paths.update((unit, shown.get(unit, {}).get("ControlGroup", "")) for unit in missing)
        return {unit: self.paths.get(unit, "") for unit in units}


def follow_at_once(host: Host) -> bool:
    """Whether services that run get the set of a changed drop-in; below another root no systemd runs."""
    return host.live and sets_cpus(machine(host))


def drop_in(unit: str) -> str:
    return "%s/%s.d/%s" % (UNIT_FOLDER, unit, DROP_IN)


def variables(host: Host, unit: str, npus: Sequence[PlanEntry], cpus: str, switches: Mapping[str, bool]) -> tuple[Variables, list[str]]:
    """Return the variables that the drop-in of a service gets, and sentences on those that another file of the unit sets."""
    fitted = fitting(switches, cpus, [Device.of(npu).kind for npu in npus], allocator(host) if switches.get("allocator") else None)
    elsewhere = environment(host, unit, without_ours=True) if fitted else {}
    return {name: of for name, of in fitted.items() if name not in elsewhere}, overridden(unit, fitted, elsewhere)


def drop_in_variables(host: Host, unit: str) -> dict[str, str]:
    """Return the variables in the managed drop-in of a unit."""
    text = FileState.of(host, drop_in(unit)).text or ""
    assignments = [line[len(_VARIABLE) :].split("=", 1) for line in text.splitlines() if line.startswith(_VARIABLE)]
    return dict(assignments) if is_managed(text) else {}


def hazards(host: Host, unit: str, cpus: str) -> list[str]:
    """Return sentences on files that give a unit CPUs with which it cannot start on those of its drop-in.

    The kernel refuses a mask without a CPU of the set, and systemd then ends the start with 214/CPUAFFINITY.
    """
    assigned = values(host, unit)
    later = [row for row in assigned.get("CPUAffinity", ()) if row[0].endswith(".conf") and posixpath.basename(row[0]) > DROP_IN]
    sources = [("%s says CPUAffinity=%s" % row, row[1]) for row in later if _RESET.search(host.read(row[0]) or "")]
    for path, line in assigned.get("ExecStart", ()):
        sources += [("%s starts it by %s on CPUs %s" % (path, *match), match[1]) for match in _OWN_CPUS.findall(line)]
    outside = [text for text, match in sources if not (numbers(match) or set()) <= set(expand(cpus))] if sets_cpus(machine(host)) else []
    return ["%s cannot start again on CPUs %s: %s; change that there" % (unit, cpus, text) for text in outside]


def memory_policies(host: Host, unit: str) -> list[str]:
    """Return the files that give a unit a memory policy, which the kernel refuses for nodes that are not granted."""
    assigned = values(host, unit)
    policies = [path for key in ("NUMAPolicy", "NUMAMask") for path, _value in assigned.get(key, ())]
    return list(dict.fromkeys(policies + [path for path, line in assigned.get("ExecStart", ()) if _OWN_MEMORY.search(line)]))


def in_force(host: Host, unit: str, group: str) -> dict[str, str]:
    """Return the sets and variables in the managed drop-in of a unit, and as ``now.cpus`` and ``now.mems`` those of its ``group`` where
    they are others."""
    state = {**(drop_in_sets(host, unit) or {}), **drop_in_variables(host, unit)}
    full = everything(host)
    for kind in full if group and follow_at_once(host) else ():
        text = host.read("%s%s/cpuset.%s" % (CGROUPS, group, kind))
        now = None if text is None else numbers(text) or set()
        if now is not None and (now != set(expand(state[kind])) if kind in state else now not in (set(), set(expand(full[kind])))):
            state["now." + kind] = compress(now)
    return state


def original(host: Host, unit: str, before: str, entry: Entry) -> tuple[str, list[str]]:
    """See :func:`record.original`."""
    full, current, given = everything(host), pairs(before), record.given(entry)
    written = {kind: [values[kind] for values in given if kind in values] for kind in SETS}
    now = {kind: current.get("now." + kind, current.get(kind)) for kind in SETS}
    assigned = {kind: current[kind] for kind in SETS if kind in current}
    is_live = all(now[kind] in (None, "", full[kind], *written[kind]) or not written[kind] for kind in SETS)
    if is_live and assigned in ({}, *({kind: values[kind] for kind in SETS if kind in values} for values in given)):
        return "" if assigned or now["cpus"] in written["cpus"] else before, []
    if not assigned:
        return before, []
    last = {kind: value for kind, value in record.last(entry).items() if kind in SETS}
    return LEFT, [KEPT % (unit, " and ".join(WORDS[kind] for kind in last), " and ".join(last.values()))]


def entry(host: Host, unit: str) -> Entry:
    """Return what the record has of a service before its first drop-in: the folders to make, and what somebody else has in its place."""
    made: Entry = {"folders": missing_folders(host, [drop_in(unit)])}
    return {**made, "foreign": FileState.of(host, drop_in(unit)).record()} if is_foreign(host, unit) else made


def configured(host: Host, unit: str, state: AppliedState | None) -> set[int] | None:
    """Return the CPUs that a service gets by name at its next start: by a desired state, or without one by the files in force. None where
    nothing names it."""
    if state is None:
        text = host.read(drop_in_of(unit)) or ""
        assigned: Mapping[str, str] = settings(text) if is_managed(text) else {}
        home = settings(host.read("%s/%s" % (UNIT_FOLDER, assigned.get("Slice", ""))))
    else:
        slices = state["live"].get("slices")
        named_services = [service["settings"] for service in (slices["services"] if slices else ()) if service["name"] == unit]
        assigned = named_services[0] if named_services else {}
        sets = [entry["cpus"] for entry in state["expected"] if entry["unit"] == assigned.get("Slice")]
        home = {"AllowedCPUs": sets[0]} if sets else {}
    cpus = assigned.get("AllowedCPUs") or home.get("AllowedCPUs") or assigned.get("CPUAffinity")
    return set(numbers(cpus) or ()) if cpus else None


def overrides(host: Host, unit: str, managed: Iterable[Mapping[str, str]] = ()) -> list[str]:
    """Return the drop-ins by which somebody overrides the sets of a unit until the next boot. ``managed`` sets are of a killed run."""
    return [path for path in Systemd(host).set_by_hand(unit, RUNTIME_CONTROLS) if not any(_has(host, path, sets) for sets in managed)]


def _has(host: Host, path: str, sets: Mapping[str, str]) -> bool:
    assigned = settings(host.read(path))
    cpusets = {kind: numbers(assigned[key]) for key, (kind, _words) in CPUSET_KEYS.items() if key in assigned}
    return all(numbers(sets.get(kind) or "") == value for kind, value in cpusets.items())


def write(host: Host, unit: str, sets: Mapping[str, str], variables: Mapping[str, tuple[str, str]]) -> None:
    """Write the drop-in of a service. :func:`follow` makes systemd read it. Variables count from the next start on.

    A line before each value takes away those of other files; within a cpuset, one of all CPUs takes every inherited mask away.
    """
    assignments = {"CPUAffinity": sets["cpus"]}
    if sets_cpus(machine(host)):
        assignments = {key: sets[kind] for key, (kind, _words) in CPUSET_KEYS.items() if sets.get(kind)}
        assignments["CPUAffinity"] = compress(possible(host))
    lines = "".join("%s=\n" % key + ("%s=%s\n" % (key, value) if value else "") for key, value in assignments.items())
    lines += "".join("# %s\n%s%s=%s\n" % (reason, _VARIABLE, name, value) for name, (value, reason) in variables.items())
    FileState("# %s: changes are overwritten.\n[Service]\n%s" % (MARKER, lines), 0o644).write(host, drop_in(unit))


def follow(host: Host, wanted: Mapping[str, Mapping[str, str]], running: Container[str]) -> dict[str, str]:
    """Make systemd read drop-ins, and give services that run their sets where these follow at once; return ``{unit: why}`` of failures."""
    restore_labels(host, map(drop_in, wanted))
    reload(host)
    return _set(Systemd(host), {unit: sets for unit, sets in wanted.items() if unit in running}) if follow_at_once(host) else {}


def reload(host: Host) -> None:
    if host.live:
        Systemd(host).reload()


def everything(host: Host) -> dict[str, str]:
    """Return the sets that confine nothing."""
    return {"cpus": compress(possible(host)), "mems": compress(nodes_with_memory(host))}


def remove(host: Host, made: Mapping[str, Entry]) -> None:
    """Remove the drop-ins of services, by their entries of the record, and widen those that run: without its setting a set stays.

    Raises ``ValueError`` with those that could not be widened. These keep their drop-ins.
    """
    if not made:
        return
    systemd = Systemd(host)
    running = [unit for unit in made if follow_at_once(host) and systemd.effective(unit, "cpus") is not None]
    full = everything(host)
    widened = {unit: {kind: full[kind] for kind in drop_in_sets(host, unit) or full} for unit in running}
    failed = _set(systemd, widened, reload=False)
    for unit, entry in made.items():
        if unit not in failed:
            restore(host, unit, entry)
    reload(host)
    others: dict[str, dict[str, str]] = {}
    for unit in [unit for unit in running if unit not in failed]:
        assigned = values(host, unit)
        cpusets = {kind: [numbers(value) or () for _path, value in assigned.get(key, ())] for key, (kind, _words) in CPUSET_KEYS.items()}
        others[unit] = {kind: compress(set().union(*cpusets[kind])) for kind in widened[unit]}
    failed.update(_set(systemd, others))
    if failed:
        raise ValueError("; ".join(map("%s: %s".__mod__, failed.items())))


def restore(host: Host, unit: str, entry: Entry) -> None:
    """Remove the drop-in of a service if npu.affinity manages it, and restore what was in its place. Running processes keep their CPUs."""
    state = FileState.of(host, drop_in(unit))
    if state.text is not None and is_managed(state.text):
        before = FileState.from_record(entry["foreign"]) if entry.get("foreign") else FileState(None, None)
        before.write(host, drop_in(unit))
    remove_empty(host, entry["folders"])


def _set(systemd: Systemd, wanted: Mapping[str, Mapping[str, str]], reload: bool = True) -> dict[str, str]:
    """Set what differs from what runs, and return ``{unit: why}`` of what failed.

    The drop-ins that this makes are removed: the sets stay, and later ones would add to them.
    """
    failed, sets, host = {}, {}, systemd.host
    for unit, its in wanted.items():
        sets[unit] = {key: set(numbers(its[kind]) or ()) for key, (kind, _words) in CPUSET_KEYS.items() if its.get(kind)}
    changed = [unit for unit, its in sets.items() if any(systemd.effective(unit, CPUSET_KEYS[key][0]) != its[key] for key in its)]
    stale = [unit for unit in sets if unit not in changed and overrides(host, unit) != overrides(host, unit, [wanted[unit]])]
    for unit in stale:
        systemd.drop_runtime_settings(unit)
    for unit in changed:
        try:
            systemd.set_live(unit, sets[unit])
        except (CommandError, OSError, ValueError) as error:
            failed[unit] = str(error)
        finally:
            systemd.drop_runtime_settings(unit)
    if (changed or stale) and reload:
        systemd.reload()
    return failed


def is_foreign(host: Host, unit: str) -> bool:
    """Whether somebody else wrote what is in the place of the managed drop-in of a unit."""
    text = FileState.of(host, drop_in(unit)).text
    return text is not None and not is_managed(text)


def drop_in_sets(host: Host, unit: str) -> dict[str, str] | None:
    """Return the sets in the managed drop-in of a unit, or None without one."""
    text = FileState.of(host, drop_in(unit)).text
    if text is None or not is_managed(text):
        return None
    kinds = {key: kind for key, (kind, _words) in CPUSET_KEYS.items()} if "AllowedCPUs" in settings(text) else {"CPUAffinity": "cpus"}
    return {kinds[key]: compress(numbers(value) or ()) for key, value in settings(text).items() if key in kinds and value}
