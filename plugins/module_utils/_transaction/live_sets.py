# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the CPU sets and memory nodes of running units to what their files say, where a reload of systemd did not.

systemd 256 and 257 read a changed ``AllowedCPUs=`` or ``AllowedMemoryNodes=`` at ``daemon-reload`` and leave the running unit as it was
(systemd pull request 38190). ``set-property`` applies a set at once. Its drop-in is removed again, and later reloads leave the set alone.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, NamedTuple

from .._base.cpulist import expand
from .._host.host import Host
from .._state.systemd import CPUSET_KEYS, RUNTIME_CONTROLS, Systemd
from .._state.unit_files import numbers, values

Sets = Mapping[str, "set[int]"]
"""CPUs and memory nodes by the keys of unit files."""


class _Unit(NamedTuple):
    name: str
    live: Sets
    """What its control group is configured for; a key is missing where it has no cpuset."""
    wanted: Sets
    """What its files say; only keys that differ from the live ones."""


def follow(systemd: Systemd, units: Iterable[str]) -> bool:
    """Give the units that differ from their files the sets of these, and return whether there were any: then systemd was reloaded.

    A unit that somebody overrides with ``set-property --runtime`` is left alone, and so is one that does not run.
    """
    behind = {}
    for name in dict.fromkeys(units):
        wanted = _sets_of_files(systemd.host, name)
        folder = systemd.cgroup(name) if wanted and not systemd.set_by_hand(name, RUNTIME_CONTROLS) else None
        if folder is not None:
            live = _live_sets(systemd.host, folder)
            differing = {key: value for key, value in wanted.items() if live.get(key) != value}
            if differing:
                behind[folder] = _Unit(name, live, differing)
    if not behind:
        return False
    try:
        for name, sets in _steps(behind):
            systemd.set_live(name, sets)
    finally:
        for unit in behind.values():
            systemd.drop_runtime_settings(unit.name)
        systemd.reload()
    return True


def _sets_of_files(host: Host, unit: str) -> Sets:
    said = values(host, unit)
    found = {key: [numbers(value) or set() for _path, value in said.get(key, ())] for key in CPUSET_KEYS}
    return {key: set().union(*sets) for key, sets in found.items() if any(sets)}


def _live_sets(host: Host, folder: str) -> Sets:
    texts = {key: host.read("%s/cpuset.%s" % (folder, kind)) for key, (kind, _word) in CPUSET_KEYS.items()}
    return {key: set(expand(text)) for key, text in texts.items() if text is not None}


def _steps(behind: Mapping[str, _Unit]) -> Iterator[tuple[str, Sets]]:
    """Yield units by the folders of their groups, and the sets to give them, in order.

    The kernel grants a group the part of its set that the group around it has, and all of that where there is no such part. So an outer
    group has its old and its new set while those inside change: no process runs on CPUs of another NPU, and no page moves twice.
    """
    outer = [folder for folder in sorted(behind) if any(other.startswith(folder + "/") for other in behind)]
    for folder in outer:
        name, live, wanted = behind[folder]
        yield name, {key: live[key] | value for key, value in wanted.items() if key in live and value - live[key]}
    for folder in sorted(set(behind) - set(outer)):
        yield behind[folder].name, behind[folder].wanted
    for folder in reversed(outer):
        name, live, wanted = behind[folder]
        yield name, {key: value for key, value in wanted.items() if key not in live or live[key] - value}
