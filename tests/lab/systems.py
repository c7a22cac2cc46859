# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what runs of the lab found out, as a table for docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads ``FOLDER/*.log``.

Each log in which ``test_systems.py`` named its machine gives a row.
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

from tests.summary import counts, sentence

MACHINE = re.compile(
    r"the machine: (?P<kernel>[\d.]+)\S* (?P<architecture>\S+), systemd (?P<systemd>\d+)[^,]*, Python (?P<python>\d+\.\d+)"
)
HEADS = ("kernel", "architecture", "systemd", "Python", "tests", "date")


def rows(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.log"):
        log = path.read_text(errors="replace")
        if machine := MACHINE.search(log):
            day = datetime.date.fromtimestamp(path.stat().st_mtime)
            found.append("| " + " | ".join([*machine.groups(), sentence(counts(log)), day.isoformat()]) + " |")
    return sorted(found)


if __name__ == "__main__":
    print("\n".join([f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *rows(Path(sys.argv[1]))]))
