# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that checkouts share, and the records of what passed."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests import cache, green


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fill(folder):
    (folder / "made").write_text("once")


def never(folder):
    raise AssertionError(f"{folder} was there")


def test_a_folder_is_made_once_for_the_same_words():
    folder = cache.folder("venv", ["python 3.7", "pytest"], fill)
    assert cache.folder("venv", ["python 3.7", "pytest"], never) == folder
    assert (folder / "made").read_text() == "once"


@pytest.mark.parametrize("other", [["python 3.7", "pytest", "psutil"], ["python 3.11", "pytest"], ["python 3.7pytest"]])
def test_other_words_are_another_folder(other):
    assert cache.folder("venv", other, fill) != cache.folder("venv", ["python 3.7", "pytest"], fill)


def test_what_was_left_by_a_failure_is_made_anew():
    def fail(folder):
        (folder / "rest").write_text("")
        raise ValueError("no network")

    with pytest.raises(ValueError):
        cache.folder("venv", ["pytest"], fail)
    assert sorted(file.name for file in cache.folder("venv", ["pytest"], fill).iterdir()) == [cache.MADE, "made"]


def test_the_newest_folders_stay():
    folders = [cache.folder("venv", [f"pytest {number}"], fill) for number in range(5)]
    for age, folder in enumerate(folders):
        os.utime(folder / cache.MADE, (0, 3 * cache.DAY - age))
    cache.folder("venv", ["pytest 1"], never, kept=2)
    assert [folder.exists() for folder in folders] == [True, True, False, False, False]
    assert len(list((cache.root() / "venv").glob("*.lock"))) == 2


def test_a_folder_in_use_today_stays_however_many_there_are():
    folders = [cache.folder("venv", [f"pytest {number}"], fill, kept=1) for number in range(3)]
    assert all(folder.exists() for folder in folders)


def test_where_a_folder_is_is_known_before_it_is_made():
    path = cache.place("venv", ["pytest"])
    assert not cache.is_made(path)
    assert cache.folder("venv", ["pytest"], fill) == path and cache.is_made(path)


def test_the_program_prints_the_folder_and_passes_a_failure_on(capfd):
    assert cache.main(["venv", "3.7", "--", "sh", "-c", "echo making; touch $0/made", "{}"]) == 0
    printed = capfd.readouterr()
    assert (cache.root() / "venv").as_posix() in printed.out
    assert printed.err == "making\n"
    assert cache.main(["venv", "3.8", "--", "sh", "-c", "exit 3"]) == 3


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "file").write_text("one\n")
    for words in (["init", "--quiet"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return folder


def test_what_passed_is_known_for_this_tree_alone(repository):
    of = green.tree(repository)
    assert not green.passed("lab/test_irq.py::test_one[a3 / x]", of)
    green.record("lab/test_irq.py::test_one[a3 / x]", of)
    assert green.passed("lab/test_irq.py::test_one[a3 / x]", of)
    assert not green.passed("lab/test_irq.py::test_one[a3 / x]", "another")
    assert not green.passed("lab/test_irq.py", of)


@pytest.mark.parametrize("name", ["file", "unknown"])
def test_a_changed_tree_has_no_records(repository, name):
    (repository / name).write_text("two\n")
    assert green.tree(repository) is None
    green.record("unit", None)
    assert not green.passed("unit", None)


def test_records_of_old_trees_go(monkeypatch):
    monkeypatch.setattr(green, "KEPT", 2)
    for number in range(4):
        green.record("unit", f"tree{number}")
        os.utime(cache.root() / "green" / f"tree{number}", (number, number))
    green.record("unit", "tree4")
    assert [green.passed("unit", f"tree{number}") for number in range(5)] == [False, False, False, True, True]
