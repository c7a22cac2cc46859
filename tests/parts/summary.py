# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What parts of ``make test`` did: ``python -m tests.parts.summary FOLDER`` reads what ``tests.parts.run`` wrote there.

The file ``parts`` names all parts of the run. Prints the end of the log of each part that failed, a line for each part, what the rota says
(``rota.txt``), and ``N passed, N failed``. A part that counts no tests counts as one. Exits with 1 where a part failed or has no result.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.parts.run import LIMIT_REACHED

SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in \d[\d.]*s\b", re.MULTILINE)
"""How pytest ends. Other programs of the tests that count something end so, too."""
FAILED = ("failed", "error", "errors")
COUNTED = ("passed", *FAILED, "skipped", "xfailed", "rerun")
SHOWN = 60
"""Lines of the log of a failed part that are shown."""


class Result(NamedTuple):
    """How a part ended, and its seconds by the clock and of the CPU. ``status`` is None where the part was not run."""

    part: str
    status: int | None
    seconds: int
    cpu_seconds: int
    counts: Counter[str]
    log: str

    @property
    def word(self) -> str:
        if self.status is None:
            return "NOT RUN"
        if self.status == LIMIT_REACHED:
            return "STOPPED"
        return "FAILED" if self.status else "passed"


def counts(log: str) -> Counter[str]:
    """Return how many tests passed, failed, were skipped and so on, by the summaries in a log."""
    found: Counter[str] = Counter()
    for summary in SUMMARY.findall(log):
        for number, word in re.findall(r"(\d+) ([a-z]+)", summary):
            if word in COUNTED:
                found["failed" if word in FAILED else word] += int(number)
    return found


def read(folder: Path, part: str) -> Result:
    """Return the result of a part."""
    path = folder / f"{part}.log"
    log = path.read_text(errors="replace") if path.exists() else ""
    try:
        status, seconds, cpu_seconds = map(int, (folder / f"{part}.result").read_text().split())
    except FileNotFoundError:
        return Result(part, None, 0, 0, counts(log), log)
    return Result(part, status, seconds, cpu_seconds, counts(log), log)


def total(results: Sequence[Result]) -> Counter[str]:
    """Return what all parts counted; at least one passed or failed for each of them."""
    found: Counter[str] = Counter()
    for result in results:
        found += result.counts
        if result.status != 0 and not result.counts["failed"]:
            found["failed"] += 1
        elif not result.counts.total():
            found["passed"] += 1
    return found


def sentence(found: Counter[str]) -> str:
    """Return counts as ``N passed, N failed``; other words follow where they were counted."""
    return ", ".join(f"{found[word]} {word}" for word in ("passed", "failed", *sorted(found.keys() - {"passed", "failed"})))


def ends(results: Sequence[Result]) -> list[str]:
    """Return the last lines of the logs of parts that failed."""
    lines = []
    for result in results:
        if result.status != 0:
            lines += [f"=== {result.part}: {result.word}; its log ends with", *(result.log.splitlines()[-SHOWN:] or ["(nothing)"]), ""]
    return lines


def table(results: Sequence[Result]) -> list[str]:
    """Return a line for each part."""
    width = max(len(result.part) for result in results)
    return [
        f"{result.part:<{width}}  {result.word:<7}  {result.seconds:>5} s  {result.cpu_seconds:>5} s of CPU"
        f"  {sentence(result.counts) if result.counts else ''}".rstrip()
        for result in results
    ]


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    results = [read(folder, part) for part in (folder / "parts").read_text().split()]
    rota = folder / "rota.txt"
    turns = rota.read_text().splitlines() if rota.exists() else []
    print("\n".join(["", *ends(results), *table(results), *turns, sentence(total(results))]))
    return int(any(result.status != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
