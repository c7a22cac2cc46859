# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules and boot programs that run on one simulated host at the same time, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import Host
from ansible_collections.npu.affinity.plugins.module_utils._irq import MEMORY, PLAN
from ansible_collections.npu.affinity.plugins.module_utils._lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._previous import PATH

simulator = pytest.importorskip("tests.simulator.generate")

STUMBLE = Path(__file__).parents[3] / "integration" / "stumble"
UTILS = "ansible_collections.npu.affinity.plugins.module_utils."
ADDRESSES = ["0000:%02x:00.0" % (0xC1 + number) for number in range(8)]
MACHINE = {
    "cpus": {"per_node": 32},
    "nodes": {"count": 2},
    "npus": {
        "family": "a2",
        "name": "910B3",
        "memory_mib": 65536,
        "managed": ["cq_update_irq"],
        "cards": [{"npu": number, "bdf": pci, "node": number // 4} for number, pci in enumerate(ADDRESSES)],
    },
}
BOUND = {
    "schema": 1,
    "npus": [
        {"id": number, "pci": pci, "pool": "%d-%d" % (8 * number, 8 * number + 7), "irq": "%d-%d" % (8 * number, 8 * number + 1)}
        for number, pci in enumerate(ADDRESSES)
    ],
}


@pytest.fixture
def root(tmp_path):
    simulator.generate(MACHINE, tmp_path / "host")
    return tmp_path / "host"


def slowly(root):
    """The environment of a module that waits before each of its steps."""
    found = [str(STUMBLE), *filter(None, [os.environ.get("PYTHONPATH")])]
    stumble = {"ROOT": str(root), "COUNT": str(root.parent / "steps"), "HOW": "slow"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found), **{"STUMBLE_" + name: value for name, value in stumble.items()}}


def at_once(commands, environment):
    """Run ``(command, standard input)`` pairs at the same time and return what each said."""

    def run(command):
        done = subprocess.run(command[0], input=command[1], env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))


def module(name, **arguments):
    return [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules." + name], json.dumps(
        {"ANSIBLE_MODULE_ARGS": arguments}
    )


def program(name, root, *arguments):
    return [sys.executable, "-m", UTILS + name, "--root", str(root), *arguments], ""


def install_plan(root):
    (root / "etc/npu-affinity").mkdir(parents=True, exist_ok=True)
    (root / PLAN[1:]).write_text(json.dumps(BOUND))


def test_two_binds_at_once_lose_nothing_of_what_was_there_before(root):
    folder = root / "etc/systemd/system"
    paths = [f"/etc/systemd/system/npu-{number}.slice" for number in range(12)]
    for path in paths:
        (root / path[1:]).write_text(f"[Slice]\n# mine: {path}\n")
    files = [{"path": path, "content": "# Managed by npu.affinity\n[Slice]\n"} for path in paths]
    commands = [module("host_files", root=str(root), files=files[half::2], interrupts=BOUND) for half in (0, 1)]
    at_once(commands, slowly(root))
    recorded = json.loads((root / PATH[1:]).read_text())
    assert sorted(recorded["files"]) == sorted(paths)
    assert sorted(recorded["interrupts"]["functions"]) == ADDRESSES
    assert [path.name for path in folder.glob(".npu-affinity-*")] == []


def test_the_units_that_udev_starts_for_eight_functions_at_once_forget_none(root):
    install_plan(root)
    at_once([program("_irq", root, "--pci", pci) for pci in ADDRESSES], slowly(root))
    assert sorted(json.loads((root / MEMORY[1:]).read_text())) == ADDRESSES
    assert sorted(json.loads((root / PATH[1:]).read_text())["interrupts"]["functions"]) == ADDRESSES


def test_an_unbind_between_units_leaves_nothing_bound(root, run_module):
    before = {path: path.read_text() for path in root.glob("proc/irq/*/smp_affinity_list")}
    install_plan(root)
    commands = [program("_irq", root, "--pci", pci) for pci in ADDRESSES]
    at_once([*commands[:4], module("unbind", root=str(root)), *commands[4:]], slowly(root))
    assert not run_module("unbind", root=str(root)).get("failures")
    assert {path: path.read_text() for path in before} == before


CONTENT = "# Managed by npu.affinity\ncpuManagerPolicy: static\n"
CHANGING = [
    module("host_files"),
    module("irq_affinity", plan=BOUND),
    module("process_affinity", plan=BOUND),
    module("device_share", enabled=True),
    module("vnpu_layout"),
    module("kubelet_config", path="/etc/kubernetes/kubelet.conf.d/50-npu-affinity.conf", content=CONTENT, apply=True),
    module("unbind"),
    program("_irq", "/"),
    program("_processes", "/"),
    program("_device_share", "/"),
    program("_tuning", "/"),
]


@pytest.mark.parametrize(("command", "arguments"), CHANGING, ids=[command[2].rpartition(".")[2] for command, _arguments in CHANGING])
def test_everything_that_changes_a_host_waits_for_its_turn(tmp_path, command, arguments):
    root = tmp_path
    install_plan(root)
    if arguments:
        values = json.loads(arguments)
        values["ANSIBLE_MODULE_ARGS"]["root"] = str(root)
        arguments, words = json.dumps(values), [command[2]]
    else:
        words = [command[2], "--root", str(root)]
    impatient = f"import runpy, sys; from {UTILS[:-1]} import _lock; _lock.LIMIT = 0.2; sys.argv = {words}"
    code = f"{impatient}; runpy.run_module(sys.argv[0], None, '__main__')"
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*") if path.name != "run"}
    with changing(Host(str(root)), "module bind_of_the_test"):
        done = subprocess.run([sys.executable, "-c", code], input=arguments, capture_output=True, text=True, timeout=60, check=False)
        said = f"module bind_of_the_test (process {os.getpid()}) since "
        assert (done.returncode, said in done.stdout) == (1, True), done.stdout + done.stderr
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*") if path.name != "run"} == before
