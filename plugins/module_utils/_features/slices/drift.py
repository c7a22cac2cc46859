# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel really grants to slices, services and their processes, compared with what it should. Reads only."""

from __future__ import annotations

import posixpath
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..._base.cpulist import compress, expand
from ..._base.findings import CHANGED_CPUSET, EDIT, OFFLINE_CPU, Cause, Value, coded
from ..._kernel.machine import slice_path
from ..._kernel.memory import nodes_with_memory
from ..._kernel.processes import members
from ..._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, Systemd, settings
from ..._state.unit_files import numbers, others
from ..comparing import Comparing
from ..watching import WATCH_SERVICE
from .binders import check_binders
from .lending import given, holders, lending, sentence
from .services import check_services
from .tasks import compare_tasks


class Seen(NamedTuple):
    """What can be seen of a unit whose set is another one.

    ``above`` is ``(unit, set)`` of the slice above; ``overrides`` are drop-ins of set-property; ``edited``: whether the unit file is not
    as expected; ``unread``: whether systemd has not read it since it changed.
    """

    unit: str
    above: tuple[str, set[int] | None] | None = None
    overrides: Sequence[str] = ()
    edited: bool = False
    unread: bool = False


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
            found = ["/proc/" + pid for pid in members(host, folder, inner)]
            check_binders(comparing, unit, found, entry["cpus"])
            if all(right):
                compare_tasks(comparing, "processes of " + unit, found, entry)


def _followed(comparing: Comparing, expected: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the expected sets, those of units that follow the workloads as far as these let them have what they have."""
    host, has = comparing.host, given(comparing.host)
    following = any(entry.get("more") for entry in expected) and has
    found = lending(host) if following else None
    held = found.held(holders(host, found.plan)) if found else set()
    for entry in expected:
        if found and entry.get("more") and entry["unit"] in has:
            lent = has[entry["unit"]] & set(expand(entry["more"])) - held
            yield dict(entry, cpus=compress(lent.union(expand(entry["cpus"]))))
        else:
            yield entry
    if found:
        comparing.findings.remarks += coded("NPU_HOUSEKEEPING_FOLLOWS", [sentence(found, has)])


def _compare_set(comparing: Comparing, entry: Mapping[str, Any], folder: str | None, key: str, there: set[int]) -> bool:
    """Compare one set of one unit and return whether the kernel grants it; ``there`` has what is online."""
    host, findings, systemd, unit = comparing.host, comparing.findings, Systemd(comparing.host), entry["unit"]
    kind, word = CPUSET_KEYS[key]
    name, wanted = "%s %s" % (unit, word), set(expand(entry[kind]))
    usable = wanted & (there or wanted)
    text = host.read("%s/cpuset.%s.effective" % (folder, kind)) if folder else None
    found = None if text is None else set(expand(text))
    overrides = [path for path in systemd.set_by_hand(unit) if key in path]
    overrides += [path for path, _value in others(host, unit, key) if path not in overrides]
    lent = RUNTIME_CONTROLS if entry.get("more") else ()
    overrides = [path for path in overrides if not path.startswith(lent)]
    if found is None and not host.live or found == usable:
        other = [path for path in overrides if settings(host.read(path)).get(key) != entry[kind]]
        if other:
            text = settings(host.read(other[0])).get(key, "")
            said = numbers(text)
            has = _set_of(kind, None if said is None else compress(said))._replace(state="%s=%s in %s" % (key, text, other[0]))
            findings.differs(
                "cpusets", name, _set_of(kind, entry[kind]), has, cause_of_set(usable, found, Seen(unit, overrides=other)), unit
            )
        elif found is not None:
            findings.same("cpusets", name)
        return found is not None
    parent = posixpath.basename(posixpath.dirname(slice_path(unit))) if unit.endswith(".slice") else ""
    above = (parent, systemd.effective(parent, kind)) if parent else None
    unread = host.live and systemd.show(["NeedDaemonReload"], [unit]).get(unit, {}).get("NeedDaemonReload") == "yes"
    cause = cause_of_set(usable, found, Seen(unit, above, overrides, unit in comparing.edited, unread))
    if entry.get("more") and found and found > usable:
        cause = Cause(CHANGED_CPUSET, "a workload holds the others, and %s did not take them back: see its journal" % WATCH_SERVICE)
    has = Value("no cpuset") if found is None else _set_of(kind, compress(found))
    findings.differs("cpusets", name, _set_of(kind, entry[kind]), has, cause, unit)
    return False


def _set_of(kind: str, cpulist: str | None) -> Value:
    return Value(cpus=cpulist) if kind == "cpus" else Value(mems=cpulist)


def cause_of_set(wanted: set[int], found: set[int] | None, seen: Seen) -> Cause:
    """Return the likely cause why the kernel grants a unit ``found`` (a set, None without a cpuset) and not ``wanted``, which is online.

    It rests on what systemd 252 was seen to do: ``systemctl set-property`` leaves a drop-in of its own.
    """
    if seen.overrides:
        by_hand = all("/system.control/" in path or "/transient/" in path for path in seen.overrides)
        advice = "remove the file, run 'systemctl daemon-reload', and bind" if by_hand else "remove it there"
        return Cause(EDIT, "overridden by %s; %s" % (", ".join(seen.overrides), advice))
    if not wanted:
        return Cause(OFFLINE_CPU, "none of them is online, and the kernel then grants those of the slice above")
    if seen.edited:
        return Cause(EDIT, "its unit file was changed")
    if seen.unread:
        return Cause(CHANGED_CPUSET, "systemd has not read the unit file since it changed; bind again")
    if found is None:
        return Cause(CHANGED_CPUSET, "the cpuset controller is off for it")
    if seen.above and seen.above[1] is not None and found == wanted & seen.above[1]:
        return Cause(CHANGED_CPUSET, "%s above it does not have the others" % seen.above[0])
    return Cause(CHANGED_CPUSET, "something other than systemd wrote it, or systemd left an older set behind")
