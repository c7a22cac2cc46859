# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``tests/list-files`` and the checks that use it, in a git checkout and in an unpacked archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2]
LICENCE = "# SPDX-License-Identifier: GPL-3.0-or-later\n"
FILES = {
    ".gitignore": "/build/\n",
    "README.md": "# Title\n",
    "plugins/a b.py": LICENCE,
    "build/made.py": "made = 1\n",
    "tests/test_a.py": LICENCE,
    "tests/idioms.txt": "no such phrase\n",
}


@pytest.fixture(params=["checkout", "archive"])
def folder(request, tmp_path):
    """A folder with blanks in its path, that is a git checkout or is not."""
    folder = tmp_path / "a b"
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for name in ("list-files", "check-licence", "check-prose"):
        shutil.copy(SCRIPTS / name, folder / "tests")
    if request.param == "checkout":
        for command in (["init"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "--message", "First"]):
            subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    return folder


def run(folder, *command):
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_files_are_listed_without_those_that_are_made_or_gone(folder):
    (folder / "new.py").write_text("")
    (folder / "README.md").unlink()
    assert run(folder, "tests/list-files", "*.py", "*.md").stdout.split("\0") == ["new.py", "plugins/a b.py", "tests/test_a.py", ""]


def test_a_pattern_without_files_fails(folder):
    done = run(folder, "tests/list-files", "*.rst")
    assert done.returncode == 1 and done.stderr.endswith("has no file that matches *.rst\n")


@pytest.mark.parametrize(
    ("check", "path", "text", "said"),
    [
        ("check-licence", "plugins/b.py", "b = 1\n", "no SPDX-License-Identifier in:\nplugins/b.py\n"),
        ("check-prose", "README.md", "There is no such phrase.\n", "README.md:1:There is no such phrase.\n"),
        ("check-prose", "tests/test_b.py", f"def test_{'b' * 56}():\n", "Shorten these names of tests"),
    ],
)
def test_checks_see_the_files(folder, check, path, text, said):
    assert run(folder, f"tests/{check}").returncode == 0
    (folder / path).write_text(text)
    done = run(folder, f"tests/{check}")
    assert done.returncode == 1 and said in done.stdout + done.stderr


@pytest.mark.parametrize("check", ["check-licence", "check-prose"])
def test_checks_that_see_no_file_fail(folder, check):
    for path in ("README.md", "plugins/a b.py", "tests/test_a.py"):
        (folder / path).unlink()
    assert run(folder, f"tests/{check}").returncode == 1


def test_subjects_of_commits_are_checked_or_named(folder):
    if (folder / ".git").exists():
        run(folder, "git", "-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "--message", "x" * 61)
        done = run(folder, "tests/check-prose")
        assert done.returncode == 1 and "Shorten or rewrite these subjects" in done.stderr
    else:
        assert "no git checkout: no subject of a commit is checked" in run(folder, "tests/check-prose").stdout
