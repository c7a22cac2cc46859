# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the lab found out, as the table of docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads ``FOLDER/*.log``.

Each log in which ``test_systems.py`` named its machine gives a row, which replaces the one of the same release and architecture. Releases
without a log keep theirs. The release is part of the name of the log; ``lab.log`` is of Debian 12.
"""

from __future__ import annotations

import datetime
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


def rows(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.log"):
        log = path.read_text(errors="replace")
        if machine := MACHINE.search(log):
            suite = next((word for word in path.stem.split("-") if word in SUITES), "bookworm")
            day = datetime.date.fromtimestamp(path.stat().st_mtime)
            columns = machine.group("architecture", "kernel", "systemd", "python")
            found.append(f"| {' | '.join([SUITES[suite], *columns, sentence(counts(log)), day.isoformat()])} |")
    return sorted(found)


def updated(page: str, found: list[str]) -> str:
    """Return the page with the rows that were found in place of those of the same machines."""
    start = page.index(HEAD) + len(HEAD)
    end = page.index("\n\n", start - 1) + 1
    by_machine = {tuple(row.split(" | ")[:2]): row for row in [*page[start:end].splitlines(), *found]}
    return page[:start] + "".join(f"{row}\n" for row in sorted(by_machine.values())) + page[end:]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(), rows(Path(sys.argv[1]))))
