# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the lab found out, as the tables of docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads what is in the folder.

Each ``*.log`` in which ``test_systems.py`` named its machine gives a row, which replaces the one of the same release and architecture.
Releases without a log keep theirs. The release is part of the name of the log; ``lab.log`` is of Debian 12. Each ``*.json``, which
``test_soak.py`` wrote, gives a row of the table of soaks.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path

from tests.summary import counts, sentence

PAGE = Path(__file__).parents[2] / "docs/evidence.md"
MACHINE = re.compile(
    r"the machine: (?P<kernel>[\d.]+)\S* (?P<architecture>\S+), systemd (?P<systemd>\d+)[^,]*, Python (?P<python>\d+\.\d+)"
)
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "testing": "testing"}
HEAD = "| release | architecture | kernel | systemd | Python | tests | date |\n|---|---|---|---|---|---|---|\n"
SOAKS = "| release | architecture | seed | minutes | operations | faults | findings | date |\n|---|---|---|---|---|---|---|---|\n"


def rows(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.log"):
        log = path.read_text(errors="replace")
        if machine := MACHINE.search(log):
            suite = next((word for word in path.stem.split("-") if word in SUITES), "bookworm")
            columns = machine.group("architecture", "kernel", "systemd", "python")
            found.append(row(SUITES[suite], *columns, sentence(counts(log)), day(path)))
    return sorted(found)


def soaks(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text())
        times = [record["operations"].values(), record["faults"].values()]
        numbers = [record["seed"], record["minutes"], *map(sum, times), len(record["findings"])]
        release = SUITES[record["suite"]] + (", container engines" if record["image"] == "engines" else "")
        found.append(row(release, record["architecture"], *map(str, numbers), day(path)))
    return sorted(found)


def row(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def day(path: Path) -> str:
    return datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()


def updated(page: str, found: list[str], head: str = HEAD) -> str:
    """Return the page with the rows that were found in place of those of the same machines, in the table with that head."""
    start = page.index(head) + len(head)
    end = page.index("\n\n", start - 1) + 1
    by_machine = {tuple(line.split(" | ")[:2]): line for line in [*page[start:end].splitlines(), *found]}
    return page[:start] + "".join(f"{line}\n" for line in sorted(by_machine.values())) + page[end:]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    PAGE.write_text(updated(updated(PAGE.read_text(), rows(folder)), soaks(folder), SOAKS))
