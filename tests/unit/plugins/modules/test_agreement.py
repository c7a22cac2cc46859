# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook verify, the command on the host, the metrics and the report give one answer on how a host differs from its state in force."""

import json
import re
import shutil
from collections import Counter

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._command import metrics
from ansible_collections.npu.affinity.plugins.module_utils._command.program import main
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import record
from ansible_collections.npu.affinity.plugins.plugin_utils._report.records import fleet
from tests.fakes.bound import SETTINGS, TEXTFILE, host_in, state_of
from tests.fakes.changes import move_an_interrupt, work_outside
from tests.simulator.driver import NPU_SMI

SLICE, PLAN, SWAPPINESS = "etc/systemd/system/npu-0.slice", "etc/npu-affinity/plan.json", "proc/sys/vm/swappiness"
TIMER = "etc/systemd/system/timers.target.wants/npu-affinity-irq.timer"
FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"
DRIFTED = re.compile(r'npu_affinity_drifted_objects\{cause="[^"]*",code="(\w+)"\} ([1-9]\d*)')
OUTSIDE = re.compile(r"npu_affinity_unconfined_processes\{.*\} (\d+)")


@pytest.fixture(scope="module")
def bound(run_module, tmp_path_factory):
    """Simulated hosts that were bound to both cards, to the first alone before the second one was there, and to both with an npu-smi that
    only the settings know."""
    found = {}
    for name, cards in (("both", 2), ("first", 1), ("named", 2)):
        root, npu_smi, settings = host_in(tmp_path_factory.mktemp(name)), None, SETTINGS
        if name == "named":
            (root / NPU_SMI[1:]).unlink()
            npu_smi = str(host_in(tmp_path_factory.mktemp("tools")) / NPU_SMI[1:])
            settings = {**SETTINGS, "device_share": {**SETTINGS["device_share"], "enabled": True, "npu_smi": npu_smi}}
        topology = gather(Host(str(root)), npu_smi=npu_smi)
        state = of_plan(topology, plan({**topology, "npus": topology["npus"][:cards]}), settings)
        state |= {"npu_smi": npu_smi} if npu_smi else {}
        assert run_module("host_files", root=str(root), state=json.loads(json.dumps(state)))["changed"]
        found[name] = root, npu_smi
    return found


def edit(root, path=SLICE):
    (root / path).write_text((root / path).read_text().replace("0-15", "0-7", 1))


def several(root):
    edit(root)
    move_an_interrupt(root, FIRST)
    work_outside(root)


CASES = {
    "as it was bound": ("both", None, [], 0),
    "slice edited": ("both", edit, ["NPU_FILE_CHANGED"], 0),
    "interrupt moved": ("both", lambda root: move_an_interrupt(root, FIRST), ["NPU_IRQBALANCE_ACTIVE"], 0),
    "work outside its pool": ("both", work_outside, [], 1),
    "several at once": ("both", several, ["NPU_FILE_CHANGED", "NPU_IRQBALANCE_ACTIVE"], 1),
    "plan edited": ("both", lambda root: edit(root, PLAN), ["NPU_PLAN_CHANGED"], 0),
    "timer disabled": ("both", lambda root: (root / TIMER).unlink(), ["NPU_UNIT_CHANGED"], 0),
    "setting changed": ("both", lambda root: (root / SWAPPINESS).write_text("60\n"), ["NPU_TUNING_CHANGED"], 0),
    "card lost": ("both", lambda root: (root / f"sys/bus/pci/devices/{SECOND}").unlink(), ["NPU_CARD_LOST"], 0),
    "npu-smi at a path of its own": ("named", None, [], 0),
    "card added": ("first", None, ["NPU_CARD_NEW"], 0),
}


@pytest.mark.parametrize("name, happen, codes, outside", CASES.values(), ids=CASES)
def test_everyone_gives_the_same_answer(bound, run_module, tmp_path, capsys, name, happen, codes, outside):
    root = tmp_path / "host"
    source, npu_smi = bound[name]
    shutil.copytree(source, root, symlinks=True)
    happen and happen(root)
    topology = gather(Host(str(root)), npu_smi=npu_smi)
    given = {"npus": topology["npus"], "users": topology["users"]}
    verified = run_module("binding_info", root=str(root), topology=given, desired=state_of(topology, "threads"))
    assert "feature threads: on -> off" in verified["changes"], "what a bind would change is no drift"
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

    assert metrics.main(["--root", str(root)]) == 0
    text = (root / TEXTFILE[1:]).read_text()
    assert {code: int(number) for code, number in DRIFTED.findall(text)} == Counter(codes)
    assert sum(map(int, OUTSIDE.findall(text))) == outside
    numbers = [int(re.search(rf"npu_affinity_{name}_npus (\d+)", text)[1]) for name in ("lost", "new")]
    assert numbers == [codes.count("NPU_CARD_LOST"), codes.count("NPU_CARD_NEW")]
