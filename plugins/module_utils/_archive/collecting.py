# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the archive of a host: look at it as a plan and a comparison do, and pack what they read.

This module is private to the collection.
"""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
import time
from typing import Any, Mapping, NamedTuple

from .. import _tuning
from .._drift.verify import Wanted, verify
from .._history.entries import newest
from .._host import CommandError, Host
from .._recorded import MANIFEST, SCHEMA, said
from .._topology.gather import gather
from .._version import VERSION
from .recording import Copy, Recording, copy
from .scrubbing import REMOVED, anonymous, scrub

ABOUT = "What npu.affinity read of a host: playbook npu.affinity.inspect plans and compares it from here."
COMMANDS = "commands"
"""The folder of the answers of commands."""
_ALWAYS = ("/proc/sys/kernel/arch", "/proc/cpuinfo", "/proc/sys/kernel/osrelease", *_tuning.PLACES.values())
"""What tells about the machine, or is compared with settings that another reader may have."""
_KEPT_PROCESSORS = 2


class Request(NamedTuple):
    """What an archive is to be of.

    ``questions`` are the options of :func:`_topology.gather.gather`, ``settings`` those that the host is planned and compared with, and
    ``anonymous`` says whether ``host``, its other names and serial numbers are taken out.
    """

    host: str
    questions: Mapping[str, Any] = {}
    wanted: Wanted = Wanted()
    settings: Mapping[str, Any] = {}
    anonymous: bool = False


class Archive(NamedTuple):
    """What goes into an archive: the content and permissions of its ``members`` by name, and sentences on what is not in it."""

    manifest: dict[str, Any]
    members: dict[str, tuple[bytes, int]]
    directories: list[str]
    warnings: list[str]

    def write(self, target: str) -> None:
        """Write the archive to a new file that its owner can read."""
        now = int(time.time())
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for folder in self.directories:
                entry = tarfile.TarInfo(folder.lstrip("/"))
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, now
                archive.addfile(entry)
            for name, (data, mode) in sorted(self.members.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = len(data), mode & 0o777, now
                archive.addfile(entry, io.BytesIO(data))


def collect(root: str, timeout: float, request: Request) -> Archive:
    """Look at the host below a root, and return what its archive has. Nothing is written."""
    recording = Recording(root, timeout)
    topology = gather(recording, **request.questions)
    warnings = []
    try:
        verify(recording, request.wanted._replace(topology={"npus": topology["npus"]}))
    except (OSError, ValueError, CommandError) as error:
        warnings.append("the comparison did not come to its end, so that the archive may lack what it needs: %s" % error)
    newest(recording)
    for path in _ALWAYS:
        recording.resolve(path)
    found = copy(recording)
    kubelet = set((topology["kubelet"] or {}).get("sources") or ())
    members = {path[1:]: (_packed(path, data, kubelet), mode) for path, (data, mode) in found.files.items()}
    answers, commands = _answers(recording)
    members.update(answers)
    document = _manifest(recording, request, found, commands)
    members[MANIFEST] = ((json.dumps(document, indent=1, sort_keys=True) + "\n").encode(), 0o644)
    if request.anonymous:
        names = _names_of(recording.plain, request.host)
        members = {name: (anonymous(name, data, names), mode) for name, (data, mode) in members.items()}
    warnings += ["%s is too large for the archive" % path for path in found.unread if recording.asked.get(path)]
    warnings += ["%s could not be read; run as root (become: true)" % path for path in found.unreadable]
    return Archive(document, members, found.directories, warnings)


def _packed(path: str, data: bytes, kubelet: set[str]) -> bytes:
    if path == "/proc/cpuinfo":
        return b"\n\n".join(data.split(b"\n\n")[:_KEPT_PROCESSORS]) + b"\n"
    return scrub(path, data, kubelet)


def _names_of(host: Host, inventory_name: str) -> list[str]:
    """Return the names by which a host is known, but for those that every host could have."""
    full = [inventory_name, platform.node() if host.live else host.read("/etc/hostname") or ""]
    found = {name for text in full for name in (text.strip(), text.strip().partition(".")[0])}
    return sorted(name for name in found if len(name) > 1 and name != "localhost")


def _answers(recording: Recording) -> tuple[dict[str, tuple[bytes, int]], list[dict[str, Any]]]:
    """Return the answers of commands as files, and what the manifest says of each."""
    files: dict[str, tuple[bytes, int]] = {}
    commands = []
    for entry in recording.commands.values():
        described = {key: value for key, value in entry.items() if key != "output"}
        if "output" in entry:
            name = "%s/%s" % (COMMANDS, said(entry)[:120])
            while name in files:
                name += "+"
            files[name] = (entry["output"].encode("utf-8", "surrogateescape"), 0o644)
            described["file"] = name
        commands.append(described)
    return files, commands


def _manifest(recording: Recording, request: Request, found: Copy, commands: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "about": ABOUT,
        "schema": SCHEMA,
        "version": VERSION,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": REMOVED if request.anonymous else request.host,
        "source": "npu.affinity.collect",
        "live": recording.live,
        "settings": dict(request.settings),
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
