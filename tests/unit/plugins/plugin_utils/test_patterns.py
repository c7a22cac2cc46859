# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names are checked to their very end: in Python's patterns ``$`` also matches before a newline that ends the text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import hami

PLUGINS = Path(hami.__file__).parents[2]


def patterns():
    """Every pattern that a plugin gives to ``re`` as a literal, except those of many lines."""
    for path in sorted(PLUGINS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re":
                literal = node.args[0] if node.args and isinstance(node.args[0], ast.Constant) else None
                if literal and "MULTILINE" not in ast.dump(node):
                    yield f"{path.name}:{node.lineno}", literal.value


def test_no_pattern_ends_with_a_dollar():
    found = list(patterns())
    assert len(found) > 40
    assert [place for place, text in found if text.rstrip(")").endswith("$") and not text.endswith(r"\$")] == []


@pytest.mark.parametrize("text", ["0-3\n4", "0-3\n,4\x0b5"])
def test_a_newline_inside_a_cpulist_is_none(text):
    with pytest.raises(ValueError, match="is not a CPU number or range"):
        expand(text)
