# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the proofs whose turn it is, as parts of ``make test-all``: ``python -m tests.rota`` (``TURN=5`` or ``TURN=all`` chooses).

After ``DEADLINE`` (seconds since 1970) nothing begins that would not end before. That fails nobody: what had no time is named in
``$LOGS/rota.txt``, and comes first in the next run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import systems

from .changes import changed, touched
from .memory import Memory, git
from .proofs import TURNS, Proof, register

LOGS = Path(os.environ.get("LOGS", "build/logs"))
DEADLINE = float(os.environ.get("DEADLINE") or "inf")
PATIENCE = 4
"""The limit of a proof, as a multiple of the CPU seconds that it usually takes."""
FOLDER = "tests/lab/"
NOT_RUN = re.compile(r"^incomplete: \d+ tests not run: (.*)$", re.MULTILINE)
LEAST = 600
"""CPU seconds that each may take at least: what it needs may have to be installed or built."""


def choose(proofs: Sequence[Proof], number: int, owed: Iterable[str], first: Iterable[str]) -> list[Proof]:
    """Return the proofs of a run in their order: those that are owed, those that a change touches, and those whose turn it is."""
    by_name = {proof.name: proof for proof in proofs}
    own = [proof.name for proof in proofs if proof.turn == number % TURNS]
    return [by_name[name] for name in dict.fromkeys([*owed, *first, *own]) if name in by_name]


def run(chosen: Sequence[Proof]) -> dict[str, str]:
    """Run proofs, and return how each ended: passed, failed or skipped. Those that did not begin are missing."""
    ended: dict[str, str] = {}

    def one(proof: Proof) -> None:
        if time.time() + proof.seconds < DEADLINE:
            ended[proof.name] = "failed" if part(proof.name, proof.seconds, proof.command.split()) else "passed"

    commands = [proof for proof in chosen if proof.command]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, [proof for proof in commands if not proof.alone]))
    for proof in commands:
        if proof.alone:
            one(proof)
    for guest in dict.fromkeys(proof.guest for proof in chosen if proof.guest):
        ended |= on_guests(guest, {proof.name: proof.seconds for proof in chosen if proof.guest == guest})
    return ended


def on_guests(guest: str, tests: Mapping[str, int]) -> dict[str, str]:
    """Run tests of the lab on one kind of guest, and return how each ended."""
    left = DEADLINE - time.time()
    if left < min(tests.values()):
        return {}
    if left < float("inf"):
        os.environ |= {"LAB_MINUTES": str(max(1, int(left / 60))), "LAB_SHORT": "1"}
    name = f"lab-{guest}"
    status = part(name, sum(tests.values()), [sys.executable, "-m", "tests.lab.proofs", "--run", *tests])
    log = (LOGS / f"{name}.log").read_text(errors="replace")
    late = {test for line in NOT_RUN.findall(log) for test in line.split(", ")}
    ended = {f"{guest}:{test.removeprefix(FOLDER)}": words[-1] for test, words in systems.ended(log).items() if test not in late}
    return ended if ended or not status else dict.fromkeys(tests, "failed")


def part(name: str, seconds: int, command: Sequence[str]) -> int:
    with (LOGS / "parts").open("a") as parts:
        parts.write(f"{name}\n")
    limit = max(LEAST, PATIENCE * seconds)
    return subprocess.run([sys.executable, "-m", "tests.parts.run", name, str(limit), *command], check=False).returncode


def report(proofs: Sequence[Proof], chosen: Sequence[Proof], ran: Iterable[str]) -> list[str]:
    """Return the sentences that the summary ends with."""
    ran = set(ran)
    left = [proof.name for proof in chosen if proof.name not in ran]
    lines = [f"{len(ran)} of {len(proofs)} proofs ran; the rest follow within {TURNS - 1} runs."]
    if left:
        lines.append(f"Not begun for lack of time, first in the next run: {', '.join(left)}.")
    return lines


def main() -> int:
    memory = Memory.load()
    proofs = register()
    whole = os.environ.get("TURN") == "all"
    number = 0 if whole else memory.number()
    names = [proof.name for proof in proofs]
    chosen = choose(proofs, number, names if whole else memory.owed, touched(names, changed(memory)))
    ended = run(chosen)
    (LOGS / "rota.txt").write_text("\n".join(report(proofs, chosen, ended)) + "\n")
    head = git("rev-parse", "HEAD")
    memory.shown |= {name: [time.strftime("%Y-%m-%d"), head[:8]] for name, word in ended.items() if word == "passed"}
    memory.owed = [proof.name for proof in chosen if ended.get(proof.name, "failed") == "failed"]
    if not whole:
        memory.runs = number
    memory.save()
    return int("failed" in ended.values())


if __name__ == "__main__":
    sys.exit(main())
