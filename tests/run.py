# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the parts of ``make test`` and ``make test-all``, and ends with one table.

``python -m tests.run [--minutes N] [--shared DIR] test|test-all ...``

A part that fails does not stop the others. Parts that keep one core busy run beside each other, and the longest of them beside all. What a
part prints is kept in build/logs, and the end of it is shown when the part fails, and again after the table. Nothing is left out in
silence: a part that this machine cannot run, or that the minutes did not allow, is in the table and fails the run. Only what passed on the
same tree before may lack time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests import green
from tests.parts import REST, TEST, Part, Row, conformance, counts, table

LOGS = green.REPOSITORY / "build/logs"
SHOWN = 60
"""Lines of the log of a failed part that are shown."""
SHOWN_AGAIN = 8
"""Lines that are shown once more after the table: of a long run, many keep only the end."""
GRACE = 60
"""Seconds that a part gets to end after it was told to."""
LACKING = re.compile(r"^incomplete: (\d+ tests not run)", re.MULTILINE)
"""What a part says of tests that its own limit of time left out."""
LEAST = 5
"""Minutes with which the part that comes last is still worth to begin, and those that it gets to end."""


@dataclasses.dataclass
class Running:
    """A part's process. Times are of the monotonic clock."""

    row: Row
    process: subprocess.Popen
    begun: float
    retried: int = 0
    stopped: float = 0


class Runner:
    """Runs the parts of rows without a result, as many at a time as there are cores for, until the clock says ``until``."""

    def __init__(
        self,
        rows: Sequence[Row],
        until: float = float("inf"),
        cores: int = 0,
        make: Sequence[str] = ("make", "--no-print-directory"),
        logs: Path | None = None,
    ) -> None:
        self._tree = green.tree()
        self._until = until
        self._cores = cores or os.cpu_count() or 1
        self._make = make
        self._logs = logs or LOGS
        self._running: list[Running] = []
        self._waiting = [row for row in rows if not row.result]
        # What passed on this tree before has least to lose when time runs out.
        self._waiting.sort(
            key=lambda row: (row.part.kept, until != float("inf") and green.passed(row.part.name, self._tree), not row.part.beside)
        )
        self._kept = sum(row.part.kept for row in self._waiting)

    def run(self) -> None:
        """Fill in the rows."""
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            while self._waiting or self._running:
                self._begin_what_fits()
                for running in list(self._running):
                    self._look_after(running)
                time.sleep(0.1)
        except KeyboardInterrupt:
            self._interrupt()
            raise

    def _minutes(self) -> float:
        return (self._until - time.monotonic()) / 60

    def _begin_what_fits(self) -> None:
        for row in list(self._waiting):
            if self._minutes() <= (LEAST if row.part.kept else self._kept):
                self._waiting.remove(row)
                self._had_no_time(row, "no time was left for it")
            elif self._fits(row.part):
                self._waiting.remove(row)
                self._running.append(Running(row, self._begin(row.part, row.part.target), time.monotonic()))

    def _fits(self, part: Part) -> bool:
        others = [running.row.part for running in self._running if not running.row.part.beside]
        if part.beside:
            return True
        if part.alone:
            return not others
        return len(self._running) < self._cores and not any(other.alone for other in others)

    def _begin(self, part: Part, target: Sequence[str], again: bool = False) -> subprocess.Popen:
        print(f"{part.name}{' once more' if again else ''} ...", flush=True)
        command = [*self._make, *target]
        if part.kept and not again and self._until != float("inf"):
            command.append(f"LAB_MINUTES={max(LEAST, int(self._minutes()) - LEAST)}")
        with (self._logs / part.log).open("a" if again else "w") as log:
            return subprocess.Popen(
                command, cwd=green.REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _look_after(self, running: Running) -> None:
        """Take the result of a part that has ended; stop one that has no time left."""
        pid, status, usage = os.wait4(running.process.pid, os.WNOHANG)
        if not pid:
            if running.stopped and time.monotonic() > running.stopped + GRACE:
                self._stop(running, signal.SIGKILL)
            elif not running.stopped and self._minutes() <= 0:
                running.stopped = time.monotonic()
                self._stop(running, signal.SIGINT)
            return
        running.process.returncode = os.waitstatus_to_exitcode(status)
        row = running.row
        row.cpu += usage.ru_utime + usage.ru_stime
        row.seconds = time.monotonic() - running.begun
        found = counts(self._text(row.part))
        failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
        if running.process.returncode and failed and row.part.retry and not running.retried and self._minutes() > LEAST:
            running.retried = failed
            running.process = self._begin(row.part, row.part.retry, again=True)
            return
        self._running.remove(running)
        self._judge(running, found, failed - running.retried)

    def _judge(self, running: Running, found: dict[str, int], failed: int) -> None:
        row, part, skipped = running.row, running.row.part, found.get("skipped", 0)
        row.tests = sum(found.values()) - skipped - running.retried
        log = os.path.relpath(self._logs / part.log, green.REPOSITORY)
        lacking = LACKING.search(self._text(part))
        if running.stopped:
            self._had_no_time(row, f"stopped after {row.seconds / 60:.0f} minutes")
        elif running.process.returncode and (failed or not lacking):
            row.result = f"FAILED, see {log}"
            print("\n".join(["", *self._text(part).splitlines()[-SHOWN:], ""]))
        elif lacking:
            self._had_no_time(row, f"{lacking[1]}, see {log}")
        else:
            row.good = True
            row.result = f"passed, {skipped} skipped" if skipped else "passed"
            if part.recorded and green.tree() == self._tree:
                green.record(part.name, self._tree)
        if running.retried:
            row.result += f", {running.retried} retried"
        print(f"{part.name}: {row.result} in {row.seconds:.0f} s", flush=True)

    def _had_no_time(self, row: Row, why: str) -> None:
        row.good = green.passed(row.part.name, self._tree)
        row.result = f"passed on this tree before; {why}" if row.good else f"incomplete: {why}"

    def _interrupt(self) -> None:
        for row in self._waiting:
            row.result = "not run: interrupted"
        for running in self._running:
            running.row.result = "not run: interrupted"
            running.row.seconds = time.monotonic() - running.begun
            self._stop(running, signal.SIGINT)
        for running in self._running:
            try:
                running.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._stop(running, signal.SIGKILL)

    def _text(self, part: Part) -> str:
        return (self._logs / part.log).read_text(errors="replace")

    @staticmethod
    def _stop(running: Running, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, number)


def last_words(rows: Iterable[Row]) -> str:
    """Return how the logs of the parts that failed end."""
    lines = []
    for row in rows:
        if row.result.startswith("FAILED"):
            log = (LOGS / row.part.log).read_text(errors="replace").splitlines() or ["(it printed nothing)"]
            lines += ["", f"{row.part.name} ended with:", *(f"  {line}" for line in log[-SHOWN_AGAIN:])]
    return "\n".join(lines)


def prepare(rows: Iterable[Row]) -> None:
    """Install what parts need before any part runs; for one that this fails for, the reason is the result."""
    for row in rows:
        if row.part.setup:
            done = subprocess.run(
                row.part.setup,
                cwd=green.REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                lines = done.stdout.strip().splitlines() or [f"{row.part.setup[0]} failed"]
                row.result = f"not run: {lines[-1]}"
                print("\n".join([f"{row.part.name} cannot run here:", *lines]), flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=0, help="time for all parts together; 0: no limit")
    parser.add_argument("--shared", default="", help="a directory with cases and captures, for the part conformance of test-all")
    parser.add_argument("suites", nargs="+", choices=["test", "test-all"])
    asked = parser.parse_args(words)
    begun = time.monotonic()
    rest = [*REST[:-1], *([conformance(asked.shared)] if asked.shared else []), REST[-1]]
    rows = [Row(part) for suite in asked.suites for part in (TEST if suite == "test" else rest)]
    prepare(rows)
    with contextlib.suppress(KeyboardInterrupt):
        Runner(rows, begun + 60 * asked.minutes if asked.minutes else float("inf")).run()
    print("\n" + table(rows, time.monotonic() - begun))
    if "test-all" in asked.suites and not asked.shared:
        print("conformance needs SHARED=<directory with cases/ and captures/> and was not asked for.")
    print(last_words(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
