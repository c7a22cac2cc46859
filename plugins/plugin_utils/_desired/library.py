# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of the host code, for hosts whose usual one is read-only: every file that names it gets the one of the settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.npu.affinity.plugins.module_utils._host.installed import LIBRARY, placed

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, FileEntry, Restarted

_FOLDER = re.compile(r"(/(?!\.\.?(/|\Z))[A-Za-z0-9._+-]+)+")
"""Such a path needs no quotes in a unit file, a script, and the arguments of irqbalance."""
_LOST = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var/run")


def library_refusals(library: str) -> list[Sentence]:
    """Return why the host code cannot be in a folder."""
    if not _FOLDER.fullmatch(library):
        why = "it must be an absolute path of letters, digits and ._+-, without '..' and without a slash at its end"
    elif f"{library}/".startswith(tuple(f"{folder}/" for folder in _LOST)):
        why = "what is there is lost at the next boot"
    else:
        return []
    return [
        Sentence("NPU_SETTING_INVALID", f"npu_affinity_library cannot be '{library}': {why}. Name a folder such as /var/lib/npu-affinity.")
    ]


def with_library(state: AppliedState, library: str) -> AppliedState:
    """Return a desired state whose host code is in a folder; the usual one is not named, so documents stay as they are."""
    if library == LIBRARY or not state["runtime"]:
        return state
    files = [_file(entry, library) for entry in state["files"]]
    restarted: list[Restarted] = [
        {"unit": entry["unit"], "files": [placed(path, library) for path in entry["files"]]} for entry in state["restarted"]
    ]
    return {**state, "files": files, "restarted": restarted, "library": library}


def _file(entry: FileEntry, library: str) -> FileEntry:
    content = entry["content"].replace(f"{LIBRARY}/", f"{library}/")
    return {**entry, "path": placed(entry["path"], library), "content": content}
