# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many lines an operator reads: what each playbook prints for a fleet of equal hosts and for one where they differ.

    python -m tests.benchmarks.lines [--hosts 7,200]

In the latter, every second host has another strategy, and every seventh keeps a core for the system. Blank lines are not counted.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile

import yaml

from tests.benchmarks.fleet import MACHINE, REPOSITORY, fleet, recorded
from tests.integration import controller
from tests.integration.conftest import CHECKOUT
from tests.simulator import generate

RUNS = (
    ("plan",),
    ("bind", "--check", "--diff"),
    ("bind",),
    ("bind",),
    ("verify",),
    ("history",),
    ("rollback", "-e", "npu_affinity_to=2099-01-01"),
    ("unbind", "-e", "npu_affinity_confirm=yes"),
)


def differing(inventory: pathlib.Path) -> None:
    """Give hosts settings of their own."""
    document = yaml.safe_load(inventory.read_text())
    for number, variables in enumerate(document["all"]["hosts"].values()):
        if number % 7 == 0:
            variables |= {"npu_affinity_housekeeping": "1", "npu_affinity_housekeeping_confine_holders": True}
        if number % 2 == 0:
            variables["npu_affinity_strategy"] = "even_split"
    inventory.write_text(yaml.safe_dump(document))


def lines(inventory: pathlib.Path, playbook: str, arguments: list[str]) -> int:
    """Run a playbook, and return how many lines it printed."""
    words = ["-i", str(inventory), f"playbooks/{playbook}.yml", *arguments]
    run = controller.ansible_playbook(words, REPOSITORY, {**os.environ, **CHECKOUT, "ANSIBLE_LOCALHOST_WARNING": "false"}, 3600)
    if run.returncode:
        sys.exit(run.stdout[-4000:])
    return sum(bool(line.strip()) for line in run.stdout.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="7,200")
    with tempfile.TemporaryDirectory() as name:
        folder, template = pathlib.Path(name), pathlib.Path(name, "template")
        generate.generate(MACHINE, template)
        recorded(template)
        for count in map(int, parser.parse_args().hosts.split(",")):
            for kind in ("equal", "differing"):
                inventory = fleet(folder / "hosts", template, count, {"ansible_connection": "local"})
                if kind == "differing":
                    differing(inventory)
                for playbook, *arguments in RUNS:
                    printed = lines(inventory, playbook, arguments)
                    print(f"{count} {kind} hosts, {' '.join([playbook, *arguments])}: {printed} lines", flush=True)
    controller.close()


if __name__ == "__main__":
    main()
