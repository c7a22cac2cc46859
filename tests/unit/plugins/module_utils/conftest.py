# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every test of the host code needs: a tree written from a table, and trees of simulated hosts."""

import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from tests.fakes.workers import Tree


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def generate():
    """Writes the tree of a simulated host."""
    if sys.version_info < (3, 11):
        pytest.skip("the simulator needs Python 3.11")
    from tests.simulator.generate import generate

    return generate
