# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of an OCI runtime specification that places a container, for ctr of containerd, which has no flags for it.

This module is private to the collection.
"""

from __future__ import annotations

import json

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.visible_devices import visible_devices
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.options import Options
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Recipe, Workload

OPTIONS = frozenset({"visible_devices", "engine"})


def recipe(workload: Workload, options: Options) -> Recipe:
    path = {"cgroupsPath": f"{workload.slice}:ctr:{workload.named()}"} if workload.slice else {}
    cpu = {"cpus": workload.cpus, **({"mems": workload.mems} if workload.mems else {})}
    visible = visible_devices(workload.kind, range(len(workload.cards))) if options.visible_devices else {}
    environment = {**visible, **options.switches}
    process = {"process": {"env": [f"{name}={value}" for name, value in environment.items()]}} if environment else {}
    return Recipe(json.dumps({**process, "linux": {**path, "resources": {"cpu": cpu}}}, indent=2) + "\n", comment=None)
