# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often our units had to put interrupts back since the host booted: counters for metrics.

They lie in ``/run``, because counters of Prometheus begin again at a boot like those of the kernel.
"""

from __future__ import annotations

import json

from ..._host.host import Host
from ..._base.outside import json_of
from .places import COUNTERS

PATH = COUNTERS
CHECK, DRIVER = "check", "driver"
"""Who began: the unit of all NPUs at boot and by its timer, or that of one PCI function, which udev starts."""
RUNS, INTERRUPTS = "runs", "interrupts"


def counts(host: Host) -> dict[str, dict[str, int]]:
    """Return ``{CHECK or DRIVER: {runs, interrupts}}``: runs that moved anything, and the interrupts that they moved."""
    nothing = {trigger: {RUNS: 0, INTERRUPTS: 0} for trigger in (CHECK, DRIVER)}
    try:
        found = json_of(host.read(PATH) or "{}")
        return {trigger: {key: int(found.get(trigger, zeros)[key]) for key in zeros} for trigger, zeros in nothing.items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return nothing


def add(host: Host, trigger: str, interrupts: int) -> None:
    """Count a run that moved something, and so many interrupts. The caller holds the lock of the host."""
    from ..._state.files import atomic_write  # needed by a run that changes something only

    after = counts(host)
    after[trigger][RUNS] += 1
    after[trigger][INTERRUPTS] += interrupts
    atomic_write(host, PATH, json.dumps(after, indent=1, sort_keys=True) + "\n")
