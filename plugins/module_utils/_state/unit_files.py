# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd makes of all files of a unit: drop-ins by name, whatever folder they are in; lists grow until an empty value resets them.

The rules are those of systemd.unit(5), read from the files, so they hold for a tree in which no systemd runs.
"""

from __future__ import annotations

import difflib
import hashlib
import posixpath
import re
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping

from .._base.cpulist import expand, union
from .._host.host import Host
from .plan_file import numa_policy
from .systemd import UNIT_FOLDER

if TYPE_CHECKING:
    from .._base.documents import Topology

FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    UNIT_FOLDER,
    "/run/systemd/system",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
"""Where systemd looks for units and their drop-ins; of files with one name the first counts."""
LISTS = ("CPUAffinity", "NUMAMask", "AllowedCPUs", "AllowedMemoryNodes")
OURS = "50-npu-affinity.conf"


def affinity(machine: Mapping[str, Any], cpus: str, nearest: str, allowed: str) -> dict[str, str]:
    """Return the settings of a service where systemd cannot hold CPU sets (systemd.exec(5)). ``NUMAPolicy=`` needs systemd 243.

    ``nearest`` and ``allowed`` are memory nodes, as :func:`.plan_file.numa_policy` takes them.
    """
    policy = numa_policy(nearest, allowed) if (machine.get("systemd") or 0) >= 243 else None
    return dict({"CPUAffinity": cpus}, **dict(zip(("NUMAPolicy", "NUMAMask"), policy)) if policy else {})


def unconfined(topology: Topology, pool: str) -> dict[str, str]:
    """Return the setting of a service in a cpuset that takes an inherited mask away: all CPUs of the host, or the pool if unknown.

    From Linux 6.2 on, a process keeps the mask of what started it in every cpuset, and an empty ``CPUAffinity=`` stands for that of the
    manager. Of all CPUs the cpuset leaves the pool, that of a later plan, too; a mask of the pool would stay until the next start.
    """
    cpus = topology.get("cpus")
    return {"CPUAffinity": cpus and union(filter(None, (cpus.get("online"), cpus.get("offline")))) or pool}


def drop_in_of(unit: str) -> str:
    return "%s/%s.d/%s" % (UNIT_FOLDER, unit, OURS)


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text without blanks around it."""
    return hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).hexdigest()


def drop_ins_of_services(host: Host) -> dict[str, str]:
    """Return the digests of our drop-ins by service."""
    units = [name[:-2] for name in host.names(UNIT_FOLDER, "*.service.d")]
    texts = {unit: host.read(drop_in_of(unit)) for unit in units}
    return {unit: text_digest(text) for unit, text in texts.items() if text is not None}


def similar(host: Host, unit: str) -> str:
    """Return the unit of the host whose name is nearest to ``unit``, '' if none is near."""
    kind = "*." + unit.rpartition(".")[2]
    names = {name for folder in FOLDERS for name in host.names(folder, kind)}
    return next(iter(difflib.get_close_matches(unit, sorted(names), 1, 0.8)), "")


def absent(units: Mapping[str, str]) -> str:
    """Return a sentence on units that a host does not have, ``{name: the nearest that it has}``."""
    names = ["%s (did you mean %s?)" % (unit, near) if near else unit for unit, near in sorted(units.items())]
    if len(units) == 1:
        text = "is not installed: systemd has no unit file of this name. Its drop-in takes effect once it is installed."
    else:
        text = "are not installed: systemd has no unit files of these names. Their drop-ins take effect once they are installed."
    return "%s %s" % (", ".join(names), text)


def fragment(host: Host, unit: str) -> str | None:
    """Return the path of a unit's own file, for an instance also that of its template, or None when the unit does not exist."""
    names = [unit] + ([_template(unit)] if _template(unit) else [])
    return next((path for name in names for folder in FOLDERS for path in ["%s/%s" % (folder, name)] if host.exists(path)), None)


def _template(unit: str) -> str | None:
    name, at, rest = unit.partition("@")
    return "%s@.%s" % (name, rest.rpartition(".")[2]) if at else None


def drop_ins(host: Host, unit: str) -> list[str]:
    """Return the paths of all drop-ins of a unit in the order in which systemd reads them."""
    stem, _dot, kind = unit.rpartition(".")
    parts = stem.split("@")[0].split("-")
    names = [unit, _template(unit)] + ["-".join(parts[:count]) + "-." + kind for count in range(len(parts) - 1, 0, -1)] + [kind]
    paths: dict[str, str] = {}
    for name in filter(None, names):
        for folder in FOLDERS:
            inner = "%s/%s.d" % (folder, name)
            for file in host.names(inner, "*.conf"):
                paths.setdefault(file, "%s/%s" % (inner, file))
    return [paths[file] for file in sorted(paths)]


def values(host: Host, unit: str) -> dict[str, list[tuple[str, str]]]:
    """Return ``{key: [(path, value)]}`` of what a unit's files say together, without what a later empty value of the key resets."""
    main = fragment(host, unit)
    return values_of_files(host, ([main] if main else []) + drop_ins(host, unit))


def values_of_files(host: Host, paths: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the same of files in the order in which systemd reads them. A comment can lie between lines that a backslash joins."""
    settings: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        lines = [line for line in (host.read(path) or "").splitlines() if not line.lstrip().startswith(("#", ";"))]
        for line in re.sub(r"\\[ \t]*\n", " ", "\n".join(lines)).splitlines():
            key, equals, value = line.partition("=")
            if equals:
                assigned = settings.setdefault(key.strip(), [])
                assigned[:] = assigned + [(path, value.strip())] if value.strip() else []
    return settings


def withheld(host: Host, group: str) -> str:
    """Return a sentence where a slice in the path of a control group withholds cpusets from all units in it, '' where none does."""
    for unit in ("-.slice", *(name for name in group.split("/") if name.endswith(".slice"))):
        for path, value in values(host, unit).get("DisableControllers", ()):
            if "cpuset" in value.split():
                return "%s says DisableControllers=%s, and systemd grants no CPU set in %s: remove cpuset there" % (path, value, unit)
    return ""


def numbers(value: str) -> set[int] | None:
    """Return the set that a list setting means, or None for one that is not a list of numbers (``numa``)."""
    try:
        return set(expand(value.replace(" ", ",")))
    except ValueError:
        return None


def others(host: Host, unit: str, key: str) -> list[tuple[str, str]]:
    """Return ``[(path, value)]`` of the files that count for a key of a unit besides ours."""
    mine = (drop_in_of(unit), "%s/%s" % (UNIT_FOLDER, unit))
    return [(path, value) for path, value in values(host, unit).get(key, ()) if path not in mine]


def differences(host: Host, unit: str, wanted: Mapping[str, str]) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield ``(key, value wanted, value found, path of the file that makes the difference or None)`` of the settings of our drop-in."""
    settings = values(host, unit)
    for key, value in wanted.items():
        parts = settings.get(key, [])
        if key in LISTS:
            sets = [cpus for cpus in (numbers(text) for _path, text in parts) if cpus is not None]
            right = len(sets) == len(parts) and set().union(*sets) == numbers(value)
        else:
            right = bool(parts) and parts[-1][1] == value
        if not right:
            others = [path for path, _text in parts if posixpath.basename(path) != OURS]
            yield key, value, " ".join(text for _path, text in (parts if key in LISTS else parts[-1:])), others[-1] if others else None
