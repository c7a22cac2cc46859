# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the collection owns on a host: written atomically, marked in their first line, restored when a run fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import stat
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Tuple

from .._host.host import Host

if TYPE_CHECKING:
    from typing import Optional, TypedDict

    from .._base.documents import FileEntry

    FileRecord = TypedDict("FileRecord", {"content": Optional[str], "mode": str, "owner": str, "link": str}, total=False)

MARKER = "Managed by npu.affinity"
LEFTOVER = ".npu-affinity-"
"""How the names of temporary files begin; one is left behind only when a run is killed."""
Owner = Tuple[int, int]
"""The numbers of a user and of a group."""
LABEL = "security.selinux"
_SELINUX = "/sys/fs/selinux/enforce"
_RESTORECON = ("/usr/sbin", "/sbin")
_OWNER = re.compile(r"([0-9]{1,9}):([0-9]{1,9})\Z")
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}


def is_managed(text: str) -> bool:
    """Whether a file's text says in its first line (the second after ``#!``) that the collection owns it."""
    lines = text.split("\n", 2)
    return MARKER in lines[0] or (lines[0].startswith("#!") and len(lines) > 1 and MARKER in lines[1])


def atomic_write(host: Host, path: str, text: str, mode: int = 0o644, owner: Owner | None = None) -> None:
    """Write a whole file: to a temporary name next to it, to the disk, then renamed, so a reader sees the old or the new one.

    ``owner`` is its user and group, by default those of the file that it replaces. Without root, they are those that the kernel sets.
    Its SELinux label is that of the file that it replaces.
    """
    target = host.path(path)
    make_folder(host, posixpath.dirname(path))
    _refuse_folder(path, target)
    owner = owner or _owner_of(target)
    with _replacing(target) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if owner:
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            _inherit_label(host, file.fileno(), target)


@contextlib.contextmanager
def _replacing(target: str) -> Iterator[str]:
    """Yield the name next to a file under which the new one is made. It is free: what a killed process of this number left there goes."""
    temporary = os.path.join(os.path.dirname(target), LEFTOVER + str(os.getpid()))
    if os.path.lexists(temporary):
        os.unlink(temporary)
    try:
        yield temporary
        os.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _inherit_label(host: Host, descriptor: int, target: str) -> None:
    """Give an open file the label of the file that it will replace. A new file keeps the label that the kernel derives from its folder."""
    if host.exists(_SELINUX) and os.path.isfile(target) and not os.path.islink(target):
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, LABEL, os.getxattr(target, LABEL))


def restore_labels(host: Host, paths: Iterable[str]) -> None:
    """Give files and folders the SELinux labels that the policy of the running machine has for their paths, in one call of restorecon.

    Confined programs such as systemd, udev and irqbalance cannot read a file with the wrong label. Without restorecon, a file keeps the
    label of the one that it replaced. Raises ``ValueError`` or ``CommandError`` where a label cannot be set.
    """
    there = sorted({path for path in paths if host.exists(path)})
    program = host.find_program("restorecon", _RESTORECON) if host.live and there and host.exists(_SELINUX) else None
    if program is None:
        return
    result = host.run([program, *there])
    if result.rc != 0:
        raise ValueError(
            "'restorecon %s' ended with status %d: %s; run it by hand, correct what it reports, and run again"
            % (" ".join(there), result.rc, result.output.strip())
        )


def make_folder(host: Host, path: str, mode: int = 0o755) -> None:
    """Make a folder and those above it that are missing, with these permission bits whatever the umask; others stay as they are."""
    place, missing = host.resolve(path), []
    while not os.path.lexists(place):
        missing.append(place)
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        obstacle = place[len(host.root.rstrip("/")) :]
        raise ValueError("%s cannot be written: File exists and is not a directory; remove or rename it, and run again" % obstacle)
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            os.chmod(folder, mode if folder == missing[0] else 0o755)


def _owner_of(target: str) -> Owner | None:
    """Return the user and group of a file that is there, None where they are those that a new file gets."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    owner = (status.st_uid, status.st_gid)
    return owner if stat.S_ISREG(status.st_mode) and owner != (os.geteuid(), os.getegid()) else None


def _refuse_folder(path: str, target: str) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        raise ValueError("%s cannot be written (Is a directory): remove or rename it, and run again" % path)


def is_file(host: Host, path: str) -> bool:
    """Whether a file or a link is at a path. What else is there is not managed by npu.affinity, whatever its name."""
    target = host.path(path)
    return os.path.islink(target) or os.path.isfile(target)


def remove_file(host: Host, path: str) -> None:
    """Remove what is at a path, if anything is. Raises ``ValueError`` with a sentence for a directory."""
    target = host.path(path)
    _refuse_folder(path, target)
    if os.path.lexists(target):
        os.unlink(target)


def write_note(host: Host, path: str, note: Mapping[str, object]) -> None:
    """Write what a program notes for later runs as JSON, or remove the file where that is nothing."""
    if note:
        atomic_write(host, path, json.dumps(note, indent=1, sort_keys=True) + "\n")
    else:
        remove_file(host, path)


def leftovers(host: Host, folder: str) -> list[str]:
    """Return the temporary files that killed runs left in a folder."""
    return [path for path in ("%s/%s" % (folder, name) for name in host.names(folder, LEFTOVER + "*")) if is_file(host, path)]


class FileState:
    """One file before and after: ``text`` None means that there is no file; ``mode`` is its permission bits.

    A symbolic link has its ``link`` target, no mode, and a text that only describes it. ``owner`` is None for the user and group that a new
    file gets, or for a file that has to be written and keeps those of the one that it replaces; it does not make two states different.
    """

    def __init__(self, text: str | None, mode: int | None, link: str | None = None, owner: Owner | None = None) -> None:
        self.text = text if link is None else "symbolic link to %s\n" % link
        self.mode = mode
        self.link = link
        self.owner = owner

    @property
    def private(self) -> bool:
        """Whether not everybody may read it."""
        return self.mode is not None and not self.mode & 0o004

    @property
    def octal(self) -> str:
        """The permission bits as they are written, such as ``0644``; a link has none, and ``0000``."""
        return "%04o" % (self.mode or 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileState):
            return NotImplemented
        return (self.text, self.mode, self.link) == (other.text, other.mode, other.link)

    @classmethod
    def of(cls, host: Host, path: str) -> FileState:
        """Return what is at a path. Raises ``ValueError`` with a sentence for what is neither a file nor a link, or cannot be read."""
        target = host.path(path)
        if os.path.islink(target):
            return cls(None, None, os.readlink(target))
        content = host.content(path)
        if content is None:
            return cls(None, None)
        return cls(content.decode("utf-8", "surrogateescape"), os.lstat(target).st_mode & 0o7777, owner=_owner_of(target))

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> FileState:
        """Return what :meth:`record` described. Raises ``ValueError`` when it is no such thing."""
        try:
            if "link" in values:
                if "\0" in values["link"]:
                    raise ValueError("a path has no NUL")
                return cls(None, None, values["link"] + "")
            mode, owner = int(values.get("mode") or "0644", 8), values.get("owner")
            numbers = None if owner is None else _OWNER.match(owner)
            if not 0 <= mode <= 0o7777 or numbers is None and owner is not None:
                raise ValueError("mode %s, owner %s" % (values.get("mode"), owner))
            return cls(values["content"] + "", mode, owner=(int(numbers.group(1)), int(numbers.group(2))) if numbers else None)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError("a file of it has neither content and mode nor a link")

    def record(self) -> FileRecord:
        if self.link is not None:
            return {"link": self.link}
        plain: FileRecord = {"content": self.text, "mode": self.octal}
        return {**plain, "owner": "%d:%d" % self.owner} if self.owner else plain

    def write(self, host: Host, path: str) -> None:
        target = host.path(path)
        if self.link is not None:
            make_folder(host, posixpath.dirname(path))
            with _replacing(target) as temporary:
                os.symlink(self.link, temporary)
        elif self.text is not None:
            atomic_write(host, path, self.text, 0o644 if self.mode is None else self.mode, self.owner)
        else:
            remove_file(host, path)


States = Tuple[FileState, FileState]
"""A file before and after."""


def states_of(entries: Iterable[FileEntry]) -> dict[str, FileState]:
    """Return files by path, from entries ``{path, content, mode}`` or ``{path, link}``. Raises ``ValueError`` for what is none."""
    return {entry["path"]: FileState.from_record(entry) for entry in entries}


def missing_folders(host: Host, paths: Iterable[str]) -> list[str]:
    """Return the folders that files at these paths need and that are not there, behind a link to nowhere those that it names."""
    missing = set()
    for path in paths:
        place = host.resolve(posixpath.dirname(path))
        folder = os.path.realpath(place) if host.root == "/" else place[len(host.root) :]
        while folder not in ("", "/") and not host.exists(folder):
            missing.add(folder)
            folder = posixpath.dirname(folder)
    return sorted(missing)


def remove_empty(host: Host, folders: Iterable[str]) -> list[str]:
    """Remove those of the folders that are empty, innermost first, and return them."""
    removed = []
    for folder in sorted(filter(host.exists, folders), reverse=True):  # of those that are not there, a read-only mount complains
        try:
            os.rmdir(host.path(folder))
            removed.append(folder)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
    return removed


class Snapshot:
    """Content and mode of files, and mode and owner of folders, for a step that may be taken back; what is not there is remembered, too."""

    def __init__(self, host: Host, files: Iterable[str], folders: Iterable[str] = ()) -> None:
        self._host = host
        self._files = {path: FileState.of(host, path) for path in files}
        self._folders = {path: _folder(host, path) for path in sorted(folders)}

    def restore(self) -> None:
        """Write back what differs."""
        for path, status in self._folders.items():
            if status is not None and _folder(self._host, path) != status:
                place = self._host.path(path)
                make_folder(self._host, path)
                os.chown(place, *status[1:])
                os.chmod(place, status[0])
        for path, before in self._files.items():
            if FileState.of(self._host, path) != before:
                before.write(self._host, path)


def _folder(host: Host, path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(host.path(path))
    except OSError:
        return None
    return (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) if stat.S_ISDIR(status.st_mode) else None
