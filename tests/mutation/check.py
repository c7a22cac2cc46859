# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tests on every mutant of ``sample.py`` (on standard input): ``check.py CHECKOUT RESULTS``, with the tests' environment.

One mutant after the other is written into the checkout, which must be a copy, and its tests run in a fork of this process, which has
already imported what they need. RESULTS gets a diff of every survivor. Ends with a table, and with 1 when the tests find too few.
"""

from __future__ import annotations

import collections
import fnmatch
import json
import os
import pathlib
import resource
import select
import signal
import sys
import tempfile
import time

import hypothesis.stateful  # noqa: F401
import jinja2  # noqa: F401
import pytest
import yaml  # noqa: F401
from ansible.module_utils import basic  # noqa: F401
from targets import LEAST, TARGETS

KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
SPARE_SECONDS = 20
"""What a mutant may take of the processor in addition to three times the tests' own seconds; of the clock it may take ten times that."""


def tests_of(checkout, path):
    """Return the tests of a file that the checkout has."""
    found = next(tests for pattern, tests in TARGETS if fnmatch.fnmatchcase(path, pattern))
    return [test for test in found if (checkout / test).exists()]


def run(checkout, tests, seconds, log):
    """Return the outcome of the tests, in a process group of their own that may use so many seconds of the processor."""
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.chdir(checkout)
        sys.path[0] = str(checkout)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        folder = tempfile.gettempdir() + "/tests"
        os._exit(pytest.main(["-x", "-q", "--tb=short", "-p", "no:xdist", "--hypothesis-seed=0", f"--basetemp={folder}", *tests]))
    ended, _, _ = select.select([os.pidfd_open(child)], [], [], 10 * seconds)
    os.killpg(child, signal.SIGKILL)
    _child, status = os.waitpid(child, 0)
    if not ended or os.WIFSIGNALED(status):
        return TIMED_OUT
    return KILLED if os.waitstatus_to_exitcode(status) else SURVIVED


class Checkout:
    """The copy whose files are mutated, and how many seconds of the processor the tests of each may take."""

    def __init__(self, folder, results):
        self.folder = folder
        self.log = results / "tests.log"
        self.seconds = {}

    def limit(self, tests):
        """Return the limit, three times what the tests need on the code as it is, on which they must pass."""
        key = tuple(tests)
        if key not in self.seconds:
            before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
            if run(self.folder, tests, 600, self.log) != SURVIVED:
                raise SystemExit(f"{' '.join(tests)} fail on the code as it is; see {self.log}")
            used = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
            print(f"{' '.join(map(os.path.basename, tests))}: {used:.0f} s", flush=True)
            self.seconds[key] = int(3 * used + SPARE_SECONDS)
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return self.seconds[key]

    def outcome(self, mutant):
        path = self.folder / mutant["file"]
        tests = tests_of(self.folder, mutant["file"])
        limit = self.limit(tests)
        text, stat = path.read_text(), path.stat()
        with self.log.open("a") as log:
            log.write("\n" + mutant["diff"])
        try:
            path.write_text(mutant["source"])
            return run(self.folder, tests, limit, self.log)
        finally:
            path.write_text(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def table(outcomes):
    """Yield the lines: what became of the mutants of each file and of all."""
    yield f"{'file':<52}{'mutants':>9}{KILLED:>9}{TIMED_OUT:>11}{SURVIVED:>10}{'found':>8}"
    rows = {**outcomes, "all": sum(outcomes.values(), collections.Counter())}
    for path, counts in rows.items():
        yield (
            f"{path:<52}{counts.total():>9}{counts[KILLED]:>9}{counts[TIMED_OUT]:>11}{counts[SURVIVED]:>10}"
            f"{100 * (1 - counts[SURVIVED] / counts.total()):>7.1f}%"
        )


def main(folder, results):
    results = pathlib.Path(results)
    checkout = Checkout(pathlib.Path(folder), results)
    outcomes = {}
    started = time.monotonic()
    for number, mutant in enumerate(json.load(sys.stdin)):
        outcome = checkout.outcome(mutant)
        outcomes.setdefault(mutant["file"], collections.Counter())[outcome] += 1
        if outcome == SURVIVED:
            (results / f"{number:03}-{os.path.basename(mutant['file'])}.diff").write_text(mutant["diff"])
        print(f"{number:03} {outcome:<10}{time.monotonic() - started:>6.0f} s  {mutant['file']}", flush=True)
    lines = list(table(outcomes))
    (results / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    every = sum(outcomes.values(), collections.Counter())
    return int(every[SURVIVED] > every.total() * (100 - LEAST) / 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
