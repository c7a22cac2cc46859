# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside: what is shown of it, lists and masks of CPUs, and JSON of other shapes than expected."""

import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base import outside
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand, from_mask, normalize, to_mask

SHOWN = [
    ("VLLM::Worker_TP0", "VLLM::Worker_TP0"),
    ("Ünïcode 昇腾", "Ünïcode 昇腾"),
    ("\x1b[2J![](//host)", "\\x1b[2J![](//host)"),
    ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
    ("\x9b2J\x7f", "\\x9b2J\\x7f"),
    ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
    ("a\u2028b\u0085", "a\\u2028b\\x85"),
    ("\udc80", "\\udc80"),
    ("\U000e0041", "\\U000e0041"),
]


@pytest.mark.parametrize("text, shown", SHOWN)
def test_a_text_is_shown_as_one_line_without_control_characters(text, shown):
    assert outside.shown(text) == shown == outside.shown(shown)
    shown.encode("utf-8")


def test_lines_and_data_keep_their_line_breaks_only():
    assert outside.shown_lines("a\n\tb\r\x1b") == "a\n\tb\\r\\x1b"
    data = {"na\x1bme": ["\x1b", ("\u202e", 1, None, True)]}
    assert outside.shown_data(data) == {"na\\x1bme": ["\\x1b", ["\\u202e", 1, None, True]]}


LISTS = [
    ("", []),
    ("\n", []),
    ("7", [7]),
    ("0-2, 4, 6-8", [0, 1, 2, 4, 6, 7, 8]),
    ("40-41,0-1", [40, 41, 0, 1]),
    ("0-3,2-5", [0, 1, 2, 3, 4, 5]),
    ("0-31:2/8", [0, 1, 8, 9, 16, 17, 24, 25]),
    ("0-1\n\0", [0, 1]),
]


@pytest.mark.parametrize("text, cpus", LISTS)
def test_expand_keeps_the_order_given(text, cpus):
    assert expand(text) == cpus
    expand(text).append(4)
    assert expand(text) == cpus, "a list of its own"


@pytest.mark.parametrize("cpus, text", [([], ""), ([3], "3"), ([8, 0, 1, 2], "0-2,8"), ([1, 3, 5], "1,3,5"), (range(640), "0-639")])
def test_compress_is_the_kernels_form(cpus, text):
    assert compress(cpus) == text
    assert normalize(" ,".join(map(str, reversed(cpus)))) == text


MASKS = [(3, "00000008"), (35, "00000008,00000000"), (31, "80000000"), (32, "00000001,00000000")]
MASKS = [*(({cpu}, text) for cpu, text in MASKS), (set(), "00000000"), ({0, 1, 33}, "00000002,00000003")]


@pytest.mark.parametrize("cpus, text", MASKS)
def test_masks_are_groups_of_32_bits_without_leading_empty_ones(cpus, text):
    assert to_mask(cpus) == text
    assert from_mask(text) == from_mask("00000000," + text + "\n") == cpus
    assert from_mask("ff") == set(range(8))


LARGE = 100_000
REFUSED = [
    (expand, "0-3,N", "a: 'N' in '0-3,N' is not a CPU number or range; expected e.g. 0-3,8"),
    (expand, "5-2", "a: range '5-2' in '5-2' runs backwards; write 2-5"),
    (expand, "0,,3", "a: '0,,3' has an empty part; expected CPU numbers and ranges such as 0-3,8"),
    (expand, "-1", "a: '-1' in '-1' is not a CPU number or range; expected e.g. 0-3,8"),
    (expand, "0-99999999", "a: CPU 99999999 in '0-99999999' is beyond 65535"),
    (expand, "0-31:3/2", "a: stride '0-31:3/2' in '0-31:3/2' must use between 1 and all CPUs of its group"),
    (expand, ",".join(["0-65535"] * LARGE), "a names the same CPUs again and again"),
    (from_mask, "0,zz", "a: 'zz' in '0,zz' is not a hexadecimal group"),
    (from_mask, ",".join(["ffffffff"] * LARGE), "a has 100000 groups, and is beyond CPU 65535"),
]


@pytest.mark.parametrize("read, text, sentence", REFUSED, ids=[row[2] for row in REFUSED])
def test_a_bad_list_or_mask_is_refused_by_name_and_part(read, text, sentence):
    for name in ("a", "/sys/a"):
        with pytest.raises(ValueError, match="^" + re.escape(sentence.replace("a", name, 1))):
            read(text, name)


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, '{"a": NaN}', "[Infinity]", "\ufeff{}"])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError, match="."):
        outside.json_of(text)


SHAPE = {"files": [{"path": str, "mode?": str}], "live": {str: dict}, "count": (int, type(None)), "on?": bool}
GOOD = {"files": [{"path": "/a", "mode": None}], "live": {"a": {}}, "count": None, "more": 1}
BAD = [
    ([], "it is []"),
    (dict(GOOD, files={}), "files of it is {}"),
    (dict(GOOD, files=[{}]), "entry 0 of files of it lacks 'path'"),
    (dict(GOOD, files=[{"path": "/a", "mode": 5}]), "mode of entry 0 of files of it is 5"),
    (dict(GOOD, live={"a": {}, "b": None}), "b of live of it is None"),
    (dict(GOOD, count=True), "count of it is True"),
    (dict(GOOD, on="x" * 100), "on of it is 'xxxxxxx"),
]


@pytest.mark.parametrize("value, sentence", BAD)
def test_another_shape_is_named(value, sentence):
    outside.require_shape(GOOD, SHAPE, "it")
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        outside.require_shape(value, SHAPE, "it")
    assert len(str(caught.value)) < 100
