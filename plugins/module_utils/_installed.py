# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the host code lies on a host, and what there is ours. Which code that is, :mod:`_runtime` says.

This module is private to the collection.
"""

from __future__ import annotations

import posixpath
import re

from ._host import Host

FOLDER = "/usr/local/lib/npu-affinity/npu_affinity"
LIBRARY = posixpath.dirname(FOLDER)
"""What Python's path has to name."""
OWNED = (FOLDER + "/*.py", FOLDER + "/*/*.py")
"""Where files of ours were installed by this version or another one."""
COMMAND = "/usr/local/bin/npu-affinity"
COMPLETION = "/usr/local/share/bash-completion/completions/npu-affinity"
_VERSION = re.compile(r'^VERSION = "([^"]*)"', re.MULTILINE)


def folders(host: Host) -> list[str]:
    """Return the folders of the package on a host, with those in which Python keeps what it compiled."""
    rooms = ["%s/%s" % (FOLDER, name) for name in host.names(FOLDER, "_[a-z]*") if "." not in name]
    return [folder + end for folder in [FOLDER] + rooms for end in ("", "/__pycache__")]


def installed_version(text: str | None) -> str | None:
    """Return the version in the text of an installed ``__init__.py``; None where there is no text, or one from before it had a version."""
    found = _VERSION.search(text or "")
    return found.group(1) if found else None
