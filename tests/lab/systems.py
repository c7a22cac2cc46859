# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the lab found out, as the tables of docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads what is in the folder.

In its logs, ``*.log``, each run of pytest begins with a line on the machines and the commit. The runs on one release and architecture give
a row, which replaces the one on the page, where ``test_systems.py`` named the machine in one of them. The tests of a release need not run
at one time: each counts as it ended in the newest run that has it. Releases without a run keep their row. Each ``*.json``, which
``test_soak.py`` wrote, gives a row of the table of soaks.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.parts.summary import sentence

PAGE = Path(__file__).parents[2] / "docs/evidence.md"
MACHINE = re.compile(
    r"the machine: (?P<kernel>[\d.]+)\S* (?P<architecture>\S+), systemd (?P<systemd>\d+)[^,]*, Python (?P<python>\d+\.\d+)"
)
ENDED = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] (?P<word>[A-Z]+) )?(?P<test>tests/lab/\S+::\S+)(?(word)| (?P<alone>[A-Z]+)\b.*\[ *\d+%\]) *$", re.MULTILINE
)
"""The line of a test that ended, by several processes and by one."""
WORDS = {"PASSED": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped", "RERUN": "rerun"}
SOAK = "tests/lab/test_soak.py"
SUITES = {"bullseye": "Debian 11", "bookworm": "Debian 12", "trixie": "Debian 13", "testing": "testing"}
HEADER = re.compile(r"^lab: image (\S+), (\S+), (\S+), commit (\S+), (\S+)$", re.MULTILINE)
PLACES = {"lab": "", "engines": ", container engines", "engines-v1": ", container engines on cgroup v1", "selinux": ", SELinux"}
HEAD = "| release | architecture | kernel | systemd | Python | tests | date |\n|---|---|---|---|---|---|---|\n"
SOAKS = "| release | architecture | seed | minutes | operations | faults | findings | date |\n|---|---|---|---|---|---|---|---|\n"


class Session(NamedTuple):
    """A run of pytest in a log."""

    image: str
    suite: str
    architecture: str
    commit: str
    date: str
    log: str

    @property
    def place(self) -> str:
        return SUITES[self.suite] + PLACES[self.image] + (", aarch64" if self.architecture == "aarch64" else "")


def sessions(logs: Iterable[Path]) -> Iterator[Session]:
    """Yield the runs in logs, the oldest first."""
    for path in sorted(logs, key=lambda path: path.stat().st_mtime):
        _before, *parts = HEADER.split(path.read_text(errors="replace"))
        yield from (Session(*parts[start : start + 6]) for start in range(0, len(parts), 6))


def rows(folder: Path) -> list[str]:
    by_machine = defaultdict(list)
    for session in sessions(folder.glob("*.log")):
        if session.image == "lab":
            by_machine[session.suite, session.architecture].append(session)
    found = []
    for (suite, _architecture), of_machine in by_machine.items():
        logs = [session.log for session in of_machine]
        if machine := next(filter(None, map(MACHINE.search, logs)), None):
            columns = machine.group("architecture", "kernel", "systemd", "python")
            found.append(row(SUITES[suite], *columns, sentence(outcomes(logs)), of_machine[-1].date))
    return sorted(found)


def ended(log: str) -> dict[str, list[str]]:
    """Return how each test of a run ended, and before that how it did when it was run once more."""
    found = defaultdict(list)
    for line in ENDED.finditer(log):
        found[line["test"]].append(WORDS[line["word"] or line["alone"]])
    return found


def outcomes(logs: Iterable[str]) -> Counter[str]:
    """Return how many tests ended how in the last log that has them. Those that were run once more count as ``rerun``, too."""
    last: dict[str, list[str]] = {}
    for log in logs:
        last |= {test: words for test, words in ended(log).items() if not test.startswith(SOAK)}
    return Counter(word for words in last.values() for word in words)


def last_shown(logs: Iterable[Path]) -> dict[str, tuple[str, str, str]]:
    """Return where each test passed last, when, and at which commit: ``{test: (release, date, commit)}``."""
    found = {}
    for session in sessions(logs):
        shown = session.place, session.date, session.commit
        found |= {test: shown for test, words in ended(session.log).items() if words[-1] == "passed"}
    return found


def soaks(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text())
        times = [record["operations"].values(), record["faults"].values()]
        numbers = [record["seed"], record["minutes"], *map(sum, times), len(record["findings"])]
        release = SUITES[record["suite"]] + PLACES[record["image"]]
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
