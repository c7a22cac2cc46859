# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another root than the running machine's: nothing leads out of it, and what is no root is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.fakes.small_host import MACHINE
from tests.integration.conftest import touched


def test_absolute_links_of_an_image_lead_nowhere_else(fleet, tmp_path):
    hosts = fleet(image=MACHINE)
    tree, outside = hosts.tree("image"), tmp_path / "outside"
    outside.mkdir()
    places = ("etc/systemd/system", "etc/udev", "etc/npu-affinity", "usr/local/lib")
    for place in places:
        (outside / place).mkdir(parents=True)
        if (tree / place).is_dir():
            (tree / place).rename(tree / place.replace("/", "-"))
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).symlink_to(outside / place)
    (tree / "opt").symlink_to("/srv/npu-affinity-test")
    before, outside_before = hosts.snapshot("image"), set(outside.rglob("*"))
    limiter = Path(__file__).read_bytes()
    variables = {
        "npu_affinity_vnpu_enabled": True,
        "npu_affinity_vnpu_folder": "/opt/hami-vnpu-core",
        "npu_affinity_vnpu_files": [{"name": "limiter", "src": __file__, "sha256": hashlib.sha256(limiter).hexdigest()}],
    }
    bound = hosts.play("bind", **variables)
    assert bound.status == 0, bound.output
    assert set(outside.rglob("*")) == outside_before
    inside = tree / str(outside)[1:]
    assert (inside / "etc/systemd/system/npu-0.slice").exists() and (inside / "etc/npu-affinity/plan.json").exists()
    assert (tree / "srv/npu-affinity-test/hami-vnpu-core/limiter").read_bytes() == limiter
    assert not Path("/srv/npu-affinity-test").exists()
    again = hosts.play("bind", **variables)
    assert again.status == 0 and again.changed("image") == 0, again.output
    verified = hosts.play("verify", **variables)
    assert verified.status == 0, verified.output
    assert hosts.play("unbind").status == 0
    assert set(outside.rglob("*")) == outside_before
    assert {path for path in touched(before, hosts.snapshot("image")) if path.startswith(("/etc", "/usr", "/srv", str(outside)))} == set()


def test_an_empty_or_relative_root_is_refused_by_every_playbook(fleet):
    hosts = fleet(image=MACHINE)
    before = hosts.snapshot("image")
    for playbook in ("plan", "bind", "verify", "unbind", "measure"):
        for root, sentence in (("", "npu_affinity_root '' is empty"), ("image", "npu_affinity_root 'image' is not absolute")):
            run = hosts.play(playbook, npu_affinity_root=root)
            assert run.status and sentence in run.output, (playbook, run.output)
    assert hosts.snapshot("image") == before


@pytest.mark.long
def test_the_host_code_moves_with_its_setting_and_goes_back(fleet):
    hosts = fleet(image=MACHINE)
    tree, before = hosts.tree("image"), hosts.snapshot("image")
    usual, other = tree / "usr/local/lib/npu-affinity", tree / "var/lib/npu-affinity"
    moved = {"npu_affinity_library": "/var/lib/npu-affinity"}
    steps = [("bind", {}, usual), ("bind", moved, other), ("verify", moved, other), ("rollback", {"npu_affinity_to": "-1"}, usual)]
    for playbook, variables, place in steps:
        run = hosts.play(playbook, **variables)
        assert run.status == 0, run.output
        assert [folder for folder in (usual, other) if folder.exists()] == [place]
        unit = (tree / "etc/systemd/system/npu-affinity-irq.service").read_text()
        assert f"PYTHONPATH=/{place.relative_to(tree)}/npu_affinity.zip " in unit
    refused = hosts.play("bind", npu_affinity_library="/run/npu-affinity")
    assert "npu_affinity_library cannot be '/run/npu-affinity': what is there is lost at the next boot." in refused.failure("image")
    assert hosts.play("bind", **moved).status == 0 and hosts.play("unbind").status == 0
    assert {path for path in touched(before, hosts.snapshot("image")) if path.startswith(("/etc", "/usr", "/var/lib"))} == set()
