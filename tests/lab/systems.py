# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the lab found out, as the tables of docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads what is in the folder.

The names of the logs tell the release and architecture (``lab-on-trixie.log``, ``lab-on-trixie-2.log``; ``lab.log`` is of Debian 12).
Those of one machine give a row, which replaces the one on the page, where ``test_systems.py`` named the machine in one of them. The tests
of a release need not run at one time: each counts as it ended in the newest log that has it. Releases without a log keep their row.
Each ``*.json``, which ``test_soak.py`` wrote, gives a row of the table of soaks.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.summary import sentence

PAGE = Path(__file__).parents[2] / "docs/evidence.md"
MACHINE = re.compile(
    r"the machine: (?P<kernel>[\d.]+)\S* (?P<architecture>\S+), systemd (?P<systemd>\d+)[^,]*, Python (?P<python>\d+\.\d+)"
)
ENDED = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] (?P<word>[A-Z]+) )?(?P<test>tests/lab/\S+::\S+)(?(word)| (?P<alone>[A-Z]+)\b.*\[ *\d+%\]) *$", re.MULTILINE
)
"""The line of a test that ended, by several processes and by one."""
WORDS = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped", "RERUN": "rerun"}
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "testing": "testing"}
LOG = re.compile(rf"lab(?P<arm>-arm)?(?:-on-(?P<suite>{'|'.join(SUITES)}))?(?:-\d+)?")
HEAD = "| release | architecture | kernel | systemd | Python | tests | date |\n|---|---|---|---|---|---|---|\n"
SOAKS = "| release | architecture | seed | minutes | operations | faults | findings | date |\n|---|---|---|---|---|---|---|---|\n"


def rows(folder: Path) -> list[str]:
    by_machine = defaultdict(list)
    for path in sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime):
        if name := LOG.fullmatch(path.stem):
            by_machine[SUITES[name["suite"] or "bookworm"], name["arm"]].append(path)
    found = []
    for (release, _arm), paths in by_machine.items():
        logs = [path.read_text(errors="replace") for path in paths]
        if machine := next(filter(None, map(MACHINE.search, logs)), None):
            columns = machine.group("architecture", "kernel", "systemd", "python")
            found.append(row(release, *columns, sentence(outcomes(logs)), day(paths[-1])))
    return sorted(found)


def outcomes(logs: Iterable[str]) -> Counter[str]:
    """Return how many tests ended how in the last log that has them. Those that were run once more count as ``rerun``, too."""
    ended = {}
    for log in logs:
        of_log = defaultdict(list)
        for line in ENDED.finditer(log):
            of_log[line["test"]].append(WORDS[line["word"] or line["alone"]])
        ended.update(of_log)
    return Counter(word for words in ended.values() for word in words)


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
