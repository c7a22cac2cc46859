# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another root than the running machine's: nothing leads out of it, and what is no root is refused."""

from pathlib import Path

import pytest

from tests.fakes.small_host import MACHINE, soft_split
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
    library = tmp_path / "libvnpu.so"
    library.write_text("library")
    variables = {**soft_split(library), "npu_affinity_vnpu_folder": "/opt/hami-vnpu-core"}
    hosts.succeed("bind", **variables)
    assert set(outside.rglob("*")) == outside_before
    inside = tree / str(outside)[1:]
    assert (inside / "etc/systemd/system/npu-0.slice").exists() and (inside / "etc/npu-affinity/plan.json").exists()
    assert (tree / "srv/npu-affinity-test/hami-vnpu-core/libvnpu.so").read_text() == "library"
    assert not Path("/srv/npu-affinity-test").exists()
    assert hosts.succeed("bind", **variables).changed("image") == 0
    hosts.succeed("verify", **variables)
    hosts.succeed("unbind")
    assert set(outside.rglob("*")) == outside_before
    assert {path for path in touched(before, hosts.snapshot("image")) if path.startswith(("/etc", "/usr", "/srv", str(outside)))} == set()


NO_ROOTS = [("bind", "", "npu_affinity_root '' is empty"), ("measure", "image", "npu_affinity_root 'image' is not absolute")]


@pytest.mark.parametrize("playbook, root, sentence", NO_ROOTS)
def test_an_empty_or_relative_root_is_refused(fleet, playbook, root, sentence):
    hosts = fleet(image=MACHINE)
    with hosts.untouched():
        run = hosts.play(playbook, npu_affinity_root=root)
    assert run.status and sentence in run.output, run.output
