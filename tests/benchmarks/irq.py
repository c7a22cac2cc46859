# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of the program that the boot units and the timer run, as they run it, with 640 CPUs and 16 functions of 18 named interrupts.

    python -m tests.benchmarks.irq

Times are the least of several runs, in the same run as the baseline: a Python that starts and ends.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel.pci import accelerators
from ansible_collections.npu.affinity.plugins.module_utils._apply.runtime import archive
from tests.simulator.generate import generate

RUNS = 7
MACHINE = "a3_640_split"
POOL = 40


def cpu_time(argv: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Return the user and system time of one run in ms, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, env=environment, cwd="/", stdout=subprocess.PIPE, check=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def plan_of(tree: pathlib.Path) -> dict:
    """Return a plan with a pool of neighbouring CPUs for every NPU."""
    npus = []
    for number, pci in enumerate(accelerators(Host(str(tree)))[0]):
        first = POOL * number
        npus.append({"id": number, "pci": pci, "pool": f"{first}-{first + POOL - 1}", "irq": f"{first}-{first + 1}"})
    return {"schema": 1, "npus": npus}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree, package = pathlib.Path(folder, "tree"), pathlib.Path(folder, "npu_affinity.zip")
        generate(MACHINE, tree)
        package.write_bytes(archive())
        plan = plan_of(tree)
        (tree / "etc/npu-affinity").mkdir(parents=True)
        (tree / "etc/npu-affinity/plan.json").write_text(json.dumps(plan))
        as_unit = dict(os.environ, PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="1")
        program = [sys.executable, "-m", "npu_affinity", "irq", "--root", str(tree)]
        start = min(cpu_time([sys.executable, "-c", "pass"], as_unit)[0] for _run in range(RUNS))
        first, printed = cpu_time(program, as_unit)
        timed = {"first run, everything moves": first}
        timed["all bound already"] = min(cpu_time(program, as_unit)[0] for _run in range(RUNS))
        one = [*program, "--pci", plan["npus"][0]["pci"]]
        timed["one function, all bound already"] = min(cpu_time(one, as_unit)[0] for _run in range(RUNS))
        size = (tree / "proc/interrupts").stat().st_size
        lines = printed.splitlines()
    print(f"{len(plan['npus'])} NPUs, {sum(': IRQ ' in line for line in lines)} interrupts moved, /proc/interrupts of {size / 1e6:.1f} MB")
    print(f"{'python -c pass':<42}{start:7.1f} ms CPU")
    for name, time in timed.items():
        print(f"{name:<42}{time:7.1f} ms CPU  {time / start:5.1f} x python -c pass")


if __name__ == "__main__":
    main()
