# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a slice of a large fleet costs, and whether its cost a host depends on its size: plan, verify with reports, one page of the reports.

    python -m tests.benchmarks.slices [--sizes 50,100,500] [--playbooks plan,verify,report] [--by command|runner|server]

A slice is the inventory that a job slice of AWX gets: its own hosts. They share two trees, a bound A2 and a bound A3, which these playbooks
only read; npu-smi prints recorded answers, so that not the simulator is measured. Metrics are CPU seconds of the controller and of all
hosts, whose connections are local. ``--by runner`` is ansible-runner, which runs the job slices of AWX. ``--by server`` has modules that
are forks of one process (see ``tests/integration/controller.py``): that leaves the controller's share, by which one sees whether it grows
with the slice, at a part of the cost.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Callable

from tests.benchmarks.fleet import REPOSITORY, Cost, cost, play, recorded
from tests.integration import controller
from tests.simulator import generate

MACHINES = {"a2": "a2_8x24", "a3": "a3_640_split"}
HEAD = ["hosts", "`plan`, a host", "`verify`, a host", "`report` of them, a host", "largest process"]
VARIABLES = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def inventory(path: pathlib.Path, roots: dict[str, pathlib.Path]) -> pathlib.Path:
    """Write the inventory of hosts with their trees, as JSON, which is read faster than other YAML."""
    hosts = {name: {"npu_affinity_root": str(root)} for name, root in roots.items()}
    path.write_text(json.dumps({"npu_hosts": {"hosts": hosts, "vars": VARIABLES}}))
    return path


def site(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return trees of bound hosts."""
    trees = {}
    for name, machine in MACHINES.items():
        trees[name] = folder / name
        generate.generate(machine, trees[name])
        recorded(trees[name])
    play(inventory(folder / "site.json", trees), REPOSITORY / "playbooks/bind.yml")
    return list(trees.values())


def served(hosts: pathlib.Path, playbook: pathlib.Path, *arguments: str) -> Cost:
    """Run a playbook as :func:`tests.benchmarks.fleet.play` does, with modules that are forks of one process."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = controller.ansible_playbook(["-i", str(hosts), str(playbook), *arguments], REPOSITORY, environment, 3600)
    wall = time.perf_counter() - start
    controller.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        sys.exit(process.stdout[-4000:])
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024)


def by_runner(hosts: pathlib.Path, playbook: pathlib.Path, *arguments: str) -> Cost:
    """Run a playbook by ansible-runner, which keeps every event of the run as a file, too."""
    with tempfile.TemporaryDirectory() as name:
        private_data = pathlib.Path(name)
        settings = {"suppress_ansible_output": True}
        environment = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "build")}
        for file, content in {"env/settings": settings, "env/envvars": environment}.items():
            (private_data / file).parent.mkdir(exist_ok=True)
            (private_data / file).write_text(json.dumps(content))
        (private_data / "project").symlink_to(REPOSITORY)
        command = [pathlib.Path(sys.executable).with_name("ansible-runner"), "run", private_data, "--inventory", hosts]
        command += ["-p", playbook, "--cmdline", shlex.join(arguments)]
        return cost(command, dict(os.environ, PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"))


RUNS = {"command": play, "runner": by_runner, "server": served}


def slice_of(folder: pathlib.Path, trees: list[pathlib.Path], size: int, playbooks: list[str], run: Callable[..., Cost]) -> list[str]:
    """Return the row of one slice."""
    names = {f"node{number:05}": trees[number % len(trees)] for number in range(1, size + 1)}
    hosts, controller_alone = inventory(folder / f"slice-{size}.json", names), inventory(folder / "local.json", {"localhost": folder})
    reports, costs = folder / f"reports-{size}", {}
    given = {
        "plan": {"npu_affinity_plan_file": str(folder / f"plan-{size}.json")},
        "verify": {"npu_affinity_reports": str(reports)},
        "report": {"npu_affinity_report_from": [str(reports)], "npu_affinity_report": str(folder / f"page-{size}.html")},
    }
    for name in playbooks:
        where = controller_alone if name == "report" else hosts
        costs[name] = run(where, REPOSITORY / f"playbooks/{name}.yml", "-e", json.dumps(given[name]))
        print(f"{size} hosts, {name}: {costs[name].cpu:.0f} s of CPU, {costs[name].wall:.0f} s by the clock", flush=True)
    memory = max(cost.memory for cost in costs.values())
    return [str(size), *(f"{costs[name].cpu / size:.2f} s" if name in costs else "" for name in given), f"{memory:.0f} MiB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="50,100,500")
    parser.add_argument("--playbooks", default="plan,verify,report")
    parser.add_argument("--by", choices=RUNS, default="command")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trees = site(folder)
        rows = [slice_of(folder, trees, int(size), given.playbooks.split(","), RUNS[given.by]) for size in given.sizes.split(",")]
        print("\n".join("  ".join(row) for row in [HEAD, *rows]))


if __name__ == "__main__":
    main()
