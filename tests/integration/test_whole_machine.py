# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huge pages and network interrupts in one plan: one diff, after a reboot by the programs of their units, rolled back, and unbound."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.integration.conftest import touched
from tests.integration.test_hugepages import PAGES, PATHS, counts
from tests.integration.test_nic import NEAR, SPREAD, places, result
from tests.simulator.reboot import reboot

UNITS = "etc/systemd/system"
WHOLE = {**NEAR, **PAGES}


@pytest.fixture
def hosts(fleet):
    return fleet(server="i310_pro")


def boot(tree):
    """Restart the host, and run what its units run at boot, with the code that is installed there."""
    reboot(tree)
    environment = {**os.environ, "PYTHONPATH": str(tree / "usr/local/lib/npu-affinity/npu_affinity.zip"), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("hugepages", "irq", "nic"):
        command = re.search(r"^ExecStart=(.*)$", (tree / f"{UNITS}/npu-affinity-{name}.service").read_text(), re.MULTILINE)[1]
        done = subprocess.run([*command.split(), "--root", tree], env=environment, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_one_plans_pages_and_queues_survive_reboot_and_unbind(hosts):
    tree, before = hosts.tree("server"), hosts.snapshot("server")
    found = places(hosts)
    predicted = hosts.play("bind", "--check", "--diff", **WHOLE)
    assert predicted.status == 0 and touched(before, hosts.snapshot("server")) == set()
    done = hosts.play("bind", **WHOLE)
    assert done.status == 0 and (counts(hosts), places(hosts)) == ([100, 200], SPREAD), done.output
    assert result(predicted)["diff"] == result(done)["diff"]
    boot(tree)
    assert (counts(hosts), places(hosts)) == ([100, 200], SPREAD)
    assert hosts.play("verify", **WHOLE).status == 0

    assert hosts.play("bind", **NEAR).status == 0 and (counts(hosts), places(hosts)) == ([0, 0], SPREAD)
    assert hosts.play("rollback", npu_affinity_to="-1").status == 0 and (counts(hosts), places(hosts)) == ([100, 200], SPREAD)
    assert hosts.play("unbind").status == 0
    assert (counts(hosts), places(hosts)) == ([0, 0], found)
    left = touched(before, hosts.snapshot("server"))
    assert [path for path in left if path not in PATHS and path.startswith(("/etc", "/usr", "/run/npu-affinity"))] == []
