# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open archives of hosts into folders that are read like a host. What somebody sent is not trusted.

Only regular files are taken out, below the folder and nowhere else. Links are made from the manifest, when all files are there, and
:class:`_host.Host` follows them as after a chroot. Sizes and numbers have limits.

This module is private to the collection.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
import tarfile
from typing import Any, Container, Iterator, NamedTuple

from .. import _recorded
from .._recorded import MANIFEST
from . import sos

LARGEST = 64 << 20
"""Bytes of the largest file, of all files together, and how many members an archive may have."""
TOGETHER = 512 << 20
MEMBERS = 500_000
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
_NAME = re.compile(r"[^\w.-]+")


class Opened(NamedTuple):
    """An archive that was opened: the ``name`` that its host gets, the ``folder`` that is its root, and its ``manifest``."""

    name: str
    folder: str
    manifest: dict[str, Any]


def archives(path: str) -> list[str]:
    """Return the archives that a path names: itself, or those in the folder. A folder that is an archive, unpacked, is one.

    Raises ``ValueError`` where there is none.
    """
    if os.path.isfile(path) or os.path.isdir(path) and _top_of_folder(path) is not None:
        return [path]
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    found = [os.path.join(path, name) for name in names]
    found = [file for file in found if file.endswith(_SUFFIXES) or os.path.isdir(file) and _top_of_folder(file) is not None]
    if not found:
        what = "has no archive (%s)" % ", ".join(_SUFFIXES) if os.path.isdir(path) else "is neither a file nor a folder"
        raise ValueError(
            "npu_affinity_archive '%s' %s: name what playbook npu.affinity.collect wrote, a sosreport, or a folder of them" % (path, what)
        )
    return found


def open_archive(path: str, target: str, taken: dict[str, str]) -> Opened:
    """Open one archive into a folder of its own below ``target``. Raises ``ValueError`` with a sentence.

    ``taken`` are the names that hosts have already, with their archives.
    """
    members = _members(path)
    text = members.pop(MANIFEST, None)
    stem = _NAME.sub("-", re.sub(r"\.(tar|tgz|txz|gz|xz|bz2)(?=\.|\Z)", "", os.path.basename(path.rstrip("/")))).strip("-.") or "host"
    files = {name: data for name, (data, _mode) in members.items() if isinstance(data, bytes)}
    links = {name: data for name, (data, _mode) in members.items() if isinstance(data, str)}
    for name in links:
        del members[name]
    if text is None:
        if not any(name.partition("/")[0] in ("sys", "proc") for name in files):
            raise ValueError("%s has neither %s nor /sys or /proc of a machine: it is no archive of a host" % (path, MANIFEST))
        document = sos.manifest(files, stem)
        members.update((name, (data, 0o644)) for name, data in sos.bus(files).items() if name not in members)
        document["links"] = {"/" + name: text for name, text in links.items() if not _is_behind(name, {*links, *files})}
    else:
        document = _recorded.manifest(text[0].decode("utf-8", "replace"), "%s in %s" % (MANIFEST, path))
    name = stem if document["host"] in ("", "removed") else _NAME.sub("-", str(document["host"])).strip("-.") or stem
    if name in taken:
        name = stem if stem not in taken else "%s-%d" % (stem, len(taken) + 1)
    taken[name] = path
    folder = os.path.join(target, name)
    _unpack(path, folder, members, document)
    return Opened(name, folder, document)


def _unpack(path: str, folder: str, members: dict[str, tuple[Any, int]], document: dict[str, Any]) -> None:
    links = {_safe(link.lstrip("/"), path): str(link_target) for link, link_target in document["links"].items()}
    behind = [link for link in links if _is_behind(link, links)]
    if behind:
        raise ValueError("%s: %s lies behind another link: it is not opened" % (path, behind[0]))
    os.makedirs(folder, mode=0o700)
    try:
        with open(os.path.join(folder, MANIFEST), "x", encoding="utf-8") as manifest:
            json.dump(document, manifest)
        for name, (data, mode) in sorted(members.items()):
            place = os.path.join(folder, name)
            os.makedirs(place if data is None else os.path.dirname(place), exist_ok=True)
            if data is not None:
                with open(place, "xb") as file:
                    file.write(data)
                os.chmod(place, mode & 0o777 | stat.S_IRUSR)
        for link, link_target in sorted(links.items()):
            place = os.path.join(folder, link)
            if os.path.isdir(place):
                continue  # sos has a folder and the link that led to it under one name
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(link_target, place)
    except OSError as error:
        raise ValueError("%s cannot be opened: %s (%s)" % (path, error.strerror or error, error.filename))


def _is_behind(name: str, others: Container[str]) -> bool:
    """Whether one of the other names would have to be a folder for this one."""
    parts = name.split("/")
    return any("/".join(parts[:count]) in others for count in range(1, len(parts)))


def _members(path: str) -> dict[str, tuple[Any, int]]:
    """Return ``{name: (content, permissions)}`` of an archive or an unpacked one, by paths below its top; folders have no content."""
    found: dict[str, tuple[Any, int]] = {}
    together = 0
    source = _of_folder(path) if os.path.isdir(path) else _of_tar(path)
    for count, (name, data, mode) in enumerate(source):
        together += len(data or b"")
        if count >= MEMBERS or together > TOGETHER:
            raise ValueError("%s has more than %d members or %d MiB: it is not opened" % (path, MEMBERS, TOGETHER >> 20))
        found[name] = (data, mode)
    return found


def _of_tar(path: str) -> Iterator[tuple[str, bytes | str | None, int]]:
    try:
        with tarfile.open(path) as archive:
            top: str | None = None
            for member in archive:
                name = _safe(member.name, path)
                if name and top is None:
                    first = name.partition("/")[0]
                    top = "" if first in (*sos.TREES, MANIFEST, "commands") else first + "/"
                below = (name + "/")[len(top or "") :].rstrip("/") if (name + "/").startswith(top or "") else ""
                if not below or not (member.isreg() or member.isdir() or member.issym()) or not member.isdir() and not _wanted(below):
                    continue
                if member.size > LARGEST:
                    raise ValueError(
                        "%s: %s has %d MiB, and the limit is %d: it is not opened" % (path, name, member.size >> 20, LARGEST >> 20)
                    )
                file = archive.extractfile(member) if member.isreg() else None
                yield below, member.linkname if member.issym() else file.read() if file else None, member.mode
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError("%s cannot be read as an archive: %s" % (path, error))


def _wanted(name: str) -> bool:
    """Whether a file belongs to the tree of a machine, or is the answer of a command."""
    if name.startswith("var/") and not name.startswith("var/lib/kubelet/"):
        return False
    return name == MANIFEST or name.partition("/")[0] in sos.TREES or bool(sos.COMMAND_FOLDER.search(name))


def _safe(name: str, path: str) -> str:
    """Return a member's name as it lies below its folder. Raises ``ValueError`` for one that would lie elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError("%s: a member is called '%s', which lies outside of the archive: it is not opened" % (path, name))
    return "/".join(parts)


def _top_of_folder(path: str) -> str | None:
    """Return the folder of a machine's tree in an unpacked archive, or None."""
    return path if os.path.isfile(os.path.join(path, MANIFEST)) or os.path.isdir(os.path.join(path, "sos_commands")) else None


def _of_folder(path: str) -> Iterator[tuple[str, bytes | str | None, int]]:
    for folder, names, files in os.walk(path):
        inner = os.path.relpath(folder, path)
        files += [name for name in names if os.path.islink(os.path.join(folder, name))]
        names[:] = [name for name in names if name not in files]
        if inner != ".":
            yield inner, None, 0o755
        for name in files:
            place, below = os.path.join(folder, name), posixpath.normpath(posixpath.join(inner, name))
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode) and _wanted(below):
                yield below, os.readlink(place), 0o777
            elif stat.S_ISREG(mode) and _wanted(below):
                if os.path.getsize(place) > LARGEST:
                    raise ValueError("%s has more than %d MiB: it is not opened" % (place, LARGEST >> 20))
                with open(place, "rb") as file:
                    yield below, file.read(), stat.S_IMODE(mode)
