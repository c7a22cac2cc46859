# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which memory allocator of a host a program can preload."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._kernel.allocators import allocator

DEBIAN, RHEL = "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/"
INSTALLED = {
    "none": ([], None),
    "jemalloc of Debian": ([DEBIAN + "libjemalloc.so.2"], DEBIAN + "libjemalloc.so.2"),
    "tcmalloc of openEuler": ([RHEL + "libtcmalloc.so.4"], RHEL + "libtcmalloc.so.4"),
    "both": ([DEBIAN + "libtcmalloc.so.4", RHEL + "libjemalloc.so.2"], RHEL + "libjemalloc.so.2"),
    "that of another architecture": (["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"], None),
}


@pytest.mark.parametrize("files, expected", list(INSTALLED.values()), ids=list(INSTALLED))
def test_the_allocator_is_one_that_the_host_has(tree, files, expected):
    assert allocator(tree.write({"/proc/sys/kernel/arch": "aarch64", **dict.fromkeys(files, "")})) == expected
