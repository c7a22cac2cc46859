# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the programs lie that units, udev rules and scripts of the collection name, and whether those that a file names can be executed.

udev (udev(7), ``RUN``) and the kernel (``#!``) search no PATH, and a udev rule with a wrong path does nothing, silently. Not everything is
in ``/usr/bin`` everywhere: hosts whose ``/usr`` is not merged have ``/bin/systemctl`` only.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from typing import Iterable, Iterator, Mapping, NamedTuple

from .._host.host import CommandError, Host
from .files import is_managed
from .systemd import unit_of

USUAL = {"python3": "/usr/bin/python3", "systemctl": "/usr/bin/systemctl"}
"""The programs that units, udev rules and scripts name, and where they are when it is not known."""
_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 7))"
_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin", "/opt/bin")
_RULES = "/etc/udev/rules.d"
_RUN = re.compile(r'\b(?:RUN|PROGRAM)(?:\{program\})?[+:]?="(/[^\s"]+)')
_EXEC = re.compile(r"^Exec\w+=[-@:+!|]*(/\S+)", re.MULTILINE)
_SCRIPT = re.compile(r"\A#! *(/\S+)")
_PLACED_LATER = re.compile(r"npu-affinity-limiter-.*\.service\Z")
"""Units whose program comes with role vnpu, and is looked at by :func:`_transaction.programs.refuse_missing`."""


class Unusable(NamedTuple):
    """A program that cannot be executed: its path, the file that names it, whether it is there at all, and where else the host has it."""

    program: str
    file: str
    there: bool
    elsewhere: str | None

    @property
    def problem(self) -> str:
        state = "not executable" if self.there else "no such file"
        return "%s; this host has %s" % (state, self.elsewhere) if self.elsewhere else state


def find(host: Host, name: str) -> str | None:
    """Return the path of a program on a host, or None; on the running machine PATH is searched, too."""
    folders = list(_FOLDERS) + (os.environ.get("PATH", "").split(os.pathsep) if host.live else [])
    paths = ["%s/%s" % (folder.rstrip("/"), name) for folder in folders if posixpath.isabs(folder)]
    return next((path for path in paths if host.is_program(path)), None)


def programs(host: Host) -> dict[str, str | None]:
    """Return ``{name: path}`` of :data:`USUAL`, with None for one that the running machine does not have.

    Where there is no python3, or one older than 3.7, units get the Python that runs this. Another tree, such as an image, can get its
    programs later: there what is not found is left out.
    """
    paths = {name: find(host, name) for name in USUAL}
    if host.live:
        python = paths["python3"]
        return dict(paths, python3=python if python and _can_run_units(host, python) else sys.executable)
    return {name: path for name, path in paths.items() if path}


def _can_run_units(host: Host, python: str) -> bool:
    """Whether a Python is new enough. The one that runs this is, and is not started once more."""
    program = host.path(python)
    if os.path.realpath(program) == os.path.realpath(sys.executable):
        return True
    try:
        return host.run([program, "-ISc", _NEW_ENOUGH]).rc == 0
    except CommandError:
        return False


def unusable(host: Host, texts: Mapping[str, str]) -> Iterator[Unusable]:
    """Yield what cannot be executed of the programs that files of the collection, ``{path: text}``, name.

    In another tree only what is surely wrong: a file without the right to execute it, or a program that the tree has elsewhere.
    """
    for path, text in texts.items():
        for program in dict.fromkeys(_named(path, text)) if is_managed(text) else ():
            if host.is_program(program):
                continue
            there, elsewhere = host.exists(program), find(host, posixpath.basename(program))
            if host.live or there or elsewhere:
                yield Unusable(program, path, there, elsewhere)


def _named(path: str, text: str) -> Iterable[str]:
    if text.startswith("#!"):
        return _SCRIPT.findall(text)
    if posixpath.dirname(path) == _RULES:
        return _RUN.findall(text)
    return _EXEC.findall(text) if unit_of(path) and not _PLACED_LATER.match(posixpath.basename(path)) else ()
