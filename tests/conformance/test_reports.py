# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators' reports through the playbooks. All hosts of all reports are one fleet, over which each playbook runs once.

A folder with ``machine.yml`` has a machine in the language of ``tests/simulator``, ``answers/<words joined by _>.txt`` with what npu-smi
prints for exactly these words, ``tweak.py``, which changes the tree, and ``<name>-vars.yml`` with variables of a host of its own. A folder
with ``case.json`` has a situation, which ``situations.py`` describes as machines.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from situations import SITUATIONS, Change, Described, Played, play

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from tests.fakes.small_host import interrupt, write
from tests.integration import controller


class Report:
    """``hosts`` of a folder by name; ``check`` is called with the fleet once the playbooks have run, or ``skip`` says why there is none."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.hosts: dict[str, Described] = {}
        self.check: Callable[[Played], None] = lambda played: None
        self.skip = ""
        if (folder / "machine.yml").is_file():
            self._of_machine()
        else:
            self._of_situation(json.loads((folder / "case.json").read_text()))

    def _of_machine(self) -> None:
        number = self.folder.name.partition("-")[0]
        machine = yaml.safe_load((self.folder / "machine.yml").read_text())
        answers = {path.stem.replace("_", " "): {"text": path.read_text(), "status": 0} for path in self.folder.glob("answers/*.txt")}
        faults = machine.get("faults") or {}
        machine["faults"] = {**faults, "answers": {**answers, **faults.get("answers", {})}}
        if number not in MACHINES:
            self.skip = "no adaptor knows what is right on this machine"
            return
        check, happens = MACHINES[number]
        self.check = functools.partial(check, folder=self.folder)
        self.hosts[f"c{number}"] = Described(machine, {}, self._tweak(), happens)
        for path in self.folder.glob("*-vars.yml"):
            given = yaml.safe_load(path.read_text())
            own = {**machine, "soft_split": True} if "npu_affinity_vnpu_enabled" in given else machine
            self.hosts[f"c{number}-{path.stem.removesuffix('-vars')}"] = Described(own, given, self._tweak())

    def _tweak(self) -> Change | None:
        path = self.folder / "tweak.py"
        if not path.is_file():
            return None
        spec = importlib.util.spec_from_file_location("tweak", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.tweak

    def _of_situation(self, document: Mapping[str, Any]) -> None:
        situation = SITUATIONS.get(document["case"], "no adaptor gives this situation to the collection yet")
        if isinstance(situation, str):
            self.skip = situation
            return
        hosts, check = situation
        name, given, right = f"l{document['case']}", document["given"], document["right"]
        self.hosts = {f"{name}-{end}" if end else name: host for end, host in hosts(given).items()}
        self.check = functools.partial(check, name=name, given=given, right=right)


def _shown(played: Played, folder: pathlib.Path, playbook: str, host: str) -> str:
    """What the debug tasks of a report's own playbook show."""
    run = played.fleet.succeed(str(folder / f"{playbook}.yml"), "--limit", host)
    results = [result for entry in run.results for result in entry["result"].get("results", [entry["result"]])]
    return "\n".join(str(result["msg"]) for result in results if "msg" in result)


def whole_cores_of_the_own_socket(played: Played, folder: pathlib.Path) -> None:
    sockets = [set(expand("0-95,192-287")), set(expand("96-191,288-383"))]
    for number, pool in played.pools("c01").items():
        cpus = set(expand(pool))
        assert len(cpus) == 48 and cpus <= sockets[int(number) // 4] and all((cpu + 192) % 384 in cpus for cpu in cpus)
    compared = _shown(played, folder, "compare", "c01")
    (best,) = re.findall(r"auto \(even_split\), published +(\d+) +(\d+) +(\d+%) +(\d+%) +10 +\d+ +0 +(\d+) +(\d+)", compared)
    assert best == ("0", "0", "100%", "100%", "48", "0"), compared


def advice_of_poll_threads(played: Played, folder: pathlib.Path) -> None:
    said = "\n".join(played.bound.summary["hosts"]["c04"]["remarks"])
    assert len(played.pools("c04")) == 7 and f"use strategy {played.plan('c04')['strategy']}" not in said
    assert "NPU_POLL_SHARED" not in said, "x86 hosts with PCIe cards have no such threads"


def both_numbers(played: Played, folder: pathlib.Path) -> None:
    assert "0 910B3 4 0 0000:06:00.0" in played.shown("c07")
    for run in (played.planned, played.bound, played.again):
        (reason,) = run.summary["hosts"]["c07-service"]["reasons"]
        assert "wants NPU 4" in reason and "NPU 0 (NPU ID 4, chip 0), 1 (NPU ID 5, chip 0)" in reason


def moved_by_a_script(tree: pathlib.Path) -> None:
    """The bind restarted irqbalance, which a simulated host does not; then the script ran."""
    (policy,) = re.findall(r"--policyscript=[^\s\"']+", (tree / "etc/npu-affinity/irqbalance.env").read_text())
    write(tree, "/proc/901/cmdline", f"irqbalance\0{policy}\0")
    for name in ("sq_send_trigger_irq", "cq_update_irq"):
        write(tree, interrupt(tree, name, 0), "3\n")


def nobody_is_blamed(played: Played, folder: pathlib.Path) -> None:
    moved = [line for line in played.found("c22") if "_irq" in line]
    assert moved and not any("irqbalance" in line.partition("likely")[2] for line in moved)
    assert any(command in " ".join(moved) for command in ("auditctl", "bpftrace"))


def devices_of_a_lost_card(played: Played, folder: pathlib.Path) -> None:
    docker, others = (_shown(played, folder, name, "c34") for name in ("launch", "launch-others"))
    assert "logic 2 pci 0000:82:00.0 pool 120-143" in docker
    assert re.findall(r"--device=/dev/davinci(\d+)|ASCEND_VISIBLE_DEVICES=(\d+)", docker) == [("2", ""), ("3", ""), ("", "2")]
    passed = re.findall(r"/dev/davinci(\d+)", others.partition("# slurm.conf")[0])
    assert len(passed) >= 5 and set(passed) == {"3"}, others
    assert re.findall(r"File=/dev/davinci(\d) Cores=(\S+)", others)[1:3] == [("2", "96-119"), ("3", "120-143")]
    assert "ASCEND_VISIBLE_DEVICES=3\n" in played.file("c34-vnpu", "/etc/npu-affinity/vnpu/a.env")


def a_board_of_four_cpus(played: Played, folder: pathlib.Path) -> None:
    (entry,) = played.plan("c35-min-cpus")["npus"]
    assert entry["irq"] == "" and 2 <= len(expand(entry["pool"])) <= 4
    (reason,) = played.bound.summary["hosts"]["c35"]["reasons"]
    assert "[NPU_TOO_FEW_CPUS]" in reason and "npu_affinity_min_cpus" in reason


def nodes_that_nobody_tells(played: Played, folder: pathlib.Path) -> None:
    made = played.plan("c37")
    assert [len(expand(entry["pool"])) for entry in made["npus"]] == [40] * 8
    assert {cpu // 80 for pool in played.pools("c37").values() for cpu in expand(pool)} == {0, 1, 2, 3}
    assert {entry["memory_nodes"] for entry in made["npus"]} == {""}
    assert (made["quality"]["local"], made["quality"]["own_node"], made["quality"]["remote"]) == (None, None, None)
    assert "share of local CPUs not known" in played.shown("c37") and "100%" not in played.shown("c37")


MACHINES: Mapping[str, tuple[Callable[..., None], Change | None]] = {
    "01": (whole_cores_of_the_own_socket, None),
    "04": (advice_of_poll_threads, None),
    "07": (both_numbers, None),
    "22": (nobody_is_blamed, moved_by_a_script),
    "34": (devices_of_a_lost_card, None),
    "35": (a_board_of_four_cpus, None),
    "37": (nodes_that_nobody_tells, None),
}
"""``{number of the folder: (check, what happens to the host once it is bound)}``."""


@functools.cache
def _reports(shared):
    if shared is None or not (shared / "cases/reports").is_dir():
        return {}
    folders = sorted({path.parent for name in ("machine.yml", "case.json") for path in shared.glob(f"cases/reports/*/{name}")})
    return {folder.name: Report(folder) for folder in folders}


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", _reports(metafunc.config.getoption("--shared")))


@pytest.fixture(scope="module")
def played(request, tmp_path_factory):
    found = _reports(request.config.getoption("--shared")).values()
    yield play(tmp_path_factory.mktemp("reports"), {name: host for report in found for name, host in report.hosts.items()})
    controller.close()


def test_report(name, played, request):
    report = _reports(request.config.getoption("--shared"))[name]
    if report.skip:
        pytest.skip(report.skip)
    report.check(played)
    refused = {host for host in report.hosts if played.bound.summary["hosts"][host]["state"] in ("refused", "nothing to bind")}
    changed = {name for name, host in report.hosts.items() if host.happens}
    for host in report.hosts.keys() - refused - changed:
        assert played.verified.summary["hosts"][host]["state"] in ("as bound", "bound, workloads not")
        assert played.again.summary["hosts"][host]["state"] == "unchanged" and not played.again.changed(host)
