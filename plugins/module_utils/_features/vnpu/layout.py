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
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from ..._host.host import Host
from ..._state import diffs, previous, step
from ..._state.files import Snapshot, atomic_write, make_folder, missing_folders, remove_empty
from ..._state.writable import obstacle
from ..feature import Choices

if TYPE_CHECKING:
    from ..._base.documents import LayoutLive

SECTION = "vnpu"
PRELOAD = "ld.so.preload"
LIBRARY = "libvnpu.so"
LIMITER = "limiter"
IN_CONTAINER = "/hami-vnpu-core"
PRELOAD_TEXT = "%s/%s\n" % (IN_CONTAINER, LIBRARY)
_OF_PRELOAD = hashlib.sha256(PRELOAD_TEXT.encode()).hexdigest()
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")
_FREE = ("/usr/local", "/var/lib", "/var/opt")
"""Folders of the host itself, and those below which others have folders of their own."""


class Layout(NamedTuple):
    """``folder``, ``shared_region``: absolute paths; ``shared_mode``: permission bits; ``files``: ``{path: SHA-256}``."""

    folder: str
    shared_region: str
    shared_mode: int
    files: dict[str, str]


class Report(NamedTuple):
    """What is to be done, or was done.

    ``folders`` maps a path to its permission bits before (None: it was not there) and after; ``files`` are the paths of those that are
    not there with their checksum, ``removed`` paths, ``warnings`` sentences.
    """

    folders: Mapping[str, tuple[int | None, int]] = {}
    files: Sequence[str] = ()
    removed: Sequence[str] = ()
    warnings: Sequence[str] = ()


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
    folders, files, warnings = {}, [], []
    recorded = previous.recorded(host).get(SECTION, {})
    # with the permission bits without which containers cannot use a directory that someone else made
    for path, mode, needed in ((layout.folder, 0o775, 0o555), (layout.shared_region, layout.shared_mode, 0o777)):
        before = _mode(host, path)
        if before == mode:
            continue
        if before is None or path in recorded.get("folders", ()):
            folders[path] = (before, mode)
        elif needed & ~before:
            raise ValueError(
                "%s has permissions %04o, needs %04o, and was not made here. They stay: if it is there for soft split, "
                "'chmod %04o %s'; if not, name another place" % (path, before, mode, mode, path)
            )
        elif before & 0o1002 != mode & 0o1002:
            warnings.append(
                "%s has permissions %04o, not %04o; it was not made here, and they stay: 'chmod %04o %s' sets them"
                % (path, before, mode, mode, path)
            )
    placed = recorded.get("files", {})
    for path, digest in layout.files.items():
        present = checksum(host, path)
        if present == digest:
            continue
        if present is not None and present not in placed.get(path, []):
            raise ValueError(
                "%s has SHA-256 %s and should have %s, and this collection did not place it: it stays. Take it out of "
                "npu_affinity_vnpu_files when HAMi's device plugin owns it, or move it away" % (path, present, digest)
            )
        files.append(path)
    for path in [*folders, *map(posixpath.dirname, files)]:
        why = obstacle(host, path)
        if why:
            raise ValueError("%s cannot be written: %s; set npu_affinity_vnpu_folder to a folder that can be written" % (path, why))
    removed = [path for path, digests in sorted(placed.items()) if path not in layout.files and checksum(host, path) in digests]
    return Report(folders, files, removed, warnings + _inconsistencies(host, layout, files))


def _mode(host: Host, path: str) -> int | None:
    """Return the permission bits of a directory, None where there is nothing; ``ValueError`` for anything else."""
    above, name = posixpath.split(path)
    above = os.path.realpath(above) if host.live else host.resolve(above)[len(host.root) :]
    _refuse_system("a directory for soft split", path, "%s/%s" % (above, name))
    try:
        mode = os.lstat(host.path(path)).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(mode):
        raise ValueError("%s is not a directory (a link does not count); name another place, or move it away" % path)
    return mode & 0o7777


def _inconsistencies(host: Host, layout: Layout, missing: Sequence[str]) -> list[str]:
    sentences, preload = [], "%s/%s" % (layout.folder, PRELOAD)
    for library in [] if preload in missing else (host.read(preload) or "").split():
        inside = library[len(IN_CONTAINER) :] if library.startswith(IN_CONTAINER + "/") else None
        if inside and layout.folder + inside not in layout.files and not host.exists(layout.folder + inside):
            text = "%s names %s, and the host has no %s%s: containers will run without any limit"
            sentences.append(text % (preload, library, layout.folder, inside))
    if LIBRARY in (host.read("/etc/ld.so.preload") or ""):
        sentences.append("the host's own /etc/ld.so.preload loads %s into every program of the host; remove that line" % LIBRARY)
    return sentences


def _staged(path: str, digest: str, source: str) -> str:
    """Return a file that was copied to this machine, as text with escapes for what is none."""
    with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read()
    copied = hashlib.sha256(content).hexdigest()
    if copied != digest:
        raise ValueError("%s was copied to %s with SHA-256 %s, and should have %s" % (path, source, copied, digest))
    return content.decode("utf-8", "surrogateescape")


class Restore(step.Restore):
    """Removes what was placed; files that someone else changed since stay, and so do directories that are not empty."""

    removed: Snapshot | None = None

    def look(self, check: bool) -> None:
        if SECTION in self.outcome.recorded:
            self.outcome.attempt(SECTION, self._look)

    def _look(self) -> None:
        mine, changed = self._files()
        self.actions += ["remove %s" % path for path in mine]
        self.outcome.warnings += ["%s was changed by someone else since it was placed and stays" % path for path in changed]

    def settle(self, check: bool) -> None:
        if SECTION in self.outcome.recorded and not check:
            self.outcome.attempt(SECTION, self._remove)

    def _remove(self) -> None:
        recorded, (mine, _changed) = self.outcome.recorded[SECTION], self._files()
        self.removed = Snapshot(self.host, mine, {*recorded["folders"], *recorded["modes"]})
        for path in mine:
            os.unlink(self.host.path(path))
        for path, mode in recorded["modes"].items():
            if self.host.exists(path):
                os.chmod(self.host.path(path), int(mode, 8))
        remove_empty(self.host, recorded["folders"])

    def undo(self) -> None:
        if self.removed is not None:
            self.removed.restore()

    def _files(self) -> tuple[list[str], list[str]]:
        """Return the paths of files as they were placed, and of those that someone else changed since."""
        placed: Mapping[str, Sequence[str]] = self.outcome.recorded[SECTION]["files"]
        there = {path: checksum(self.host, path) for path in sorted(placed)}
        mine = [path for path, digest in there.items() if digest in placed[path]]
        return mine, [path for path, digest in there.items() if digest is not None and path not in mine]


class SoftSplit(step.LiveStep):
    """Makes the directories, and places the files; ``wanted`` is what a desired state has as ``live.vnpu``.

    The controller stages files that are missing. One that it has not staged is refused, unless the controller looks what it has to stage.
    """

    title = "directories of soft split"
    key = "vnpu"

    def __init__(self, host: Host, wanted: LayoutLive, choices: Choices) -> None:
        step.LiveStep.__init__(self)
        self.host, self.choices, self.layout = host, choices, layout_of(wanted)
        self.report = Report()
        self._before: Snapshot | None = None
        self._made: list[str] = []
        self._missing: list[str] = []

    @property
    def changed(self) -> bool:
        return any(self.report[:3])

    def pending(self) -> list[str]:
        return ["%s: missing" % path for path in self._missing]

    def look(self, check: bool) -> None:
        self.report = look(self.host, self.layout)
        self.warnings = list(self.report.warnings)
        sources = {_OF_PRELOAD, *self.choices.staged}
        self._missing = [path for path in self.report.files if self.layout.files[path] not in sources]
        for path in self._missing if not check else ():
            raise ValueError(
                "%s with SHA-256 %s is not on the host, and this state needs it: name its source in npu_affinity_vnpu_files, from where "
                "role vnpu copies it" % (path, self.layout.files[path])
            )

    def run(self) -> None:
        """Make the directories, write files, and remove managed ones that are not wanted any more. That they are ours is recorded first."""
        folders, files, removed, _warnings = self.report
        self._made = missing_folders(self.host, [path + "/." for path in folders] + list(files))
        self._before = Snapshot(self.host, [*files, *removed], folders)
        if folders or files:
            digests = {path: [self.layout.files[path]] for path in files}
            previous.record(self.host, SECTION, {"folders": self._made, "modes": {}, "files": digests})
        for path, (_before, mode) in folders.items():
            make_folder(self.host, path)
            os.chmod(self.host.path(path), mode)
        for path in removed:
            os.unlink(self.host.path(path))
        for path in files:
            digest = self.layout.files[path]
            text = PRELOAD_TEXT if digest == _OF_PRELOAD else _staged(path, digest, self.choices.staged[digest])
            make_folder(self.host, posixpath.dirname(path))
            atomic_write(self.host, path, text, 0o755 if posixpath.basename(path) == LIMITER else 0o644)

    def undo(self) -> None:
        if self._before is not None:
            self._before.restore()
            remove_empty(self.host, self._made)

    def result(self) -> dict[str, Any]:
        below = len(self.layout.folder) + 1
        missing = [{"name": path[below:], "sha256": self.layout.files[path]} for path in self._missing]
        folders, files, removed, _warnings = self.report
        return {"folders": sorted(folders), "files": list(files), "removed": list(removed), "missing": missing}

    def lines(self) -> dict[str, list[str]]:
        files = ["+ " + path for path in self.report.files] + ["- " + path for path in self.report.removed]
        folders = [
            "+ %s/  mode %04o" % (path, after) if before is None else "~ %s/  mode %04o -> %04o" % (path, before, after)
            for path, (before, after) in self.report.folders.items()
        ]
        return {diffs.FILES: folders + files}
