# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every run of tests draws from its own seed, and names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.documents import REPOSITORY

TESTS = """
from random import Random
from hypothesis import given, strategies

found = []

@given(strategies.lists(strategies.integers()))
def test_drawn(value):
    found.append(value)

def test_seed(seed):
    print("drew", found, seed)
"""


@pytest.fixture
def run(tmp_path):
    """Runs tests that draw, and returns the seed that the run names and what it drew."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_draws.py").write_text(TESTS)

    def call(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", *options]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # others take most of the time
        output = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=True).stdout
        (seed, repeated) = re.search(r"^seed (\d+); repeat with --seed=(\d+)$", output, re.MULTILINE).groups()
        (drawn, its_seed) = re.search(r"^drew (.*) (\d+)$", output, re.MULTILINE).groups()
        assert seed == repeated == its_seed
        return seed, drawn

    return call


def test_a_run_draws_anew_and_its_seed_repeats_it(run, seed):
    chosen, drawn = run()
    assert chosen != str(seed)
    assert run(f"--seed={chosen}") == run(f"--hypothesis-seed={chosen}") == (chosen, drawn)
