# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents of other archives: a sosreport, or a tar of /sys and /proc made by hand, with output of npu-smi next to them.

sos copies ``/sys/devices/system/cpu``, ``node*/{meminfo,cpulist,distance}``, ``/proc/irq``, ``/proc/interrupts``, unit files and, with some
versions, ``/sys/fs/cgroup``; the PCI bus is only in ``lspci -nnvv`` (sos: plugins processor, numa, hardware, systemd, cgroups and pci).
npu-smi it does not ask: its answers count where they lie in files that are named as sos names those of commands (``npu-smi_info_-m``).
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator

from .._kernel.pci import DEVICE_FOLDER
from .._state.unit_files import FOLDERS

TREES = ("sys", "proc", "etc", "usr", "lib", "run", "var", "dev")
"""Top folders of a machine. Of an archive with some of them, the rest is not looked at."""
WHOLE = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/proc/irq", "/sys/fs/cgroup")
"""Folders that are there wholly, as far as anybody asks, or not at all."""
UNITS = ("/lib/systemd/system", "/usr/lib/systemd/system")
"""Where the units of packages lie. With them all other folders of units are there, as far as they have something."""
COMMAND_FOLDER = re.compile(r"(^|/)(sos_commands/[^/]+|commands|npu-smi)/[^/]+\Z")
_ANSWER = re.compile(r"(npu-smi)((?:_[^_]+)*)\Z")
_LSPCI = re.compile(r"(^|/)sos_commands/pci/lspci_-nnvv\Z|(^|/)lspci_-nnvv(\.txt)?\Z")
_FUNCTION = re.compile(
    r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE
)
_NODE = re.compile(r"^\s+NUMA node:\s*(\d{1,6})")
LARGEST_LIST = 8 << 20
"""Bytes of an answer of lspci that are read, characters of a line, and how many functions a machine may have."""
_LONGEST_LINE = 512
_FUNCTIONS = 20_000


def lists_pci(name: str) -> bool:
    """Whether a file is the answer of ``lspci -nnvv``."""
    return bool(_LSPCI.search(name))


def manifest(names: Iterable[str], host: str) -> dict[str, Any]:
    """Return the manifest that an archive without one would have, by the paths of its files."""
    members = sorted(names)
    commands = list(_answers(members))

    def has(folder: str) -> bool:
        return any(name.startswith(folder[1:] + "/") for name in members)

    whole = [folder for folder in WHOLE if has(folder)]
    if any(map(lists_pci, members)):
        whole.append(DEVICE_FOLDER)
    if any(map(has, UNITS)):
        whole += [folder for folder in FOLDERS if not folder.startswith("/run/")]
        whole += ["/run/systemd"] if has("/run/systemd/system") else []
    return {
        "about": "Made when the archive was opened: it has no list of what was looked at.",
        "schema": 1,
        "version": "",
        "time": "",
        "host": host,
        "source": "sosreport" if has("/sos_commands") else "another archive",
        "live": False,
        "settings": {},
        "programs": {"npu-smi": "npu-smi"} if commands else {},
        "commands": commands,
        "absent": [],
        "whole": whole,
        "links": {},
        "folders": {},
        "names": {},
        "unread": [],
        "unreadable": [],
    }


def _answers(members: Iterable[str]) -> Iterator[dict[str, Any]]:
    for path in members:
        match = _ANSWER.match(re.sub(r"\.txt\Z", "", path.rpartition("/")[2])) if COMMAND_FOLDER.search(path) else None
        if match and path.isprintable():
            yield {"argv": [match.group(1), *match.group(2).split("_")[1:]], "rc": 0, "file": path}


def bus(texts: Iterable[str]) -> dict[str, str]:
    """Return the files of the PCI bus in sysfs, as far as answers of lspci told them. Raises ``ValueError`` for too many functions."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        values: dict[str, str] = {}
        for line in (line for line in text.splitlines() if len(line) <= _LONGEST_LINE):
            function, node = _FUNCTION.match(line), _NODE.match(line)
            if function:
                address = function.group(1).lower()
                values = found.setdefault(address if address.count(":") == 2 else "0000:" + address, {})
                values.update(
                    {
                        "class": "0x%s00" % function.group(2),
                        "vendor": "0x" + function.group(3),
                        "device": "0x" + function.group(4),
                        "numa_node": "-1",
                    }
                )
            elif node and values:
                values["numa_node"] = node.group(1)
            if len(found) > _FUNCTIONS:
                raise ValueError("its lspci lists more than %d PCI functions: it is not opened" % _FUNCTIONS)
    folder = DEVICE_FOLDER[1:]
    return {"%s/%s/%s" % (folder, pci, name): text + "\n" for pci, values in found.items() for name, text in values.items()}
