# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adaptors of published cases give them to the collection and answer none themselves."""

from __future__ import annotations

import ast

import pytest

from tests.documents import REPOSITORY

ADAPTORS = sorted((REPOSITORY / "tests/conformance/adaptors").glob("*.py"))
SHARED = ("checks", "table")
COLLECTION = "ansible_collections.npu.affinity.plugins"


def imported(path):
    """The modules that a file imports, but those of the standard library."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


@pytest.mark.parametrize("path", ADAPTORS, ids=lambda path: path.stem)
def test_an_adaptor_has_no_code_of_the_tests(path):
    own = {name.partition(".")[0] for name in imported(path)} & {"tests", "adaptors"}
    assert own <= {"adaptors"}
    if path.stem not in SHARED:
        assert any(name.startswith(COLLECTION) for name in imported(path)), "it calls nothing of the collection"
