# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a simulated host a bind changes, and which of its cards are shared."""

from __future__ import annotations

import json
import os

from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ

VENDOR = ("/simulator", "/var/log", "/run/npu-smi")
"""What the simulated driver and its tool keep for themselves; device share is compared by its meaning, and by the driver's file."""
SHARED = {"npu_affinity_device_share_enabled": True}


def state(tree, leave_out=VENDOR):
    """Everything that a host's tree holds: mode and content of every file, the mode of every folder, targets of links."""
    found, folders, root = {}, [os.fspath(tree)], len(os.fspath(tree))
    while folders:
        for entry in os.scandir(folders.pop()):
            shown = entry.path[root:]
            if shown.startswith(leave_out):
                continue
            if entry.is_symlink():
                found[shown] = os.readlink(entry.path)
                continue
            content = None
            if entry.is_dir():
                folders.append(entry.path)
            elif entry.is_file():
                with open(entry.path, "rb") as file:
                    content = file.read()
            found[shown] = (oct(entry.stat().st_mode), content)
    return found


def touched(before, after):
    """The paths that differ between two states of a tree."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def work_outside(tree, npu=1, pid=7, cpus="0-31"):
    """Let a process of a service that is in no slice of a plan hold an NPU."""
    status = f"Name:\tpython3\nCpus_allowed_list:\t{cpus}\n"
    (tree / f"proc/{pid}/fd").mkdir(parents=True)
    (tree / f"proc/{pid}/fd/3").symlink_to(f"/dev/davinci{npu}")
    for name, text in {"comm": "python3\n", "cgroup": "0::/system.slice/vllm.service\n", "status": status}.items():
        (tree / f"proc/{pid}" / name).write_text(text)


def move_an_interrupt(tree, pci):
    """Put an interrupt of completions of a function elsewhere, as somebody with a shell would."""
    names = {line.split(":")[0].strip(): line.split()[-1] for line in (tree / "proc/interrupts").read_text().splitlines()[1:]}
    irq = next(irq for irq in names if names[irq] == CQ and (tree / f"sys/bus/pci/devices/{pci}/msi_irqs/{irq}").exists())
    (tree / f"proc/irq/{irq}/smp_affinity_list").write_text("15\n")


def shared(tree):
    path = tree / "run/npu-smi/share.json"
    return json.loads(path.read_text()) if path.exists() else []
