# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The architecture of most NPU hosts: one machine from its first bind to unbind, in one test, as each boot of it takes a minute or more."""

from __future__ import annotations

import pytest

from tests.lab.conftest import drift, plan_of, success
from tests.lab.kernel import as_planned, on_their_cpus
from tests.lab.shapes import A2
from tests.lab.test_irq import reboot, reload_driver
from tests.lab.test_undo import as_before


@pytest.mark.aarch64
def test_from_bind_to_unbind(lab, claims, tmp_path):
    """A2-like aarch64 machine: bind, verify, reboot, verify, driver loaded again, unbind"""
    machine = lab.fresh(A2)
    before, files = machine.look(), machine.files()
    claims.equal("machine", machine.run("uname --machine").strip(), "aarch64")
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    plan = plan_of(machine)
    as_planned(claims, machine, plan)
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))

    reboot(claims, machine)
    as_planned(claims, machine, plan)
    claims.equal("exit status and drift after the reboot", drift(lab, machine, tmp_path), (0, {}))

    on_their_cpus(claims, machine, plan, reload_driver(claims, machine))

    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    as_before(claims, machine, before, files)
