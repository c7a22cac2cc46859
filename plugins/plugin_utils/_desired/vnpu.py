# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature vnpu: the directories and files of the soft split of NPUs."""

from __future__ import annotations

import posixpath

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

REGION = "hami-shared-region"
REGION_MODE = "1777"
"""No container can remove or replace the files of another."""


def region(folder: str) -> str:
    """Return the directory in which the containers of all NPUs coordinate, by that of hami-vnpu-core."""
    return posixpath.join(posixpath.dirname(folder.rstrip("/")), REGION)


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    """Return the layout as ``layout_of`` takes it."""
    files = [{key: value for key, value in file.items() if key != "src"} for file in settings["files"]]
    return Feature(
        soft_split=settings["folder"],
        live={"folder": settings["folder"], "shared_mode": REGION_MODE, "shared_region": region(settings["folder"]), "files": files},
    )
