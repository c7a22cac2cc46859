# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd and the kernel really grant to units and their processes, compared with what they should. Reads only.

On the running machine an absent cgroup is a finding. Another tree has no running units: there only what it shows is compared.
"""

from __future__ import annotations

import posixpath
from typing import Any, Container, Iterable, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._host.host import Host
from .._kernel.cpus import CPU_FOLDER, NODE_FOLDER, read_list
from .._kernel.machine import CGROUPS
from .._kernel.processes import folder_of, members
from .._features.threads.tasks import started_with
from .._state.systemd import UNIT_FOLDER, Systemd, settings
from .._kernel.machine import slice_path
from .._state.unit_environment import agrees, environment
from .._state.unit_files import absent, differences, drop_in_of, fragment, numbers, others, similar
from .._transaction.stopped_units import runs_or_would
from .._transaction.programs import WHY_FAILED, failed
from . import causes
from .binders import check_binders
from .._base.findings import CHANGED_CPUSET, EDIT, FAILED_UNIT, OLD_PROCESS, Cause, Findings, Value

_KINDS = (("cpus", "CPUs", "AllowedCPUs"), ("mems", "memory nodes", "AllowedMemoryNodes"))
_LOADED = ("CPUAffinity", "NUMAMask")
"""Settings of a service that no cgroup shows."""
_OTHER_DEVICES = "%s sets %s=%s, and the CPUs of %s are those of %s=%s: remove it there, or name the NPUs that it uses"
_BINDS_ITSELF = "%s sets %s=%s, and %s then binds itself, against %s=%s of its drop-in: remove it, or remove its engine from the settings"
_ALLOWED = {"Cpus_allowed_list": "cpus", "Mems_allowed_list": "mems"}


def available(host: Host) -> dict[str, set[int]]:
    """Return ``{cpus, mems}``: the sets of CPUs that are online and of memory nodes that have memory, empty where nothing tells."""
    return {"cpus": read_list(host, CPU_FOLDER + "/online"), "mems": read_list(host, NODE_FOLDER + "/has_memory")}


def _effective(host: Host, folder: str | None, key: str) -> set[int] | None:
    """Return the set that the kernel grants to the cgroup in a folder, or None where it has none."""
    text = host.read("%s/cpuset.%s.effective" % (folder, key)) if folder else None
    return None if text is None else set(expand(text))


def check_units(
    findings: Findings,
    host: Host,
    systemd: Systemd,
    texts: Mapping[str, str],
    enabled: Sequence[str],
    started: Sequence[str],
    stopped: Sequence[str],
) -> list[str]:
    """Compare what starts at boot and what runs now; return the units of ``started`` that do not run. ``texts`` are unit files by path."""
    for unit in enabled:
        text = texts.get("%s/%s" % (UNIT_FOLDER, unit)) or host.read("%s/%s" % (UNIT_FOLDER, unit))
        if systemd.enabled(unit, text):
            findings.same("units", unit + " at boot")
        else:
            findings.differs("units", unit + " at boot", "enabled", "not enabled", Cause(EDIT, "disabled by hand"), unit=unit)
    for unit in stopped:
        found = runs_or_would(host, systemd, unit)
        if found:
            findings.differs("units", unit, "stopped and disabled", found, Cause(EDIT, "started by hand or by an update"), unit=unit)
        else:
            findings.same("units", unit)
    active = systemd.active(started) if host.answers else started
    idle = [unit for unit in started if unit not in active]
    for unit in started if host.answers else ():
        if unit in idle:
            findings.differs("units", unit, "active", "inactive", Cause(EDIT, "stopped by hand"), unit=unit)
        else:
            findings.same("units", unit)
    return idle


def check_failures(findings: Findings, host: Host) -> None:
    """Compare the last run of every managed unit, instances included, with a good one."""
    for unit, result in failed(host).items():
        findings.differs("units", unit + " last run", "success", result, Cause(FAILED_UNIT, WHY_FAILED % unit), unit=unit)


def check_cpusets(
    findings: Findings,
    host: Host,
    systemd: Systemd,
    expected: Sequence[Mapping[str, Any]],
    edited: Iterable[str],
    host_binds: bool = True,
) -> None:
    """Compare the effective sets of units, and those of the processes in them, with ``expected`` (``[{unit, cpus, mems}]``).

    An entry can have the ``folder`` of its cgroup, where that is known. ``edited`` are the units whose files are not as expected;
    ``host_binds`` as :func:`_drift.binders.check_binders` has it.
    """
    there = available(host)
    folders = {entry["unit"]: entry["folder"] if "folder" in entry else systemd.cgroup(entry["unit"]) for entry in expected}
    for entry in expected:
        unit, folder = entry["unit"], folders[entry["unit"]]
        right = [_compare_set(findings, host, systemd, entry, folder, kind, there, edited) for kind in _KINDS if entry[kind[0]]]
        if folder:
            inner = {other for other in folders.values() if other and other != folder}
            found = _processes(host, folder, inner)
            check_binders(findings, host, unit, found, entry["cpus"], there["cpus"], host_binds)
            if all(right):
                _compare_processes(findings, host, "processes of " + unit, found, entry, unit)


def _compare_set(
    findings: Findings,
    host: Host,
    systemd: Systemd,
    entry: Mapping[str, Any],
    folder: str | None,
    kind: tuple[str, str, str],
    there: Mapping[str, set[int]],
    edited: Iterable[str],
) -> bool:
    """Compare one set of one unit and return whether the kernel grants it."""
    key, word, setting = kind
    unit, wanted = entry["unit"], set(expand(entry[key]))
    name = "%s %s" % (unit, word)
    usable, found = wanted & (there[key] or wanted), _effective(host, folder, key)
    overrides = [path for path in systemd.set_by_hand(unit) if setting in path]
    overrides += [path for path, _value in others(host, unit, setting) if path not in overrides]
    if found is None and not host.answers or found == usable:
        other = [path for path in overrides if settings(host.read(path)).get(setting) != entry[key]]
        if other:
            text = settings(host.read(other[0])).get(setting, "")
            said = numbers(text)
            has = _set_of(key, None if said is None else compress(said))._replace(state="%s=%s in %s" % (setting, text, other[0]))
            cause = causes.of_cpuset(unit, usable, found, overrides=other)
            findings.differs("cpusets", name, _set_of(key, entry[key]), has, cause, unit=unit)
        elif found is not None:
            findings.same("cpusets", name)
        return found is not None
    parent = posixpath.basename(posixpath.dirname(slice_path(unit))) if unit.endswith(".slice") else ""
    cause = causes.of_cpuset(
        unit,
        usable,
        found,
        (parent, _effective(host, systemd.cgroup(parent), key)) if parent else None,
        overrides,
        unit in edited,
        host.answers and systemd.show(["NeedDaemonReload"], [unit]).get(unit, {}).get("NeedDaemonReload") == "yes",
    )
    has = Value("no cpuset") if found is None else _set_of(key, compress(found))
    findings.differs("cpusets", name, _set_of(key, entry[key]), has, cause, unit=unit)
    return False


def _set_of(key: str, cpulist: str | None) -> Value:
    return Value(cpus=cpulist) if key == "cpus" else Value(mems=cpulist)


def check_services(
    findings: Findings,
    host: Host,
    systemd: Systemd,
    services: Sequence[Mapping[str, Any]],
    edited: Iterable[str],
    expected: Sequence[Mapping[str, Any]] = (),
    renumbered: bool = False,
    host_binds: bool = True,
) -> list[dict[str, Any]]:
    """Compare services with the settings of their drop-ins: ``[{name, settings, devices, switches}]`` of filter ``npu.affinity.binding``.

    ``expected`` are the sets of slices, as :func:`check_cpusets` has them; ``renumbered``: whether ids may mean other devices than when
    services were started, as they do while cards are lost; ``host_binds`` as :func:`_drift.binders.check_binders` has it. Returns what
    :func:`check_cpusets` has to look at besides, for services with a set of their own.
    """
    properties = ["LoadState", "ActiveState", "ControlGroup", "MainPID", *_LOADED]
    states = systemd.show(properties, [service["name"] for service in services]) if host.answers else {}
    sets_of = {entry["unit"]: {"cpus": entry["cpus"], "mems": entry["mems"]} for entry in expected}
    with_sets: list[dict[str, Any]] = []
    missing = {}
    for service in services:
        unit, wanted, state = service["name"], service["settings"], states.get(service["name"], {})
        if state.get("LoadState") == "not-found" if host.answers else fragment(host, unit) is None:
            missing[unit] = similar(host, unit)
        if unit not in edited and host.exists(drop_in_of(unit)):
            _check_settings(findings, host, unit, wanted, state)
        devices, switches = service.get("devices") or {}, service.get("switches") or {}
        files = _check_variables(findings, host, unit, devices, _OTHER_DEVICES, unit in edited)
        files.update(_check_variables(findings, host, unit, switches, _BINDS_ITSELF, unit in edited))
        if state.get("ActiveState") != "active":
            continue
        if not renumbered:
            _check_main_process(findings, host, unit, {**devices, **switches}, files, state.get("MainPID", "0"), unit in edited)
        group = state.get("ControlGroup", "")
        if "Slice" in wanted:
            if posixpath.dirname(group) == slice_path(wanted["Slice"]):
                findings.same("services", unit)
                sets = sets_of.get(wanted["Slice"])
                if "AllowedCPUs" in wanted:
                    sets = {"cpus": wanted["AllowedCPUs"], "mems": wanted.get("AllowedMemoryNodes", "")}
                if sets and ("AllowedCPUs" in wanted or host.exists(CGROUPS + group + "/cpuset.cpus.effective")):
                    with_sets.append(dict(sets, unit=unit, folder=CGROUPS + group))
            else:
                found = posixpath.basename(posixpath.dirname(group)) or "no slice"
                cause = Cause(OLD_PROCESS, "it still runs as it was started")
                if unit in edited:
                    cause = Cause(EDIT, "its drop-in was changed")
                findings.differs("services", unit, "in " + wanted["Slice"], "in " + found, cause, unit=unit)
        if "CPUAffinity" in wanted:
            folder = folder_of(host, group) if group else ""
            inside = _processes(host, folder) if folder else []
            check_binders(findings, host, unit, inside, wanted["CPUAffinity"], available(host)["cpus"], host_binds)
            threads = [thread for process in inside for thread in _threads(host, process)]
            entry = {"cpus": wanted["CPUAffinity"], "mems": ""}
            _compare_processes(findings, host, "threads of " + unit, threads, entry, unit, OLD_PROCESS)
    if missing:
        findings.remarks.append(absent(missing))
    return with_sets


def _check_settings(findings: Findings, host: Host, unit: str, wanted: Mapping[str, str], state: Mapping[str, str]) -> None:
    """Compare what all files of a service say together, and what systemd has loaded of it, with our drop-in."""
    different = {key: (found, path) for key, _value, found, path in differences(host, unit, wanted)}
    for key, value in wanted.items():
        name, loaded = "%s %s" % (unit, key), state.get(key)
        if key in different:
            found, path = different[key]
            cause = Cause(EDIT, "its files do not say so")
            if path:
                cause = Cause(EDIT, "%s, which systemd reads as well, says %s too; remove it there" % (path, key))
            findings.differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, found), cause, unit=unit)
        elif key in _LOADED and loaded is not None and numbers(loaded) != numbers(value):
            cause = Cause(CHANGED_CPUSET, "systemd has not read its files since they changed; 'systemctl daemon-reload' does that")
            findings.differs("services", name, "%s=%s" % (key, value), "%s=%s" % (key, loaded), cause, unit=unit)
        else:
            findings.same("services", name)


def _check_variables(findings: Findings, host: Host, unit: str, wanted: Mapping[str, str], remark: str, edited: bool) -> dict[str, str]:
    """Compare variables that the files of a service set. Other values by a file that is not ours are its owner's wish, and a ``remark``."""
    found = environment(host, unit) if wanted else {}
    for name, value in wanted.items():
        here, path = found.get(name, ("", ""))
        title = "%s %s" % (unit, name)
        if agrees(name, here, value):
            findings.same("services", title)
        elif path not in ("", drop_in_of(unit)):
            findings.remarks.append(remark % (path, name, here, unit, name, value))
        elif not edited:
            cause = Cause(EDIT, "another file of the service takes away what its drop-in says (Environment=)")
            findings.differs("services", title, "%s=%s" % (name, value), "no %s" % name, cause, unit=unit)
    return {name: here for name, (here, _path) in found.items()}


def _check_main_process(
    findings: Findings, host: Host, unit: str, wanted: Mapping[str, str], files: Mapping[str, str], pid: str, edited: bool
) -> None:
    """Compare the variables that a service was started with, which its program may have set itself, with what its files say now."""
    words = started_with(host, pid) if pid != "0" else []
    started = dict(word.partition("=")[::2] for word in words)
    for name, value in wanted.items() if started else ():
        title = "main process of %s %s" % (unit, name)
        expected = files.get(name, value)
        here = started.get(name, "")
        if here == expected or agrees(name, here, value):
            findings.same("processes", title)
        else:
            cause = Cause(OLD_PROCESS, "it still runs as it was started, or its program sets this itself")
            if edited:
                cause = Cause(EDIT, "its drop-in was changed")
            shown = "%s=%s" % (name, here) if name in started else "no %s" % name
            findings.differs("processes", title, "%s=%s" % (name, expected), shown, cause, unit=unit)


def _processes(host: Host, folder: str, without: Container[str] = ()) -> list[str]:
    """Return the folders in /proc of the :func:`members` of a cgroup."""
    return ["/proc/" + pid for pid in members(host, folder, without)]


def _threads(host: Host, process: str) -> list[str]:
    return ["%s/task/%s" % (process, name) for name in host.names(process + "/task")]


def _allowed(host: Host, task: str) -> dict[str, str]:
    """Return ``{cpus, mems}`` that a process or thread may use, as cpulists; empty for one that has ended."""
    lines = (line.partition(":") for line in (host.read(task + "/status") or "").splitlines())
    return {_ALLOWED[key]: value.strip() for key, _colon, value in lines if key in _ALLOWED}


def _compare_processes(
    findings: Findings, host: Host, name: str, tasks: Sequence[str], entry: Mapping[str, Any], unit: str, word: str = CHANGED_CPUSET
) -> None:
    """Compare what processes or threads may use with the sets of their unit, of which they may use a part."""
    outside = []
    for task in tasks:
        found = _allowed(host, task)
        if any(entry[key] and not set(expand(found.get(key, ""))) <= set(expand(entry[key])) for key, _word, _setting in _KINDS):
            outside.append((task, found))
    if not tasks:
        return
    if not outside:
        findings.same("processes", name)
        return
    task, found = outside[0]
    title = "%s (%s)" % (task.rpartition("/")[2], host.read(task + "/comm") or "ended")
    remark = "the set of the unit does not reach them"
    if word == OLD_PROCESS:
        remark = "it runs as it was started, or its workers bind themselves (vLLM-Ascend: enable_cpu_binding=false)"
    has = Value(cpus=found.get("cpus") if entry["cpus"] else None, mems=found.get("mems") if entry["mems"] else None)
    has = has._replace(task=title, more=len(outside) - 1)
    expected = Value(cpus=entry["cpus"] or None, mems=entry["mems"] or None)
    findings.differs("processes", name, expected, has, Cause(word, remark), unit=unit)
