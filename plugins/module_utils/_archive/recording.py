# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that takes note of everything that is looked at on it, so that an archive has exactly what a plan and a comparison read."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from typing import IO, Any, Callable, Container, Iterable, Iterator, NamedTuple, Sequence

from .._host.host import CommandError, Host, Result
from .._host.recorded import relative
from .._users.devices import numbers, opened

SMALL = 1 << 16
"""The size in bytes up to which a file is kept that was looked at and perhaps not read."""
LARGEST = 64 << 20
"""The size in bytes of the largest file that is kept."""
_PIECE = 1 << 20
_SCRIPT = 1 << 18
"""Bytes of a file that may be a script: so many are looked at."""
_LONG = ("/sys/", "/proc/", "/run/npu-affinity/", "/etc/npu-affinity/", "/usr/local/lib/npu-affinity/")
"""Where files lie that are kept wholly, or left out for their size."""
_OPEN_FILES = re.compile(r"/proc/(\d+)/fd\Z")


class Recording(Host):
    """The host below a root, with what was ``asked`` (``{path: whether it was opened}``), ``listed``
    (``{folder: {pattern: names}}``) and which ``commands`` were run."""

    def __init__(self, root: str, timeout: float = 30) -> None:
        Host.__init__(self, root, timeout)
        self.plain = Host(root, timeout)
        self.asked: dict[str, bool] = {}
        self.listed: dict[str, dict[str, list[str]]] = {}
        self.programs: dict[str, str | None] = {}
        self.commands: dict[tuple[str, ...], dict[str, Any]] = {}

    def _asked(self, path: str, content: bool = False) -> None:
        path = posixpath.normpath(path)
        self.asked[path] = content or self.asked.get(path, False)

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        found = Host.names(self, folder, pattern)
        self.listed.setdefault(posixpath.normpath(folder), {})[pattern] = found
        return found

    def find_program(self, name: str, folders: Iterable[str]) -> str | None:
        found = self.plain.find_program(name, folders)
        self.programs[name] = None if found is None else relative(self.root, [found])[0]
        return found

    def run(self, argv: Sequence[str], stdin: str = "", timeout: float | None = None) -> Result:
        words = relative(self.root, argv)
        try:
            result = Host.run(self, argv, stdin, timeout)
        except CommandError as error:
            self.commands[words] = {"argv": list(words), "error": str(error)}
            raise
        self.commands[words] = {"argv": list(words), "rc": result.rc, "output": result.output}
        return result


class Copy(NamedTuple):
    """What was found at the paths that were asked for, by paths of the machine."""

    files: dict[str, tuple[bytes, int]]
    """What is kept of their content, and their permission bits."""
    directories: dict[str, int]
    """Their permission bits."""
    links: dict[str, str]
    absent: list[str]
    folders: dict[str, list[str]]
    """The shell patterns by which their names were asked for."""
    names: dict[str, list[str]]
    """Names in folders of which nothing else was asked."""
    unread: list[str]
    """Files that are there and not kept, because nobody read them, or for their size."""
    unreadable: list[str]


def copy(recording: Recording, keep: Callable[[str, bytes], bytes], whole: Container[str] = ()) -> Copy:
    """Read everything again that was looked at, and keep of each file what a function returns for its path and content.

    ``whole`` are files that are read wholly, wherever they lie.

    A process that has ended meanwhile is as it would be to a reader who is late.
    """
    host = recording.plain
    found = Copy({}, {}, {}, [], {}, {}, [], [])
    absent: set[str] = set()
    left, seen = sorted(recording.asked, reverse=True), set()
    wanted = dict(recording.asked)
    while left:
        path = left.pop()
        if path in seen or path == "/":
            continue
        seen.add(path)
        place = host.path(path)
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            absent.add(_topmost_missing(host, path))
            continue
        if stat.S_ISLNK(mode):
            target = os.readlink(place)
            real = os.path.realpath(place) if host.live else host.resolve(path)
            inside = real if host.live else real[len(host.root) :]
            if os.path.isdir(real):
                found.directories[path] = stat.S_IMODE(os.stat(real).st_mode)
                continue
            found.links[path] = target if posixpath.isabs(target) else inside
            for other in {posixpath.normpath(found.links[path]), inside} - {path}:
                wanted[other] = wanted.get(other, False) or wanted[path]
                left.append(other)
            continue
        if stat.S_ISDIR(mode):
            found.directories[path] = stat.S_IMODE(mode)
            continue
        _copy_file(found, (path, place), wanted.get(path, False), keep, path.startswith(_LONG) or path in whole)
    files = numbers(host)
    for folder, match in [(folder, match) for folder, match in zip(recording.listed, map(_OPEN_FILES.match, recording.listed)) if match]:
        found.links.update(
            ("%s/%s" % (folder, name), "/dev/" + device) for name, device in opened(host, int(match.group(1)), files).items()
        )
    found.absent.extend(sorted(absent))
    _copy_names(found, recording)
    return found


def _copy_file(found: Copy, at: tuple[str, str], opened: bool, keep: Callable[[str, bytes], bytes], whole: bool) -> None:
    path, place = at
    mode = os.lstat(place).st_mode
    if not stat.S_ISREG(mode):
        found.files[path] = (b"", 0o600)
        return
    limit = LARGEST if opened else SMALL
    try:
        with open(place, "rb") as file:
            data = b"".join(_pieces(file, limit)) if whole else file.read(_SCRIPT)
    except OSError:
        found.unreadable.append(path)
        data = b""
    if whole and len(data) > limit:
        found.unread.append(path)
        data = b""
    kept = keep(path, data)
    if data and not kept and not opened:
        found.unread.append(path)
    found.files[path] = (kept, stat.S_IMODE(mode))


def _pieces(file: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield a file in pieces until it ends, or is longer than the limit. procfs refuses to give much at once."""
    size = 0
    while size <= limit:
        piece = file.read(_PIECE)
        if not piece:
            return
        size += len(piece)
        yield piece


def _topmost_missing(host: Host, path: str) -> str:
    """Return the first folder on the way to a path that is not there, or the path."""
    above = posixpath.dirname(path)
    while above != "/" and not host.exists(above):
        path, above = above, posixpath.dirname(above)
    return path


def _copy_names(found: Copy, recording: Recording) -> None:
    kept = {*found.files, *found.links, *found.directories}
    inner = {folder for path in kept for folder in _above(path)}
    for folder, patterns in sorted(recording.listed.items()):
        if not recording.plain.exists(folder):
            found.absent.append(_topmost_missing(recording.plain, folder))
            continue
        found.folders[folder] = sorted(patterns)
        if folder not in kept | inner:
            found.directories[folder] = 0o755  # only its names were read
        if _OPEN_FILES.match(folder):
            continue
        names = {name for found_names in patterns.values() for name in found_names}
        rest = sorted(name for name in names if posixpath.join(folder, name) not in kept | inner)
        if rest:
            found.names[folder] = rest
    found.absent[:] = sorted(set(found.absent))


def _above(path: str) -> Iterable[str]:
    while path not in ("/", ""):
        path = posixpath.dirname(path)
        yield path
