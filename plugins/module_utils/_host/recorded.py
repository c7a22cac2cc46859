# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is a record: the file tree of an archive that was opened, with the answers of the commands that were run on the machine.

What the record has is read by the code that reads a machine. What it does not have is no answer: it is noted, so that nobody takes a file
that was never looked at for one that is not there.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import posixpath
import re
from typing import Any, Callable, Iterable, Mapping, Sequence

from .host import CommandError, Host, Result

MANIFEST = "npu-affinity-archive.json"
"""The file in the top folder of an archive that says what it is, and what else was found than files."""

SCHEMA = 1
KINDS = ("units", "services", "cpusets", "processes", "threads")
_SUBJECTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"/etc/npu-affinity(/|\Z)", "the plan in force", ("plan", "files")),
    (r"/proc/(irq|interrupts)(/|\Z)|/run/npu-affinity/", "interrupts", ("interrupts",)),
    (r"/sys/devices/virtual/workqueue(/|\Z)", "workqueues", ("workqueues",)),
    (r"/sys/devices/system/cpu/(nohz_full|possible)\Z|/sys/fs/cgroup/.*\.partition\Z", "isolation", ()),
    (r"/sys/fs/cgroup(/|\Z)", "live cgroups", KINDS),
    (r"/proc(/\d+(/|\Z)|\Z)|/proc/uptime\Z", "processes", ("services", "processes", "threads")),
    (r"/var/lib/kubelet(/|\Z)|/etc/(default|sysconfig)/kubelet\Z|/etc/kubernetes/|.*/kubelet\.service", "the kubelet", ()),
    (r".*/irqbalance\.service|/sys/fs/selinux/|/(etc|var/lib)/selinux(/|\Z)", "irqbalance", ()),
    (r"/(etc|run|usr/lib|usr/local/lib|lib)/systemd(/|\Z)|systemctl ", "units of systemd", ("files", *KINDS)),
    (r"/sys/bus/pci(/|\Z)", "the PCI bus", ("npus", "interrupts")),
    (r"/sys/devices/system/cpu/cpufreq(/|\Z)|/proc/sys/(vm|kernel/numa_balancing)|/sys/kernel/mm/", "settings of the kernel", ("tuning",)),
    (r"/sys/devices/system/node/node\d+/hugepages(/|\Z)|/proc/cmdline\Z", "huge pages", ("hugepages",)),
    (r"/sys/devices/system/(cpu|node)(/|\Z)", "CPUs and NUMA nodes", ("cpus", "cpusets")),
    (r"/proc/(sys/kernel/|device-tree/|cpuinfo)|/sys/class/dmi/|/usr/lib\Z|/usr/local/Ascend/", "machine and driver", ()),
    (r"/usr/lib.*/lib(jemalloc|tcmalloc\w*)\.so\.\d\Z", "memory allocators", ()),
    (r"/(etc|usr)/", "files below /etc and /usr", ("files",)),
    (r"/dev(/|\Z)", "device files", ("threads",)),
    (r".*npu-smi", "answers of npu-smi", ("device_share",)),
)
"""What a path or command tells of, and which kinds of comparisons rest on it."""


class Recorded(Host):
    """A machine as an archive has it, below the folder ``root`` with its manifest. It runs no command and is not written to."""

    def __init__(self, root: str, timeout: float = 30) -> None:
        Host.__init__(self, root, timeout)
        self.manifest = _manifest_of(self.root)
        self._commands = {tuple(entry["argv"]): entry for entry in self.manifest["commands"]}
        self._absent = set(self.manifest["absent"])
        self._whole = set(self.manifest["whole"])
        self._unread = set(self.manifest["unread"])
        self._unreadable = set(self.manifest["unreadable"])
        self._unknown: dict[str, None] = {}

    @property
    def answers(self) -> bool:
        return bool(self.manifest["live"])

    @property
    def unknown(self) -> list[str]:
        return list(self._unknown)

    def untold(self) -> list[str]:
        found: dict[str, str] = {}
        for asked in self._unknown:
            found.setdefault(_subject(asked)[0], asked)
        told = ", ".join(subject if subject == asked else "%s (%s)" % (subject, asked) for subject, asked in found.items())
        return ["The archive does not have all requested data: %s." % told] if found else []

    def _asked(self, path: str, content: bool = False) -> None:
        path = posixpath.normpath(path)
        if content and path in self._unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not self._knows(path) or content and path in self._unread:
            self._unknown[path] = None

    def _listed(self, folder: str, pattern: str) -> None:
        folder = posixpath.normpath(folder)
        known = self.manifest["folders"].get(folder, ())
        if "*" in known or pattern in known or self._is_in(folder, self._whole):
            return
        if folder not in self.manifest["folders"] and not os.path.lexists(self._place(folder)) and self._is_in(folder, self._absent):
            return
        self._unknown[folder] = None

    def _knows(self, path: str) -> bool:
        return os.path.lexists(self._place(path)) or self._is_in(path, self._absent) or self._is_in(path, self._whole)

    @staticmethod
    def _is_in(path: str, folders: Iterable[str]) -> bool:
        """Whether a path is one of the folders, or below one."""
        while path not in folders:
            if path in ("/", ""):
                return False
            path = posixpath.dirname(path)
        return True

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        found = set(Host.names(self, folder, pattern))
        found.update(fnmatch.filter(self.manifest["names"].get(posixpath.normpath(folder), ()), pattern))
        found.discard(MANIFEST)
        return sorted(found)

    def find_program(self, name: str, folders: Iterable[str]) -> str | None:
        if name not in self.manifest["programs"]:
            self._unknown[name] = None
        found: str | None = self.manifest["programs"].get(name)
        return found

    def has_command(self, name: str) -> bool:
        return any(argv[0] == name for argv in self._commands)

    def run(self, argv: Sequence[str], stdin: str = "", timeout: float | None = None) -> Result:
        """Return the recorded :class:`Result`; :class:`CommandError` where there was none on the machine, or is none in the record."""
        entry = self._commands.get(relative(self.root, argv))
        if entry is None:
            self._unknown[" ".join(relative(self.root, argv))] = None
            raise CommandError("the archive does not have the answer of '%s'" % " ".join(argv))
        if entry.get("error"):
            raise CommandError(entry["error"])
        text = Host.read(self, "/" + entry["file"]) if entry.get("file") else entry.get("output", "")
        if text is None:
            raise CommandError("the archive does not have %s, the answer of '%s'" % (entry["file"], " ".join(argv)))
        return Result(tuple(argv), entry["rc"], text)


def relative(root: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command as they are on the machine itself, whatever folder its tree lies in."""
    top = root.rstrip("/")
    words = ("/" if word == root else word[len(top) :] if word.startswith(top + "/") else word for word in argv)
    return tuple(words) if top else tuple(argv)


_ONE_LINE = ("about", "version", "time", "host", "source")
_LONGEST_LINE = 200
_LARGEST_NUMBER = 18
_LARGEST_SETTINGS = 256 << 10
_DEPTH = 10
"""Characters of a line of text, digits of a number, and characters and levels of the settings."""


def manifest(data: bytes, name: str) -> dict[str, Any]:
    """Return the manifest of a file's content. Raises ``ValueError`` for what is none, or one of a newer version.

    Its author is unknown: every value has the type and shape that readers rely on, and what is not part of a manifest is left out.
    """
    try:
        found = json.loads(data.decode("utf-8"), parse_int=_number, parse_constant=_number)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        schema = found.get("schema")
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise ValueError("'schema' is %s, and should be a number" % json.dumps(schema)[:_LONGEST_LINE])
        if schema > SCHEMA:
            raise ValueError("it is of a newer version of the collection (%s), update npu.affinity" % _line(found.get("version", "")))
        result: dict[str, Any] = {"schema": schema}
        for key, (kind, check) in _SHAPE.items():
            result[key] = value = found.get(key, kind())
            if not isinstance(value, kind) or not check(value):
                raise ValueError("'%s' has another shape" % key)
    except UnicodeDecodeError:
        raise ValueError("%s is not what playbook npu.affinity.collect writes (it is not UTF-8)" % name)
    except (RecursionError, ValueError) as error:
        raise ValueError("%s is not what playbook npu.affinity.collect writes (%s: %s)" % (name, type(error).__name__, error))
    return result


def _number(digits: str) -> int:
    if len(digits.lstrip("-")) > _LARGEST_NUMBER or not digits.lstrip("-").isdigit():
        raise ValueError("%s… is too large, or not a number" % digits[:_LARGEST_NUMBER])
    return int(digits)


def _line(value: object) -> str:
    return value if isinstance(value, str) and _is_line(value) else "?"


def _is_line(value: str) -> bool:
    return value.isprintable() and len(value) <= _LONGEST_LINE


def _is_text(value: object) -> bool:
    """Whether a value is text as a machine can have it: what is not Unicode there is kept as ``os.fsdecode`` does."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_path(value: object) -> bool:
    return _is_text(value) and str(value).startswith("/")


def _is_name(value: object) -> bool:
    return _is_text(value) and "/" not in str(value) and value not in ("", ".", "..")


def _are_by_path(value: Mapping[str, object], check: Callable[[object], bool]) -> bool:
    return all(_is_path(path) and isinstance(names, list) and all(map(check, names)) for path, names in value.items())


def _is_command(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    argv, rc = value.get("argv"), value.get("rc", 0)
    texts = [value[key] for key in ("error", "file", "output") if value.get(key) is not None]
    return (
        isinstance(argv, list)
        and bool(argv)
        and all(map(_is_text, [*argv, *texts]))
        and isinstance(rc, int)
        and not isinstance(rc, bool)
        and ("rc" in value or bool(value.get("error")))
        and ".." not in str(value.get("file", "")).split("/")
    )


def _are_settings(value: Mapping[str, object]) -> bool:
    text = json.dumps(value, ensure_ascii=False)
    return all(map(_is_line, value)) and _depth(value) <= _DEPTH and len(text) <= _LARGEST_SETTINGS and _is_text(text)


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


_SHAPE: dict[str, tuple[type, Callable[[Any], bool]]] = {
    **dict.fromkeys(_ONE_LINE, (str, _is_line)),
    "live": (bool, lambda value: True),
    "settings": (dict, _are_settings),
    "programs": (dict, lambda value: all(_is_text(path) or path is None for path in value.values())),
    "commands": (list, lambda value: all(map(_is_command, value))),
    **dict.fromkeys(("absent", "whole", "unread", "unreadable"), (list, lambda value: all(map(_is_path, value)))),
    "links": (dict, lambda value: all(_is_path(path) and _is_text(target) and target for path, target in value.items())),
    "folders": (dict, lambda value: _are_by_path(value, _is_text)),
    "names": (dict, lambda value: _are_by_path(value, _is_name)),
}
"""The type of each value, and what else holds for it."""


def _manifest_of(root: str) -> dict[str, Any]:
    path = os.path.join(root, MANIFEST)
    with open(path, "rb") as file:
        return manifest(file.read(), path)


def _subject(asked: str) -> tuple[str, tuple[str, ...] | None]:
    return next(((words, kinds) for pattern, words, kinds in _SUBJECTS if re.match(pattern, asked)), (asked, None))


def kinds_of(unknown: Iterable[str], all_kinds: Iterable[str]) -> set[str]:
    """Return the kinds of comparisons that rest on something of which a record says nothing."""
    found: set[str] = set()
    for asked in unknown:
        kinds = _subject(asked)[1]
        found.update(all_kinds if kinds is None else kinds)
    return found


def said(entry: Mapping[str, Any]) -> str:
    """Return the answer of a command in a manifest as a name of a file: its words, as sos names the files of commands."""
    return re.sub(
        r"[^\w.,:=+-]+", "_", " ".join(posixpath.basename(word) if index == 0 else word for index, word in enumerate(entry["argv"]))
    )


def host_at(root: str, timeout: float = 30) -> Host:
    """Return the machine below a root: a record where an archive was opened there."""
    if root == "/" or not os.path.isfile(os.path.join(root, MANIFEST)):
        return Host(root, timeout)
    return Recorded(root, timeout)
