# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of real processes of this machine, before and after they are placed: ``python -m tests.simulator.load FOLDER``.

Simulated hosts have no running processes to count. So workers run here, and on every CPU a neighbour that spins; then the workers get the
CPUs that a plan has for an NPU, and the neighbours the others, as slices and housekeeping CPUs do it on a host. There is no NPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 10
FEWEST = 4
WORKER = "import time\nwhile True:\n    end = time.monotonic() + 0.004\n    while time.monotonic() < end: pass\n    time.sleep(0.001)"
NEIGHBOUR = "while True: pass"


def plan_of(cpus: list[int]) -> dict:
    """Return a plan with one NPU and its pool."""
    pool = ",".join(map(str, cpus))
    nodes = {path.name.removeprefix("node") for cpu in cpus for path in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node[0-9]*")}
    roles = {"irq": "", "main": pool, "acl": "", "release": "", "mems": ",".join(sorted(nodes, key=int))}
    npu = {"kind": "npu", "id": 0, "chip": 0, "phy_id": 0, "pci": None, "pool": pool, **roles, "slice": "npu-0.slice"}
    return {"schema": 1, "strategy": "even_split", "cpus": pool, "housekeeping": "", "npus": [npu], "lost": []}


def inventory(workers: list[int], pool: list[int]) -> dict:
    """Return an inventory of this machine, as if it was bound by a plan."""
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "npu_affinity_topology": {"machine": {}, "npus": [], "applied": plan_of(pool)},
        "npu_affinity_plan": plan_of(pool),
        "npu_affinity_state": {"processes": [{"npus": [0], "pids": workers}]},
    }
    return {"npu_hosts": {"hosts": {"this-machine": variables}}}


def measure(folder: Path, label: str, arguments: list[str]) -> None:
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", folder / "this-machine.yml", "tests/simulator/measure.yml"]
    given = {"npu_affinity_measures": str(folder), "npu_affinity_measure_label": label, "npu_affinity_measure_seconds": SECONDS}
    subprocess.run([*command, "-e", json.dumps(given), *arguments], cwd=REPOSITORY, check=True)


def main() -> None:
    folder, arguments = Path(sys.argv[1]).resolve(), sys.argv[2:]
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < FEWEST:
        sys.exit(
            f"This demo needs {FEWEST} CPUs, and this process has {len(cpus)} ({compress(cpus)}): with fewer, the measurement disturbs the "
            "workers. Run it on a larger machine, or measure hosts with INVENTORY=…"
        )
    pool, others = cpus[len(cpus) // 2 :][:4], cpus[: len(cpus) // 2]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:

        def start(program: str, where: list[int]) -> int:
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", program]))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, where)
            return process.pid

        workers = [start(WORKER, cpus) for _cpu in pool]
        neighbours = [start(NEIGHBOUR, [*others, *pool]) for _cpu in (*others, *pool)]
        (folder / "this-machine.yml").write_text(yaml.safe_dump(inventory(workers, pool)))
        both = f"workers ({len(workers)}) and neighbours ({len(neighbours)})"
        print(f"1 of 2: {both} on CPUs {compress(cpus)}, not bound: {SECONDS} s", flush=True)
        measure(folder, "before", arguments)
        for process, where in [*((worker, pool) for worker in workers), *((neighbour, others) for neighbour in neighbours)]:
            os.sched_setaffinity(process, where)
        own = f"CPU{'s' * (len(pool) > 1)} {compress(pool)}"
        print(f"2 of 2: the workers on {own}, the neighbours on the others, as after a bind: {SECONDS} s", flush=True)
        measure(folder, "after", arguments)


if __name__ == "__main__":
    main()
