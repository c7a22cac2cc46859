# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file in which the metrics of a host lie for node exporter: where role metrics wants it, and which ones were ever written.

This module is private to the collection.
"""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any, Mapping

from ._host import Host
from ._state import previous
from ._state.files import MARKER, atomic_write, is_ours

SETTINGS = "/etc/npu-affinity/metrics.json"
SECTION = "metrics"
"""The section of previous.json: the paths of all files that were written, so that none is left when another one is wanted."""
_ABOUT = MARKER + ": where metrics are written. Changes are overwritten."


def settings_text(textfile: str) -> str:
    """Return the text of :data:`SETTINGS`."""
    return previous.dump(_ABOUT, {"textfile": textfile})


def wanted(host: Host) -> str | None:
    """Return the path of the file, or None where no metrics are wanted.

    Raises ``ValueError`` for settings that role metrics does not write.
    """
    text = host.read(SETTINGS)
    if text is None:
        return None
    try:
        path = json.loads(text)["textfile"]
        if not isinstance(path, str) or not posixpath.isabs(path):
            raise ValueError("'textfile' is %r, which is not an absolute path" % (path,))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("%s is not what role metrics writes (%s); remove it and bind the host again" % (SETTINGS, error))
    return path


def require(host: Host, path: str) -> None:
    """Raise ``ValueError`` where nobody would read the file, because its folder is not on the host, and where it is none of ours."""
    folder = posixpath.dirname(path)
    if not os.path.isdir(host.resolve(folder)):
        raise ValueError(
            "there is no folder %s, so nobody would read the metrics: install node exporter (Debian: prometheus-node-exporter), or set "
            "npu_affinity_metrics_textfile to a file in the folder of its option --collector.textfile.directory" % folder
        )
    if host.exists(path) and not is_ours(host.read(path) or ""):
        raise ValueError("%s is there, and is none of ours: remove it, or set npu_affinity_metrics_textfile to another file" % path)


def record(host: Host, path: str) -> None:
    """Note the file before it is written for the first time."""
    previous.record(host, SECTION, [path])


def write(host: Host, path: str, text: str) -> None:
    """Replace the file, and remove those that were written before at other places."""
    atomic_write(host, path, text)
    recorded = previous.recorded(host)
    for other in written(host, recorded):
        if other != path:
            os.unlink(host.path(other))
    previous.forget(host, SECTION, [other for other in recorded.get(SECTION, []) if other != path])


def written(host: Host, recorded: Mapping[str, Any]) -> list[str]:
    """Return the files of ours that are there, by the sections of previous.json."""
    return [path for path in recorded.get(SECTION, []) if is_ours(host.read(path) or "")]
