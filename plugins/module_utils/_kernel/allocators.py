# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory allocators that a program can preload. Reads only.

Source: vLLM-Ascend, "Optimization and Tuning", which preloads jemalloc or tcmalloc; the folders are those of Debian, openEuler and RHEL.
"""

from __future__ import annotations

from .._host.host import Host
from .machine import architecture

_LIBRARIES = ("libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4")


def allocator(host: Host) -> str | None:
    """Return the path of the first allocator that the host has, or None."""
    folders = ("/usr/lib/%s-linux-gnu" % architecture(host), "/usr/lib64")
    paths = ["%s/%s" % (folder, library) for library in _LIBRARIES for folder in folders]
    return next((path for path in paths if host.exists(path)), None)
