# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment that the files of a unit give its processes: variables that confine them to devices, switch in-process
binding off, or fit them to their pool.

The rules are those of systemd.exec(5): environment files win over ``Environment=``, the later over the earlier; and of systemd.unit(5)
for specifiers. A program can still set a variable itself.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex
from typing import Iterable

from .._base.binders import OPENMP, SWITCHES
from .._host.host import Host
from .unit_files import OURS, drop_in_of, values

DEVICES: dict[str, tuple[str, dict[str, str]]] = {
    "npu": ("ASCEND_RT_VISIBLE_DEVICES", {}),
    "gpu": ("CUDA_VISIBLE_DEVICES", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
}
"""By kind: which variable has the ids of the devices, and what else it needs.

CANN takes logic ids as the process sees them, ascending; CUDA (programming guide, environment variables) counts in the order of nvidia-smi
only with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. Neither reads on behind an id that does not exist.
"""
VISIBLE = tuple(name for name, _needs in DEVICES.values())
VARIABLES = VISIBLE + ("CUDA_DEVICE_ORDER",) + SWITCHES + ("OMP_NUM_THREADS", "TASK_QUEUE_ENABLE", "LD_PRELOAD") + OPENMP[1:]
_ASSIGNMENT = r"^[ \t]*%s=[ \t]*((?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\"'\\\n])*)"
_PART = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'([^']*)'|\\(.)|([^\"'\\]+)", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\$`])")
_SPECIFIER = re.compile(r"%([%iInNpP])")
_HEX = re.compile(r"\\x([0-9a-f]{2})")


def visible_devices(kind: str, ids: Iterable[int | str]) -> dict[str, str]:
    """Return the variables for devices of a kind (``npu`` or ``gpu``) by their ids, in the order in which the process is to count them."""
    name, needs = DEVICES[kind]
    listed = ",".join(map(str, ids))
    return dict(needs, **{name: listed}) if listed else {}


def in_settings(lines: Iterable[tuple[str, str]], key: str) -> list[tuple[str, str]]:
    """Return ``[(source, value)]`` of a variable in ``[(source, value of Environment=)]``. Raises ``ValueError`` for unbalanced quotes."""
    words = [(source, word.partition("=")) for source, line in lines for word in shlex.split(line)]
    return [(source, value) for source, (name, _equals, value) in words if name == key]


def in_files(host: Host, paths: Iterable[str], key: str) -> list[tuple[str, str]]:
    """Return ``[(path, value)]`` of a variable in environment files, given as ``EnvironmentFile=`` has them."""
    assignments = []
    for path in paths:
        folder, pattern = posixpath.split(path.lstrip("-").strip("'\""))
        for file in ["%s/%s" % (folder, name) for name in host.names(folder, pattern)]:
            text = (host.read(file) or "").replace("\\\n", "")
            for raw in re.findall(_ASSIGNMENT % key, text, re.MULTILINE | re.DOTALL):
                parts = _PART.findall(raw.strip())
                assignments.append((file, "".join(_ESCAPED.sub(r"\1", double) + "".join(rest) for double, *rest in parts)))
    return assignments


def environment(host: Host, unit: str, without_ours: bool = False) -> dict[str, tuple[str, str]]:
    """Return ``{name: (value, path)}`` of those of :data:`VARIABLES` that a unit's files set, with the path of the file that counts.

    ``without_ours``: except for our drop-ins, also that of feature adopt.
    """
    in_force, ours = values(host, unit), drop_in_of(unit)[: -len(".conf")]
    kept = [(path, value) for path, value in in_force.get("Environment", []) if not (without_ours and path.startswith(ours))]
    lines = [(path, _specified(value, unit)) for path, value in kept]
    files = [_specified(value, unit) for _path, value in in_force.get("EnvironmentFile", [])]
    variables = {}
    for name in VARIABLES:
        parts = []
        for line in lines:
            with contextlib.suppress(ValueError):  # systemd ignores such a line
                parts += in_settings([line], name)
        parts += in_files(host, files, name)
        if parts:
            path, value = parts[-1]
            variables[name] = (value, path)
    return variables


def _specified(text: str, unit: str) -> str:
    """Return a value with the specifiers that name the unit put in; others stay as they are."""
    stem = unit.rpartition(".")[0]
    prefix, _at, instance = stem.partition("@")
    replacements = {"%": "%", "n": unit, "N": stem, "p": prefix, "P": prefix, "i": instance, "I": instance}
    for name in "PI":  # unescaped
        replacements[name] = _HEX.sub(lambda match: chr(int(match.group(1), 16)), replacements[name].replace("-", "/"))
    return _SPECIFIER.sub(lambda match: replacements[match.group(1)], text)


def set_elsewhere(host: Host, unit: str) -> dict[str, dict[str, str | bool]]:
    """Return ``{name: {value, file, wins}}`` of :func:`environment` without the managed drop-in; ``wins``: whether it overrides that."""
    return {
        name: {"value": value.partition("\n")[0], "file": path, "wins": not _is_read_before_ours(path)}
        for name, (value, path) in environment(host, unit, without_ours=True).items()
    }


def _is_read_before_ours(path: str) -> bool:
    """Whether a file is the unit's own, or a drop-in that systemd reads before ours; an environment file is neither."""
    folder, name = posixpath.split(path)
    if folder.endswith(".d") and name.endswith(".conf"):
        return name < OURS
    return name.endswith(".service")


def agrees(name: str, value: str, wanted: str) -> bool:
    """Whether a value is what is wanted, or names some of the devices that are wanted."""
    ids = value.replace(" ", "").split(",") if name in VISIBLE else []
    return value == wanted or bool(ids) and set(ids) <= set(wanted.split(","))
