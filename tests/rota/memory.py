# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is, and what this machine knows of earlier runs.

A rota needs no memory where runs are counted: ``TURN``, or the number of the run that GitHub gives. Elsewhere this machine counts in its
cache, and a machine without one begins with the number of commits. The cache also keeps what a run had no time for, which comes first in
the next one, the commit of the last run that passed, and when each proof was last shown.

``python -m tests.rota.memory passed`` remembers that a whole run of the commit at hand passed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests import cache

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass
class Memory:
    """What this machine knows of earlier runs; ``shown`` is ``{proof: [date, commit]}``."""

    runs: int = -1
    passed: str = ""
    owed: list[str] = field(default_factory=list)
    shown: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Memory:
        try:
            return cls(**json.loads(path().read_text()))
        except (OSError, ValueError, TypeError):
            return cls()

    def save(self) -> None:
        path().parent.mkdir(parents=True, exist_ok=True)
        temporary = path().with_suffix(".new")
        temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1))
        temporary.replace(path())

    def number(self) -> int:
        """Return the number of this run."""
        given = os.environ.get("TURN") or os.environ.get("GITHUB_RUN_NUMBER")
        if given:
            return int(given)
        return self.runs + 1 if self.runs >= 0 else int(git("rev-list", "--count", "HEAD") or 0)


def path() -> Path:
    return cache.root() / "rota.json"


def git(*words: str) -> str:
    """Return what git prints, or '' where it fails or there is no repository."""
    try:
        return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def remember_passed() -> None:
    """Remember the commit at hand, unless files differ from it: then the run showed something else."""
    if not git("status", "--porcelain"):
        memory = Memory.load()
        memory.passed = git("rev-parse", "HEAD")
        memory.save()


if __name__ == "__main__" and sys.argv[1:] == ["passed"]:
    remember_passed()
