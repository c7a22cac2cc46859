# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vNPUs: two containers that share a card, device share, and hard vNPUs, each over a reboot and back."""

import shutil
import subprocess

import pytest

from tests.fakes.changes import SHARED, shared
from tests.fakes.small_host import UNITS, host_with, soft_split, two_cards
from tests.simulator.driver import NPU_SMI
from tests.simulator.reboot import reboot, start_units

MACHINE = two_cards(1, 0)
VENDOR = ("/simulator", "/var/log", "/run", "/etc/device_share.cfg", "/proc", "/sys")
A3_CARDS = [{"npu": 0, "bdf": ["0000:c1:00.0", "0000:c3:00.0"], "node": 1}, {"npu": 4, "bdf": ["0000:01:00.0", "0000:03:00.0"], "node": 0}]
A3 = host_with(A3_CARDS, family="a3", name="Ascend910", chips_per_card=2)
ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
VNPUS = [
    {"name": "a", "npu": 0, "memory_mib": 28672, "core": 20, "unit": "infer-a.service"},
    {"name": "b", "npu": 0, "memory_mib": 28672, "core": 40},
]


def ours(snapshot):
    return {path: state if isinstance(state, str) else state[2] for path, state in snapshot.items() if not path.startswith(VENDOR)}


@pytest.mark.long
def test_two_containers_share_one_card_and_undo_leaves_nothing(fleet, tmp_path):
    hosts = fleet(a2=MACHINE)
    tree, before = hosts.tree("a2"), ours(hosts.snapshot("a2"))
    library, limiter = tmp_path / "libvnpu.so", tmp_path / "limiter"
    library.write_bytes(b"\x7fELF\0library")
    limiter.write_text("#!/bin/sh\n")
    variables = {"npu_affinity_vnpus": VNPUS, **soft_split(library, limiter), **SHARED}

    hosts.succeed("bind", **variables)
    assert "AllowedCPUs=18-19\n" in (tree / UNITS[1:] / "npu-0-a.slice").read_text()
    assert "AllowedCPUs=20-25\n" in (tree / UNITS[1:] / "npu-0-b.slice").read_text()
    drop_in = (tree / UNITS[1:] / "infer-a.service.d/50-npu-affinity.conf").read_text()
    assert "Wants=npu-affinity-limiter-a.service\nAfter=npu-affinity-limiter-a.service\n" in drop_in
    assert "NPU_MEM_QUOTA=28672\n" in (tree / "etc/npu-affinity/vnpu/a.env").read_text()
    assert "Slice=npu-0-a.slice\n" in (tree / UNITS[1:] / "npu-affinity-limiter-a.service").read_text()
    assert (tree / UNITS[1:] / "multi-user.target.wants/npu-affinity-limiter-b.service").is_symlink()
    assert (tree / "usr/local/hami-vnpu-core/libvnpu.so").read_bytes() == library.read_bytes()
    assert (tree / "usr/local/hami-vnpu-core/limiter").stat().st_mode & 0o777 == 0o755
    assert (tree / "usr/local/hami-vnpu-core/ld.so.preload").read_text() == "/hami-vnpu-core/libvnpu.so\n"
    assert not (tree / "etc/ld.so.preload").exists()
    assert (tree / "usr/local/hami-shared-region").stat().st_mode & 0o7777 == 0o1777

    if shutil.which("systemd-analyze"):
        units = [path.name for path in (tree / UNITS[1:]).glob("npu*.s*")]
        command = ["systemd-analyze", "verify", "--root", str(tree), *units]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr.splitlines()
        assert [line for line in said if line.startswith("npu") and "/python3 is not executable" not in line] == []

    hosts.succeed("verify", **variables)

    scope = "0::/npu.slice/npu-0.slice/npu-0-a.slice/docker-1.scope"
    started(tree, 4711, scope, "/hami-vnpu-core/libvnpu.so")
    started(tree, 4712, scope, "")
    without = hosts.play("verify", **variables)
    assert without.status != 0
    for line in ("libvnpu.so of vNPU a: expected in every process, found none in process 4712 python", "limiter of vNPU a: expected"):
        assert line in without.output
    for process in (4711, 4712):
        shutil.rmtree(tree / "proc" / str(process))

    (tree / "usr/local/hami-vnpu-core/libvnpu.so").write_text("another")
    (tree / "usr/local/hami-shared-region").chmod(0o777)
    (tree / "etc/npu-affinity/vnpu/b.env").unlink()
    differs = hosts.play("verify", **variables)
    for line in ("libvnpu.so has SHA-256", "/etc/npu-affinity/vnpu/b.env: expected a file, found no such file"):
        assert line in differs.output
    (tree / "usr/local/hami-vnpu-core/libvnpu.so").write_bytes(library.read_bytes())

    hosts.succeed("unbind")
    assert ours(hosts.snapshot("a2")) == before
    assert not (tree / "usr/local/hami-vnpu-core").exists()


def started(tree, process, group, library):
    """Put a container's process with an open NPU into the host's /proc."""
    folder = tree / "proc" / str(process)
    (folder / "fd").mkdir(parents=True)
    for name, text in {"comm": "python\n", "cgroup": group + "\n", "maps": f"7f00 r-xp {library}\n", "environ": ""}.items():
        (folder / name).write_text(text)
    (folder / "fd/40").symlink_to("/dev/davinci0")


def test_a_host_that_gets_hami_files_later_is_bound_with_a_note(fleet):
    hosts = fleet(a2=MACHINE)
    run = hosts.succeed("bind", npu_affinity_vnpu_enabled=True)
    assert "until HAMi's device plugin has placed it, containers run without any limit" in run.output


CHIPS = {"a2": ["0:0", "1:0"], "a3": ["0:0", "0:1", "4:0", "4:1"]}
LINES = {"a2": ["card 0-1 chip 0: off -> on"], "a3": ["card 0,4 chip 0: off -> on", "card 0,4 chip 1: off -> on"]}


def test_off_then_on_then_a_reboot_then_still_on_then_undone(fleet):
    hosts = fleet(a2=MACHINE, a3=A3)
    trees = {name: hosts.tree(name) for name in CHIPS}
    off = dict.fromkeys(CHIPS, [])

    def shared_chips():
        return {name: shared(tree) for name, tree in trees.items()}

    assert shared_chips() == off
    hosts.succeed("bind", **SHARED, **ALL_AT_ONCE)
    assert shared_chips() == CHIPS
    for tree in trees.values():
        reboot(tree)
    assert shared_chips() == off, "the driver forgets"
    for name, tree in trees.items():
        (unit,) = start_units(tree, "device-share").values()
        assert unit.returncode == 0, unit.stdout + unit.stderr
        assert unit.stdout.splitlines() == LINES[name]
    assert shared_chips() == CHIPS
    run = hosts.play("verify", **SHARED)
    for name in CHIPS:
        verified = next(entry["result"] for entry in run.of(name) if entry["action"].endswith("binding_info"))
        assert len(verified["checked"]["device_share"]) == 2
        assert "device_share" not in {entry["kind"] for entry in verified["drift"]}
    hosts.succeed("unbind", **ALL_AT_ONCE)
    assert shared_chips() == off and [start_units(tree) for tree in trees.values()] == [{}, {}]


HARD = [{"npu": 1, "template": "vir05_1c_16g", "name": "a"}, {"npu": 1, "template": "vir10_3c_32g", "unit": "infer.service"}]
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
    variables = {"npu_affinity_vnpus": HARD}
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
