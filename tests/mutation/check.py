# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the tests on every mutant of ``sample.py`` (on standard input): ``check.py CHECKOUT RESULTS``, with the tests' environment.

One mutant after the other is written into the checkout, which must be a copy, and its tests run in a fork of this process, which has
already imported what they need: those that execute the statement that is changed, and those that execute nothing of the file here but
perhaps in a process of theirs, the fastest first. RESULTS gets a diff of every survivor. Ends with a table, and with 1 when the tests find
too few.
"""

from __future__ import annotations

import collections
import fnmatch
import importlib
import json
import os
import pathlib
import resource
import select
import signal
import sys
import tempfile
import time

import pytest
from targets import LEAST, TARGETS

for module in ("hypothesis.stateful", "jinja2", "yaml", "ansible.module_utils.basic"):
    importlib.import_module(module)  # once, and not in every fork

KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
SPARE_SECONDS = 20
"""What a mutant may take of the processor in addition to three times its tests' own seconds; of the clock it may take ten times that."""


def tests_of(checkout, path):
    """Return the tests of a file that the checkout has."""
    found = next(tests for pattern, tests in TARGETS if fnmatch.fnmatchcase(path, pattern))
    return [test for test in found if (checkout / test).exists()]


class Recorder:
    """A plugin of pytest that writes down how long each test takes and which lines of a file it executes: ``{test: [seconds, lines]}``."""

    def __init__(self, path, output):
        self.path = path
        self.output = output
        self.tests = {}
        self.lines = set()
        sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "mutation")
        sys.monitoring.register_callback(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE, self.note)
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE)

    def note(self, code, line):
        if code.co_filename.endswith(self.path):
            self.lines.add(line)
        return sys.monitoring.DISABLE

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.lines = set()
        sys.monitoring.restart_events()
        started = time.process_time()
        yield
        self.tests[item.nodeid] = time.process_time() - started, sorted(self.lines)

    def pytest_sessionfinish(self):
        self.output.write_text(json.dumps(self.tests))


def run(checkout, tests, seconds, log, recorder=None):
    """Return the outcome of the tests, in a process group of their own that may use so many seconds of the processor.

    ``recorder``: the arguments of a :class:`Recorder`.
    """
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.chdir(checkout)
        sys.path[0] = str(checkout)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        options = ["-x", "-q", "--tb=short", "-p", "no:xdist", "--hypothesis-seed=0", f"--basetemp={tempfile.gettempdir()}/tests"]
        os._exit(pytest.main([*options, *tests], plugins=[Recorder(*recorder)] if recorder else []))
    ended = select.select([os.pidfd_open(child)], [], [], 10 * seconds)[0]
    os.killpg(child, signal.SIGKILL)
    _child, status = os.waitpid(child, 0)
    if not ended or os.WIFSIGNALED(status):
        return TIMED_OUT
    return KILLED if os.waitstatus_to_exitcode(status) else SURVIVED


class Checkout:
    """The copy whose files are mutated, and what the tests of each do on the code as it is."""

    def __init__(self, folder, results):
        self.folder = folder
        self.log = results / "tests.log"
        self.recorded = {}

    def tests(self, path):
        """Return ``{test: [seconds, lines of the file]}``, having run the tests, which must pass."""
        if path not in self.recorded:
            tests = tests_of(self.folder, path)
            output = pathlib.Path(tempfile.gettempdir(), "recorded.json")
            if run(self.folder, tests, 900, self.log, (path, output)) != SURVIVED:
                raise SystemExit(f"{' '.join(tests)} fail on the code as it is; see {self.log}")
            self.recorded[path] = json.loads(output.read_text())
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return self.recorded[path]

    def outcome(self, mutant):
        """Return what becomes of a mutant, and the number of tests that could find it."""
        path = self.folder / mutant["file"]
        recorded = self.tests(mutant["file"])
        concerned = [
            test for test, (_seconds, lines) in recorded.items() if not mutant["lines"] or not lines or {*lines} & {*mutant["lines"]}
        ]
        if not concerned:
            return SURVIVED, 0
        limit = SPARE_SECONDS + 3 * int(sum(recorded[test][0] for test in concerned))
        text, stat = path.read_text(), path.stat()
        with self.log.open("a") as log:
            log.write("\n" + mutant["diff"])
        try:
            path.write_text(mutant["source"])
            return run(self.folder, sorted(concerned, key=lambda test: recorded[test][0]), limit, self.log), len(concerned)
        finally:
            path.write_text(text)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def table(outcomes):
    """Yield the lines: the results for the mutants of each file and of all."""
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
        outcome, tests = checkout.outcome(mutant)
        outcomes.setdefault(mutant["file"], collections.Counter())[outcome] += 1
        if outcome == SURVIVED:
            (results / f"{number:03}-{os.path.basename(mutant['file'])}.diff").write_text(mutant["diff"])
        print(f"{number:03} {outcome:<10}{tests:>5} tests{time.monotonic() - started:>6.0f} s  {mutant['file']}", flush=True)
    lines = list(table(outcomes))
    (results / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    every = sum(outcomes.values(), collections.Counter())
    return int(every[SURVIVED] > every.total() * (100 - LEAST) / 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
