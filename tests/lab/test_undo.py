# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After bind verify finds no drift, and some when there is some; after unbind the machine is as it was."""

from __future__ import annotations

import re

import pytest

from tests.lab.conftest import REPOSITORY, changes, plan_of
from tests.lab.kernel import CQ, irqs
from tests.lab.shapes import A2

OURS = "find /etc /usr/local/lib /run/systemd -xdev -name 'npu[-.]*' -o -name '*npu-affinity*' | sort"


def needs(playbook):
    path = REPOSITORY / "playbooks" / f"{playbook}.yml"
    return pytest.mark.skipif(not path.exists(), reason=f"there is no playbooks/{playbook}.yml")


@needs("verify")
def test_verify(lab, claims):
    """A2-like machine: verify after bind, and after an interrupt was moved by hand"""
    machine = lab.bound(A2).machine
    run = lab.play(machine, "verify")
    claims.equal("exit status of verify right after bind", (run.status, run.output if run.status else ""), (0, ""))
    before = machine.look()
    pci, function = sorted(before["functions"].items())[0]
    irq = irqs(function, CQ)[0]
    machine.run(f"echo 23 >/proc/irq/{irq}/smp_affinity_list")
    run = lab.play(machine, "verify")
    claims.true("with one interrupt moved by hand verify fails", run.status != 0)
    npu = next(npu["id"] for npu in plan_of(machine)["npus"] if npu["pci"] == pci)
    said = re.findall(rf"NPU {npu} {CQ}: expected .*", run.output)
    claims.true(f"and says: {said}", len(said) == 1 and f"found CPUs 23 (IRQ {irq})" in said[0], run.output)
    claims.equal("verify moved nothing", machine.look()["functions"][pci]["vectors"][str(irq)]["affinity"], "23")


@needs("unbind")
def test_unbind(lab, claims):
    """A2-like machine: unbind after bind"""
    machine, _run, before = lab.bound(A2)
    claims.true("bind changed what is compared", machine.look() != before)
    run = lab.play(machine, "unbind")
    claims.equal("exit status", (run.status, run.output if run.status else ""), (0, ""))
    after = machine.look()
    for part in ("slices", "workqueues", "threads"):
        claims.equal(f"{part} are as before the first bind", after[part], before[part])
    for pci, function in before["functions"].items():
        for irq, vector in function["vectors"].items():
            found = after["functions"][pci]["vectors"][irq]
            assert found["affinity"] == vector["affinity"], (pci, irq, vector, found)
        claims.true(f"the affinity of all {len(function['vectors'])} interrupts of {pci} is as before the first bind", True)
    claims.equal("files left over", machine.run(OURS).split(), [])
    claims.equal("CPUs of a new process", machine.run("taskset -pc $$ | sed 's/.*: //'").strip(), before["online"])
    again = lab.play(machine, "unbind")
    claims.equal("exit status and changes of a second unbind", changes(again), (0, []))
