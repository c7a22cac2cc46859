# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of the boot unit: set the huge pages that were applied."""

from __future__ import annotations

import argparse
from typing import Sequence

from ..._host.host import Host
from ..._base.outside import json_of, say
from ..._state.lock import changing
from ..._state.log import Change, log_change
from ..._base.table import count
from .places import FILE
from .setting import carry_out, forget_given_back, goals
from .shortage import shortages

PROGRAM = "npu_affinity hugepages"
_SECONDS = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Set what the installed file holds. Returns 0, also where the kernel grants less, and 1 where a number cannot be written."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Set the huge pages of this host, as they were applied.")
    parser.add_argument("--root", default="/", help="root directory of the host's file tree")
    host = Host(parser.parse_args(argv).root)
    try:
        with changing(host, PROGRAM):
            text = host.text(FILE)
            if text is None:
                return 0
            wanted = json_of(text)
            done = carry_out(host, goals(host, wanted, again=True), _SECONDS)
            forget_given_back(host, wanted)
            short = [shortage.sentence for shortage in shortages(host, wanted)]
    except (OSError, ValueError) as error:
        say(error)
        return 1
    lines = [goal.line.lstrip("~ ") for goal in done if goal.changes]
    refused = [goal.refused for goal in done if goal.refused]
    if lines:
        log_change(host, Change("rebind", PROGRAM, count(len(lines), "change") + " of huge pages", lines))
    for sentence in lines + short + refused:
        say(sentence)
    return 1 if refused else 0
