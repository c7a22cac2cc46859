# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``tests/run-sanity`` in a checkout of three files, with an ansible-test that prints what it was asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import cache

ANSIBLE_TEST = """#!/bin/sh
case "$*" in
  --version) echo 2.18 ;;
  *--prime-venvs*) ;;
  *)
    echo "$*" >> "$CALLS"
    for _ in $(seq 200); do [ "$(wc -l < "$CALLS")" -ge "${AT_ONCE:-1}" ] || sleep 0.05; done
    echo "Running sanity test: $*"; ls; exit $SANITY ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    folder, programs = tmp_path / "checkout", tmp_path / "bin"
    (folder / "tests").mkdir(parents=True)
    for name in ("run-sanity", "cache.py", "__init__.py"):
        shutil.copy(Path(cache.__file__).with_name(name), folder / "tests")
    for name in ("a.py", "y.py", "z.py"):
        (folder / name).write_text("")
    (folder / ".gitignore").write_text("build/\n")
    programs.mkdir()
    (programs / "ansible-test").write_text(ANSIBLE_TEST)
    (programs / "ansible-test").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    environment["CALLS"] = str(tmp_path / "calls")

    def run(*command, **variables):
        return subprocess.run(
            command, cwd=folder, env={**environment, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )

    run("git", "init", "--quiet")
    run("git", "add", ".")
    run("git", "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message", "First")
    return run


def test_files_that_are_gone_are_left_out(checkout):
    checkout("rm", "z.py")
    checkout("git", "rm", "--quiet", "y.py")
    done = checkout("tests/run-sanity", "--changed", SANITY="0")
    assert done.returncode == 0, done.stdout
    whole, pylint = done.stdout.split("Running sanity test")[1:]
    assert whole.split()[-2:] == ["a.py", "tests"]
    assert "--test pylint a.py" in pylint and "y.py" not in pylint and "z.py" not in pylint


def test_what_changed_and_the_whole_can_run_at_the_same_time(checkout, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(checkout, "tests/run-sanity", "--changed", SANITY="0", AT_ONCE="2")]
        while not (runs[0].done() or (tmp_path / "calls").exists()):
            time.sleep(0.01)
        runs.append(pool.submit(checkout, "tests/run-sanity", SANITY="0"))
    for done in (run.result() for run in runs):
        assert done.returncode == 0, done.stdout
        assert all("a.py" in listed.split() for listed in done.stdout.split("Running sanity test")[1:]), done.stdout


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SANITY": "1"}, "ansible-test sanity failed: what it found, or why it could not look, is above."),
        ({"SANITY": "0", "XDG_CACHE_HOME": "/dev/null"}, "ended with status 1"),
    ],
)
def test_a_failure_says_a_sentence(checkout, variables, said):
    done = checkout("tests/run-sanity", **variables)
    assert done.returncode == 1
    assert said in done.stdout.splitlines()[-1]
