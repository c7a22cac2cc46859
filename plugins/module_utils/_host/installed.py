# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the host code lies on a host. :mod:`_apply.runtime` makes its files."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Callable, Iterable

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry

ARCHIVE = "/usr/local/lib/npu-affinity/npu_affinity.zip"
"""What Python's path has to name."""
CODE_FOLDER = posixpath.dirname(ARCHIVE)
COMMAND = "/usr/local/bin/npu-affinity"
UNIT_FOLDER = "/etc/systemd/system"
COMPLETION = "/usr/local/share/bash-completion/completions/npu-affinity"
_RELOCATED = {COMMAND: "/npu-affinity", COMPLETION: "/npu-affinity.bash"}
_VERSION = re.compile(r'^VERSION = "([^"]*)"', re.MULTILINE)
HostCode = Callable[["AppliedState"], "list[FileEntry]"]
"""Returns the files of the host code for a desired state."""


def relocated(path: str, folder: str) -> str:
    """Return where a file lies on a host whose host code is in the given ``folder``, by its path on others; also for shell patterns."""
    if folder == CODE_FOLDER:
        return path
    if path.startswith(CODE_FOLDER + "/"):
        return folder + path[len(CODE_FOLDER) :]
    return folder + _RELOCATED[path] if path in _RELOCATED else path


def code_folder(state: AppliedState | None) -> str:
    """Return the folder of the host code by a desired state."""
    return (state and state.get("library")) or CODE_FOLDER


def everywhere(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Return paths or shell patterns with those that they have in other folders of the host code."""
    return list(dict.fromkeys(relocated(path, folder) for path in paths for folder in [CODE_FOLDER, *folders]))


def is_archive(path: str) -> bool:
    return posixpath.basename(path) == posixpath.basename(ARCHIVE)


def installed_version(text: str | None) -> str | None:
    """Return the version that the text of an installed archive names; None without one."""
    match = _VERSION.search(text or "")
    return match.group(1) if match else None
