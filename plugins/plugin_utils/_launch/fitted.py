# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of option ``environment``, which fit a program to the CPUs of its workload."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._base.fitting import Variables, fitting, values_of
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload


def environment(workload: Workload, options: Options, contained: bool) -> dict[str, str]:
    """Return the variables; ``contained``: in a container, which does not have the libraries of the host."""
    return values_of(_found(workload, options, contained))


def notes(workload: Workload, options: Options, contained: bool) -> list[str]:
    """Return why each variable is set, and why LD_PRELOAD is not."""
    found = _found(workload, options, contained)
    said = [f"{name}: {reason}" for name, (_value, reason) in found.items()]
    if (options.environment or {}).get("allocator") and "LD_PRELOAD" not in found:
        why = "an image has its own libraries" if contained else "topology names no jemalloc or tcmalloc on the host"
        said.append(f"LD_PRELOAD is not set: {why}. Set it yourself if an allocator is installed.")
    return said


def _found(workload: Workload, options: Options, contained: bool) -> Variables:
    library = None if contained else workload.topology.get("allocator")
    return fitting(options.environment or {}, workload.cpus, [workload.kind] * len(workload.cards), library)
