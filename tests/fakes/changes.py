# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a simulated host a bind changes, and which of its cards are shared."""

from __future__ import annotations

import json
import os
from pathlib import Path

VENDOR = ("/simulator", "/var/log", "/run/npu-smi")
"""What the simulated driver and its tool keep for themselves; device share is compared by its meaning, and by the driver's file."""
SHARED = {"npu_affinity_device_share_enabled": True}


def state(tree, leave_out=VENDOR):
    """Everything that a host's tree holds: content and mode of every file, the mode of every folder, targets of links."""
    found = {}
    for folder, folders, files in os.walk(tree):
        for name in folders + files:
            path = Path(folder, name)
            shown = "/" + str(path.relative_to(tree))
            if path.is_symlink():
                found[shown] = os.readlink(path)
            elif not shown.startswith(leave_out):
                found[shown] = (oct(path.stat().st_mode), path.read_bytes() if path.is_file() else None)
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


def shared(tree):
    path = tree / "run/npu-smi/share.json"
    return json.loads(path.read_text()) if path.exists() else []
