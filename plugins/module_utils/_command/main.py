# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m npu_affinity PROGRAM``: starts the program that a unit names. Of the others it reads no more than what the features own."""

from __future__ import annotations

import sys
from functools import partial
from typing import Callable, Sequence

from .._features.register import FEATURES


def _run(name: str, words: Sequence[str]) -> int:
    """Run one of the command's own programs; only that one is imported."""
    if name == "metrics":
        from .metrics import main as run
    elif name == "watch":
        from .watch import main as run
    else:
        from .program import main as run
    return run(words)


PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    **{name: partial(_run, name) for name in ("command", "metrics", "watch")},
    **{feature.name: feature.program for feature in FEATURES.values() if feature.program},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program that the first word names with the other words, and return its exit status; 2 for an unknown name."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in PROGRAMS:
        sys.stderr.write("usage: python3 -m npu_affinity %s [--help]\n" % "|".join(sorted(PROGRAMS)))
        return 2
    return PROGRAMS[words[0]](words[1:])


if __name__ == "__main__":
    raise SystemExit(main())
