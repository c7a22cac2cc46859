# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests write, which Python the programs of simulated hosts run on, and the seed of everything that tests draw.

A simulated host is thousands of small files, and most tests write one. Where the machine has memory for that they are written there: a
disk takes five times the CPU. ``PYTEST_DEBUG_TEMPROOT`` or ``--basetemp`` names another place.

Each run has another seed, which its last lines name, or that of ``SEED``: the commit, where all layers run. ``--seed`` repeats a run, and
then looks for the smallest example of a property that fails, which takes minutes.
"""

import contextlib
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

MEMORY = "/dev/shm"
ROOM = 1 << 30


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=None, help="the seed of another run, to repeat it")


@pytest.hookimpl(tryfirst=True)  # hypothesis reads its option
def pytest_configure(config):
    given = getattr(config.option, "hypothesis_seed", None)
    with contextlib.suppress(ImportError):  # which the environment for old Pythons does not have
        import hypothesis

        # Machines are shared: how long an example takes proves nothing. Every run draws other examples, so that each can draw few.
        found = [hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.target]
        phases = list(hypothesis.Phase) if given or config.option.seed is not None else found
        hypothesis.settings.register_profile("untimed", deadline=None, max_examples=34, phases=phases)
        hypothesis.settings.load_profile("untimed")
    if config.option.seed is None:
        named = given if given and given.isdigit() else os.environ.get("SEED")
        config.option.seed = int(named or random.SystemRandom().randrange(1_000_000))
    if given is None:
        config.option.hypothesis_seed = str(config.option.seed)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        usable = os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC and shutil.disk_usage(MEMORY).free > ROOM
    except OSError:
        usable = False
    if usable:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.fixture(scope="session")
def seed(request):
    return request.config.option.seed


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line("seed %d; repeat with --seed=%d" % (config.option.seed, config.option.seed))
