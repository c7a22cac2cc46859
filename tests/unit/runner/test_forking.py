# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that run in forks are reported as pytest reports them, also where a fork dies or the run is interrupted."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.documents import REPOSITORY

CONFTEST = """
import os, pathlib, pytest
NOTES = pathlib.Path(__file__).with_name("notes")

@pytest.fixture(scope="session")
def note():
    def write(word):
        with NOTES.open("a") as file:
            file.write("%s %d\\n" % (word, os.getpid()))
    yield write
    write("fixture")

def pytest_sessionfinish(session):
    with NOTES.open("a") as file:
        file.write("finish %d\\n" % os.getpid())
"""
ONE = """
import os, pytest, signal, time, warnings

@pytest.fixture(scope="module")
def shared(note):
    note("shared")

def test_first(shared, note, tmp_path):
    note(str(tmp_path))

def test_dies(shared, note):
    note("dies")
    os.kill(os.getpid(), signal.SIGKILL)

def test_last(shared, note):
    warnings.warn("watch out")
"""
TWO = """
import time, pytest

@pytest.mark.parametrize("number", range(20))
def test_each(note, tmp_path, number):
    note(str(tmp_path))
    time.sleep(0.02)

def test_fails():
    print("printed before")
    assert [1, 2] == [1, 3]

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass

@pytest.mark.xfail
def test_expected():
    assert False

@pytest.fixture
def broken():
    raise OSError("no fixture")

def test_error(broken):
    pass
"""


@pytest.fixture
def start(tmp_path):
    """Starts pytest on files of tests in forks."""

    def run(*options, **files):
        (tmp_path / "conftest.py").write_text(CONFTEST)
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.forking", "--forks=2", *options]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take most of the time
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True, **output)

    return run


def end_of(process):
    """The output of a run; one that does not end prints where it is."""
    try:
        return process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        return process.communicate()[0]


def notes(folder):
    """``{word: processes}`` of what tests wrote down."""
    found = {}
    for line in (folder / "notes").read_text().splitlines():
        word, process = line.split()
        found.setdefault(word, []).append(process)
    return found


def test_everything_is_reported_and_a_dead_fork_is_a_failure(start, tmp_path):
    process = start(test_one=ONE, test_two=TWO)
    output = end_of(process)
    assert process.returncode == 1
    assert output.splitlines()[-1].startswith("2 failed, 22 passed, 1 skipped, 1 xfailed, 1 warning, 1 error in ")
    assert "FAILED test_two.py::test_fails - assert [1, 2] == [1, 3]" in output and "printed before" in output
    assert "ERROR test_two.py::test_error - OSError: no fixture" in output and "UserWarning: watch out" in output
    assert re.search(r"^worker \d ended with signal 9 in test_one.py::test_dies$", output, re.MULTILINE)
    found = notes(tmp_path)
    folders = [word for word in found if word.startswith("/")]
    assert len(folders) == 21, "each test has a folder of its own"
    workers = {process for folder in folders for process in found[folder]}
    (dead,) = found["dies"]
    assert len(workers) >= 2 and str(process.pid) not in workers and dead in workers, "workers share the tests"
    assert len(found["shared"]) == 2, "a fixture of a module is made once, and again for what a dead worker left"
    assert sorted(found["finish"]) == sorted({*found["fixture"], str(process.pid)}) and dead not in found["finish"]


ENDINGS = [
    ("def test_one(note):\n    raise SystemExit(3)\n", 1, "SystemExit: 3"),
    ("import pytest\ndef test_one():\n    pytest.exit('enough')\n", 2, "enough"),
    ("import os\ndef test_one():\n    os._exit(7)\n", 1, "ended with status 7 in test_one.py::test_one"),
    ("import signal\ndef test_one():\n    assert 60 < signal.setitimer(signal.ITIMER_PROF, 0.1)[0]\n    while True: pass\n", 1,
     "line 4 in test_one"),
    ("import os, atexit, pytest\n@pytest.fixture(scope='session')\ndef bad():\n    yield\n    raise OSError('at the end')\n"
     "def test_one(bad):\n    pass\n", 3, "OSError: at the end"),
    ("def test_one(:\n", 2, "SyntaxError"),
    ("", 5, "no tests ran"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "status", "said"), ENDINGS)
def test_the_status_says_how_a_run_ended(start, text, status, said):
    process = start(test_one=text)
    output = end_of(process)
    assert (process.returncode, said in output) == (status, True), output
