# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues of network functions restored where they were before the first bind."""

from __future__ import annotations

from ..irq import release
from ..irq.affinity import Report
from ..irq.rebinds import forget
from .places import SECTION
from .queues import recorded, restore


class Release(release.Release):
    """``report`` has a row for each recorded function, or is None."""

    section = SECTION

    def restored(self, check: bool) -> Report:
        functions = recorded(self.outcome.recorded)
        for pci in functions if not check else ():
            forget(self.host, pci)
        return restore(self.host, functions, check)
