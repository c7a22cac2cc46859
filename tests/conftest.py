# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests write, and which Python the programs of simulated hosts run on.

A simulated host is thousands of small files, and most tests write one. Where the machine has memory for that they are written there: a
disk takes five times the CPU. ``PYTEST_DEBUG_TEMPROOT`` or ``--basetemp`` names another place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

MEMORY = "/dev/shm"
ROOM = 1 << 30


def pytest_configure(config):
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        usable = os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC and shutil.disk_usage(MEMORY).free > ROOM
    except OSError:
        usable = False
    if usable:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


with contextlib.suppress(ImportError):  # which the environment for old Pythons does not have
    import hypothesis

    hypothesis.settings.register_profile("untimed", deadline=None)  # machines are shared: how long an example takes proves nothing
    hypothesis.settings.load_profile("untimed")
