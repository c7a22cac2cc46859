# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make of the CPU sets that systemd holds what a kernel with cgroup v2 would make of them.

The kernel below a container has other CPUs than the simulated machine, or cgroup v1, so it cannot grant that machine's sets. This stands
for its cpuset controller: an active slice or scope has the part of its setting that the slice around it has, or all of that.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess

CGROUPS = pathlib.Path("/sys/fs/cgroup")
SETS = {"AllowedCPUs": "cpuset.cpus.effective", "AllowedMemoryNodes": "cpuset.mems.effective"}


def numbers(text):
    """Return the set of numbers of a list such as ``0-3,8``, or ``0-3 8`` as systemd prints it."""
    found = set()
    for part in text.replace(",", " ").split():
        first, _dash, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def groups():
    """Return ``{cgroup: properties}`` of the active slices and scopes but the root, outermost first."""
    command = ["/usr/bin/systemctl", "show", "--property=ActiveState,ControlGroup," + ",".join(SETS), "*.slice", "*.scope"]
    blocks = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip().split("\n\n")
    units = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    active = {unit["ControlGroup"]: unit for unit in units if unit["ActiveState"] == "active" and unit["ControlGroup"].strip("/")}
    return dict(sorted(active.items()))


def follow():
    """Bring the simulated cgroups to what systemd holds."""
    active = groups()
    for cgroup, unit in active.items():
        folder = CGROUPS / cgroup.lstrip("/")
        folder.mkdir(exist_ok=True)
        for setting, name in SETS.items():
            around = (folder.parent / name).read_text()
            granted = numbers(unit[setting]) & numbers(around)
            (folder / name).write_text("%s\n" % ",".join(map(str, sorted(granted))) if granted else around)
    for folder in sorted(CGROUPS.rglob("*.slice"), reverse=True):
        if "/" + str(folder.relative_to(CGROUPS)) not in active and (folder / SETS["AllowedCPUs"]).exists():
            shutil.rmtree(folder)


if (CGROUPS / "cgroup.controllers").exists():
    follow()
