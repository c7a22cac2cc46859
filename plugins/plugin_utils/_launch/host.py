# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs that run outside containers have in common: they see all devices of the host, by its logic ids."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import fitted
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload


def environment(workload: Workload, options: Options) -> dict[str, str]:
    """Return the variables that confine the program to its devices, switch its own binding off, and fit it to its CPUs."""
    own = {**(workload.visible_on_host if options.visible_devices else {}), **options.switches}
    return fitted.environment(workload, options, contained=False) | own


def program(workload: Workload, options: Options) -> list[str]:
    """Return the command with these variables."""
    words = [f"{name}={value}" for name, value in environment(workload, options).items()]
    return [*(["env", *words] if words else []), *options.program]


def unsure(workload: Workload, options: Options) -> list[str]:
    """Return a sentence where the ids of a workload given by device nodes are not known."""
    if not options.visible_devices or not workload.cards or workload.visible_on_host:
        return []
    return ["Set ASCEND_RT_VISIBLE_DEVICES: device nodes are numbered by physical id, and only topology tells the logic ids."]
