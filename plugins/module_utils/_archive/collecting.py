# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the archive of a host: look at it as a plan and a comparison do, and pack what they read."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
import time
from typing import Any, Mapping, NamedTuple

from .._features.tuning.feature import SETTINGS
from .._drift.in_force import compare
from .._features.comparing import Wanted
from .._state.history.entries import Entry, newest
from .._host.host import CommandError, Host
from .._host.installed import HostCode
from .._host.recorded import MANIFEST
from .._host.recorded import SCHEMA, relative, said
from .._topology.gather import gather
from .._base.version import VERSION
from .recording import Copy, Recording, copy
from .._features.vnpu.layout import Layout, complete, layout_of
from .anonymizing import Anonymous, names_of
from .command_lines import REMOVED
from .scrubbing import Known, scrub

ABOUT = "What npu.affinity read of a host: playbook npu.affinity.inspect plans and compares it from here."
COMMANDS = "commands"
"""The folder of the answers of commands."""
_ALWAYS = (
    "/proc/sys/kernel/arch",
    "/proc/cpuinfo",
    "/proc/sys/kernel/osrelease",
    *(setting.path for setting in SETTINGS.values() if "*" not in setting.path),
)
"""What tells about the machine, or is compared with settings that another reader may have."""
_KEPT_PROCESSORS = 2
_TOOLS = {"npu_smi": "npu-smi", "nvidia_smi": "nvidia-smi"}
"""Options that name a command, and the tool that it runs."""


class Request(NamedTuple):
    """What an archive is to be of.

    ``questions`` are the options of :func:`_topology.gather.gather`, ``settings`` those that the host is planned with, ``anonymous`` says
    whether ``host``, its other names and serial numbers are taken out, and ``host_code`` is that of :func:`_drift.in_force.compare`.
    """

    host: str
    questions: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    anonymous: bool = False
    host_code: HostCode | None = None


class Archive(NamedTuple):
    """What goes into an archive: its manifest, content and permissions of its ``members`` by name, permissions of its ``directories``, and
    sentences on what is not in it."""

    manifest: dict[str, Any]
    members: dict[str, tuple[bytes, int]]
    directories: dict[str, int]
    warnings: list[str]

    def write(self, target: str) -> None:
        """Write the archive to a new file that its owner can read."""
        now = int(time.time())
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            manifest = (json.dumps(self.manifest, indent=1, sort_keys=True) + "\n").encode()
            _add(archive, MANIFEST, manifest, 0o644, now)  # the first one: a reader knows by it whose archive it is
            for folder, mode in self.directories.items():
                entry = tarfile.TarInfo(folder.lstrip("/"))
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode & 0o1777, now
                archive.addfile(entry)
            for name, (data, mode) in sorted(self.members.items()):
                _add(archive, name, data, mode, now)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int, now: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(data), mode & 0o777, now
    archive.addfile(entry, io.BytesIO(data))


def collect(root: str, timeout: float, request: Request) -> Archive:
    """Look at the host below a root, and return what its archive has. Nothing is written."""
    recording = Recording(root, timeout)
    topology = gather(recording, others=True, **request.questions)
    warnings, wanted = [], Wanted()
    try:
        wanted = compare(recording, topology, host_code=request.host_code).wanted
    except (OSError, ValueError, CommandError) as error:
        warnings.append("the comparison did not finish, and the archive may lack what it needs: %s" % error)
    layout = wanted.live.get("vnpu")
    known = Known(
        set((topology["kubelet"] or {}).get("sources") or ()),
        _written(wanted, newest(recording)),
        _libraries(layout_of(layout) if layout else None),
    )
    for path in _ALWAYS:
        recording.resolve(path)
    found = copy(recording, lambda path, data: _packed(path, data, known), known.libraries)
    members = {path[1:]: kept for path, kept in found.files.items()}
    answers, commands = _answers(recording, request.questions)
    members.update(answers)
    document = _manifest(recording, request, found, commands)
    archive = Archive(document, members, found.directories, warnings)
    if request.anonymous:
        archive = _without_names(archive, _known_as(recording.plain, request.host))
    warnings = archive.warnings
    warnings += ["%s is too large for the archive" % path for path in found.unread if recording.asked.get(path)]
    warnings += ["%s could not be read; run as root (become: true)" % path for path in found.unreadable]
    return archive


def _without_names(archive: Archive, known_as: list[str]) -> Archive:
    names, common = names_of(known_as)
    hide = Anonymous(names)
    warnings = archive.warnings + [
        "The name %s of this host stays in the archive, because it is a word that archives are made of; rename the file and look into it "
        "before you send it" % name
        for name in common
    ]
    members: dict[str, tuple[bytes, int]] = {}
    for name, (data, mode) in archive.members.items():
        if hide.path(name) in members:
            warnings.append("%s is not in the archive: without the host's name it is called like another file" % name)
        members.setdefault(hide.path(name), (hide.member(name, data), mode))
    return Archive(
        hide.document(archive.manifest), members, {hide.path(folder): mode for folder, mode in archive.directories.items()}, warnings
    )


def _packed(path: str, data: bytes, known: Known) -> bytes:
    if path == "/proc/cpuinfo":
        return b"\n\n".join(data.split(b"\n\n")[:_KEPT_PROCESSORS]) + b"\n"
    return scrub(path, data, known)


def _written(wanted: Wanted, entry: Entry | None) -> dict[str, set[str]]:
    """Return the texts of files that the collection writes, or last wrote, by path."""
    found: dict[str, set[str]] = {}
    of_entry = entry.state["files"] if entry else ()
    for file in [*wanted.files, *of_entry]:
        if isinstance(file, dict) and isinstance(file.get("content"), str):
            found.setdefault(str(file.get("path")), set()).add(file["content"])
    return found


def _libraries(layout: Layout | None) -> dict[str, str]:
    try:
        files = complete(layout).files if layout else {}
    except ValueError:  # the comparison reports it
        files = {}
    return {"%s/%s" % (layout.folder, name): digest for name, digest in files.items()} if layout else {}


def _known_as(host: Host, inventory_name: str) -> list[str]:
    """Return the names by which a host is known."""
    own = [platform.node()] if host.live else []
    return [inventory_name, host.read("/etc/hostname") or "", *own]


def _answers(recording: Recording, questions: Mapping[str, Any]) -> tuple[dict[str, tuple[bytes, int]], list[dict[str, Any]]]:
    """Return the answers of commands as files, and what the manifest says of each.

    Where a tool is run by a command of several words, such as one that starts a container, these words are left out: they are the user's.
    """
    files: dict[str, tuple[bytes, int]] = {}
    commands = []
    for entry in recording.commands.values():
        described = {key: value for key, value in entry.items() if key != "output"}
        for option, tool in _TOOLS.items():
            given = str(questions.get(option) or "").split()
            words = list(relative(recording.root, given))
            if len(words) > 1 and entry["argv"][: len(words)] == words:
                described["argv"] = [tool, *entry["argv"][len(words) :]]
                described.update({"error": entry["error"].replace(" ".join(given), tool)} if "error" in entry else {})
                recording.programs[tool] = tool
        if "output" in entry:
            name = "%s/%s" % (COMMANDS, said(described)[:120])
            while name in files:
                name += "+"
            files[name] = (entry["output"].encode("utf-8", "surrogateescape"), 0o644)
            described["file"] = name
        commands.append(described)
    return files, commands


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings except for commands of several words, by which tools are run."""
    named = {"npu_affinity_%s" % option for option in _TOOLS}
    return {name: value for name, value in settings.items() if name not in named or len(str(value).split()) == 1}


def _manifest(recording: Recording, request: Request, found: Copy, commands: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "about": ABOUT,
        "schema": SCHEMA,
        "version": VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": REMOVED if request.anonymous else request.host,
        "source": "npu.affinity.collect",
        "live": recording.live,
        "settings": _settings(request.settings),
        "programs": recording.programs,
        "commands": commands,
        "absent": found.absent,
        "whole": [],
        "links": found.links,
        "folders": found.folders,
        "names": found.names,
        "unread": found.unread,
        "unreadable": found.unreadable,
    }
