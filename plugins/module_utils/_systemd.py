# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd as seen from files and cgroups, and the few commands that make it follow the unit files.

What systemd was seen to do with cpusets (systemd 252, kernel 6.1; systemd issue 43846): a drop-in takes effect on a running
unit at ``daemon-reload``; an exit status of 0 proves nothing; removing the last value leaves the live set narrow.

This module is private to the collection.
"""

from __future__ import annotations

import os
import posixpath
import re

from ._cpulist import expand
from ._host import CommandError

UNIT_FOLDER = "/etc/systemd/system"
RUNTIME_CONTROL = "/run/systemd/system.control"
CONTROLS = (RUNTIME_CONTROL, "/etc/systemd/system.control")
"""Where ``systemctl set-property`` keeps its drop-ins, which override those below the unit folder."""
CGROUPS = "/sys/fs/cgroup"
UNIT_SUFFIX = re.compile(r"\.(service|slice|scope|timer|socket|target)$")


def unit_of(path):
    """Return the unit that a file below the unit folder configures (its own name, or its drop-in folder's), or None."""
    folder, name = posixpath.split(path)
    if folder == UNIT_FOLDER and UNIT_SUFFIX.search(name):
        return name
    if posixpath.dirname(folder) == UNIT_FOLDER and folder.endswith(".d") and name.endswith(".conf"):
        return posixpath.basename(folder)[:-2]
    return None


def settings(text):
    """Return the last value of every key of a unit file's text; repeated keys and section names are not told apart."""
    pairs = (line.split("=", 1) for line in (text or "").splitlines() if "=" in line and not line.startswith(("#", ";")))
    return {key.strip(): value.strip() for key, value in pairs}


def slice_path(name):
    """Return the cgroup path of a slice from its name: ``npu-0.slice`` -> ``/npu.slice/npu-0.slice``."""
    stem = name[: -len(".slice")]
    parts = stem.split("-")
    return "".join("/%s.slice" % "-".join(parts[: count + 1]) for count in range(len(parts)))


def _links(unit, text):
    return ["%s/%s.wants/%s" % (UNIT_FOLDER, target, unit) for target in settings(text).get("WantedBy", "").split()]


class Systemd:
    """systemctl for one host: of the running systemd, or with ``--root`` for any other tree, where only enabling makes sense."""

    def __init__(self, host):
        self.host = host

    def _systemctl(self, *arguments):
        command = ["systemctl"] if self.host.live else ["systemctl", "--root", self.host.root]
        return self.host.run(command + list(arguments))

    def _check(self, *arguments):
        result = self._systemctl(*arguments)
        if result.rc != 0:
            raise ValueError("'%s' ended with status %d: %s" % (" ".join(result.argv), result.rc, result.output.strip()))

    def reload(self):
        self._check("daemon-reload")

    def start(self, units):
        self._check("start", *units)

    def stop(self, unit):
        self._check("stop", unit)

    def restart(self, unit):
        self._check("restart", unit)

    def active(self, units):
        """Return those of the units that are active, asking systemd once."""
        if not units:
            return []
        answers = self._systemctl("is-active", *units).output.split()
        return [unit for unit, answer in zip(units, answers) if answer == "active"]

    def enabled(self, unit, text):
        """Whether every target that the unit file's ``WantedBy=`` names links to the unit."""
        return all(self.host.exists(link) for link in _links(unit, text))

    def enable(self, unit, text):
        """Enable a unit with the given file text. A tree on a controller without systemctl gets the same links by hand."""
        try:
            self._check("enable", unit)
        except CommandError:
            if self.host.live:
                raise
            for link in _links(unit, text):
                os.makedirs(posixpath.dirname(self.host.path(link)), exist_ok=True)
                os.symlink("%s/%s" % (UNIT_FOLDER, unit), self.host.path(link))

    def disable(self, unit, text):
        """Disable a unit with the given file text: the reverse of :meth:`enable`."""
        try:
            self._check("disable", unit)
        except CommandError:
            if self.host.live:
                raise
            for link in _links(unit, text):
                if self.host.exists(link):
                    os.unlink(self.host.path(link))

    def cgroup(self, unit):
        """Return the folder of the unit's live cgroup (v2), or None when it has none."""
        if unit.endswith(".slice"):
            path = slice_path(unit)
        elif unit == "init.scope":
            path = "/init.scope"
        else:
            path = settings(self._systemctl("show", "--property=ControlGroup", unit).output).get("ControlGroup", "")
        folder = CGROUPS + path
        return folder if path and self.host.exists(folder) else None

    def populated(self, unit):
        """Whether a process runs in the unit or below it."""
        folder = self.cgroup(unit)
        return folder is not None and "populated 1" in (self.host.read(folder + "/cgroup.events") or "")

    def effective(self, unit, kind):
        """Return the set of CPUs (kind ``cpus``) or memory nodes (``mems``) that the kernel really grants, or None without cgroup."""
        folder = self.cgroup(unit)
        text = None if folder is None else self.host.read("%s/cpuset.%s.effective" % (folder, kind))
        return None if text is None else set(expand(text))

    def widen(self, unit, cpus, mems):
        """Give a live unit everything, so that its setting can be taken away (removing it alone leaves the set narrow)."""
        self._check("set-property", "--runtime", unit, "AllowedCPUs=" + cpus, "AllowedMemoryNodes=" + mems)

    def set_by_hand(self, unit, controls=CONTROLS):
        """Return the drop-ins that ``set-property`` wrote for the CPUs or memory nodes of a unit, :meth:`widen` included."""
        folders = ["%s/%s.d" % (control, unit) for control in controls]
        return ["%s/%s" % (folder, name) for folder in folders for name in self.host.names(folder, "50-Allowed*.conf")]
