# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restart a simulated host.

    python -m tests.simulator.reboot TREE

Processes on NPUs end, device share is off again, hard vNPUs are gone, affinities of interrupts, workqueues and kernel threads are what they
were after generation. Then the driver's boot script replays ``/etc/vnpu.cfg``. Files below /etc stay.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from .driver import DESCRIPTION, NPU_SMI
from .generate import VOLATILE

_BOOT_LOG = "var/log/device_boot_init.log"


def reboot(tree: str | os.PathLike) -> None:
    """Restart the host whose tree this is."""
    root = pathlib.Path(tree).absolute()
    description_file = pathlib.Path(str(root) + DESCRIPTION)
    description = json.loads(description_file.read_text())
    for process in description["processes"]:
        shutil.rmtree(root / "proc" / str(process["pid"]), ignore_errors=True)
    description["processes"] = []
    description_file.write_text(json.dumps(description))
    for folder in ("npu-smi", "npu-affinity"):
        shutil.rmtree(root / "run" / folder, ignore_errors=True)
    for path, text in json.loads((root / VOLATILE).read_text()).items():
        file = pathlib.Path(str(root) + path)
        if file.exists():
            file.write_text(text)
    for file in (root / "dev").glob("vdavinci[0-9]*"):
        file.unlink()
    _replay_vnpus(root)


def start_units(tree: str | os.PathLike, name: str = "*") -> dict[str, subprocess.CompletedProcess]:
    """Do what systemd does at boot: run the programs of enabled oneshot units of npu.affinity, which wait for nothing here.

    They are the installed files, run with the environment and the words of their unit; only ``--root`` is added, because the tree is not /.
    """
    root = pathlib.Path(tree).absolute()
    results = {}
    for link in sorted(root.glob(f"etc/systemd/system/*.target.wants/npu-affinity-{name}.service")):
        lines = (root / os.readlink(link)[1:]).read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        if settings["Type"] != "oneshot":
            continue
        environment = dict(pair.split("=", 1) for pair in settings["Environment"].split())
        environment["PYTHONPATH"] = str(root) + environment["PYTHONPATH"]
        words = [sys.executable, *shlex.split(settings["ExecStart"])[1:], "--root", str(root)]
        if "--wait" in words:
            words[words.index("--wait") + 1] = "0"
        results[link.name] = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd="/")
    return results


def _replay_vnpus(root: pathlib.Path) -> None:
    """Create hard vNPUs again, as the driver's script for each physical id does: npu-smi tells it card and chip."""
    config = root / "etc/vnpu.cfg"
    lines = config.read_text().splitlines() if config.is_file() else []
    if lines[:1] != ["vnpu_config_recover:enable"]:
        return
    config.write_text("".join(line + "\n" for line in (*lines[:2], lines[-1])))
    for line in lines[2:-1]:
        physical, _number, words = line.split(":", 2)
        remap = subprocess.run(
            [str(root) + NPU_SMI, "info", "-t", "phyid-remap", "-p", physical], text=True, capture_output=True, check=False
        )
        ids = dict(pair.split(":") for pair in remap.stdout.replace(" ", "").splitlines() if ":" in pair)
        given = words.split()[1:]
        for option, key in (("-i", "NPUID"), ("-c", "ChipID")):
            given[given.index(option) + 1] = ids.get(key, "-")
        done = subprocess.run([str(root) + NPU_SMI, *given], text=True, capture_output=True, check=False)
        with (root / _BOOT_LOG).open("a") as log:
            log.write("%s: status %d\n" % (line, done.returncode))


if __name__ == "__main__":
    reboot(sys.argv[1])
