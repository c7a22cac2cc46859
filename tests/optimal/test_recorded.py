# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the comparison of plans has recorded of programs is what they print: hwloc-distrib, which make optimal installs, and packages."""

from __future__ import annotations

import pytest

from tests.compare import packages
from tests.compare.machines import shapes
from tests.compare.rules import engines, hwloc
from tests.compare.subject import subjects


def test_recorded_outputs_of_hwloc_are_those_of_the_program(tmp_path, monkeypatch):
    recorded = hwloc.recorded()
    monkeypatch.setattr(hwloc, "FILE", tmp_path / "hwloc.json")
    with subjects(shapes()[:2]) as found:
        assert hwloc.record(found), "hwloc-distrib is not installed"
    again = hwloc.recorded()
    if again["version"] != recorded["version"]:
        pytest.skip(f"hwloc {again['version']} is installed, {recorded['version']} was recorded")
    assert again["sets"] and again["sets"].items() <= recorded["sets"].items()


def test_recorded_outputs_of_engines_are_those_of_the_packages(tmp_path, monkeypatch):
    """On the machines with GPUs, and on one of each other family."""
    machines = {shape.title if shape.family == "GPU" else shape.family: shape for shape in shapes()}
    before = engines.recorded()
    monkeypatch.setattr(engines, "FILE", tmp_path / "engines.json")
    with subjects([*machines.values()]) as found:
        try:
            engines.record(found)
        except packages.CONNECTION_FAILED as error:
            pytest.skip(f"no index has the packages: {getattr(error, 'stderr', None) or error}"[:300])
    again = engines.recorded()
    assert again["versions"] == before["versions"]
    assert len(again["sets"]) > 10 and again["sets"].items() <= before["sets"].items()
