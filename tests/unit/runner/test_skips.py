# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests are skipped one by one, with a reason that the summary counts. A module that is missing or cannot be imported is an error."""

from __future__ import annotations

import re

import pytest

from tests.documents import REPOSITORY

WHOLE_FILES = {"tests/unit/plugins/module_utils/test_topology_of_simulated_hosts.py"}
"""Every test of these needs the simulator, and so Python 3.11."""


@pytest.mark.parametrize(("call", "allowed"), [("pytest.importorskip" + "(", set()), ("allow_module_level" + "=True", WHOLE_FILES)])
def test_whole_files_are_skipped_only_where_they_are_listed(call, allowed):
    texts = {str(path.relative_to(REPOSITORY)): path.read_text() for path in REPOSITORY.glob("tests/**/*.py")}
    assert len(texts) > 300
    assert {name for name, text in texts.items() if re.search(re.escape(call), text)} == allowed
