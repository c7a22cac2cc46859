# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the lab found out, as the tables of docs/evidence.md: ``python -m tests.lab.systems FOLDER`` reads what is in the folder.

In its logs, ``*.log``, each run of pytest begins with a line on the machines and the commit. The runs on one release and architecture give
a row, which replaces the one on the page, where ``test_systems.py`` named the machine in one of them. The tests of a release need not run
at one time: each counts as it ended in the newest run that has it. Releases without a run keep their row. Each ``*.json``, which
``test_soak.py`` wrote, gives a row of the table of soaks.

The column "last shown" of the tables of claims is the last day on which a run in these logs, or one that this machine remembers
(``tests.rota.memory``), showed one of the tests. Without a folder, that column alone is written.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.parts.summary import sentence
from tests.rota.memory import Memory

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
SHOWN = re.compile(r"^\| (claim|fault) \| test \| last shown \|$")
NAMED = re.compile(
    r"`(?:(?P<file>[\w/]*test_\w+\.py)(?:::(?P<of>test_\w+))?|(?P<alone>test_\w+)|make (?P<part>\w+))(?P<parameter>\[[^]`]*\])?`"
)
EVERY_RUN = "every run"
"""When tests of the core were last shown, those outside the lab."""
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


def days(logs: Iterable[Path], remembered: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the last day on which each test or part was shown, by logs and by ``{proof: [date, commit]}``."""
    found: dict[str, str] = {}
    for name, (date, _commit) in remembered.items():
        test = name.partition(":")[2] or name
        found[test] = max(date, found.get(test, ""))
    for test, (_release, date, _commit) in last_shown(logs).items():
        name = test.removeprefix("tests/lab/")
        found[name] = max(date, found.get(name, ""))
    return found


def with_days(page: str, found: Mapping[str, str]) -> str:
    """Return the page with the days on which the tests of claims were last shown; a row whose tests none shows stays."""
    lines, inside, above = [], False, ""
    for line in page.splitlines():
        inside = bool(SHOWN.match(line)) or inside and line.startswith("|")
        cells = line.strip("| ").split(" | ")
        named, shown = list(NAMED.finditer(line)), []
        for name in named:
            above = name["file"] or above
            if inside and len(cells) == 3:
                wanted = name["part"] or f"{above}::{name['of'] or name['alone'] or ''}{name['parameter'] or ''}"
                in_core = above.startswith("tests/") and "`make " not in line
                shown += [EVERY_RUN] if in_core else [date for test, date in found.items() if test.startswith(wanted)]
        lines.append(row(*cells[:2], max(shown)) if shown else line)
    return "\n".join(lines) + "\n"


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


def main(folders: Sequence[str]) -> None:
    page, logs = PAGE.read_text(), [path for folder in folders for path in Path(folder).glob("*.log")]
    for folder in map(Path, folders):
        page = updated(updated(page, rows(folder)), soaks(folder), SOAKS)
    PAGE.write_text(with_days(page, days(logs, Memory.load().shown)))


if __name__ == "__main__":
    main(sys.argv[1:])
