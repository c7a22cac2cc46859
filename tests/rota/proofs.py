# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The register of proofs that take turns: what ``make test-all`` shows besides its core, once within :data:`TURNS` runs.

To add one, add a row to :data:`COMMANDS`. The tests of the lab are found by ``tests.lab.proofs``.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from tests.lab import proofs as lab

TURNS = 12

COMMANDS = {
    # name: (turn, CPU seconds, whether it keeps all cores busy, command)
    "sanity": (0, 420, False, "make sanity"),
    "python-3.7": (1, 300, True, "make matrix ARGS=python-3.7"),
    "python-3.11": (2, 150, True, "make matrix ARGS=python-3.11"),
    "python-3.13": (3, 150, True, "make matrix ARGS=python-3.13"),
    "core-oldest": (4, 130, False, "make matrix ARGS=core-oldest"),
    "core-middle": (5, 130, False, "make matrix ARGS=core-middle"),
    "core-newest": (6, 130, False, "make matrix ARGS=core-newest"),
    "long": (7, 400, True, "make long"),
    "more-properties": (8, 250, True, "make more-properties"),
    "fuzz": (6, 400, True, "make fuzz"),
    "optimal": (9, 150, True, "make optimal"),
    "browser": (10, 100, False, "make browser"),
    "metrics": (11, 100, False, "make metrics"),
    "importer": (3, 90, False, "make importer"),
    "docs-site": (11, 60, False, "make docs-site"),
    "slurm": (1, 100, False, "make slurm"),
    "launchers": (5, 100, False, "make launchers"),
    "events": (2, 100, False, "make events"),
    "molecule-a3_smt": (3, 150, False, "make molecule ARGS=a3_smt"),
    "molecule-cgroup_v1": (4, 150, False, "make molecule ARGS=cgroup_v1"),
    "molecule-default": (5, 150, False, "make molecule ARGS=default"),
    "molecule-duo": (6, 150, False, "make molecule ARGS=duo"),
    "molecule-gpu": (8, 150, False, "make molecule ARGS=gpu"),
    "molecule-rollback": (9, 150, False, "make molecule ARGS=rollback"),
    "molecule-simulated": (10, 60, False, "make molecule ARGS=simulated"),
}
LAB = {
    "bookworm": (0, 4, 8),
    "bullseye": (1, 5, 9),
    "trixie": (2, 6, 10),
    "testing": (3, 7, 11),
    "selinux": (4,),
    "engines": (2, 6, 10),
    "engines-v1": (8,),
    "arm64": tuple(range(TURNS)),
}
SOAKS = tuple(range(TURNS))
"""The turns of each kind of guest. Each test has one of them, by its name: a new test moves no other one."""


class Proof(NamedTuple):
    """What one run shows: a command, or a test of the lab on a kind of ``guest``."""

    name: str
    turn: int
    seconds: int
    alone: bool
    command: str = ""
    guest: str = ""


def register() -> list[Proof]:
    """Return every proof."""
    commands = [Proof(name, turn, seconds, alone, command) for name, (turn, seconds, alone, command) in COMMANDS.items()]
    return commands + [of_test(test.id, test.seconds) for test in lab.proofs() if not test.core]


def of_test(name: str, seconds: int) -> Proof:
    """Return a test of the lab; its name is ``guest:file::test``."""
    guest, _colon, test = name.partition(":")
    return Proof(name, turn_of(name, SOAKS if test.startswith("test_soak.py") else LAB[guest]), seconds, True, guest=guest)


def turn_of(name: str, turns: tuple[int, ...]) -> int:
    return turns[int(hashlib.sha256(name.encode()).hexdigest(), 16) % len(turns)]
