# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slices need of a host, and what the kernel really grants to them, services and their processes. Reads only."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import CHANGED_CPUSET, EDIT, OFFLINE_CPU, Cause, Value, coded
from ..._host.host import Host
from ..._kernel.machine import slice_path
from ..._kernel.memory import nodes_with_memory
from ..._kernel.processes import members
from ..._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, Systemd, settings
from ..._state.unit_files import numbers, others, withheld
from ..feature import Comparing
from ..watching import WATCH_SERVICE
from .binders import check_binders
from .lending import given, holders, lending, sentence
from .services import check_services, compare_tasks

if TYPE_CHECKING:
    from ..._base.documents import AppliedState


def require(host: Host, state: AppliedState) -> None:
    """Refuse units that get no CPU sets, and programs that they start and that are neither there nor placed first by feature vnpu."""
    for entry in state["expected"]:
        parent = posixpath.dirname(slice_path(entry["unit"])) if entry["unit"].endswith(".slice") else ""
        why = withheld(host, parent)
        if why:
            raise ValueError("%s cannot get CPUs %s: %s" % (entry["unit"], entry["cpus"], why))
    layout = state["live"].get("vnpu")
    layout_files = ["%s/%s" % (layout["folder"], file["name"]) for file in layout["files"]] if layout else []
    for path in state["programs"]:
        if path not in layout_files and not host.exists(path):
            raise ValueError(
                "%s is not on the host, and the units of vNPUs start it: containers would wait for their limiter and then fail. Place "
                "it (npu_affinity_vnpu_enabled with npu_affinity_vnpu_files), or set npu_affinity_vnpu_limiter to '' where the library "
                "does without one" % path
            )


def compare(comparing: Comparing) -> None:
    """Compare services with their drop-ins, and the effective sets of units, and of the processes in them, with the expected ones."""
    with_sets = check_services(comparing)
    expected: list[Mapping[str, Any]] = [entry for entry in comparing.wanted.expected if entry["unit"] not in comparing.idle]
    expected = [*_followed(comparing, expected), *with_sets]
    host, systemd = comparing.host, Systemd(comparing.host)
    there = {"cpus": comparing.online, "mems": nodes_with_memory(host)}
    folders = {entry["unit"]: entry["folder"] if "folder" in entry else systemd.cgroup(entry["unit"]) for entry in expected}
    for entry in expected:
        unit, folder = entry["unit"], folders[entry["unit"]]
        right = [_compare_set(comparing, entry, folder, key, there[kind]) for key, (kind, _word) in CPUSET_KEYS.items() if entry[kind]]
        if folder:
            inner = {other for other in folders.values() if other and other != folder}
            processes = ["/proc/" + pid for pid in members(host, folder, inner)]
            check_binders(comparing, unit, processes, entry["cpus"])
            if all(right):
                compare_tasks(comparing, "processes of " + unit, processes, entry)


def _followed(comparing: Comparing, expected: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the expected sets, those of units that follow the workloads as far as these let them have what they have."""
    host, has = comparing.host, given(comparing.host)
    following = any(entry.get("more") for entry in expected) and has
    loan = lending(host) if following else None
    held = loan.held(holders(host, loan.plan)) if loan else set()
    for entry in expected:
        if loan and entry.get("more") and entry["unit"] in has:
            lent = has[entry["unit"]] & set(expand(entry["more"])) - held
            yield dict(entry, cpus=compress(lent.union(expand(entry["cpus"]))))
        else:
            yield entry
    if loan:
        comparing.findings.remarks += coded("NPU_HOUSEKEEPING_FOLLOWS", [sentence(loan, has)])


def _compare_set(comparing: Comparing, entry: Mapping[str, Any], folder: str | None, key: str, there: set[int]) -> bool:
    """Compare one set of one unit and return whether the kernel grants it; ``there`` has what is online."""
    host, findings, systemd, unit = comparing.host, comparing.findings, Systemd(comparing.host), entry["unit"]
    kind, word = CPUSET_KEYS[key]
    name, wanted = "%s %s" % (unit, word), set(expand(entry[kind]))
    usable = wanted & (there or wanted)
    text = host.read("%s/cpuset.%s.effective" % (folder, kind)) if folder else None
    effective = None if text is None else set(expand(text))
    overrides = [path for path in systemd.set_by_hand(unit) if key in path]
    overrides += [path for path, _value in others(host, unit, key) if path not in overrides]
    lent = RUNTIME_CONTROLS if entry.get("more") else ()
    overrides = [path for path in overrides if not path.startswith(lent)]
    if effective is None and not host.live or effective == usable:
        other = [path for path in overrides if settings(host.read(path)).get(key) != entry[kind]]
        if other:
            text = settings(host.read(other[0])).get(key, "")
            cpus = numbers(text)
            has = _set_of(kind, None if cpus is None else compress(cpus))._replace(state="%s=%s in %s" % (key, text, other[0]))
            findings.differs("cpusets", name, _set_of(kind, entry[kind]), has, cause_of_set(usable, effective, other), unit)
        elif effective is not None:
            findings.same("cpusets", name)
        return effective is not None
    parent = posixpath.basename(posixpath.dirname(slice_path(unit))) if unit.endswith(".slice") else ""
    above = (parent, systemd.effective(parent, kind)) if parent else None
    unread = host.live and systemd.show(["NeedDaemonReload"], [unit]).get(unit, {}).get("NeedDaemonReload") == "yes"
    cause = cause_of_set(usable, effective, overrides, above, unit in comparing.edited, unread)
    if entry.get("more") and effective and effective > usable:
        cause = Cause(CHANGED_CPUSET, "a workload holds the others, and %s did not take them back: see its journal" % WATCH_SERVICE)
    has = Value("no cpuset") if effective is None else _set_of(kind, compress(effective))
    findings.differs("cpusets", name, _set_of(kind, entry[kind]), has, cause, unit)
    return False


def _set_of(kind: str, cpulist: str | None) -> Value:
    return Value(cpus=cpulist) if kind == "cpus" else Value(mems=cpulist)


def cause_of_set(
    wanted: set[int],
    effective: set[int] | None,
    overrides: Sequence[str] = (),
    above: tuple[str, set[int] | None] | None = None,
    edited: bool = False,
    unread: bool = False,
) -> Cause:
    """Return the likely cause why the kernel grants a unit ``effective`` (None without a cpuset) and not ``wanted``, which is online.

    It rests on what systemd 252 was seen to do: ``systemctl set-property`` leaves a drop-in of its own, one of the ``overrides``. ``above``
    is ``(unit, set)`` of the slice above; ``unread``: systemd has not read the unit file since it changed.
    """
    if overrides:
        by_hand = all("/system.control/" in path or "/transient/" in path for path in overrides)
        advice = "remove the file, run 'systemctl daemon-reload', and bind" if by_hand else "remove it there"
        return Cause(EDIT, "overridden by %s; %s" % (", ".join(overrides), advice))
    if not wanted:
        return Cause(OFFLINE_CPU, "none of them is online, and the kernel then grants those of the slice above")
    if edited:
        return Cause(EDIT, "its unit file was changed")
    if unread:
        return Cause(CHANGED_CPUSET, "systemd has not read the unit file since it changed; bind again")
    if effective is None:
        return Cause(CHANGED_CPUSET, "the cpuset controller is off for it")
    if above and above[1] is not None and effective == wanted & above[1]:
        return Cause(CHANGED_CPUSET, "%s above it does not have the others" % above[0])
    return Cause(CHANGED_CPUSET, "something other than systemd wrote it, or systemd left an older set behind")
