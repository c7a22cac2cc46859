# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes turns in ``make test-all``: every proof within twelve runs, also on slow machines, and first what a change touches."""

from __future__ import annotations

import re
import sys
import time

import pytest

from tests.documents import REPOSITORY
from tests.rota import __main__ as program
from tests.rota import memory as memories
from tests.rota.changes import EVERYTHING, area, touched, unaffected
from tests.rota.memory import Memory
from tests.rota.proofs import COMMANDS, TURNS, Proof

CORE = ["ansible-lint", "style", "sanity-changed", "types", "docs", "licence", "package", "unit", "properties", "integration", "lab-core"]
PASSES, FAILS = (f"{sys.executable} -c exit({status})" for status in (0, 1))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the rota with proofs of its own, and returns its status, the proofs that ran and the lines of its report."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("TURN", "GITHUB_RUN_NUMBER", "GITHUB_BASE_REF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(program, "LOGS", tmp_path)
    monkeypatch.setenv("LOGS", str(tmp_path))
    monkeypatch.chdir(REPOSITORY)

    def run(proofs, left=600.0):
        monkeypatch.setattr(program, "register", lambda: proofs)
        monkeypatch.setattr(program, "DEADLINE", time.time() + left)
        (tmp_path / "parts").write_text("")
        status = program.main()
        return status, set((tmp_path / "parts").read_text().split()), (tmp_path / "rota.txt").read_text().splitlines()

    return run


def proofs(command=PASSES, seconds=1, **commands):
    """A proof for each of three turns, each command as given or usual."""
    return [Proof(name, turn, seconds, False, commands.get(name, command)) for turn, name in enumerate(("first", "second", "third"))]


def test_each_molecule_scenario_takes_its_turn():
    scenarios = {path.parent.name for path in (REPOSITORY / "extensions/molecule").glob("*/molecule.yml")}
    commands = [command for *_turn, command in COMMANDS.values()]
    assert {command.partition("ARGS=")[2] for command in commands if command.startswith("make molecule")} == scenarios


def test_twelve_runs_show_every_proof(run):
    memory = Memory(runs=40)
    memory.save()
    ran = [run(proofs())[1] for _run in range(TURNS)]
    assert set.union(*ran) == {"first", "second", "third"}
    assert sum(map(len, ran)) == 3


def test_what_had_no_time_comes_first_in_the_next_run(run):
    Memory(runs=TURNS - 1).save()
    status, ran, lines = run(proofs(seconds=100), left=50)
    assert (status, ran) == (0, set())
    assert lines == [
        "0 of 3 proofs ran; the rest follow within 11 runs.",
        "Not begun for lack of time, first in the next run: first.",
    ]
    assert run(proofs())[:2] == (0, {"first", "second"})


def test_a_proof_that_fails_fails_the_run_and_is_repeated(run):
    Memory(runs=TURNS - 1).save()
    assert run(proofs(first=FAILS))[:2] == (1, {"first"})
    assert run(proofs())[:2] == (0, {"first", "second"})
    assert run(proofs())[:2] == (0, {"third"})
    assert Memory.load().shown.keys() == {"first", "second", "third"}


def test_a_proof_that_is_skipped_is_neither_shown_nor_owed(run, monkeypatch):
    monkeypatch.setattr(program, "run", lambda chosen: {"first": "skipped", "second": "passed"})
    Memory(runs=TURNS - 1).save()
    assert run(proofs())[0] == 0
    assert (Memory.load().shown.keys(), Memory.load().owed) == ({"second"}, [])


NUMBERS = {
    "as given": ({"TURN": "5"}, 3, 5),
    "as counted by GitHub": ({"GITHUB_RUN_NUMBER": "77"}, 3, 77),
    "as counted by this machine": ({}, 3, 4),
    "by the number of commits on a new machine": ({}, -1, 957),
}


@pytest.mark.parametrize("environment, runs, number", NUMBERS.values(), ids=NUMBERS)
def test_number_of_a_run(monkeypatch, environment, runs, number):
    for name in ("TURN", "GITHUB_RUN_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(memories, "git", lambda *words: {("rev-list", "--count", "HEAD"): "957"}[words])
    assert Memory(runs=runs).number() == number


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}'])
def test_a_memory_that_cannot_be_read_is_a_new_one(monkeypatch, tmp_path, text):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memories.path().parent.mkdir()
    memories.path().write_text(text)
    assert Memory.load() == Memory()


@pytest.mark.parametrize("status, passed", [("", "abc"), (" M file", "")])
def test_a_memory_is_written_whole_and_only_a_commit_has_passed(monkeypatch, tmp_path, status, passed):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(memories, "git", lambda *words: {"status": status, "rev-parse": "abc"}[words[0]])
    Memory(runs=3, owed=["a"], shown={"b": ["2026-01-01", "abc"]}).save()
    memories.remember_passed()
    assert Memory.load() == Memory(runs=3, owed=["a"], shown={"b": ["2026-01-01", "abc"]}, passed=passed)


OF_DOCS = ["ansible-lint", "style", "docs", "licence", "package", "unit", "integration"]
CHANGED = {
    "unknown changes": (None, CORE),
    "no change": ([], CORE),
    "docs": (["docs/verify.md"], OF_DOCS),
    "unit tests": (["tests/unit/docs/test_links.py"], ["style", "licence", "unit", "properties", "integration"]),
    "both": (["tests/lab/test_irq.py", "README.md"], [*OF_DOCS, "lab-core"]),
    "code": (["docs/verify.md", "plugins/module_utils/_base/cpulist.py"], CORE),
    "a path in no row": (["Makefile"], CORE),
}


@pytest.mark.parametrize("paths, left", CHANGED.values(), ids=CHANGED)
def test_parts_that_a_change_can_break(paths, left):
    assert sorted(set(CORE) - set(unaffected(CORE, paths))) == sorted(left)


LAB_IRQ = "trixie:test_irq.py::test_a[x]"
TOUCHED = {
    "tests/slurm/test_slurm.py": ["slurm"],
    "tests/lab/test_irq.py": [LAB_IRQ],
    "extensions/molecule/duo/checks.yml": ["molecule-duo"],
    "plugins/module_utils/_features/irq/binding.py": [LAB_IRQ],
    "README.md": ["docs-site"],
    "Makefile": [],
}


@pytest.mark.parametrize("path, first", TOUCHED.items())
def test_proofs_that_a_change_touches_come_first(path, first):
    names = ["slurm", "molecule-duo", "docs-site", LAB_IRQ, "trixie:test_nic.py::test_b[x]"]
    assert touched(names, [path]) == first


FOLDERS = {"unit": "unit", "integration": "integration", "conformance": "conformance", "lab-core": "lab"}


@pytest.mark.parametrize("part", FOLDERS)
def test_a_change_of_what_tests_import_runs_their_part(part):
    left_out = set()
    for path in (REPOSITORY / "tests" / FOLDERS[part]).rglob("*.py"):
        for name in re.findall(r"^ *from tests\.(\w+)[\w.]* import", path.read_text(), re.MULTILINE):
            if not {part, EVERYTHING} & set(area(f"tests/{name}/a.py")[0].split()):
                left_out.add(name)
    assert left_out == set()
