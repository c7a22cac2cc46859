# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hwloc-distrib: sets of CPUs as far apart as possible, the n-th one for the n-th card. The tool knows nothing of cards.

The program runs on the tree of the machine (``apt-get install hwloc``). Its outputs are recorded with its version, and the page can
be made without it. A record counts for the machine with the same digest.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, to_mask
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import Rule, found_for, save
from tests.compare.machines import Subject

TOOL = "hwloc-distrib"
FILE = pathlib.Path(__file__).parents[1] / "hwloc.json"
LIMIT = 60


def recorded() -> dict[str, Any]:
    """Return ``{version, sets}``: for every machine by its digest, what the tool printed, on one line."""
    return json.loads(FILE.read_text())


def record(subjects: list[Subject]) -> bool:
    """Run the tool on these machines and record what it prints. Return whether it is installed."""
    tool = shutil.which(TOOL)
    if tool is None:
        return False
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=LIMIT, check=True).stdout.split()[-1]
    save(FILE, {subject.digest: _printed(tool, subject) for subject in subjects}, version=version)
    return True


def _printed(tool: str, subject: Subject) -> str:
    """Return the masks of the sets, one for each card, of the CPUs that may be divided, with blanks between them."""
    _write_masks(subject.tree)
    command = [tool, "--input", str(subject.tree), "--if", "fsroot", "--restrict", to_mask(cpus_of(subject.machine.usable))]
    done = subprocess.run([*command, str(len(subject.cards))], capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise ValueError(f"{TOOL} failed on {subject.shape.title}: {done.stderr.strip() or done.stdout.strip()}")
    return " ".join(done.stdout.split())


def _write_masks(tree: pathlib.Path) -> None:
    """Add the CPU masks of which hwloc reads what the collection reads from the lists next to them."""
    cpus = tree / "sys/devices/system/cpu"
    for found in [*cpus.glob("cpu*/topology/*_cpus_list"), *cpus.glob("cpu*/cache/index*/shared_cpu_list")]:
        name = "shared_cpu_map" if found.name == "shared_cpu_list" else found.name.removesuffix("_list")
        found.with_name(name).write_text(to_mask(expand(found.read_text())) + "\n")


def divide(subject: Subject) -> Mapping[Card, int]:
    sets = found_for(subject, recorded()["sets"], TOOL).split()
    if len(sets) != len(subject.cards):
        raise ValueError(f"{len(sets)} sets for {len(subject.cards)} cards")
    return {card: _mask(text) for card, text in zip(subject.cards, sets, strict=True)}


def _mask(text: str) -> int:
    """Return a set as hwloc prints it: groups of 32 bits, the highest first, empty ones without digits."""
    return sum(int(group or "0", 16) << 32 * place for place, group in enumerate(reversed(text.split(","))))


RULES = (Rule(TOOL, divide),)
