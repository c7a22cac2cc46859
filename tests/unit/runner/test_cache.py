# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that checkouts share."""

from __future__ import annotations

import os

import pytest

from tests import cache


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
    cache.folder("venv", ["pytest 3"], fill, kept=0, age=-1)
    assert not any(folder.exists() for folder in folders)


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
