# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the comparison of plans has recorded of hwloc-distrib is what the program prints, which make optimal installs."""

from __future__ import annotations

import pytest

from tests.compare.machines import shapes
from tests.compare.rules import hwloc
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
