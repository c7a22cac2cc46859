# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the unit tests on every mutant of ``sample.py``: ``check.py CHECKOUT MUTANTS FOLDER RESULTS``, with the tests' environment.

One mutant after the other is written into the checkout, which must be a copy, and the tests that ``record.py`` saw execute the changed
statement run in a fork of this process: a few of the fastest, then the others. RESULTS gets ``mutants.json`` with every outcome, a diff of
every survivor and a table. Ends with 1 when the tests find too few.
"""

import ast
import collections
import hashlib
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
from record import place, test_files

for module in ("hypothesis.stateful", "jinja2", "yaml", "ansible.module_utils.basic"):
    importlib.import_module(module)  # once, and not in every fork

LEAST = 85
"""The percentage of mutants that the tests must find."""
KILLED, SURVIVED, TIMED_OUT, CHANGED = "killed", "survived", "timed out", "changed"
SPARE_SECONDS = 20
"""What a mutant may take of the processor in addition to three times its tests' own seconds; of the clock it may take ten times that."""
FIRST_TESTS = 40
MOST_SECONDS = 30
"""The fastest tests of each mutant run until they took so many seconds when they were recorded; a mutant that others find survives."""


def importers(folder):
    """Return ``{file: {file}}``: which files of plugins import names of each."""
    paths = sorted(folder.glob("plugins/**/*.py"))
    found = collections.defaultdict(set)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                place = path.parents[node.level - 1] if node.level else folder
                module = place / node.module.removeprefix("ansible_collections.npu.affinity.").replace(".", "/")
                for file in (module.with_suffix(".py"), module / "__init__.py", *(module / f"{name.name}.py" for name in node.names)):
                    found[str(file.relative_to(folder))].add(str(path.relative_to(folder)))
    return found


class Recorded:
    """What ``record.py`` wrote to a folder."""

    def __init__(self, checkout, folder):
        tests = {}
        for path in test_files(checkout):
            tests |= json.loads(place(folder, checkout, path).read_text())
        self.imported = json.loads((folder / "imported.json").read_text())
        self.seconds = {test: seconds for test, (seconds, _files) in tests.items()}
        self.files = {test: files for test, (_seconds, files) in tests.items()}
        self.importers = importers(checkout)

    def tests(self, mutant):
        """Return the tests that could find a mutant, the fastest first: those that execute its statement, or use what an import makes."""
        file, lines = mutant["file"], {*(mutant["lines"] or ())}
        found = [test for test, files in self.files.items() if lines & {*files.get(file, ())}]
        if not found and (not lines or lines & {*self.imported.get(file, ())}):
            users = {file, *self.importers[file]}
            found = [test for test, files in self.files.items() if users & files.keys()]
        return self.affordable(sorted(found, key=self.seconds.get))

    def affordable(self, tests):
        spent = 0.0
        for number, test in enumerate(tests):
            spent += self.seconds[test]
            if number and spent > MOST_SECONDS:
                return tests[:number]
        return tests

    def batches(self, tests):
        """Yield a few of the fastest, then the others, each with its seconds. Tests of a file, which share fixtures, follow one another."""
        for batch in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]):
            files = {name: rank for rank, name in reversed([*enumerate(test.partition("::")[0] for test in batch)])}
            if batch:
                yield sorted(batch, key=lambda test: files[test.partition("::")[0]]), sum(map(self.seconds.get, batch))


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
        options = ["-x", "-q", "--tb=short", "-p", "no:xdist", "--hypothesis-seed=0", f"--basetemp={tempfile.gettempdir()}/tests"]
        os._exit(pytest.main([*options, *tests]))
    ended = select.select([os.pidfd_open(child)], [], [], 10 * seconds)[0]
    os.killpg(child, signal.SIGKILL)
    _child, status = os.waitpid(child, 0)
    if not ended or os.WIFSIGNALED(status):
        return TIMED_OUT
    return KILLED if os.waitstatus_to_exitcode(status) else SURVIVED


def outcome(folder, mutant, recorded, log):
    """Return what becomes of a mutant, and the number of tests that could find it."""
    path = folder / mutant["file"]
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != mutant["before"]:
        return CHANGED, 0
    text, stat, tests = path.read_bytes(), path.stat(), recorded.tests(mutant)
    with log.open("a") as file:
        file.write("\n" + mutant["diff"])
    try:
        path.write_text(mutant["source"])
        for batch, seconds in recorded.batches(tests):
            found = run(folder, batch, SPARE_SECONDS + 3 * int(seconds), log)
            if found != SURVIVED:
                return found, len(tests)
    finally:
        path.write_bytes(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return SURVIVED, len(tests)


def table(mutants):
    """Yield the lines: the results for the mutants of each folder and of all."""
    rows = collections.defaultdict(collections.Counter)
    for mutant in mutants:
        for name in (os.path.dirname(mutant["file"]), "all"):
            rows[name][mutant["outcome"]] += 1
    yield f"{'folder':<52}{'mutants':>9}{KILLED:>9}{TIMED_OUT:>11}{SURVIVED:>10}{'found':>8}"
    for name, counts in [*sorted(rows.items(), key=lambda row: (row[0] == "all", row[0]))]:
        total = counts.total() - counts[CHANGED]
        share = f"{100 * (1 - counts[SURVIVED] / total):>7.1f}%" if total else ""
        yield f"{name:<52}{total:>9}{counts[KILLED]:>9}{counts[TIMED_OUT]:>11}{counts[SURVIVED]:>10}{share}"


def main(folder, mutants, recorded, results):
    folder, results = pathlib.Path(folder), pathlib.Path(results)
    mutants = json.loads(pathlib.Path(mutants).read_text())
    recorded = Recorded(folder, pathlib.Path(recorded))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    started = time.monotonic()
    for number, mutant in enumerate(mutants):
        mutant["outcome"], tests = outcome(folder, mutant, recorded, results / "tests.log")
        if mutant["outcome"] == SURVIVED:
            (results / f"{number:03}-{os.path.basename(mutant['file'])}.diff").write_text(mutant["diff"])
        print(f"{number:03} {mutant['outcome']:<10}{tests:>5} tests{time.monotonic() - started:>6.0f} s  {mutant['file']}", flush=True)
    (results / "mutants.json").write_text(json.dumps(mutants))
    lines = list(table(mutants))
    (results / "table.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    outcomes = collections.Counter(mutant["outcome"] for mutant in mutants)
    return int(outcomes[SURVIVED] > (len(mutants) - outcomes[CHANGED]) * (100 - LEAST) / 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
