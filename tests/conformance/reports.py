# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines and situations of operators' reports: a folder for each.

A folder with ``machine.yml`` has a machine in the language of ``tests/simulator``, ``answers/<words joined by _>.txt`` with what npu-smi
prints for exactly these words, and ``tweak.py``, which changes the tree. Each machine is gathered, planned, bound, compared with its
state in force, and bound again; :data:`MACHINES` has what is right besides. A folder with ``case.json`` is in ``situations.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import yaml
from situations import SITUATIONS

from ansible_collections.npu.affinity.plugins.module_utils._base.table import rows
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import unknown_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import launch
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.fakes.bound import SETTINGS
from tests.fakes.programs import run_main
from tests.simulator.generate import generate

MODULES = "ansible_collections.npu.affinity.plugins.modules."
WANTED = {name: SETTINGS[name] for name in ("slices", "irq")}
WANTED["slices"] = {**WANTED["slices"], "services": []}


class Machine(NamedTuple):
    root: pathlib.Path
    topology: Any
    plan: Any


def devices_of_a_lost_card(host: Machine) -> None:
    assert [npu["device"]["number"] for npu in host.topology["npus"]] == [0, 2, 3, 4, 5, 6, 7]
    assert "--device=/dev/davinci3 " in launch(host.plan["npus"][2], "docker", topology=host.topology)
    assert rows(host.plan, host.topology)[3].split()[2:5] == ["3", "0", "davinci3"]


def numbers_of_npu_smi(host: Machine) -> None:
    sentence = str(unknown_npus("npu_affinity_services", "llm.service", [4], host.plan))
    assert "NPU 0 (NPU ID 4, chip 0), 1 (NPU ID 5, chip 0)" in sentence
    assert rows(host.plan, host.topology)[1].split()[2:4] == ["4", "0"]


MACHINES: Mapping[str, tuple[Mapping[str, Any], Callable[[Machine], None] | None]] = {
    "07": ({}, numbers_of_npu_smi),
    "34": ({}, devices_of_a_lost_card),
    "35": ({"min_cpus": 2}, None),
}
"""``{number of the folder: (options of the plan, check of what is right)}``."""


def cases(folder: pathlib.Path) -> Iterator[tuple[str, Callable[[], None]]]:
    for report in sorted(path for path in folder.iterdir() if path.is_dir()):
        if (report / "machine.yml").is_file():
            yield report.name, functools.partial(_machine, report)
        elif (report / "case.json").is_file():
            yield report.name, functools.partial(_situation, report)


def _situation(report: pathlib.Path) -> None:
    document = json.loads((report / "case.json").read_text())
    check = SITUATIONS.get("linux-" + document["case"])
    if check is None:
        pytest.skip("no adaptor gives this situation to the collection yet")
    check(document["given"], document["right"])


def _machine(report: pathlib.Path) -> None:
    options, check = MACHINES.get(report.name.partition("-")[0], ({}, None))
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        root = pathlib.Path(folder) / "host"
        _write(report, root)
        topology = gather(Host(str(root), timeout=60), others=True)
        made = plan(topology, **options)
        if check:
            check(Machine(root, topology, made))
        state = json.loads(json.dumps(of_plan(topology, made, WANTED)))
        assert _run("host_files", root=str(root), state=state)["changed"]
        assert _run("binding_info", root=str(root))["drift"] == []
        again = gather(Host(str(root), timeout=60), others=True)
        state = json.loads(json.dumps(of_plan(again, plan(again, **options), WANTED)))
        assert not _run("host_files", root=str(root), state=state)["changed"]


def _write(report: pathlib.Path, root: pathlib.Path) -> None:
    description = yaml.safe_load((report / "machine.yml").read_text())
    answers = {path.stem.replace("_", " "): {"text": path.read_text(), "status": 0} for path in (report / "answers").glob("*.txt")}
    faults = description.get("faults") or {}
    generate({**description, "faults": {**faults, "answers": {**answers, **faults.get("answers", {})}}}, root)
    if (report / "tweak.py").is_file():
        spec = importlib.util.spec_from_file_location("tweak", report / "tweak.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.tweak(root)


def _run(name: str, **arguments: Any) -> dict[str, Any]:
    done = run_main(MODULES + name, text=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    result = json.loads(done.stdout)
    assert not result.get("failed"), result
    return result
