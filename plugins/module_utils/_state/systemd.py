# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd as seen from files and cgroups, and the few commands that make it follow the unit files.

What systemd was seen to do with cpusets (247 on kernel 5.10, 252 on 6.1, 257 on 6.12, 262 on 7.2; issue 43846, pull request 38190): a
changed set takes effect on a running unit at ``daemon-reload``, but not with 256 and 257, where only ``set-property`` changes it
(:func:`_transaction.live_units.follow_files`); an exit status of 0 proves nothing; removing the last value leaves the live set narrow.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Container, Iterable, Mapping, Sequence

from .._base.cpulist import compress, expand
from .._host import installed
from .._host.host import CommandError, Host, Result
from .._kernel.machine import CGROUPS, slice_path
from .._kernel.masks import possible
from .._kernel.memory import nodes_with_memory
from .files import make_folder, remove_empty, remove_file

UNIT_FOLDER = installed.UNIT_FOLDER
UNIT_FOLDERS = (UNIT_FOLDER, "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
"""Where systemd looks for a unit's file; the first one counts."""
RUNTIME_CONTROLS = ("/run/systemd/system.control", "/run/systemd/transient")
CONTROLS = RUNTIME_CONTROLS + ("/etc/systemd/system.control",)
"""Where ``systemctl set-property`` keeps its drop-ins, which override those below the unit folder; those of scopes are transient."""
UNIT_SUFFIX = re.compile(r"\.(service|slice|scope|timer|socket|target)\Z")
CPUSET_KEYS = {"AllowedCPUs": ("cpus", "CPUs"), "AllowedMemoryNodes": ("mems", "memory nodes")}


def unit_of(path: str) -> str | None:
    """Return the unit that a file below the unit folder configures (its own name, or its drop-in folder's), or None."""
    folder, name = posixpath.split(path)
    if folder == UNIT_FOLDER and UNIT_SUFFIX.search(name):
        return name
    if posixpath.dirname(folder) == UNIT_FOLDER and folder.endswith(".d") and name.endswith(".conf"):
        return posixpath.basename(folder)[:-2]
    return None


def units_of(paths: Iterable[str]) -> list[str]:
    """Return the units that files configure, each once, without the files of none."""
    return list(dict.fromkeys(unit for unit in map(unit_of, paths) if unit is not None))


def settings(text: str | None) -> dict[str, str]:
    """Return the last value of every key of a unit file's text; repeated keys and section names are not told apart."""
    pairs = (line.split("=", 1) for line in (text or "").splitlines() if "=" in line and not line.startswith(("#", ";")))
    return {key.strip(): value.strip() for key, value in pairs}


def enable_links(unit: str, text: str | None) -> list[str]:
    """Return the links that enabling a unit with the given file text makes."""
    return ["%s/%s.wants/%s" % (UNIT_FOLDER, target, unit) for target in settings(text).get("WantedBy", "").split()]


class Systemd:
    """systemd of one host: the running one, or with ``--root`` that of any other tree, where only enabling makes sense."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _systemctl(self, *arguments: str) -> Result:
        command = ["systemctl"] if self.host.live else ["systemctl", "--root", self.host.root]
        return self.host.run(command + list(arguments))

    def _check(self, *arguments: str) -> None:
        result = self._systemctl(*arguments)
        if result.rc != 0:
            raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()))

    def reload(self) -> None:
        self._check("daemon-reload")

    def start(self, units: Iterable[str]) -> None:
        self._check("start", *units)

    def stop(self, units: Iterable[str]) -> None:
        self._check("stop", *units)

    def restart(self, unit: str) -> None:
        self._check("restart", unit)

    def active(self, units: Iterable[str]) -> list[str]:
        """Return those of the units that are active, asking systemd once. A template never is, and systemctl gives up at one."""
        units = [unit for unit in units if "@." not in unit]
        if not units:
            return []
        answers = self._systemctl("is-active", *units).answer.split()
        return [unit for unit, answer in zip(units, answers) if answer == "active"]

    def show(self, properties: Iterable[str], units: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return ``{unit: {property: value}}`` of units by name, or of those that are loaded by shell pattern."""
        if not units:
            return {}
        output = self._systemctl("show", "--property=Id," + ",".join(properties), *units).answer
        blocks = [settings(block) for block in output.split("\n\n")]
        return {values.pop("Id"): values for values in blocks if "Id" in values}

    def running(self, units: Sequence[str]) -> list[str]:
        """Return those of the units, named as for :meth:`show`, that are neither inactive nor failed: stopping them does something."""
        states = self.show(["ActiveState"], units)
        return [unit for unit, values in sorted(states.items()) if values.get("ActiveState") not in ("inactive", "failed")]

    def forget_failed(self, pattern: str) -> None:
        self._check("reset-failed", pattern)

    def text(self, unit: str) -> str | None:
        """Return the text of a unit's file, or None when it is not installed; that of a masked one is empty."""
        return next((text for text in (self.host.read(path) for path in self._files(unit)) if text is not None), None)

    def masked(self, unit: str) -> bool:
        """Whether a unit is masked: systemd neither enables nor starts it."""
        path = next((self.host.path(path) for path in self._files(unit) if self.host.exists(path)), None)
        return path is not None and (self.text(unit) == "" or os.path.islink(path) and os.readlink(path) == "/dev/null")

    def _files(self, unit: str) -> list[str]:
        return ["%s/%s" % (folder, unit) for folder in UNIT_FOLDERS]

    def enabled(self, unit: str, text: str | None) -> bool:
        """Whether every target that the unit file's ``WantedBy=`` names links to the unit."""
        return all(self.host.exists(link) for link in enable_links(unit, text))

    def links(self, unit: str) -> list[str]:
        """Return the links below the unit folder that lead to a unit, and that disabling it removes."""
        names = self.host.names(UNIT_FOLDER, "*.wants") + self.host.names(UNIT_FOLDER, "*.requires")
        folders = ["%s/%s" % (UNIT_FOLDER, name) for name in names]
        paths = ["%s/%s" % (folder, name) for folder in [UNIT_FOLDER] + folders for name in self.host.names(folder)]
        links = [path for path in paths if os.path.islink(self.host.path(path))]
        return [path for path in links if posixpath.basename(os.readlink(self.host.path(path))) == unit]

    def enable(self, unit: str, text: str | None) -> None:
        """Enable a unit with the given file text; systemd has to be reloaded for it, once for all units.

        In another tree the links are made by hand where systemctl does not.
        """
        if not self._by_systemctl("enable", unit):
            for link in enable_links(unit, text):
                make_folder(self.host, posixpath.dirname(link))
                os.symlink("%s/%s" % (UNIT_FOLDER, unit), self.host.path(link))

    def disable(self, unit: str, text: str | None) -> None:
        """Disable a unit with the given file text: the reverse of :meth:`enable`."""
        if not self._by_systemctl("disable", unit):
            for link in enable_links(unit, text):
                remove_file(self.host, link)

    def _by_systemctl(self, verb: str, unit: str) -> bool:
        """Whether systemctl did it. In another tree it may be missing, and it finds no unit folder behind an absolute link."""
        if not self.host.live and self.host.resolve(UNIT_FOLDER) != self.host.root + UNIT_FOLDER:
            return False
        try:
            self._check(verb, "--no-reload", unit)
        except CommandError:
            if self.host.live:
                raise
            return False
        return True

    def cgroup(self, unit: str) -> str | None:
        """Return the folder of the unit's live cgroup (v2), or None when it has none."""
        if unit.endswith(".slice"):
            path = slice_path(unit)
        elif unit == "init.scope":
            path = "/init.scope"
        else:
            path = settings(self._systemctl("show", "--property=ControlGroup", unit).answer).get("ControlGroup", "")
        folder = CGROUPS + path
        return folder if path and self.host.exists(folder) else None

    def populated(self, unit: str) -> bool:
        """Whether a process runs in the unit or below it."""
        folder = self.cgroup(unit)
        return folder is not None and "populated 1" in (self.host.read(folder + "/cgroup.events") or "")

    def effective(self, unit: str, kind: str) -> set[int] | None:
        """Return the set of CPUs (kind ``cpus``) or memory nodes (``mems``) that the kernel really grants, or None without cgroup."""
        folder = self.cgroup(unit)
        text = None if folder is None else self.host.read("%s/cpuset.%s.effective" % (folder, kind))
        return None if text is None else set(expand(text))

    def narrow(self, unit: str) -> dict[str, str]:
        """Return ``{key: sentence}`` of the sets that are smaller than those of the group around without a setting."""
        folder = self.cgroup(unit)
        if folder is None:
            return {}
        limits, sentences = self.show(CPUSET_KEYS, [unit]).get(unit, {}), {}
        for key, (kind, word) in CPUSET_KEYS.items():
            inside, around = (self.host.read("%s/cpuset.%s.effective" % (path, kind)) for path in (folder, posixpath.dirname(folder)))
            if not limits.get(key) and inside is not None and around is not None and set(expand(inside)) < set(expand(around)):
                text = "%s has no setting for %s any more and is still confined to %s; restart its processes"
                sentences[key] = text % (unit, word, inside)
        return sentences

    def users(self, slices: Sequence[str], leaving: Iterable[str] = ()) -> dict[str, list[str]]:
        """Return ``{slice: units}`` of those slices that must not be stopped: what runs there, or would be stopped along with them.

        A slice is required by every unit that names it, also by one that runs elsewhere until its next start, or has no process (a
        oneshot that remains active, a service between two starts). ``leaving`` are units that will name it no more. Where processes belong
        to no unit the slice stands for itself.
        """
        requirers = {name: set(values.get("RequiredBy", "").split()) for name, values in self.show(["RequiredBy"], slices).items()}
        running = set(self.running(sorted(set().union(*requirers.values()) - set(slices) - set(leaving))))
        used = {}
        for name in slices:
            path = slice_path(name)
            below = [requirers.get(other, set()) for other in slices if (slice_path(other) + "/").startswith(path + "/")]
            units = self._inside(CGROUPS + path) | (running & set().union(*below))
            if units or self.populated(name):
                used[name] = sorted(units) or [name]
        return used

    def _inside(self, folder: str) -> set[str]:
        """Return the services and scopes with processes below the cgroup folder of a slice, and in the slices below it."""
        units, pending = set(), [folder]
        while pending:
            outer = pending.pop()
            inner = ["%s/%s" % (outer, name) for name in self.host.names(outer)]
            populated = [path for path in inner if "populated 1" in (self.host.read(path + "/cgroup.events") or "")]
            pending += [path for path in populated if path.endswith(".slice")]
            units |= {posixpath.basename(path) for path in populated if UNIT_SUFFIX.search(path) and not path.endswith(".slice")}
        return units

    def widen(self, unit: str, keys: Container[str]) -> bool:
        """Give a live unit all CPUs or memory nodes, because without its setting alone it stays narrow; return whether there is a key.

        systemd has to be reloaded for it.
        """
        everything = {"AllowedCPUs": possible(self.host), "AllowedMemoryNodes": nodes_with_memory(self.host)}
        sets = {key: everything[key] for key in CPUSET_KEYS if key in keys}
        if sets:
            self.set_live(unit, sets)
            self.drop_runtime_settings(unit)
        return bool(sets)

    def set_live(self, unit: str, sets: Mapping[str, set[int]]) -> None:
        """Give a live unit other CPUs or memory nodes at once, by a drop-in that lasts until the next boot."""
        if sets:
            self._check("set-property", "--runtime", unit, *["%s=%s" % (key, compress(value)) for key, value in sets.items()])

    def drop_runtime_settings(self, unit: str) -> None:
        """Remove what :meth:`set_live` wrote; systemd has to be reloaded for it."""
        for path in self.set_by_hand(unit, RUNTIME_CONTROLS):
            os.unlink(self.host.path(path))
        remove_empty(self.host, ["%s/%s.d" % (control, unit) for control in RUNTIME_CONTROLS] + list(RUNTIME_CONTROLS))

    def set_by_hand(self, unit: str, controls: Iterable[str] = CONTROLS) -> list[str]:
        """Return the drop-ins that ``set-property`` wrote for the CPUs or memory nodes of a unit, :meth:`widen` included."""
        folders = ["%s/%s.d" % (control, unit) for control in controls]
        return ["%s/%s" % (folder, name) for folder in folders for name in self.host.names(folder, "50-Allowed*.conf")]
