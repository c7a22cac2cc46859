# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file in which the metrics of a host lie for node exporter: where role metrics wants it, and which ones were ever written."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any, Mapping

from ..._base.findings import coded
from ..._base.outside import json_of
from ..._host.host import Host
from ..._state import previous
from ..._state.files import MARKER, atomic_write, is_managed, remove_file
from ..._state.step import Check
from ..._state.unit_files import values
from .feature import SECTION, SETTINGS

NAME = "npu_affinity.prom"
UNITS = ("node_exporter.service", "prometheus-node-exporter.service", "node-exporter.service")
"""Of node exporter: its own example and RHEL's and openEuler's packages, Debian's, and what some roles install."""
FOLDERS = ("/var/lib/prometheus/node-exporter", "/var/lib/node_exporter/textfile_collector", "/var/lib/node_exporter")
"""Where Debian's package, its own example with the packages that follow it, and common roles have text files."""
_OPTION = re.compile(r"--collector\.textfile\.directory(?:=|\s+)[\"']?(/[^\s\"']+)")
_ADVICE = (
    "Install node exporter with --collector.textfile.directory (Debian: package prometheus-node-exporter), or set "
    "npu_affinity_metrics_textfile to a file in its folder"
)
_ABOUT = MARKER + ": where metrics are written. Changes are overwritten."


def settings_text(textfile: str) -> str:
    return previous.dump(_ABOUT, {"textfile": textfile})


def wanted(host: Host) -> str | None:
    """Return the path of the file, '' for the folder that node exporter reads, or None where no metrics are wanted.

    Raises ``ValueError`` for settings that role metrics does not write.
    """
    text = host.text(SETTINGS)
    if text is None:
        return None
    try:
        path = json_of(text)["textfile"]
        if not isinstance(path, str) or path and not posixpath.isabs(path):
            raise ValueError("'textfile' is %r, which is not an absolute path" % (path,))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("%s is not what role metrics writes (%s); remove it and bind the host again" % (SETTINGS, error))
    return path


def place(host: Host, textfile: str) -> tuple[str | None, str]:
    """Return the path of the file, or None with a sentence where no node exporter would read it.

    ``textfile`` is the path that somebody chose, or '' for the folder that the node exporter of this host reads. Raises ``ValueError``
    where a file lies there that is not managed by npu.affinity.
    """
    folder = posixpath.dirname(textfile) if textfile else folder_of_exporter(host)
    if folder is None:
        return None, "No metrics are written: no node exporter with a folder for text files was found. %s" % _ADVICE
    if not os.path.isdir(host.resolve(folder)):
        return None, "No metrics are written: there is no folder %s. %s" % (folder, _ADVICE)
    path = textfile or "%s/%s" % (folder, NAME)
    if host.exists(path) and not is_managed(host.read(path) or ""):
        raise ValueError(
            "%s exists and is not managed by npu.affinity: remove it, or set npu_affinity_metrics_textfile to another file" % path
        )
    return path, ""


def folder_of_exporter(host: Host) -> str | None:
    """Return the folder of text files that the node exporter of a host reads: by its unit, its unit's environment, or its package."""
    for unit in UNITS:
        settings = values(host, unit)
        texts = [value for key in ("ExecStart", "Environment") for _path, value in reversed(settings.get(key, []))]
        texts += [host.read(value.lstrip("-")) or "" for _path, value in settings.get("EnvironmentFile", [])]
        for text in texts:
            lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
            match = _OPTION.search(" ".join(lines))
            if match:
                return match.group(1)
    return next((folder for folder in FOLDERS if os.path.isdir(host.resolve(folder))), None)


def write(host: Host, path: str, text: str) -> None:
    """Replace the file, and remove those that were written before at other places."""
    atomic_write(host, path, text)
    recorded = previous.recorded(host)
    for other in written(host, recorded):
        if other != path:
            remove_file(host, other)
    previous.forget(host, SECTION, [other for other in recorded.get(SECTION, []) if other != path])


def written(host: Host, recorded: Mapping[str, Any]) -> list[str]:
    """Return the managed files that are there, by the sections of previous.json."""
    return [path for path in recorded.get(SECTION, []) if is_managed(host.read(path) or "")]


def of_state(host: Host, live: str, _state: object) -> Check:
    """Return a remark where nothing reads the file at its place."""
    return Check(lambda: coded("NPU_METRICS_UNREAD", filter(None, [place(host, live)[1]])))
