# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The architecture of most NPU hosts: one machine from its first bind to unbind, in one test, as each boot of it takes a minute or more."""

from __future__ import annotations

import pytest

from tests.lab.conftest import drift, plan_of, success
from tests.lab.kernel import in_their_slices, on_their_cpus
from tests.lab.shapes import A2
from tests.lab.test_irq import numbers_of, settle
from tests.lab.test_undo import as_before


@pytest.mark.aarch64
def test_from_bind_to_unbind(lab, claims, tmp_path):
    """A2-like aarch64 machine: bind, verify, reboot, verify, driver loaded again, unbind"""
    machine = lab.fresh(A2)
    before, files = machine.look(), machine.files()
    claims.equal("machine", machine.run("uname --machine").strip(), "aarch64")
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    plan, look = plan_of(machine), machine.look()
    in_their_slices(claims, machine, plan, look)
    on_their_cpus(claims, machine, plan, look)
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))

    machine.reboot()
    machine.await_idle("npu-affinity-irq*.service")
    claims.equal("failed units after a reboot", machine.run("systemctl --failed --plain --no-legend").split(), [])
    look = machine.look()
    in_their_slices(claims, machine, plan, look)
    on_their_cpus(claims, machine, plan, look)
    claims.equal("exit status and drift after the reboot", drift(lab, machine, tmp_path), (0, {}))

    machine.run("rmmod davinci_mock && modprobe davinci_mock vectors=33")
    settle(machine)
    loaded = machine.look()
    changed = [pci for pci, numbers in numbers_of(loaded).items() if numbers != numbers_of(look)[pci]]
    claims.true(f"the driver was loaded again; interrupt numbers changed on {', '.join(changed)}", len(changed) >= 2, numbers_of(loaded))
    on_their_cpus(claims, machine, plan, loaded)

    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    as_before(claims, machine, before, files)
