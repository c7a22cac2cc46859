# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``tests/mutation/record.py`` and ``check.py`` on a checkout of two plugins and their tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MUTATION = Path(__file__).resolve().parents[2] / "mutation"
LIMIT = "LIMIT = 4\n"
ADD = """from ansible_collections.npu.affinity.plugins.limit import LIMIT

def add(first, second):
    if first > LIMIT:
        return LIMIT
    return first + second

def unused():
    return 1
"""
TESTS = """import subprocess
import sys

from ansible_collections.npu.affinity.plugins.add import add

CODE = "from ansible_collections.npu.affinity.plugins.add import add; print(add(5, 1))"

def test_sum():
    assert add(1, 2) == 3

def test_limit_in_a_process_of_its_own():
    assert subprocess.check_output([sys.executable, "-c", CODE]) == b"4\\n"

def test_that_fails():
    assert add(1, 1) == 3
"""


def mutant(file, old, new, lines):
    text = {"add": ADD, "limit": LIMIT}[file]
    assert old in text
    before = hashlib.sha256(text.encode()).hexdigest()
    return {"file": f"plugins/{file}.py", "before": before, "source": text.replace(old, new), "diff": f"-{old}\n+{new}\n", "lines": lines}


FOUND = {
    "sum": (mutant("add", "first + second", "first - second", [6]), "killed"),
    "process": (mutant("add", "return LIMIT", "return None", [5]), "killed"),
    "constant": (mutant("limit", "4", "5", None), "killed"),
    "weak": (mutant("add", "first > LIMIT", "first > LIMIT - 1", [4]), "survived"),
    "untested": (mutant("add", "return 1", "return 2", [9]), "survived"),
    "changed": ({**mutant("add", "return 1", "return 2", [9]), "before": "other"}, "changed"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutation")
    checkout, results = folder / "checkout", folder / "results"
    results.mkdir()
    for path, text in {"plugins/add.py": ADD, "plugins/limit.py": LIMIT, "tests/unit/test_add.py": TESTS}.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)
    (checkout / "build/ansible_collections/npu").mkdir(parents=True)
    (checkout / "build/ansible_collections/npu/affinity").symlink_to(checkout)
    (folder / "mutants.json").write_text(json.dumps([mutant for mutant, _outcome in FOUND.values()]))
    environment = {**os.environ, "PYTHONPATH": str(checkout / "build"), "TMPDIR": str(folder)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "_hypothesis_pytestplugin"}  # others take most of the time

    def run(*command):
        command = [sys.executable, MUTATION / command[0], checkout, *command[1:]]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)

    recorded = [run("record.py", folder) for _time in range(2)]
    checked = run("check.py", folder / "mutants.json", folder, results)
    return recorded, checked, results, checkout


def test_each_test_file_is_recorded_once(outcomes):
    first, second = outcomes[0]
    assert (first.returncode, second.returncode, second.stdout) == (0, 0, "")
    assert "tests/unit/test_add.py::test_that_fails fails on the code as it is and is left out" in first.stdout


@pytest.mark.parametrize("name", FOUND)
def test_mutants_meet_the_tests_that_execute_them(outcomes, name):
    found = json.loads((outcomes[2] / "mutants.json").read_text())
    assert dict(zip(FOUND, (mutant["outcome"] for mutant in found), strict=True))[name] == FOUND[name][1]


def test_survivors_are_kept_and_the_checkout_is_restored(outcomes):
    _recorded, checked, results, checkout = outcomes
    assert sorted(path.name for path in results.glob("*.diff")) == ["003-add.py.diff", "004-add.py.diff"]
    assert checked.returncode == 1 and "60.0%" in checked.stdout
    assert (checkout / "plugins/add.py").read_text() == ADD
