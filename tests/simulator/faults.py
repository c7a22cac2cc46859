# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can happen to a simulated host while it runs, for tests: faults of the vendor tools and cards that drop off the bus."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

from .driver import DESCRIPTION


def set_faults(tree: str | os.PathLike, **faults: object) -> None:
    """Replace all faults of a tree's vendor tools (see ``npu_smi.py``); without arguments all is well again."""
    path = pathlib.Path(str(tree) + DESCRIPTION)
    path.write_text(json.dumps({**json.loads(path.read_text()), "faults": faults}))


def lose_chip(tree: str | os.PathLike, card: int, number: int) -> None:
    """Let one chip of a card go; the PCI function stays where another chip shares it."""
    faults = json.loads(pathlib.Path(str(tree) + DESCRIPTION).read_text())["faults"]
    set_faults(tree, **{**faults, "lost": [*faults.get("lost", []), "%d:%d" % (card, number)]})
    lose_card(tree, card, number)


def lose_card(tree: str | os.PathLike, card: int, number: int | None = None) -> None:
    """Let a card (by its NPU ID) drop off the bus: its functions, interrupts, device nodes, workqueues and kernel threads go."""
    root = pathlib.Path(tree)
    known = json.loads(pathlib.Path(str(tree) + DESCRIPTION).read_text())["chips"]
    chips = [chip for chip in known if chip["card"] == card and number in (None, chip["chip"])]
    if not chips:
        raise ValueError("%s has no card %d, or not this chip of it" % (tree, card))
    shared = {chip["bdf"] for chip in known if chip not in chips}
    gone = set()
    for chip in chips:
        link = root / "sys/bus/pci/devices" / chip["bdf"]
        if link.is_symlink() and chip["bdf"] not in shared:
            gone.update(os.listdir(link / "msi_irqs"))
            (link / "driver").resolve().joinpath(chip["bdf"]).unlink()
            shutil.rmtree(link.resolve())
            link.unlink()
        (root / ("dev/davinci%d" % chip["phy"])).unlink()
        shutil.rmtree(root / ("sys/devices/virtual/workqueue/dev%d_sq_send_wq" % chip["phy"]))
        for comm in (root / "proc").glob("[0-9]*/comm"):
            if comm.read_text().strip() == "dev%d_sq_task" % chip["phy"]:
                shutil.rmtree(comm.parent)
    for irq in gone:
        shutil.rmtree(root / "proc/irq" / irq, ignore_errors=True)
    table = root / "proc/interrupts"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if line.partition(":")[0].strip() not in gone))
