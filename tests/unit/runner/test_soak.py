# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seed of a soak decides its operations."""

from __future__ import annotations

from tests.lab.soak import OPERATIONS, chosen


def operations(seed, draws):
    """The operations of a soak, and the first number that each of them draws after so many others."""
    found = []
    for number in range(1000):
        name, chance = chosen(seed, number)
        found.append((name, chance.random()))
        for _draw in range(draws):
            chance.random()
    return found


def test_a_seed_gives_the_same_operations_again():
    first = operations(7, 0)
    assert first == operations(7, 5)
    assert first != operations(8, 0)
    assert {name for name, _drawn in first} == OPERATIONS.keys()
