# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories and files on a host that soft split of NPUs needs (hami-vnpu-core), and their removal.

Two layouts are known. In the published one an administrator places the library, its preload file and the limiter; in today's, the device
plugin of HAMi places library and preload file, and there is no limiter. So every file is optional, and what someone else placed is never
touched: managed files are recognized by their checksums, which are recorded before they are written.

Containers mount the directory as ``/hami-vnpu-core`` and its ``ld.so.preload`` over their own ``/etc/ld.so.preload``. In the host's own
``/etc`` it would be loaded into every program of the host.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from ..._host.host import Host
from ..._state import diffs
from ..._state import previous, step
from ..._state.files import Snapshot, atomic_write, make_folder, missing_folders, remove_empty
from ..._state.writable import obstacle
from ..feature import Choices

if TYPE_CHECKING:
    from ..._base.documents import LayoutLive

SECTION = "vnpu"
FOLDER_MODE = 0o775
PRELOAD = "ld.so.preload"
LIBRARY = "libvnpu.so"
LIMITER = "limiter"
IN_CONTAINER = "/hami-vnpu-core"
PRELOAD_TEXT = "%s/%s\n" % (IN_CONTAINER, LIBRARY)
_OF_PRELOAD = hashlib.sha256(PRELOAD_TEXT.encode()).hexdigest()
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")
_FREE = ("/usr/local", "/var/lib", "/var/opt")
"""Folders of the host itself, and those below which others have folders of their own."""
_NEEDED = {"folder": 0o555, "shared_region": 0o777}
"""Permission bits without which containers cannot use a directory that someone else made."""


class Layout(NamedTuple):
    """``folder``, ``shared_region``: absolute paths; ``shared_mode``: permission bits; ``files``: ``{path: SHA-256}``."""

    folder: str
    shared_region: str
    shared_mode: int
    files: dict[str, str]


class Report:
    """What was (or in check mode would be) done, or is to be done.

    ``folders`` maps a path to its permission bits before (None: it was not there) and after; ``missing`` are paths of files that are not
    there with their checksum, ``written`` and ``removed`` are paths, ``warnings`` sentences.
    """

    def __init__(self) -> None:
        self.folders: dict[str, tuple[int | None, int]] = {}
        self.missing: list[str] = []
        self.written: list[str] = []
        self.removed: list[str] = []
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.folders or self.missing or self.written or self.removed)


def layout_of(live: LayoutLive) -> Layout:
    """Return what a desired state wants, with a managed preload file where a library is given and no preload file.

    Raises ``ValueError`` for places or files that cannot be used.
    """
    folder, region, files = live["folder"], live["shared_region"], {}
    for title, path in (("the directory of hami-vnpu-core", folder), ("the shared region", region)):
        _refuse_system(title, path, path)
        if path != posixpath.normpath(path) or path.count("/") < 2:
            raise ValueError("%s cannot be '%s': it must be an absolute path of its own, without '..'" % (title, path))
    for name, digest in ((entry["name"], entry["sha256"]) for entry in live["files"]):
        if name.startswith(("/", "..")) or posixpath.normpath(name) != name:
            raise ValueError("'%s' is not the name of a file below %s" % (name, folder))
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError("%s: '%s' is not a SHA-256; sha256sum prints it, 64 digits in lower case" % (name, digest))
        files["%s/%s" % (folder, name)] = digest
    if "%s/%s" % (folder, LIBRARY) in files:
        files.setdefault("%s/%s" % (folder, PRELOAD), _OF_PRELOAD)
    return Layout(folder, region, int(live["shared_mode"], 8), files)


def checksum(host: Host, path: str) -> str | None:
    """Return the SHA-256 of a file in hexadecimal, or None when there is none."""
    digest = hashlib.sha256()
    file = host.open(path)
    if file is None:
        return None
    with file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _refuse_system(title: str, path: str, place: str) -> None:
    """Refuse a directory whose place, once links are followed, is the host's own."""
    inside = [folder for folder in _SYSTEM if (place + "/").startswith(folder + "/")]
    if inside and not any(place.startswith(folder + "/") for folder in _FREE):
        link = "" if place == path else " (it leads to %s)" % place
        raise ValueError("%s cannot be '%s'%s: %s is the host's own" % (title, path, link, inside[0]))


def look(host: Host, layout: Layout) -> Report:
    """Return the :class:`Report` of what is to be done. Raises ``ValueError`` for what someone else placed and is in the way."""
    report = Report()
    recorded = previous.recorded(host).get(SECTION, {})
    for key, mode in (("folder", FOLDER_MODE), ("shared_region", layout.shared_mode)):
        path = getattr(layout, key)
        before = _mode(host, path)
        if before == mode:
            continue
        if before is None or path in recorded.get("folders", ()):
            report.folders[path] = (before, mode)
        elif _NEEDED[key] & ~before:
            raise ValueError(
                "%s has permissions %04o, needs %04o, and was not made here. They stay: if it is there for soft split, "
                "'chmod %04o %s'; if not, name another place" % (path, before, mode, mode, path)
            )
        elif before & 0o1002 != mode & 0o1002:
            report.warnings.append(
                "%s has permissions %04o, not %04o; it was not made here, and they stay: 'chmod %04o %s' sets them"
                % (path, before, mode, mode, path)
            )
    ours = recorded.get("files", {})
    for path, digest in layout.files.items():
        found = checksum(host, path)
        if found == digest:
            continue
        if found is not None and found not in ours.get(path, []):
            raise ValueError(
                "%s has SHA-256 %s and should have %s, and this collection did not place it: it stays. Take it out of "
                "npu_affinity_vnpu_files when HAMi's device plugin owns it, or move it away" % (path, found, digest)
            )
        report.missing.append(path)
    report.removed = [path for path, digests in sorted(ours.items()) if path not in layout.files and checksum(host, path) in digests]
    for path in [*report.folders, *map(posixpath.dirname, report.missing)]:
        why = obstacle(host, path)
        if why:
            raise ValueError("%s cannot be written: %s; set npu_affinity_vnpu_folder to a folder that can be written" % (path, why))
    report.warnings += _inconsistencies(host, layout, report)
    return report


def _mode(host: Host, path: str) -> int | None:
    """Return the permission bits of a directory, None where there is nothing; ``ValueError`` for anything else."""
    above, name = posixpath.split(path)
    above = os.path.realpath(above) if host.live else host.resolve(above)[len(host.root) :]
    _refuse_system("a directory for soft split", path, "%s/%s" % (above, name))
    try:
        found = os.lstat(host.path(path))
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError("%s is not a directory (a link does not count); name another place, or move it away" % path)
    return found.st_mode & 0o7777


def _inconsistencies(host: Host, layout: Layout, report: Report) -> list[str]:
    sentences, preload = [], "%s/%s" % (layout.folder, PRELOAD)
    for library in [] if preload in report.missing else (host.read(preload) or "").split():
        inside = library[len(IN_CONTAINER) :] if library.startswith(IN_CONTAINER + "/") else None
        if inside and layout.folder + inside not in layout.files and not host.exists(layout.folder + inside):
            text = "%s names %s, and the host has no %s%s: containers will run without any limit"
            sentences.append(text % (preload, library, layout.folder, inside))
    if LIBRARY in (host.read("/etc/ld.so.preload") or ""):
        sentences.append("the host's own /etc/ld.so.preload loads %s into every program of the host; remove that line" % LIBRARY)
    return sentences


def apply(host: Host, layout: Layout, staged: Mapping[str, str] = MappingProxyType({})) -> Report:
    """Make the directories, write the preload file where it is ours, remove managed files that are not wanted any more; return the report.

    ``staged``: paths on this machine of files to be placed, by their SHA-256. Files that are left in ``missing`` are to be copied by the
    caller; that they are ours is recorded here, before.
    """
    report = look(host, layout)
    if report.folders or report.missing:
        made = missing_folders(host, [path + "/." for path in report.folders] + report.missing)
        files = {path: [layout.files[path]] for path in report.missing}
        previous.record(host, SECTION, {"folders": made, "modes": {}, "files": files})
    for path, (_before, mode) in report.folders.items():
        make_folder(host, path)
        os.chmod(host.path(path), mode)
    for path in report.removed:
        os.unlink(host.path(path))
    for path in list(report.missing):
        digest = layout.files[path]
        make_folder(host, posixpath.dirname(path))
        if digest in staged or digest == _OF_PRELOAD:
            text = PRELOAD_TEXT if digest == _OF_PRELOAD else _staged(path, digest, staged[digest])
            atomic_write(host, path, text, 0o755 if posixpath.basename(path) == LIMITER else 0o644)
            report.missing.remove(path)
            report.written.append(path)
    return report


def _staged(path: str, digest: str, source: str) -> str:
    """Return a file that was copied to this machine, as text with escapes for what is none."""
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ValueError("%s was copied to %s with SHA-256 %s, and should have %s" % (path, source, found, digest))
    return content.decode("utf-8", "surrogateescape")


def leavings(host: Host, recorded: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return ``(paths of managed files, paths of files that someone else changed since)`` of a section of previous.json."""
    there = {path: checksum(host, path) for path in sorted(recorded["files"])}
    mine = [path for path, digest in there.items() if digest in recorded["files"][path]]
    return mine, [path for path, digest in there.items() if digest is not None and path not in mine]


def remove(host: Host, recorded: Mapping[str, Any]) -> None:
    """Remove our files, put permission bits back, and remove the directories that were made here and are empty."""
    for path in leavings(host, recorded)[0]:
        os.unlink(host.path(path))
    for path, mode in recorded["modes"].items():
        if host.exists(path):
            os.chmod(host.path(path), int(mode, 8))
    remove_empty(host, recorded["folders"])


class Restore(step.Restore):
    """Removes what was placed; files that someone else changed since stay."""

    removed: Snapshot | None = None

    def look(self, check: bool) -> None:
        if SECTION in self.outcome.recorded:
            self.outcome.attempt(SECTION, self._look, self.outcome.recorded[SECTION])

    def _look(self, recorded: Mapping[str, Any]) -> None:
        mine, changed = leavings(self.host, recorded)
        self.actions += ["remove %s" % path for path in mine]
        self.outcome.warnings += ["%s was changed by someone else since it was placed and stays" % path for path in changed]

    def settle(self, check: bool) -> None:
        if SECTION in self.outcome.recorded and not check:
            self.outcome.attempt(SECTION, self._remove, self.outcome.recorded[SECTION])

    def _remove(self, recorded: Mapping[str, Any]) -> None:
        self.removed = Snapshot(self.host, leavings(self.host, recorded)[0], set(recorded["folders"]) | set(recorded["modes"]))
        remove(self.host, recorded)

    def undo(self) -> None:
        if self.removed is not None:
            self.removed.restore()


class SoftSplit(step.LiveStep):
    """Makes the directories, and places the files; ``wanted`` is what a desired state has as ``live.vnpu``.

    The controller stages files that are missing. One that it has not staged is refused, unless the controller looks what it has to stage.
    """

    title = "directories of soft split"
    key = "vnpu"

    def __init__(self, host: Host, wanted: LayoutLive, choices: Choices) -> None:
        step.LiveStep.__init__(self)
        self.host = host
        self.choices = choices
        self.layout = layout_of(wanted)
        self.report = Report()
        self._before: Snapshot | None = None
        self._made: list[str] = []
        self._missing: list[str] = []

    @property
    def changed(self) -> bool:
        return self.report.changed

    def pending(self) -> list[str]:
        return ["%s: missing" % path for path in self._missing]

    def look(self, check: bool) -> None:
        self.report = look(self.host, self.layout)
        self.warnings = self.report.warnings
        known = {_OF_PRELOAD, *self.choices.staged}
        self._missing = [path for path in self.report.missing if self.layout.files[path] not in known]
        for path in self._missing if not check else ():
            raise ValueError(
                "%s with SHA-256 %s is not on the host, and this state needs it: name its source in npu_affinity_vnpu_files, from where "
                "role vnpu copies it" % (path, self.layout.files[path])
            )

    def run(self) -> None:
        folders = list(self.report.folders)
        files = self.report.missing + self.report.removed
        self._made = missing_folders(self.host, [path + "/." for path in folders] + files)
        self._before = Snapshot(self.host, files, folders)
        self.report = apply(self.host, self.layout, staged=self.choices.staged)

    def undo(self) -> None:
        if self._before is not None:
            self._before.restore()
            remove_empty(self.host, self._made)

    def result(self) -> dict[str, Any]:
        below = len(self.layout.folder) + 1
        missing = [{"name": path[below:], "sha256": self.layout.files[path]} for path in self._missing]
        files = self.report.written + self.report.missing
        return {"folders": sorted(self.report.folders), "files": files, "removed": self.report.removed, "missing": missing}

    def lines(self) -> dict[str, list[str]]:
        files = ["+ " + path for path in self.report.written + self.report.missing] + ["- " + path for path in self.report.removed]
        folders = [
            "+ %s/  mode %04o" % (path, after) if before is None else "~ %s/  mode %04o -> %04o" % (path, before, after)
            for path, (before, after) in self.report.folders.items()
        ]
        return {diffs.FILES: folders + files}
