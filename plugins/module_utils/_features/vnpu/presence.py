# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what holds containers to their share of an NPU is on the host. Reads only.

Every process of such a container loads hami-vnpu-core's library, by the preload file that the container mounts over its own
(Project-HAMi/hami-vnpu-core@f795831b).
"""

from __future__ import annotations

from ..._host.host import Host
from ..._state.step import Check
from .layout import IN_CONTAINER, LIBRARY, PRELOAD


class Presence(Check):
    """Refuses containers of vNPUs that would run without any limit, where this host gets the files of soft split from elsewhere."""

    def __init__(self, host: Host, folder: str) -> None:
        Check.__init__(self)
        self.host = host
        self.folder = folder

    def look(self, check: bool) -> None:
        for path, what in lacking(self.host, self.folder):
            raise ValueError(
                "%s is not on the host (%s), and containers of vNPUs would run without any limit. Place it (npu_affinity_vnpu_enabled with "
                "npu_affinity_vnpu_files)" % (path, what)
            )


def lacking(host: Host, folder: str) -> list[tuple[str, str]]:
    """Return ``[(path, what it is)]`` of the files that are not on the host and without which no container has a limit."""
    preload = "%s/%s" % (folder, PRELOAD)
    text = host.read(preload)
    named = [path for path in (text or "").split() if path.rpartition("/")[2] == LIBRARY]
    missing = [] if named else [(preload, "a file that names %s" % LIBRARY)]
    inside = [path[len(IN_CONTAINER) :] for path in named if path.startswith(IN_CONTAINER + "/")] if named else ["/" + LIBRARY]
    return missing + [(folder + path, "the library that limits containers") for path in inside if not host.exists(folder + path)]
