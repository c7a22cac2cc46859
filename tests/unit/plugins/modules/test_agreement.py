# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook verify, the command on the host, the metrics and the report give one answer on how a host differs from its state in force."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._command.metrics import writing
from ansible_collections.npu.affinity.plugins.module_utils._command.program import main
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import record
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from tests.fakes.bound import MACHINE, SETTINGS, TEXTFILE, state_of
from tests.simulator import generate as simulator
from tests.fakes.changes import work_outside
from tests.simulator.driver import NPU_SMI

SLICE, PLAN, SWAPPINESS = "etc/systemd/system/npu-0.slice", "etc/npu-affinity/plan.json", "proc/sys/vm/swappiness"
TIMER = "etc/systemd/system/timers.target.wants/npu-affinity-irq.timer"
FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"
DRIFTED = re.compile(r'npu_affinity_drifted_objects\{cause="[^"]*",code="(\w+)"\} ([1-9]\d*)')
OUTSIDE = re.compile(r"npu_affinity_unconfined_processes\{.*\} (\d+)")


@pytest.fixture(scope="module")
def bound(run_module, tmp_path_factory):
    """Simulated hosts that were bound to both cards, to the first alone before the second one was there, and to both
    with an npu-smi that only the settings know."""
    found = {}
    for name, without in (("both", None), ("first", SECOND), ("named", None)):
        root = tmp_path_factory.mktemp(name)
        simulator.generate(MACHINE, root)
        (root / TEXTFILE[1:]).parent.mkdir(parents=True)
        (root / SWAPPINESS).parent.mkdir(parents=True, exist_ok=True)
        (root / SWAPPINESS).write_text("60\n")
        npu_smi = elsewhere(root, tmp_path_factory.mktemp("tools")) if name == "named" else None
        topology = gather(Host(str(root)), npu_smi=npu_smi)
        made = plan({**topology, "npus": [npu for npu in topology["npus"] if npu["pci"] != without]})
        shared = {"device_share": {**SETTINGS["device_share"], "enabled": True, "npu_smi": npu_smi}} if npu_smi else {}
        state = json.loads(json.dumps(of_plan(topology, made, SETTINGS | shared)))
        state |= {"npu_smi": npu_smi} if npu_smi else {}
        assert run_module("host_files", root=str(root), state=state)["changed"]
        found[name] = root, npu_smi
    return found


def elsewhere(root, tools):
    """Move npu-smi out of the folders in which it is searched, and return its path."""
    simulator.generate(MACHINE, tools)
    (root / NPU_SMI[1:]).unlink()
    return str(tools / NPU_SMI[1:])


def edit_the_slice(root):
    (root / SLICE).write_text((root / SLICE).read_text().replace("0-15", "0-7"))


def move_an_interrupt(root):
    names = {line.split(":")[0].strip(): line.split()[-1] for line in (root / "proc/interrupts").read_text().splitlines()[1:]}
    irq = next(irq for irq in names if names[irq] == CQ and (root / f"sys/bus/pci/devices/{FIRST}/msi_irqs/{irq}").exists())
    (root / f"proc/irq/{irq}/smp_affinity_list").write_text("15\n")


def edit_the_plan(root):
    (root / PLAN).write_text((root / PLAN).read_text().replace('"0-15"', '"0-13"', 1))


def several(root):
    for happen in (edit_the_slice, move_an_interrupt, work_outside):
        happen(root)


def nothing(_root):
    """Leave the host as it was bound."""


CASES = {
    "as it was bound": ("both", nothing, [], 0),
    "slice edited": ("both", edit_the_slice, ["NPU_FILE_CHANGED"], 0),
    "interrupt moved": ("both", move_an_interrupt, ["NPU_IRQBALANCE_ACTIVE"], 0),
    "work outside its pool": ("both", work_outside, [], 1),
    "several at once": ("both", several, ["NPU_FILE_CHANGED", "NPU_IRQBALANCE_ACTIVE"], 1),
    "plan edited": ("both", edit_the_plan, ["NPU_PLAN_CHANGED"], 0),
    "timer disabled": ("both", lambda root: (root / TIMER).unlink(), ["NPU_UNIT_CHANGED"], 0),
    "setting changed": ("both", lambda root: (root / SWAPPINESS).write_text("60\n"), ["NPU_TUNING_CHANGED"], 0),
    "card lost": ("both", lambda root: (root / f"sys/bus/pci/devices/{SECOND}").unlink(), ["NPU_CARD_LOST"], 0),
    "npu-smi at a path of its own": ("named", nothing, [], 0),
    "card added": ("first", nothing, ["NPU_CARD_NEW"], 0),
}


@pytest.mark.parametrize(("name", "happen", "codes", "outside"), CASES.values(), ids=CASES)
def test_everyone_gives_the_same_answer(bound, run_module, tmp_path, capsys, name, happen, codes, outside):
    root = tmp_path / "host"
    source, npu_smi = bound[name]
    shutil.copytree(source, root, symlinks=True)
    happen(root)
    topology = gather(Host(str(root)), npu_smi=npu_smi)
    given = {"npus": topology["npus"], "users": topology["users"]}
    verified = run_module("binding_info", root=str(root), topology=given, desired=state_of(topology, "threads"))
    assert "feature threads: present -> absent" in verified["changes"], "what a bind would change is no drift"
    found = sorted((entry["code"], entry["object"]) for entry in verified["drift"])
    assert ([code for code, _object in found], len(verified["outside"])) == (codes, outside)

    status = main(["--root", str(root), "verify", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert sorted((entry["code"], entry["object"]) for entry in told["drift"]) == found and told["drift"] == verified["drift"]
    assert told["outside"] == verified["outside"]
    assert told["checked"] == verified["checked"]
    assert status == (3 if codes else 6 if outside else 0)

    (shown,) = fleet([record("host", {"__npu_affinity_verified": verified, "npu_affinity_topology": topology})])["hosts"]
    assert sorted((entry["code"], entry["object"]) for entry in shown["drift"]) == found
    assert (shown["state"], shown["compared"]) == (told["state"], sum(map(len, verified["checked"].values())))

    assert writing.main(["--root", str(root)]) == 0
    text = (root / TEXTFILE[1:]).read_text()
    assert {code: int(number) for code, number in DRIFTED.findall(text)} == Counter(codes)
    assert sum(map(int, OUTSIDE.findall(text))) == outside
