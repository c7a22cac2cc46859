# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as draw

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist, cpus_of, mask, mask_of, text_in_order, text_of

CPUS = draw.lists(draw.integers(0, 700), unique=True)


@given(CPUS)
def test_masks_and_cpulists_say_the_same(cpus):
    assert cpus_of(mask_of(cpus)) == sorted(cpus)
    assert text_of(mask_of(cpus)) == compress(cpus)
    assert mask(compress(cpus)) == mask_of(cpus)
    assert expand(text_in_order(cpus)) == cpus


NAMED = [("", ""), ([], ""), ("3", "3"), (3, "3"), ("8,0-2", "0-2,8"), ([8, 0, 1, 1], "0-1,8"), ((4, 5), "4-5"), ({6}, "6")]


@pytest.mark.parametrize("value, expected", [*NAMED, ("0-7:1/4", "0,4")])
def test_whatever_names_cpus_becomes_a_cpulist(value, expected):
    assert as_cpulist(value) == expected
