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

from ansible_collections.npu.affinity.plugins.module_utils._features.threads.watching import Threads
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import PLAN
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.places import UNCHANGEABLE
from ansible_collections.npu.affinity.plugins.module_utils._state import lock
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import PATH

from tests.fakes.programs import run_main
from tests.fakes.states import a_state

from tests.simulator import generate as simulator

INJECTION = Path(__file__).parents[3] / "integration" / "injection"
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
    found = [str(INJECTION), *filter(None, [os.environ.get("PYTHONPATH")])]
    faults = {"ROOT": str(root), "COUNT": str(root.parent / "steps"), "HOW": "slow"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(found), **{"FAULT_" + name: value for name, value in faults.items()}}


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
    return [sys.executable, "-m", UTILS + "_command.main", name, "--root", str(root), *arguments], ""


def install_plan(root):
    (root / "etc/npu-affinity").mkdir(parents=True, exist_ok=True)
    (root / PLAN[1:]).write_text(json.dumps(BOUND))


def test_two_binds_at_once_lose_nothing_of_what_was_there_before(root):
    folder = root / "etc/systemd/system"
    paths = [f"/etc/systemd/system/npu-{number}.slice" for number in range(12)]
    for path in paths:
        (root / path[1:]).write_text(f"[Slice]\n# mine: {path}\n")
    files = [{"path": path, "content": "# Managed by npu.affinity\n[Slice]\n"} for path in paths]
    commands = [
        module("host_files", root=str(root), state=a_state(files=files[half::2], plan=BOUND, runtime=True, live={"irq": "fail"}))
        for half in (0, 1)
    ]
    at_once(commands, slowly(root))
    recorded = json.loads((root / PATH[1:]).read_text())
    assert sorted(recorded["files"]) == sorted(paths)
    assert sorted({key.split()[0] for key in recorded["irq"]}) == ADDRESSES
    assert [path.name for path in folder.glob(".npu-affinity-*")] == []


def test_eight_units_started_by_udev_at_once_lose_no_function(root):
    install_plan(root)
    at_once([program("irq", root, "--pci", pci) for pci in ADDRESSES], slowly(root))
    assert sorted(json.loads((root / UNCHANGEABLE[1:]).read_text())) == ADDRESSES
    assert sorted({key.split()[0] for key in json.loads((root / PATH[1:]).read_text())["irq"]}) == ADDRESSES


def test_an_unbind_between_units_leaves_nothing_bound(root, run_module):
    before = {path: path.read_text() for path in root.glob("proc/irq/*/smp_affinity_list")}
    install_plan(root)
    commands = [program("irq", root, "--pci", pci) for pci in ADDRESSES]
    at_once([*commands[:4], module("unbind", root=str(root)), *commands[4:]], slowly(root))
    assert not run_module("unbind", root=str(root)).get("failures")
    assert {path: path.read_text() for path in before} == before


CHANGING = [
    module("host_files", state=a_state()),
    module("unbind"),
    program("irq", "/"),
    program("device_share", "/"),
    program("metrics", "/"),
    program("tuning", "/"),
]


IDS = [" ".join([command[2].rpartition(".")[2], *command[3:4]]) for command, _arguments in CHANGING]


def run_below(root, command, arguments):
    """Run a module or program of the list on a tree; who waits for the lock waits shortly."""
    text = json.dumps({"ANSIBLE_MODULE_ARGS": {**json.loads(arguments)["ANSIBLE_MODULE_ARGS"], "root": str(root)}}) if arguments else ""
    words = [] if arguments else [command[3], "--root", str(root)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "LIMIT", 0.2)
        return run_main(command[2], *words, text=text)


def times(root):
    return {path: path.lstat().st_mtime_ns for path in root.rglob("*") if path.name != "run"}


@pytest.mark.parametrize(("command", "arguments"), CHANGING, ids=IDS)
def test_everything_that_changes_a_host_waits_for_its_turn(tmp_path, command, arguments):
    install_plan(tmp_path)
    before = times(tmp_path)
    with changing(Host(str(tmp_path)), "module bind_of_the_test"):
        done = run_below(tmp_path, command, arguments)
        said = f"module bind_of_the_test (process {os.getpid()}) since "
        assert (done.returncode, said in done.stdout) == (1, True), done.stdout + done.stderr
    assert times(tmp_path) == before


STRANGE = [
    ("a newer record", PATH, {"schema": 2}, "previous.json was written by a newer version of npu.affinity: it has schema 2, and "),
    ("an unknown section", PATH, {"later": {}}, "section 'later' cannot be restored"),
    ("another shape", PATH, {"files": []}, "section 'files' cannot be restored"),
    ("a newer plan", PLAN, {**BOUND, "schema": 2}, "plan.json was written by a newer version of npu.affinity: it has schema 2, and "),
]


@pytest.mark.parametrize(("command", "arguments"), CHANGING, ids=IDS)
@pytest.mark.parametrize(("path", "document", "sentence"), [case[1:] for case in STRANGE], ids=[case[0] for case in STRANGE])
def test_nothing_is_changed_on_a_host_that_another_version_bound(tmp_path, command, arguments, path, document, sentence):
    install_plan(tmp_path)
    (tmp_path / path[1:]).write_text(json.dumps(document))
    before = times(tmp_path)
    done = run_below(tmp_path, command, arguments)
    assert (done.returncode, sentence in done.stdout, "Traceback" in done.stderr) == (1, True, False), done.stdout + done.stderr
    assert times(tmp_path) == before


WRONG_PLANS = [
    ({"irq": 5}, "irq of NPU 0 is 5, which is not text"),
    ({"pool": "0-x"}, "pool of NPU 0: '0-x'"),
    ({"id": "0"}, "has the id '0', which is not a number"),
    ({"slice": "npu-0.slice\n"}, "which is not a name of a slice"),
    ({"pci": ["0000:c1:00.0"]}, "pci of NPU 0 is ['0000:c1:00.0'], which is not text"),
]


@pytest.mark.parametrize(("entry", "sentence"), WRONG_PLANS)
def test_a_malformed_plan_is_reported_by_programs(tmp_path, entry, sentence):
    plan = {"npus": [{**BOUND["npus"][0], **entry}]}
    install_plan(tmp_path)
    (tmp_path / PLAN[1:]).write_text(json.dumps(plan))
    done = run_below(tmp_path, *program("irq", "/"))
    assert (done.returncode, sentence in done.stdout) == (1, True), done.stdout + done.stderr


def test_malformed_settings_are_reported_by_their_programs(tmp_path, capsys):
    install_plan(tmp_path)
    (tmp_path / "etc/npu-affinity/tuning.json").write_text('{"swappiness": [0]}')
    (tmp_path / "etc/npu-affinity/threads.json").write_text('{"processes": 5}')
    (tmp_path / "etc/npu-affinity/metrics.json").write_text('{"textfile": "npu.prom"}')
    for name in ("tuning", "metrics"):
        done = run_below(tmp_path, *program(name, "/"))
        assert (done.returncode, f"is not what role {name} writes" in done.stdout) == (1, True), done.stdout + done.stderr
    assert Threads(Host(str(tmp_path))).look(), "the watcher stays"
    assert "is not what role threads writes" in capsys.readouterr().out
