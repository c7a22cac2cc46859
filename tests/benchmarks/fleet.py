# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``bind.yml`` costs a fleet, against ``ansible.builtin.setup`` alone and against a playbook of loops, in one run on one machine.

    python -m tests.benchmarks.fleet [--hosts 1,10,50,200] [--connections local,ssh] [--looped 1] [--write]

Hosts are trees of an A2 with 192 CPUs and 8 NPUs; their npu-smi prints recorded answers, so that not the simulator is measured.
``ssh`` starts an sshd of its own on the loopback, where one is installed. ``--looped`` is up to how many hosts the loops are measured;
they take minutes. Metrics are wall / CPU: on a shared machine the latter is the steadier. With local connections CPU time holds the
hosts' share, with ssh the controller's alone. ``--write`` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import yaml

from tests.simulator import generate

REPOSITORY = pathlib.Path(__file__).parents[2]
MACHINE = "a2_8x24"
QUESTIONS = (("info",), ("info", "-m"), ("info", "-t", "topo"))
PORT = 22022
MARKS = ("<!-- fleet -->\n", "<!-- /fleet -->\n")
LOOPED = REPOSITORY / "tests/benchmarks/looped.yml"
SETUP = [{"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.setup": {}}]}]


@dataclass
class Cost:
    """Wall and CPU seconds of a run, and the size of its largest process in MiB."""

    wall: float
    cpu: float
    memory: float


def play(inventory: pathlib.Path, playbook: pathlib.Path, *arguments: str) -> Cost:
    """Run a playbook on all hosts."""
    program = pathlib.Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-i", inventory, playbook, *arguments]
    environment = dict(
        os.environ,
        PATH=f"{program.parent}:{os.environ['PATH']}",
        ANSIBLE_CONFIG=str(REPOSITORY / "ansible.cfg"),
        ANSIBLE_COLLECTIONS_PATH=str(REPOSITORY / "build"),
        ANSIBLE_LOCALHOST_WARNING="false",
    )
    return cost(command, environment)


def cost(command: list, environment: dict) -> Cost:
    """Run a command; a failure ends the benchmark with the output's end."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=REPOSITORY)
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        if status:
            output.seek(0)
            sys.exit(output.read().decode()[-4000:])
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def recorded(tree: pathlib.Path) -> None:
    """Put a program into the tree that prints what its npu-smi says, in no time."""
    tool = tree / "usr/local/Ascend/driver/tools/npu-smi"
    lines = ["#!/bin/sh", 'case "$*" in']
    for words in QUESTIONS:
        text = subprocess.run([tool, *words], capture_output=True, text=True, check=True).stdout
        lines += [f'"{" ".join(words)}") printf %s {shlex.quote(text)} ;;']
    tool.write_text("\n".join([*lines, "*) exit 215 ;;", "esac"]) + "\n")


def fleet(folder: pathlib.Path, template: pathlib.Path, count: int, connection: dict) -> pathlib.Path:
    """Return the inventory of so many fresh hosts."""
    shutil.rmtree(folder, ignore_errors=True)
    hosts = {}
    for number in range(1, count + 1):
        root = folder / f"host{number:03}"
        shutil.copytree(template, root, symlinks=True)
        hosts[root.name] = {"npu_affinity_root": str(root)}
    inventory = folder / "inventory.yml"
    variables = {"ansible_python_interpreter": sys.executable, **connection}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}))
    return inventory


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


def sshd(folder: pathlib.Path) -> tuple[subprocess.Popen, dict] | None:
    """Start an sshd for this user, and return it with the variables of its hosts, or None without sshd."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return None
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    config = folder / "sshd_config"
    settings = {
        "Port": PORT,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": folder / "sshd.pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
        "MaxStartups": "300",
        "MaxSessions": "300",
    }
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    server = subprocess.Popen([program, "-D", "-f", config])
    arguments = f"-F /dev/null -i {folder / 'user'} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    variables = {"ansible_host": "127.0.0.1", "ansible_port": PORT, "ansible_user": getpass.getuser(), "ansible_ssh_common_args": arguments}
    return server, {"ansible_connection": "ssh", **variables}


def measure(folder: pathlib.Path, template: pathlib.Path, counts: list[int], looped: int, name: str, connection: dict) -> list[list[str]]:
    """Return the rows of one kind of connection."""
    setup = folder / "setup.yml"
    setup.write_text(yaml.safe_dump(SETUP))
    bind = REPOSITORY / "playbooks/bind.yml"
    rows = []
    for count in counts:
        hosts = folder / f"{name}-{count}"
        inventory = fleet(hosts, template, count, connection)
        play(inventory, setup)
        baseline = play(inventory, setup)
        costs = {"first": play(inventory, bind), "converged": play(inventory, bind), "check": play(inventory, bind, "--check", "--diff")}
        loops = ""
        if count <= looped:
            variables = by_hand(hosts)
            fresh = fleet(hosts, template, count, connection)
            first, second = (play(fresh, LOOPED, "-e", f"@{variables}") for _run in range(2))
            loops = f"{first.wall / costs['first'].wall:.0f}, {second.wall / costs['converged'].wall:.0f}"
        converged = costs["converged"]
        rows.append(
            [
                name,
                str(count),
                f"{baseline.wall:.1f} s / {baseline.cpu:.1f} s",
                *(f"{cost.wall / baseline.wall:.1f} / {cost.cpu / baseline.cpu:.1f}" for cost in costs.values()),
                f"{converged.wall / count:.2f} s / {converged.cpu / count:.2f} s",
                f"{converged.memory:.0f} MiB",
                loops,
            ]
        )
        print("  ".join(rows[-1]), flush=True)
        shutil.rmtree(hosts)
    return rows


HEAD = ["connection", "hosts", "`setup`", "first bind", "converged", "check", "converged, a host", "largest process", "loops"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="1,10,50,200")
    parser.add_argument("--connections", default="local,ssh")
    parser.add_argument("--looped", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = []
    print("  ".join(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        template = folder / "template"
        generate.generate(MACHINE, template)
        recorded(template)
        counts = [int(count) for count in given.hosts.split(",")]
        if "local" in given.connections:
            rows += measure(folder, template, counts, given.looped, "local", {"ansible_connection": "local"})
        if "ssh" in given.connections:
            started = sshd(folder)
            if started is None:
                print("ssh: there is no sshd on this machine; nothing is measured over ssh")
            else:
                try:
                    rows += measure(folder, template, counts, 0, "ssh", started[1])
                finally:
                    started[0].terminate()
    if given.write:
        page = REPOSITORY / "docs/performance.md"
        text = page.read_text()
        begin, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
        table = [HEAD, ["---"] * len(HEAD), *rows]
        page.write_text(text[:begin] + "".join(f"| {' | '.join(row)} |\n" for row in table) + text[end:])


if __name__ == "__main__":
    main()
