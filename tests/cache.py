# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What takes long to make and is the same in every checkout: folders below ``~/.cache/npu-affinity/<kind>``.

``python -m tests.cache KIND WORD... -- COMMAND ARGUMENT...`` prints the folder for what is made of these words. Where there is none, the
command makes it: it gets the folder for ``{}`` in its arguments. What it left when it failed or was stopped is replaced. Of each kind, the
folders that were used last stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

KEPT, DAY = 12, 24 * 3600
"""Folders of a kind that stay. One that was used within the last day stays besides."""
MADE = ".made"


def root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "npu-affinity")


def place(kind: str, made_of: Sequence[str]) -> Path:
    """Return where the folder for these words is, or would be."""
    return root() / kind / hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]


def is_made(path: Path) -> bool:
    return (path / MADE).exists()


def folder(kind: str, made_of: Sequence[str], make: Callable[[Path], None], kept: int = KEPT, age: int = DAY) -> Path:
    """Return the folder for these words; ``make`` fills a new one.

    Of the kind, ``kept`` folders stay, and those that were used in the last ``age`` seconds.
    """
    path = place(kind, made_of)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            make(path)
            (path / MADE).write_text("\n".join(made_of) + "\n")
        os.utime(path / MADE)
    remove_old(path.parent, kept, age)
    return path


def remove_old(kind: Path, kept: int, age: int) -> None:
    """Remove the folders of a kind that were used longest ago."""
    made = sorted(kind.glob(f"*/{MADE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in made[kept:]:
        if time.time() - file.stat().st_mtime > age:
            file.unlink()
            shutil.rmtree(file.parent, ignore_errors=True)
            file.parent.with_suffix(".lock").unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    middle = arguments.index("--")
    kind, *made_of = arguments[:middle]
    command = arguments[middle + 1 :]

    def make(path: Path) -> None:
        subprocess.run([word.replace("{}", str(path)) for word in command], stdout=sys.stderr, check=True)

    try:
        print(folder(kind, made_of, make))
    except subprocess.CalledProcessError as error:
        return error.returncode if error.returncode > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
