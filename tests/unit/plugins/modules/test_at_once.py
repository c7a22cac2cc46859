# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules and boot programs that run on one simulated host at the same time, each in a process of its own."""

import contextlib
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
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.feature import UNCHANGEABLE
from ansible_collections.npu.affinity.plugins.module_utils._state import lock
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._state.previous import PATH

from tests.fakes.programs import run_main
from tests.fakes.states import a_state
from tests.fakes.small_host import host_with

from tests.simulator import generate as simulator

INJECTION = Path(__file__).parents[3] / "integration" / "injection"
UTILS = "ansible_collections.npu.affinity.plugins.module_utils."
ADDRESSES = ["0000:%02x:00.0" % (0xC1 + number) for number in range(8)]
CARDS = [{"npu": number, "bdf": pci, "node": number // 4} for number, pci in enumerate(ADDRESSES)]
MACHINE = {**host_with(CARDS, managed=["cq_update_irq"]), "cpus": {"per_node": 32}}
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
    text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    return [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules." + name], text


def program(name, root, *arguments):
    return [sys.executable, "-m", UTILS + "_command.main", name, "--root", str(root), *arguments], ""


def install(root, documents=()):
    """Write the plan, and documents by their paths."""
    for path, document in {PLAN: BOUND, **dict(documents)}.items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text(json.dumps(document))


def test_two_binds_at_once_lose_nothing_of_what_was_there_before(root):
    folder = root / "etc/systemd/system"
    paths = [f"/etc/systemd/system/npu-{number}.slice" for number in range(12)]
    for path in paths:
        (root / path[1:]).write_text(f"[Slice]\n# mine: {path}\n")
    files = [{"path": path, "content": "# Managed by npu.affinity\n[Slice]\n"} for path in paths]
    states = [a_state(files=files[half::2], plan=BOUND, runtime=True, live={"irq": "fail"}) for half in (0, 1)]
    at_once([module("host_files", root=str(root), state=state) for state in states], slowly(root))
    recorded = json.loads((root / PATH[1:]).read_text())
    assert sorted(recorded["files"]) == sorted(paths)
    assert sorted({key.split()[0] for key in recorded["irq"]}) == ADDRESSES
    assert [path.name for path in folder.glob(".npu-affinity-*")] == []


def test_eight_units_started_by_udev_at_once_lose_no_function(root):
    install(root)
    at_once([program("irq", root, "--pci", pci) for pci in ADDRESSES], slowly(root))
    assert sorted(json.loads((root / UNCHANGEABLE[1:]).read_text())) == ADDRESSES
    assert sorted({key.split()[0] for key in json.loads((root / PATH[1:]).read_text())["irq"]}) == ADDRESSES


def test_an_unbind_between_units_leaves_nothing_bound(root, run_module):
    before = {path: path.read_text() for path in root.glob("proc/irq/*/smp_affinity_list")}
    install(root)
    commands = [program("irq", root, "--pci", pci) for pci in ADDRESSES]
    at_once([*commands[:4], module("unbind", root=str(root)), *commands[4:]], slowly(root))
    assert not run_module("unbind", root=str(root)).get("failures")
    assert {path: path.read_text() for path in before} == before


CHANGING = {"host_files": {"state": a_state()}, "unbind": {}, "irq": None, "device_share": None, "metrics": None, "tuning": None}
"""What changes a host: arguments of a module, or None for a program."""


def run_below(root, name):
    """Run a module or a program on a tree; who waits for the lock waits shortly."""
    asked = CHANGING[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "LIMIT", 0.2)
        if asked is None:
            return run_main(UTILS + "_command.main", name, "--root", str(root))
        return run_main(*module(name, root=str(root), **asked)[0][2:], text=module(name, root=str(root), **asked)[1])


FIRST, NEWER = BOUND["npus"][0], "was written by a newer version of npu.affinity: it has schema 2, and "
HINDRANCES = {  # the document that is in the way, if any, and what is said of it
    "another change": (PLAN, BOUND, "module bind_of_the_test (process "),
    "a newer record": (PATH, {"schema": 2}, f"previous.json {NEWER}"),
    "an unknown section": (PATH, {"later": {}}, "section 'later' cannot be restored"),
    "another shape": (PATH, {"files": []}, "section 'files' cannot be restored"),
    "a newer plan": (PLAN, {**BOUND, "schema": 2}, f"plan.json {NEWER}"),
}
WRONG = [
    ("tuning", "/etc/npu-affinity/tuning.json", {"swappiness": [0]}, "is not what role tuning writes"),
    ("metrics", "/etc/npu-affinity/metrics.json", {"textfile": "npu.prom"}, "is not what role metrics writes"),
    ("irq", PLAN, {"npus": [{**FIRST, "irq": 5}]}, "irq of NPU 0 is 5, which is not text"),
    ("irq", PLAN, {"npus": [{**FIRST, "pool": "0-x"}]}, "pool of NPU 0: '0-x'"),
    ("irq", PLAN, {"npus": [{**FIRST, "id": "0"}]}, "has the id '0', which is not a number"),
    ("irq", PLAN, {"npus": [{**FIRST, "slice": "npu-0.slice\n"}]}, "which is not a name of a slice"),
    ("irq", PLAN, {"npus": [{**FIRST, "pci": ["0000:c1:00.0"]}]}, "pci of NPU 0 is ['0000:c1:00.0'], which is not text"),
]


@pytest.mark.parametrize("name, path, document, sentence", [*((name, *row) for row in HINDRANCES.values() for name in CHANGING), *WRONG])
def test_what_stops_everything_that_changes_a_host_is_said(tmp_path, name, path, document, sentence):
    """Another change under way, what another version left, and documents of another shape."""
    install(tmp_path, {path: document})

    def times():
        return {place: place.lstat().st_mtime_ns for place in tmp_path.rglob("*") if place.name not in ("run", "npu-affinity.lock")}

    before = times()
    held = changing(Host(str(tmp_path)), "module bind_of_the_test") if "bind_of_the_test" in sentence else contextlib.nullcontext()
    with held:
        done = run_below(tmp_path, name)
    assert (done.returncode, sentence in done.stdout, "Traceback" in done.stderr) == (1, True, False), done.stdout + done.stderr
    assert times() == before


def test_malformed_settings_are_reported_by_the_watcher(tmp_path, capsys):
    install(tmp_path, {"/etc/npu-affinity/threads.json": {"processes": 5}})
    assert Threads(Host(str(tmp_path))).look(), "the watcher stays"
    assert "is not what role threads writes" in capsys.readouterr().out
