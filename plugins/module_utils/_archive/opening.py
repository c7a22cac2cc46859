# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open archives of hosts into folders that are read like a host. What somebody sent is not trusted.

Only regular files are extracted, below the folder. Links are made from the manifest, when all files are there, and
:class:`_host.host.Host` follows them as after a chroot. Sizes and numbers have limits, and files are written in pieces.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import stat
import tempfile
from typing import IO, Any, Collection, Iterable, Iterator, NamedTuple

from .._host import recorded
from .._host.recorded import MANIFEST
from . import sos
from .reading import BROKEN, HEADERS, Member, Tar, shown

LARGEST = 64 << 20
"""Bytes of the largest file, of the manifest, and of all files together."""
LARGEST_MANIFEST = 8 << 20
TOGETHER = 512 << 20
NAMES = 64 << 20
LONGEST_NAME = 1024
FOLDERS = 1_500_000
DEEPEST = 40
"""Characters of all names that are taken out, with the targets of links, and of one; folders on the way to all, and to one."""
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
_NAME = re.compile(r"[^\w.-]+")
_LONGEST_HOST = 64
_NO_HOSTS = ("", "removed", "all", "ungrouped", "npu_affinity_archives")
"""What the manifest of an anonymous archive says, and names that are those of groups."""
_PIECE = 1 << 20


class Opened(NamedTuple):
    """An archive that was opened: the ``name`` that its host gets, the ``folder`` that is its root, and its ``manifest``."""

    name: str
    folder: str
    manifest: dict[str, Any]


def archives(path: str) -> list[str]:
    """Return the archives that a path names: itself, or those in the folder. A folder that is an archive, unpacked, is one.

    Raises ``ValueError`` if there is none.
    """
    if os.path.isfile(path) or os.path.isdir(path) and _top_of_folder(path) is not None:
        return [path]
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    found = [os.path.join(path, name) for name in names]
    found = [file for file in found if file.endswith(_SUFFIXES) or os.path.isdir(file) and _top_of_folder(file) is not None]
    if not found:
        what = "has no archive (%s)" % ", ".join(_SUFFIXES) if os.path.isdir(path) else "is neither a file nor a folder"
        raise ValueError(
            "npu_affinity_archives '%s' %s: name what playbook npu.affinity.collect wrote, a sosreport, or a folder of them" % (path, what)
        )
    return found


def open_archive(path: str, target: str, taken: dict[str, str]) -> Opened:
    """Open one archive into a folder of its own below ``target``. Raises ``ValueError`` with a sentence, and leaves nothing then.

    ``taken`` are the names that hosts have already, with their archives.
    """
    os.makedirs(target, mode=0o700, exist_ok=True)
    staging = tempfile.mkdtemp(prefix=".", dir=target)
    try:
        tree = _Tree(path, staging)
        _take_out(path, tree)
        document = _document(tree, _stem(path))
        _finish(tree, document)
        name = _free_name(_NAME.sub("-", document["host"]).strip("-.")[:_LONGEST_HOST], _stem(path), taken)
        folder = os.path.join(target, name)
        os.rename(staging, folder)
    except OSError as error:
        raise ValueError("%s cannot be opened: %s (%s)" % (path, error.strerror or error, shown(str(error.filename or ""))))
    except BROKEN as error:
        raise ValueError("%s cannot be read as an archive: %s" % (path, error or type(error).__name__))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    taken[name] = path
    return Opened(name, folder, document)


def _stem(path: str) -> str:
    name = re.sub(r"\.(tar|tgz|txz|gz|xz|bz2)(?=\.|\Z)", "", os.path.basename(path.rstrip("/")))
    return _NAME.sub("-", name).strip("-.")[:_LONGEST_HOST] or "host"


def _free_name(wanted: str, stem: str, taken: Collection[str]) -> str:
    if wanted not in _NO_HOSTS and wanted not in taken:
        return wanted
    return stem if stem not in taken else "%s-%d" % (stem, len(taken) + 1)


class _Tree:
    """What was taken out of an archive into a folder: the names of its ``files``, its ``links`` and the text of its ``manifest``."""

    def __init__(self, path: str, folder: str) -> None:
        self.path = path
        self.folder = folder
        self.files: set[str] = set()
        self.links: dict[str, str] = {}
        self.manifest: bytes | None = None
        self._bytes = 0
        self._names = 0
        self._folders = 0

    def add(self, member: Member, content: Iterable[bytes] = ()) -> None:
        """Take out a member under its name below the top of the archive."""
        name, limit = member.name, LARGEST_MANIFEST if member.name == MANIFEST else LARGEST
        self._names += len(name) + len(member.target)
        self._folders += name.count("/")
        if len(name) > LONGEST_NAME or name.count("/") > DEEPEST or self._names > NAMES or self._folders > FOLDERS:
            text = "%s has names that are too long or too deep, such as %s: it is not opened"
            raise ValueError(text % (self.path, shown(name)))
        if member.kind == "file" and member.size > limit:
            text = "%s: %s has %d MiB, and the limit is %d: it is not opened"
            raise ValueError(text % (self.path, shown(name), member.size >> 20, limit >> 20))
        if member.kind == "file" and name == MANIFEST:
            self.manifest = b"".join(self._counted(content))
        elif member.kind == "file":
            self.write(name, self._counted(content), member.mode)
        elif member.kind == "folder":
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
            os.chmod(os.path.join(self.folder, name), member.mode & 0o1777 | stat.S_IRWXU)
        elif member.kind == "link":
            self.links[name] = member.target

    def write(self, name: str, content: Iterable[bytes], mode: int = 0o644) -> None:
        place = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if name in self.files:
            os.unlink(place)  # of two members with one name the last counts
        with open(place, "xb") as file:
            for piece in content:
                file.write(piece)
        os.chmod(place, mode & 0o777 | stat.S_IRUSR)
        self.files.add(name)

    def read(self, name: str, limit: int) -> str:
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read(limit).decode("utf-8", "replace")

    def _counted(self, content: Iterable[bytes]) -> Iterator[bytes]:
        for piece in content:
            self._bytes += len(piece)
            if self._bytes > TOGETHER:
                text = "%s has more than %d members or %d MiB: it is not opened"
                raise ValueError(text % (self.path, HEADERS, TOGETHER >> 20))
            yield piece


def _take_out(path: str, tree: _Tree) -> None:
    if os.path.isdir(path):
        _take_folder(path, tree)
        return
    with _regular(path) as file:
        _take_tar(Tar(file, path), tree)


def _regular(path: str) -> IO[bytes]:
    """Open a file to read. Raises ``ValueError`` for what would block, or never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("%s is not a regular file: it is not opened" % path)
    return os.fdopen(descriptor, "rb")


def _take_tar(tar: Tar, tree: _Tree) -> None:
    top: str | None = None
    for member in tar:
        name = _safe(member.name, tree.path)
        if name and top is None:
            first = name.partition("/")[0]
            top = "" if first in (*sos.TREES, MANIFEST, "commands") else first + "/"
        below = (name + "/")[len(top or "") :].rstrip("/") if (name + "/").startswith(top or "") else ""
        if not below or member.kind == "other" or not _wanted(below, member.kind, tree):
            continue
        if member.kind == "sparse":
            raise ValueError("%s: %s is stored as a sparse file: pack it again without --sparse" % (tree.path, shown(name)))
        tree.add(member._replace(name=below), tar.content())


def _take_folder(path: str, tree: _Tree) -> None:
    if os.path.isfile(os.path.join(path, MANIFEST)):
        _take_file(path, MANIFEST, tree)
    count = 0
    for folder, names, files in os.walk(path):
        inner = os.path.relpath(folder, path)
        files += [name for name in names if os.path.islink(os.path.join(folder, name))]
        names[:] = [name for name in names if name not in files]
        count += len(names) + len(files)
        if count > HEADERS:
            raise ValueError("%s has more than %d files: it is not opened" % (path, HEADERS))
        if inner != "." and _wanted(inner, "folder", tree):
            tree.add(Member(inner, "folder", 0, stat.S_IMODE(os.stat(folder).st_mode), ""))
        for below in (posixpath.normpath(posixpath.join(inner, name)) for name in files):
            if below != MANIFEST and _wanted(below, "file", tree):
                _take_file(path, below, tree)


def _take_file(path: str, below: str, tree: _Tree) -> None:
    place = os.path.join(path, below)
    found = os.lstat(place)
    if stat.S_ISLNK(found.st_mode):
        tree.add(Member(below, "link", 0, 0o777, os.readlink(place)))
    elif stat.S_ISREG(found.st_mode):
        with _regular(place) as file:
            pieces = iter(lambda: file.read(_PIECE), b"")
            tree.add(Member(below, "file", found.st_size, stat.S_IMODE(found.st_mode), ""), pieces)


def _wanted(name: str, kind: str, tree: _Tree) -> bool:
    """Whether a member belongs to the tree of a machine, or is the answer of a command. All of an archive that begins with its manifest is
    wanted: it has what was looked at, wherever that lies."""
    if name == MANIFEST or tree.manifest is not None:
        return True
    if name.startswith("var/") and not (name + "/").startswith("var/lib/kubelet/"):
        return False
    return name.partition("/")[0] in sos.TREES or kind != "folder" and bool(sos.COMMAND_FOLDER.search(name))


def _document(tree: _Tree, stem: str) -> dict[str, Any]:
    """Return the manifest of what was taken out; for what has none, such as a sosreport, it is made, and the PCI bus with it."""
    if tree.manifest is not None:
        return recorded.manifest(tree.manifest, "%s in %s" % (MANIFEST, tree.path))
    if not any(name.startswith(("sys/", "proc/")) for name in tree.files):
        raise ValueError("%s has neither %s nor /sys or /proc of a machine: it is no archive of a host" % (tree.path, MANIFEST))
    document = sos.manifest(tree.files, stem)
    for name, text in sos.bus(tree.read(name, sos.LARGEST_LIST) for name in sorted(tree.files) if sos.lists_pci(name)).items():
        if name not in tree.files:
            tree.write(name, [text.encode()])
    others = {*tree.links, *tree.files}
    document["links"] = {
        "/" + name: target for name, target in tree.links.items() if (name + target).isprintable() and not _is_behind(name, others)
    }
    return document


def _finish(tree: _Tree, document: dict[str, Any]) -> None:
    """Add the manifest and the links."""
    links = {_safe(link.lstrip("/"), tree.path): target for link, target in document["links"].items()}
    behind = [link for link in links if _is_behind(link, links)]
    if behind:
        raise ValueError("%s: %s lies behind another link: it is not opened" % (tree.path, shown(behind[0])))
    with open(os.path.join(tree.folder, MANIFEST), "x", encoding="utf-8") as manifest:
        json.dump(document, manifest)
    for link, target in sorted(links.items()):
        place = os.path.join(tree.folder, link)
        if os.path.isdir(place):
            continue  # sos has a folder and the link that led to it under one name
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(target, place)


def _is_behind(name: str, others: Collection[str]) -> bool:
    """Whether one of the other names would have to be a folder for this one."""
    parts = name.split("/")
    return any("/".join(parts[:count]) in others for count in range(1, len(parts)))


def _safe(name: str, path: str) -> str:
    """Return a member's name as it lies below its folder. Raises ``ValueError`` for one that would lie elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError("%s: a member is called '%s', which is outside of the archive: it is not opened" % (path, shown(name)))
    return "/".join(parts)


def _top_of_folder(path: str) -> str | None:
    """Return the folder of a machine's tree in an unpacked archive, or None."""
    return path if os.path.isfile(os.path.join(path, MANIFEST)) or os.path.isdir(os.path.join(path, "sos_commands")) else None
