# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches that Ansible understands, and sentences for the others."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._settings.batches import checked

GOOD = [([1, "5%", "25%", "100%"], [1, "5%", "25%", "100%"]), ("100%", ["100%"]), ("2", [2]), (3, [3]), ([" 10% ", "7"], ["10%", 7])]


@pytest.mark.parametrize("given, expected", GOOD)
def test_batches(given, expected):
    assert checked(given, "npu_affinity_batches") == expected


@pytest.mark.parametrize("given", [0, -1, "0%", "101%", "5 %", "all", True, [1, None], []])
def test_what_is_refused(given):
    with pytest.raises(ValueError, match="npu_affinity_batches: "):
        checked(given, "npu_affinity_batches")
