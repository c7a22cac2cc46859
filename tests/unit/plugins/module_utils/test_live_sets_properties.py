# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Properties of the steps by which running units get other sets."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._transaction.live_sets import _steps, _Unit

NAMES = {"/a": "npu.slice", "/a/b": "npu-0.slice", "/a/b/c": "npu-0-1.slice", "/a/d": "npu-1.slice", "/e": "gpu.slice"}
TREES = st.fixed_dictionaries({folder: st.sets(st.integers(0, 7)) for folder in NAMES})


def granted(configured, folder):
    """The effective set of a control group, as Linux ``Documentation/admin-guide/cgroup-v2.rst`` has it."""
    if not folder:
        return set(range(8))
    around = granted(configured, os.path.dirname(folder).rstrip("/"))
    return configured[folder] & around or around


@given(TREES, TREES)
def test_no_group_ever_has_what_it_has_neither_before_nor_after(before, after):
    old, new = ({folder: granted(tree, folder) for folder in tree} for tree in (before, after))
    behind = {
        folder: _Unit(folder, {"AllowedCPUs": old[folder]}, {"AllowedCPUs": new[folder]}) for folder in NAMES if old[folder] != new[folder]
    }
    live = dict(old)
    steps = [(folder, sets["AllowedCPUs"]) for folder, sets in _steps(behind) if sets]
    for folder, cpus in steps:
        live[folder] = cpus
        for name in NAMES:
            assert granted(live, name) <= old[name] | new[name], (steps, folder, name)
    assert {folder: granted(live, folder) for folder in NAMES} == new
    assert len(steps) <= 2 * len(behind)
