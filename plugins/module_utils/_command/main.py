# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m npu_affinity PROGRAM``: starts the program that a unit names. Of the others it reads no more than what the features own."""

from __future__ import annotations

import sys
from typing import Callable, Sequence

from .._features.register import FEATURES


def _command(argv: Sequence[str]) -> int:
    from .program import main

    return main(argv)


def _metrics(argv: Sequence[str]) -> int:
    from .metrics import main

    return main(argv)


def _watch(argv: Sequence[str]) -> int:
    from .watch import main

    return main(argv)


PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    "command": _command,
    **{feature.name: feature.program for feature in FEATURES.values() if feature.program},
    "metrics": _metrics,
    "watch": _watch,
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
