# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, from_mask, normalize, to_mask

LISTS = [
    ("", []),
    ("\n", []),
    ("7", [7]),
    ("0-3", [0, 1, 2, 3]),
    ("0-2, 4, 6-8", [0, 1, 2, 4, 6, 7, 8]),
    ("40-41,0-1", [40, 41, 0, 1]),
    ("0-3,2-5", [0, 1, 2, 3, 4, 5]),
    ("0-31:2/8", [0, 1, 8, 9, 16, 17, 24, 25]),
    ("0-1\n\0", [0, 1]),
]


@pytest.mark.parametrize("text, cpus", LISTS)
def test_expand_keeps_the_order_given(text, cpus):
    assert expand(text) == cpus


BAD_LISTS = [
    ("0-3,N", "npu_affinity_cpus: 'N' in '0-3,N' is not a CPU number or range; expected e.g. 0-3,8"),
    ("5-2", "npu_affinity_cpus: range '5-2' in '5-2' runs backwards; write 2-5"),
    ("0,,3", "npu_affinity_cpus: '0,,3' has an empty part; expected CPU numbers and ranges such as 0-3,8"),
    ("-1", "npu_affinity_cpus: '-1' in '-1' is not a CPU number or range; expected e.g. 0-3,8"),
    ("0-99999999", "npu_affinity_cpus: CPU 99999999 in '0-99999999' is beyond 65535"),
    ("0-31:3/2", "npu_affinity_cpus: stride '0-31:3/2' in '0-31:3/2' must use between 1 and all CPUs of its group"),
]


@pytest.mark.parametrize("text, sentence", BAD_LISTS)
def test_a_bad_list_is_refused_by_name_and_part(text, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence) + "$"):
        expand(text, "npu_affinity_cpus")


@pytest.mark.parametrize("cpus, text", [([], ""), ([3], "3"), ([8, 0, 1, 2], "0-2,8"), ([1, 3, 5], "1,3,5"), (range(640), "0-639")])
def test_compress_is_the_kernels_form(cpus, text):
    assert compress(cpus) == text


def test_normalize_joins_and_sorts():
    assert normalize("9,8, 0-3,4") == "0-4,8-9"


MASKS = [
    ({3}, "00000008"),
    ({35}, "00000008,00000000"),
    ({31}, "80000000"),
    ({32}, "00000001,00000000"),
    (set(), "00000000"),
    ({0, 1, 33}, "00000002,00000003"),
]


@pytest.mark.parametrize("cpus, text", MASKS)
def test_masks_are_groups_of_32_bits_without_leading_empty_ones(cpus, text):
    assert to_mask(cpus) == text
    assert from_mask(text) == cpus


def test_the_kernels_padded_and_short_masks_are_read():
    assert from_mask("00000000,00000000,0000000f\n") == {0, 1, 2, 3}
    assert from_mask("ff") == set(range(8))


def test_a_bad_mask_is_refused():
    with pytest.raises(ValueError, match="^cpumask: 'zz' in '0,zz' is not a hexadecimal group$"):
        from_mask("0,zz", "cpumask")
    with pytest.raises(ValueError, match="^cpumask has 100000 groups, and is beyond CPU 65535$"):
        from_mask(",".join(["ffffffff"] * 100_000), "cpumask")


def test_a_list_that_repeats_itself_ends_soon():
    with pytest.raises(ValueError, match="online names the same CPUs again and again"):
        expand(",".join(["0-65535"] * 100_000), "online")


def test_a_list_that_was_read_before_is_a_list_of_its_own():
    expand("0-3").append(4)
    assert expand("0-3") == [0, 1, 2, 3]
    for name in ("pool", "/sys/x"):
        with pytest.raises(ValueError, match="^%s: 'x' in" % name):
            expand("0-3,x", name)
