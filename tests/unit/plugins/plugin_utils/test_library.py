# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which folders can hold the host code."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.library import library_refusals

FOLDERS = [
    ("/usr/local/lib/npu-affinity", ""),
    ("/var/lib/npu-affinity", ""),
    ("/opt/npu_affinity-1.0+a", ""),
    ("/runtime/code", ""),
    ("", "it must be an absolute path"),
    ("var/lib/npu-affinity", "it must be an absolute path"),
    ("/", "it must be an absolute path"),
    ("/var/lib/npu-affinity/", "it must be an absolute path"),
    ("/var/../etc", "it must be an absolute path"),
    ("/var/./lib", "it must be an absolute path"),
    ("/srv/..", "it must be an absolute path"),
    ("/srv/two words", "it must be an absolute path"),
    ('/srv/"quoted"', "it must be an absolute path"),
    ("/srv/%i", "it must be an absolute path"),
    ("/srv/a\n", "it must be an absolute path"),
    ("/tmp", "what is there is lost at the next boot"),
    ("/run/npu-affinity", "what is there is lost at the next boot"),
    ("/var/run/npu-affinity", "what is there is lost at the next boot"),
]


@pytest.mark.parametrize(("folder", "why"), FOLDERS)
def test_folders_that_units_cannot_name_are_refused(folder, why):
    found = library_refusals(folder)
    assert bool(found) == bool(why)
    assert all(sentence.startswith(f"npu_affinity_library cannot be '{folder}': {why}") for sentence in found)
