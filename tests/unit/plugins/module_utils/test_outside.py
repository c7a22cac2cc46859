# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside: what is shown of it, and JSON of other shapes than expected."""

from __future__ import annotations

import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base import outside

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
