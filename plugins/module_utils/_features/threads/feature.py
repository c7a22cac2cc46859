# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature threads: the threads of NPU processes on the CPUs of their roles."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER
from ..feature import Feature, compared_where_wanted, later, where_wanted
from ..watching import WATCH_SERVICE

SETTINGS = "/etc/npu-affinity/threads.json"
PROGRESS = "/run/npu-affinity/migration.json"
"""What a migration has done and still has to do, for those who wait for it; gone when it has ended."""

FEATURE = Feature(
    "threads",
    effect="places threads of workers by their role",
    live={"processes": [dict], "patterns": dict},
    owned=(SETTINGS, UNIT_FOLDER + "/" + WATCH_SERVICE),
    programs=(WATCH_SERVICE,),
    leftovers=(PROGRESS,),
    step=where_wanted("threads", "threads.step:of_state"),
    restore=later("threads.step:Restore"),
    watch=later("threads.watching:Threads"),
    compare=compared_where_wanted("threads", "threads.step:compare"),
)
