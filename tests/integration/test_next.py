# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a summary offers next is copied into a shell and run: it takes the same hosts with the same settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import CHECKOUT, REPOSITORY

PLAN = "etc/npu-affinity/plan.json"


def offered(output):
    """The lines of a summary that follow ``next:``, comments included."""
    return [line.removeprefix("next: ") for line in output.splitlines() if line.startswith("next: ")]


def typed(line):
    """Run a line in a shell, as somebody who copied it, and return what was printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "MAKELEVEL"},
        **CHECKOUT,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    run = subprocess.run(["bash", "-c", line], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_the_commands_that_are_offered_can_be_copied(fleet, tmp_path):
    hosts = fleet(a="i310_pro", b="i310_pro")
    plans = tmp_path / "reviewed plans.json"
    planned = hosts.play("plan", "--limit", "a", npu_affinity_strategy="even_split", npu_affinity_plan_file=str(plans))
    (bind,) = offered(planned.output)
    assert "npu_affinity_reviewed" in bind
    verify, unbind = offered(typed(bind))
    assert json.loads((hosts.tree("a") / PLAN).read_text())["strategy"] == "even_split"
    assert not (hosts.tree("b") / PLAN).exists()
    assert verify.startswith(bind.partition(" -e ")[0].replace("bind.yml", "verify.yml"))

    healthy = ["grep", "-q", '"housekeeping": ""', str(hosts.tree("a") / PLAN)]
    canary = hosts.play("bind", "--limit", "a", npu_affinity_housekeeping="0", npu_affinity_health=healthy)
    assert canary.summary["states"] == {"failed": ["a"]}
    rollback, _again = offered(canary.output)
    assert "1 changed: a\n" in typed(rollback)
    assert json.loads((hosts.tree("a") / PLAN).read_text())["housekeeping"] == ""
    assert "1 unbound: a\n" in typed(unbind)
    assert not (hosts.tree("a") / PLAN).exists()
