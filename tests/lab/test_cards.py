# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines without accelerators."""

from __future__ import annotations

import pytest

from tests.lab.conftest import PLAN, changes, said, success
from tests.lab.shapes import NONE


@pytest.mark.parametrize("shape", [NONE], ids=lambda shape: shape.name)
def test_a_machine_without_accelerators(lab, claims, shape):
    """Machine without accelerators: a bind writes nothing"""
    machine = lab.fresh(shape)
    machine.run("rm -r /usr/local/Ascend /etc/ascend_install.info")
    files = machine.files()
    for options in ((), ("--check", "--diff")):
        run = lab.play(machine, "bind", *options)
        claims.equal(f"exit status and changes of bind {' '.join(options)}", changes(run), (0, []))
    claims.true("bind says why", "no accelerator" in said(run), said(run))
    claims.equal(f"of {len(files)} files, links and folders, those that differ", differing(files, machine.files()), [])
    claims.equal("units of ours", machine.run("systemctl list-units --all --plain --no-legend 'npu*'").split(), [])
    claims.equal("exit status of verify", success(lab.play(machine, "verify")), (0, ""))
    claims.equal("exit status and changes of unbind", changes(lab.play(machine, "unbind")), (0, []))
    claims.equal("files that differ after all that", differing(files, machine.files()), [])
    claims.equal("plan", machine.run(f"ls {PLAN} 2>/dev/null || true"), "")


def differing(files, others):
    return sorted({path for path, _state in files.items() ^ others.items()})
