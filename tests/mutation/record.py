# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run unit tests and write which lines of plugins each executes: ``record.py CHECKOUT FOLDER``.

FOLDER gets a file for each test file, with its digest in its name: ``{test: [seconds, {file: [line]}]}``, without tests that fail, which
are listed. Test files whose file is there are not run again. ``imported.json`` is what importing plugins executes: ``{file: [line]}``.
"""

import collections
import hashlib
import json
import os
import pathlib
import sys
import time

import pytest
from lines import Lines

CHILDREN = pathlib.Path(__file__).resolve().with_name("children")


def by_file(found):
    """Return ``{file: [line]}``."""
    files = collections.defaultdict(list)
    for name, line in sorted(found):
        files[name].append(line)
    return files


def place(folder, checkout, path):
    """Return the file for a test file."""
    content = (checkout / path).read_bytes()
    return folder / f"{path.replace('/', '-')}-{hashlib.sha256(content).hexdigest()[:16]}.json"


def test_files(checkout):
    return sorted(str(path.relative_to(checkout)) for path in checkout.glob("tests/unit/**/test_*.py"))


class Recorder:
    """A plugin of pytest. What is recorded when the run is stopped stays."""

    def __init__(self, lines, checkout, folder):
        self.lines = lines
        self.checkout = checkout
        self.folder = folder
        self.tests = collections.defaultdict(dict)
        self.failed = set()

    def pytest_collection_finish(self):
        path = self.folder / "imported.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        found = self.lines.take() | {(name, line) for name, numbers in before.items() for line in numbers}
        path.write_text(json.dumps(by_file(found)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.lines.take()
        started = time.monotonic()
        result = yield
        if item.nodeid not in self.failed:
            self.tests[item.path][item.nodeid] = time.monotonic() - started, by_file(self.lines.take())
        if nextitem is None or nextitem.path != item.path:
            path = str(item.path.relative_to(self.checkout))
            place(self.folder, self.checkout, path).write_text(json.dumps(self.tests[item.path]))
        return result

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)


def main(checkout, folder):
    checkout, folder = pathlib.Path(checkout).resolve(), pathlib.Path(folder)
    missing = [path for path in test_files(checkout) if not place(folder, checkout, path).exists()]
    if not missing:
        return 0
    os.chdir(checkout)
    sys.path[0] = str(checkout)
    lines = Lines(f"{folder}/lines")
    os.environ.update(MUTATION_LINES=lines.path, PYTHONPATH=f"{CHILDREN}:{os.environ['PYTHONPATH']}")
    lines.watch(child=False)
    recorder = Recorder(lines, checkout, folder)
    status = pytest.main(["-q", "--tb=short", "-p", "no:xdist", "--hypothesis-seed=0", *missing], plugins=[recorder])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(status)
    for path in missing:
        if not (empty := place(folder, checkout, path)).exists():
            empty.write_text("{}")  # all of its tests are left to make test-all
    for test in sorted(recorder.failed):
        print(f"{test} fails on the code as it is and is left out")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
