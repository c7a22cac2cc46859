# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a bare server to two containers that share one card, and back."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.fakes.changes import SHARED, shared
from tests.fakes.small_host import UNITS
from tests.fakes.split_host import MACHINE, ours, soft_split
from tests.simulator.faults import set_faults
from tests.simulator.reboot import reboot, start_units

A3 = {
    **MACHINE,
    "npus": {
        **MACHINE["npus"],
        "family": "a3",
        "name": "Ascend910",
        "chips_per_card": 2,
        "cards": [
            {"npu": 0, "bdf": ["0000:c1:00.0", "0000:c3:00.0"], "node": 1},
            {"npu": 4, "bdf": ["0000:01:00.0", "0000:03:00.0"], "node": 0},
        ],
    },
}
ALL_AT_ONCE = {"npu_affinity_batches": ["100%"]}
VNPUS = [
    {"name": "a", "npu": 0, "memory_mib": 28672, "core": 20, "unit": "infer-a.service"},
    {"name": "b", "npu": 0, "memory_mib": 28672, "core": 40},
]


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
    environment = (tree / "etc/npu-affinity/vnpu/a.env").read_text()
    assert {"NPU_MEM_QUOTA=28672", "NPU_PRIORITY=20", "ASCEND_VISIBLE_DEVICES=0"} <= set(environment.splitlines())
    limiter_unit = (tree / UNITS[1:] / "npu-affinity-limiter-a.service").read_text().splitlines()
    assert {"Slice=npu-0-a.slice", "Before=infer-a.service", "ExecStart=/usr/local/hami-vnpu-core/limiter"} <= set(limiter_unit)
    assert "Environment=NPU_GLOBAL_SHM_PATH=/usr/local/hami-shared-region/0_global_registry" in limiter_unit
    assert "Environment=NPU_LOCAL_SHM_PATH=/run/npu-affinity/vnpu/a/vnpu_local_shmem" in limiter_unit
    assert "Environment=NPU_MEM_QUOTA=28672" in limiter_unit
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


REFUSED = {
    "too-much": ({"npu_affinity_vnpus": [VNPUS[0], {**VNPUS[1], "core": 81}]}, "b wants 28672 MiB and 81 % of NPU 0"),
    "no-such-npu": ({"npu_affinity_vnpus": [{**VNPUS[1], "npu": 5}]}, "b wants NPU 5, but the plan of this host has NPU 0, 1"),
    "not-shared": ({"npu_affinity_device_share_enabled": False}, "device share of NPU 0 is off and stays off"),
    "no-file": ({}, "/usr/local/hami-vnpu-core/ld.so.preload is not on the host (a file that names"),
    "no-limiter": ({"npu_affinity_vnpu_limiter": ""}, "containers of vNPUs would run without any limit. Place it"),
}


def test_what_does_not_add_up_is_refused_before_any_change(fleet):
    hosts = fleet(**dict.fromkeys(REFUSED, MACHINE))
    hosts.give({name: {**SHARED, "npu_affinity_vnpus": VNPUS, **variables} for name, (variables, _sentence) in REFUSED.items()})
    with hosts.untouched():
        run = hosts.play("bind", npu_affinity_batches=["100%"])
    assert [name for name, (_variables, sentence) in REFUSED.items() if sentence not in run.failure(name)] == []


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


def test_a_card_held_at_boot_is_a_failed_unit_and_others_are_on(fleet):
    hosts = fleet(host=MACHINE)
    tree = hosts.tree("host")
    hosts.play("bind", **SHARED)
    set_faults(tree, busy=[1])
    reboot(tree)
    (unit,) = start_units(tree, "device-share").values()
    assert unit.returncode == 1
    assert re.search("^card 1: chip 0 is not on, because a container holds the card", unit.stdout, re.MULTILINE)
    assert shared(tree) == ["0:0"]
    hosts.succeed("bind", **{**SHARED, "npu_affinity_device_share_enabled": False})
    assert shared(tree) == []
    assert start_units(tree, "device-share") == {}, "nothing is shared, and nothing has to be set at boot"
