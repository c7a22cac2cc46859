# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hard vNPUs from the settings to the driver, over a reboot, and back."""

from __future__ import annotations

import subprocess

from tests.fakes.small_host import UNITS
from tests.fakes.two_cards import two_cards
from tests.simulator.driver import NPU_SMI
from tests.simulator.reboot import reboot, start_units

VNPUS = [{"npu": 1, "template": "vir05_1c_16g", "name": "a"}, {"npu": 1, "template": "vir10_3c_32g", "unit": "infer.service"}]
UNIT, CONFIG = "npu-affinity-hard-vnpu.service", "etc/vnpu.cfg"


def npu_smi(tree, words, **options):
    return subprocess.run([f"{tree}{NPU_SMI}", *words.split()], capture_output=True, text=True, check=True, **options).stdout


def listed(tree, card=1):
    rows = [line.strip("|").split("|") for line in npu_smi(tree, f"info -t info-vnpu -i {card} -c 0").splitlines()]
    return {int(row[0]): row[4].strip() for row in rows if len(row) == 5 and row[0].strip().isdigit()}


def test_hard_vnpus_are_made_kept_over_a_reboot_and_removed(fleet):
    """On one host the driver restores them. On the other one it does not, and the unit does."""
    hosts = fleet(driver=two_cards(0, 1), unit=two_cards(0, 1))
    trees = {name: hosts.tree(name) for name in ("driver", "unit")}
    npu_smi(trees["unit"], "set -t vnpu-cfg-recover -d 0")
    npu_smi(trees["unit"], "set -t vnpu-mode -d 1")
    variables = {"npu_affinity_vnpus": VNPUS}
    wanted = {116: "vir05_1c_16g", 117: "vir10_3c_32g"}

    predicted = hosts.succeed("bind", "--check", "--diff", **variables)
    assert all(listed(tree) == {} for tree in trees.values())
    done = hosts.succeed("bind", "--diff", **variables)
    line = "  ~ hard vNPUs of NPU ID 1, chip 0: none -> 116 vir05_1c_16g, 117 vir10_3c_32g"
    for name, tree in trees.items():
        assert line in predicted.diff(name) and line in done.diff(name)
        assert listed(tree) == wanted
        assert "AllowedCPUs=18-20\n" in (tree / UNITS[1:] / "npu-1-a.slice").read_text()
        assert "AllowedCPUs=21-27\n" in (tree / UNITS[1:] / "npu-1-vnpu_1.slice").read_text()
        assert "Slice=npu-1-vnpu_1.slice" in (tree / UNITS[1:] / "infer.service.d/50-npu-affinity.conf").read_text()
        environment = (tree / "etc/npu-affinity/vnpu/a.env").read_text().splitlines()
        assert {"ASCEND_VISIBLE_DEVICES=116", "ASCEND_RUNTIME_OPTIONS=VIRTUAL"} <= set(environment)
    assert ["  ~ vnpu-mode: vm -> docker" in done.diff(name) for name in trees] == [False, True]
    assert [(tree / UNITS[1:] / "multi-user.target.wants" / UNIT).is_symlink() for tree in trees.values()] == [False, True]
    assert [len((tree / CONFIG).read_text().splitlines()) for tree in trees.values()] == [5, 3]
    with hosts.untouched():
        hosts.succeed("bind", **variables)

    for name, tree in trees.items():
        reboot(tree)
        assert listed(tree) == (wanted if name == "driver" else {})
        assert all(unit.returncode == 0 for unit in start_units(tree, "hard-vnpu").values())
        assert listed(tree) == wanted
    npu_smi(trees["driver"], "set -t destroy-vnpu -i 1 -c 0 -v 117")
    npu_smi(trees["unit"], "set -t create-vnpu -i 1 -c 0 -f vir05_1c_16g")
    found = hosts.play("verify", **variables)
    text = " ".join(found.output.split())
    assert "hard vNPUs of NPU ID 1, chip 0: expected 116 vir05_1c_16g, 117 vir10_3c_32g, found 116 vir05_1c_16g; likely" in text
    assert text.count("[NPU_HARD_VNPU_CHANGED]") == 2
    refused = hosts.play("bind", **variables)
    assert "118 vir05_1c_16g is not managed by npu.affinity" in refused.failure("unit")
    assert listed(trees["driver"]) == wanted

    npu_smi(trees["unit"], "set -t destroy-vnpu -i 1 -c 0 -v 118")
    npu_smi(trees["driver"], "set -t create-vnpu -i 0 -c 0 -f vir05_1c_16g")
    hosts.succeed("unbind")
    assert all(listed(tree) == {} for tree in trees.values()) and listed(trees["driver"], 0) == {100: "vir05_1c_16g"}
    assert [npu_smi(tree, "info -t vnpu-mode").split()[-1] for tree in trees.values()] == ["docker", "vm"]
