# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which parts and tests passed on which tree: empty files ``~/.cache/npu-affinity/green/<tree>/<name>``.

What a run has no time for counts as proven when it passed on the very same files before, in whatever checkout. A working tree that is clean
has a name, that of git's tree, and so records; another has none.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

from tests.cache import root

REPOSITORY = Path(__file__).resolve().parents[1]
KEPT = 50
"""Trees whose records stay."""


def tree(repository: Path = REPOSITORY) -> str | None:
    """Return the name of the tree that is checked out, or nothing where files are changed or unknown to git."""

    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    return git("rev-parse", "HEAD^{tree}") if git("status", "--porcelain") == "" else None


def _record(name: str, of: str) -> Path:
    return root() / "green" / of / quote(name, safe="")


def record(name: str, of: str | None) -> None:
    """Keep that something passed on a tree."""
    if of is None:
        return
    path = _record(name, of)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    trees = sorted(path.parents[1].iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for old in trees[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def passed(name: str, on: str | None) -> bool:
    """Say whether something passed on a tree before."""
    return on is not None and _record(name, on).exists()
