# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature adopt: running work that holds NPUs on the CPUs of these NPUs."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER
from ..feature import later, value_feature, where_wanted
from ..watching import WATCH_SERVICE

SECTION = "adopt"
SETTINGS = "/etc/npu-affinity/adopt.json"
"""Which running work the watcher adopts; there only where it adopts any."""
DROP_IN = "50-npu-affinity-adopt.conf"
DROP_INS = "%s/*.service.d/%s" % (UNIT_FOLDER, DROP_IN)

FEATURE = value_feature(
    SECTION,
    effect="confines running work to the CPUs of its NPUs",
    kind=later("adopt.work:Work"),
    live={"mode": str, "move_memory?": bool, "pods?": bool, "environment?": dict},
    owned=(SETTINGS, UNIT_FOLDER + "/" + WATCH_SERVICE, DROP_INS),
    programs=(WATCH_SERVICE,),
    step=where_wanted(SECTION, "adopt.choosing:of_state"),
    compare=None,
    compared=0,
    program=None,
    watch=later("adopt.watching:Watcher"),
)
