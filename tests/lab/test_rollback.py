# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine goes back to a plan that it had, and its journal has a line for everything that changed it."""

from __future__ import annotations

import json

from tests.lab.conftest import plan_of, success
from tests.lab.kernel import SETTLE, as_planned
from tests.lab.shapes import DUO
from tests.lab.test_faults import OTHER_PLAN, differing
from tests.lab.test_irq import settle


def journal(machine, action):
    lines = machine.run(f"journalctl --sync && journalctl --output=json --no-pager NPU_AFFINITY_ACTION={action}").splitlines()
    return [json.loads(line) for line in lines]


def test_back_to_the_plan_before(lab, claims):
    """Small machine: bound by another plan, and rolled back"""
    machine = lab.bound(DUO).machine
    plan, files = plan_of(machine), machine.files()
    run = lab.play(machine, "bind", npu_affinity_author="alice", npu_affinity_reason="one CPU less", **OTHER_PLAN)
    claims.equal("exit status of a bind by another plan", success(run), (0, ""))
    claims.true("it is another plan", plan_of(machine)["npus"] != plan["npus"])
    (line,) = [line for line in journal(machine, "bind") if line.get("NPU_AFFINITY_REASON")]
    claims.equal("the journal on it", line["MESSAGE"].partition(":")[0], "bind by alice")
    claims.equal("exit status of the rollback", success(lab.play(machine, "rollback", npu_affinity_to="-1")), (0, ""))
    as_planned(claims, machine, plan)
    claims.equal("files that differ from those of the first bind", differing(machine.files(), files), [])
    claims.equal("lines of the journal on the rollback", len(journal(machine, "rollback")), 1)


def test_the_journal_says_who_moved_interrupts(lab, claims):
    """Small machine: the driver is loaded again, and the units that bind its interrupts say so"""
    machine = lab.bound(DUO).machine
    functions = {npu["pci"] for npu in plan_of(machine)["npus"]}
    before = len(journal(machine, "rebind"))
    machine.run(f"rmmod davinci_mock && modprobe davinci_mock vectors=33 && {SETTLE}")
    settle(machine)
    lines = journal(machine, "rebind")[before:]
    said = " ".join(line["NPU_AFFINITY_CHANGES"] for line in lines)
    claims.equal("who rebound", {line["NPU_AFFINITY_AUTHOR"] for line in lines}, {"npu_affinity irq"})
    claims.equal("functions that the lines name", {pci for pci in functions if pci in said}, functions)
