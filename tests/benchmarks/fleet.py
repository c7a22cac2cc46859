# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``bind.yml`` costs a fleet, against ``ansible.builtin.setup`` alone and against a playbook of loops, in one run on one machine.

    python -m tests.benchmarks.fleet [--hosts 1,10,50,200] [--looped 1] [--write]
    python -m tests.benchmarks.fleet --lines [--hosts 7,200]
    python -m tests.benchmarks.fleet --slices [--hosts 50,100,500] [--playbooks plan,verify,report] [--by command|runner]

Hosts are trees of an A2 with 192 CPUs and 8 NPUs; their npu-smi prints recorded answers, so that not the simulator is measured.
Connections are local, so that CPU time holds the hosts' share. ``--looped`` is up to how many hosts the loops are measured; they take
minutes. Metrics are wall / CPU: on a shared machine the latter is the steadier. ``--write`` puts the table into docs/performance.md.

``--lines`` counts what an operator reads: the lines, without blank ones, that each playbook prints, for equal hosts and for others.

``--slices`` tells whether the cost of a host depends on the size of a slice, the inventory of a job slice of AWX: its own hosts. They
share two trees, a bound A2 and a bound A3, which the playbooks only read. ``--by runner`` is ansible-runner, which runs the slices of AWX.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import yaml

from tests.benchmarks.frame import ENVIRONMENT, REPOSITORY, Cost, cost
from tests.simulator import generate

MACHINE = "a2_8x24"
QUESTIONS = (("info",), ("info", "-m"), ("info", "-t", "topo"))
MARKS = ("<!-- fleet -->\n", "<!-- /fleet -->\n")
LOOPED = "tests/benchmarks/looped.yml"
BIND = "playbooks/bind.yml"
SETUP = [{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.setup": {}}]}]
VARIABLES = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
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
"""The playbooks whose lines ``--lines`` counts."""


def play(hosts: pathlib.Path, playbook: str, *arguments: str) -> Cost:
    """Run a playbook on all hosts."""
    return cost(["ansible-playbook", "-i", hosts, playbook, *arguments])


def recorded(tree: pathlib.Path) -> None:
    """Put a program into the tree that prints what its npu-smi says, in no time."""
    tool = tree / "usr/local/Ascend/driver/tools/npu-smi"
    lines = ["#!/bin/sh", 'case "$*" in']
    for words in QUESTIONS:
        text = subprocess.run([tool, *words], capture_output=True, text=True, check=True).stdout
        lines += [f'"{" ".join(words)}") printf %s {shlex.quote(text)} ;;']
    tool.write_text("\n".join([*lines, "*) exit 215 ;;", "esac"]) + "\n")


def inventory(path: pathlib.Path, roots: dict[str, pathlib.Path]) -> pathlib.Path:
    """Write the inventory of hosts with their trees, as JSON, which is read faster than other YAML."""
    hosts = {name: {"npu_affinity_root": str(root)} for name, root in roots.items()}
    path.write_text(json.dumps({"npu_hosts": {"hosts": hosts, "vars": VARIABLES}}))
    return path


def fleet(folder: pathlib.Path, template: pathlib.Path, count: int) -> pathlib.Path:
    """Return the inventory of so many fresh hosts."""
    shutil.rmtree(folder, ignore_errors=True)
    roots = {f"host{number:03}": folder / f"host{number:03}" for number in range(1, count + 1)}
    for root in roots.values():
        shutil.copytree(template, root, symlinks=True)
    return inventory(folder / "inventory.json", roots)


def by_hand(folder: pathlib.Path) -> pathlib.Path:
    """Return a file of variables with what the loops need, which is what a bind wrote on the first host."""
    tree = folder / "host001"
    plan = json.loads((tree / "etc/npu-affinity/plan.json").read_text())
    npus = []
    for npu in plan["npus"]:
        irqs = sorted(int(entry.name) for entry in (tree / "sys/bus/pci/devices" / npu["pci"] / "msi_irqs").iterdir())
        npus.append({key: npu[key] for key in ("id", "slice", "pool", "memory_nodes", "irq")} | {"irqs": irqs[1:18]})
    path = folder.with_suffix(".by-hand.json")
    path.write_text(json.dumps({"npus": npus}))
    return path


def measure(folder: pathlib.Path, template: pathlib.Path, count: int, looped: bool) -> list[str]:
    """Return the row of so many hosts."""
    setup, place = folder / "setup.yml", folder / "hosts"
    setup.write_text(yaml.safe_dump(SETUP))
    hosts = fleet(place, template, count)
    play(hosts, str(setup))
    baseline = play(hosts, str(setup))
    first, converged = play(hosts, BIND), play(hosts, BIND)
    costs = (first, converged, play(hosts, BIND, "--check", "--diff"))
    loops = ""
    if looped:
        variables = by_hand(place)
        fresh = fleet(place, template, count)
        by_loops = [play(fresh, LOOPED, "-e", f"@{variables}").wall for _run in range(2)]
        loops = f"{by_loops[0] / first.wall:.0f}, {by_loops[1] / converged.wall:.0f}"
    return [
        str(count),
        f"{baseline.wall:.1f} s / {baseline.cpu:.1f} s",
        *(f"{cost.wall / baseline.wall:.1f} / {cost.cpu / baseline.cpu:.1f}" for cost in costs),
        f"{converged.wall / count:.2f} s / {converged.cpu / count:.2f} s",
        f"{converged.memory:.0f} MiB",
        loops,
    ]


def differing(hosts: pathlib.Path) -> None:
    """Give every second host another strategy, and let every seventh keep a core for the system."""
    document = json.loads(hosts.read_text())
    for number, variables in enumerate(document["npu_hosts"]["hosts"].values()):
        if number % 7 == 0:
            variables |= {"npu_affinity_housekeeping": "1", "npu_affinity_housekeeping_confine_holders": True}
        if number % 2 == 0:
            variables["npu_affinity_strategy"] = "even_split"
    hosts.write_text(json.dumps(document))


def print_lines(folder: pathlib.Path, template: pathlib.Path, count: int) -> None:
    for kind in ("equal", "differing"):
        hosts = fleet(folder / "hosts", template, count)
        if kind == "differing":
            differing(hosts)
        for playbook, *arguments in RUNS:
            output = play(hosts, f"playbooks/{playbook}.yml", *arguments).output
            printed = sum(bool(line.strip()) for line in output.splitlines())
            print(f"{count} {kind} hosts, {' '.join([playbook, *arguments])}: {printed} lines", flush=True)


def by_runner(hosts: pathlib.Path, playbook: str, *arguments: str) -> Cost:
    """Run a playbook by ansible-runner, which keeps every event of the run as a file, too."""
    with tempfile.TemporaryDirectory() as name:
        private_data = pathlib.Path(name)
        settings = {"suppress_ansible_output": True}
        environment = {name: ENVIRONMENT[name] for name in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH")}
        for file, content in {"env/settings": settings, "env/envvars": environment}.items():
            (private_data / file).parent.mkdir(exist_ok=True)
            (private_data / file).write_text(json.dumps(content))
        (private_data / "project").symlink_to(REPOSITORY)
        command = ["ansible-runner", "run", private_data, "--inventory", hosts, "-p", playbook, "--cmdline", shlex.join(arguments)]
        return cost(command)


def slice_of(folder: pathlib.Path, trees: list[pathlib.Path], size: int, playbooks: list[str], run: Callable[..., Cost]) -> list[str]:
    """Return the row of one slice."""
    names = {f"node{number:05}": trees[number % len(trees)] for number in range(1, size + 1)}
    hosts, controller_alone = inventory(folder / "slice.json", names), inventory(folder / "local.json", {"localhost": folder})
    reports, costs = folder / f"reports-{size}", {}
    given = {
        "plan": {"npu_affinity_plan_file": str(folder / f"plan-{size}.json")},
        "verify": {"npu_affinity_reports": str(reports)},
        "report": {"npu_affinity_report_from": [str(reports)], "npu_affinity_report": str(folder / f"page-{size}.html")},
    }
    for name in playbooks:
        where = controller_alone if name == "report" else hosts
        costs[name] = run(where, f"playbooks/{name}.yml", "-e", json.dumps(given[name]))
        print(f"{size} hosts, {name}: {costs[name].cpu:.0f} s of CPU, {costs[name].wall:.0f} s by the clock", flush=True)
    memory = max(cost.memory for cost in costs.values())
    return [str(size), *(f"{costs[name].cpu / size:.2f} s" if name in costs else "" for name in given), f"{memory:.0f} MiB"]


SLICES = ["hosts", "`plan`, a host", "`verify`, a host", "`report` of them, a host", "largest process"]
HEAD = ["hosts", "`setup`", "first bind", "converged", "check", "converged, a host", "largest process", "loops"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="1,10,50,200")
    parser.add_argument("--looped", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--slices", action="store_true")
    parser.add_argument("--playbooks", default="plan,verify,report")
    parser.add_argument("--by", choices=("command", "runner"), default="command")
    given = parser.parse_args()
    counts = [int(count) for count in given.hosts.split(",")]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        template = folder / "template"
        generate.generate(MACHINE, template)
        recorded(template)
        if given.lines:
            for count in counts:
                print_lines(folder, template, count)
            return
        print("  ".join(SLICES if given.slices else HEAD), flush=True)
        if given.slices:
            trees = {"a2": template, "a3": folder / "a3"}
            generate.generate("a3_640_split", trees["a3"])
            recorded(trees["a3"])
            play(inventory(folder / "site.json", trees), BIND)
        for count in counts:
            if given.slices:
                run = by_runner if given.by == "runner" else play
                rows.append(slice_of(folder, [*trees.values()], count, given.playbooks.split(","), run))
            else:
                rows.append(measure(folder, template, count, count <= given.looped))
            print("  ".join(rows[-1]), flush=True)
    if given.write:
        page = REPOSITORY / "docs/performance.md"
        text = page.read_text()
        begin, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
        table = [HEAD, ["---"] * len(HEAD), *rows]
        page.write_text(text[:begin] + "".join(f"| {' | '.join(row)} |\n" for row in table) + text[end:])


if __name__ == "__main__":
    main()
