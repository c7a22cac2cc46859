# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU set of a running service: a drop-in, which lasts, and on cgroup v2 the same set at once.

Seen on systemd 247 to 257: on cgroup v2 a reload alone need not change a running unit, ``set-property`` does; the drop-ins of a unit add up
unless the later one resets the key first. On cgroup v1 systemd has no CPU sets; ``CPUAffinity=`` counts from the next start on.
"""

from __future__ import annotations

import posixpath
import re
from typing import Iterable, Mapping

from ..._base.cpulist import compress, expand
from ..._host.host import CommandError, Host
from ..._kernel.machine import machine, sets_cpus
from ..._kernel.masks import possible
from ..._state import labels
from ..._state.files import MARKER, FileState, is_ours, missing_folders, remove_empty
from ..._state.systemd import RUNTIME_CONTROLS, UNIT_FOLDER, Systemd, settings
from ..._state.unit_files import numbers, values
from .feature import DROP_IN


_OWN_CPUS = re.compile(r"\b(taskset|numactl)\b[^;]*?\s(?:-\w*[cC]|--cpu-list|--physcpubind)[ =]?\s*(\d[\d,-]*)")


def has_cpusets(host: Host) -> bool:
    """Whether systemd confines units by cpusets: on cgroup v2 with them."""
    return sets_cpus(machine(host))


def follow_at_once(host: Host) -> bool:
    """Whether services that run get the set of a changed drop-in; below another root no systemd runs."""
    return host.live and has_cpusets(host)


def drop_in(unit: str) -> str:
    return "%s/%s.d/%s" % (UNIT_FOLDER, unit, DROP_IN)


def text(cpus: str, key: str, empties: bool = False) -> str:
    """Return a drop-in; ``empties``: whether it takes an affinity away as well, which would not let the service start."""
    other = "CPUAffinity=\n" if empties else ""
    return "# %s: changes are overwritten.\n[Service]\n%s%s=\n%s=%s\n" % (MARKER, other, key, key, cpus)


def unusable(host: Host, unit: str, cpus: str) -> list[tuple[str, str]]:
    """Return ``[(path, value)]`` of the affinity that a unit's files give it and that its CPUs do not have.

    The kernel refuses such a mask, and systemd then ends the start with 214/CPUAFFINITY.
    """
    found = [(path, value) for path, value in values(host, unit).get("CPUAffinity", ()) if path != drop_in(unit)]
    sets = [numbers(value) for _path, value in found]
    return found if any(own is None or not own <= set(expand(cpus)) for own in sets) else []


def hazards(host: Host, unit: str, cpus: str, later: bool) -> list[str]:
    """Return sentences on files that give a unit CPUs with which it cannot start on those of its drop-in.

    ``later``: only on what the drop-in does not take away when it is written.
    """
    said = [row for row in unusable(host, unit, cpus) if not later or posixpath.basename(row[0]) > DROP_IN and row[0].endswith(".conf")]
    found = ["%s says CPUAffinity=%s" % row for row in said]
    for path, line in values(host, unit).get("ExecStart", ()):
        own = [match.groups() for match in _OWN_CPUS.finditer(line)]
        found += ["%s starts it by %s on CPUs %s" % (path, *row) for row in own if not (numbers(row[1]) or set()) <= set(expand(cpus))]
    return ["%s cannot start again on CPUs %s: %s; change that there" % (unit, cpus, text) for text in found] if has_cpusets(host) else []


def folders(host: Host, unit: str) -> list[str]:
    """Return the folders that the drop-in of a unit needs and that are not there."""
    return missing_folders(host, [drop_in(unit)])


def by_hand(host: Host, unit: str) -> list[str]:
    """Return the drop-ins by which somebody overrides the sets of a unit until the next boot."""
    return Systemd(host).set_by_hand(unit, RUNTIME_CONTROLS)


def write(host: Host, wanted: Mapping[str, str]) -> None:
    """Give services CPUs, ``{unit: cpulist}``, where they can follow at once also those that run. Raises ``ValueError``."""
    for unit, cpus in wanted.items():
        put(host, unit, cpus)
    load(host, wanted)
    _raise(follow(host, wanted))


def put(host: Host, unit: str, cpus: str) -> None:
    """Write the drop-in of a service. :func:`load` makes systemd read it."""
    key = "AllowedCPUs" if has_cpusets(host) else "CPUAffinity"
    empties = key == "AllowedCPUs" and ("CPUAffinity" in settings(host.read(drop_in(unit))) or bool(unusable(host, unit, cpus)))
    FileState(text(cpus, key, empties), 0o644).put(host, drop_in(unit))


def load(host: Host, units: Iterable[str]) -> None:
    """Make systemd read the drop-ins of services."""
    labels.restore(host, map(drop_in, units))
    reload(host)


def follow(host: Host, wanted: Mapping[str, str]) -> dict[str, str]:
    """Give services that run the CPUs of their drop-ins where they can follow at once; return ``{unit: why}`` of those that failed."""
    return _set(Systemd(host), {unit: set(numbers(cpus) or ()) for unit, cpus in wanted.items()}) if follow_at_once(host) else {}


def reload(host: Host) -> None:
    if host.live:
        Systemd(host).reload()


def take_away(host: Host, made: Mapping[str, list[str]]) -> None:
    """Remove the drop-ins of services, ``{unit: folders made for it}``, and widen those that run: without its setting a set stays.

    Raises ``ValueError`` with those that could not be widened. These keep their drop-ins.
    """
    systemd = Systemd(host)
    running = [unit for unit in made if follow_at_once(host) and systemd.effective(unit, "cpus") is not None]
    failed = _set(systemd, dict.fromkeys(running, possible(host)), reload=False)
    for unit, its_folders in made.items():
        if unit not in failed:
            forget(host, unit, its_folders)
    reload(host)
    others = {
        unit: [numbers(value) or set() for _path, value in values(host, unit).get("AllowedCPUs", ())]
        for unit in running
        if unit not in failed
    }
    failed.update(_set(systemd, {unit: set().union(*sets) for unit, sets in others.items() if any(sets)}))
    _raise(failed)


def put_back(host: Host, unit: str, before: FileState, made: list[str]) -> None:
    """Give a service what its drop-in said before. Raises ``ValueError``."""
    if before.text is None:
        take_away(host, {unit: made})
    else:
        before.put(host, drop_in(unit))
        load(host, [unit])
        _raise(follow(host, {unit: said(host, unit) or ""}))


def forget(host: Host, unit: str, made: list[str]) -> None:
    """Remove the drop-in of a service if npu.affinity manages it. Running processes keep their CPUs."""
    state = FileState.of(host, drop_in(unit))
    if state.text is not None and is_ours(state.text):
        FileState(None, None).put(host, drop_in(unit))
    remove_empty(host, made)


def _set(systemd: Systemd, sets: Mapping[str, set[int]], reload: bool = True) -> dict[str, str]:
    """Set what differs from what runs, and return ``{unit: why}`` of what failed.

    The drop-ins that this makes are removed: the set stays, and later ones would add to them.
    """
    failed = {}
    changed = [unit for unit, cpus in sets.items() if systemd.effective(unit, "cpus") != cpus]
    for unit in changed:
        try:
            systemd.set_live(unit, {"AllowedCPUs": sets[unit]})
        except (CommandError, OSError, ValueError) as error:
            failed[unit] = str(error)
        finally:
            systemd.drop_runtime_settings(unit)
    if changed and reload:
        systemd.reload()
    return failed


def _raise(failed: Mapping[str, str]) -> None:
    if failed:
        raise ValueError("; ".join("%s: %s" % found for found in failed.items()))


def is_as_written(host: Host, unit: str, cpus: str) -> bool:
    """Whether a unit has the set that was written, or all CPUs from a removal that was interrupted; also where it does not run."""
    folder = Systemd(host).cgroup(unit) if host.live else None
    own = host.read(folder + "/cpuset.cpus") if folder else None
    return said(host, unit) in (None, cpus) and (not own or numbers(own) in (numbers(cpus), possible(host)))


def said(host: Host, unit: str) -> str | None:
    """Return the CPUs in the managed drop-in of a unit, or None without one."""
    found = FileState.of(host, drop_in(unit)).text
    if found is None or not is_ours(found):
        return None
    return compress(numbers(found.rstrip("\n").rpartition("=")[2]) or ())
