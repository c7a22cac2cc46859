# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python3 -m npu_affinity PROGRAM``: starts the program that a unit names. It imports that program alone."""

from __future__ import annotations

import sys
from typing import Callable, Sequence

Main = Callable[[Sequence[str]], int]


def _command() -> Main:
    from ._command.program import main

    return main


def _device_share() -> Main:
    from ._features.device_share.switching import main

    return main


def _irq() -> Main:
    from ._features.irq.binding import main

    return main


def _metrics() -> Main:
    from ._metrics.writing import main

    return main


def _threads() -> Main:
    from ._features.threads.placing import main

    return main


def _tuning() -> Main:
    from ._features.tuning.host_settings import main

    return main


PROGRAMS = {"command": _command, "device_share": _device_share, "irq": _irq, "metrics": _metrics, "threads": _threads, "tuning": _tuning}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program that the first word names with the other words, and return its exit status; 2 for an unknown name."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in PROGRAMS:
        sys.stderr.write("usage: python3 -m npu_affinity %s [--help]\n" % "|".join(PROGRAMS))
        return 2
    return PROGRAMS[words[0]]()(words[1:])


if __name__ == "__main__":
    raise SystemExit(main())
