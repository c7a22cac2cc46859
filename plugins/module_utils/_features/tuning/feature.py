# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature tuning: settings of the whole host that concern NPUs.

Kernel ``Documentation/admin-guide/pm/cpufreq.rst``, ``admin-guide/sysctl/kernel.rst``, ``admin-guide/mm/transhuge.rst``,
``admin-guide/sysctl/vm.rst``. What a host does not have (cpufreq on a virtual machine, NUMA balancing in a kernel) is reported and is not
a failure.
"""

from __future__ import annotations

from ..._state.value_kind import Setting
from ..feature import value_feature

POLICIES = "/sys/devices/system/cpu/cpufreq/policy*/"
SETTINGS = {
    "governor": Setting(POLICIES + "scaling_governor", "CPU", "related_cpus", "scaling_available_governors"),
    "numa_balancing": Setting("/proc/sys/kernel/numa_balancing"),
    "swappiness": Setting("/proc/sys/vm/swappiness"),
    "transparent_hugepages": Setting("/sys/kernel/mm/transparent_hugepage/enabled"),
}
FEATURE = value_feature(
    "tuning",
    SETTINGS,
    meaning="A host setting is not as planned.",
    effect="sets the host's kernel settings",
    by_whom="set by hand, or by another program such as TuneD",
)
