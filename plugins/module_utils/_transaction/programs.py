# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether units can run the programs of the collection, tried when they are written, and a new start of those that failed."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Iterable, Mapping

from .._host.host import CommandError, Host
from .._host.installed import is_archive
from .._state import previous
from .._state.executables import unusable
from .._state.files import FileState
from .._state.systemd import UNIT_FOLDER, Systemd

_COMMAND = re.compile(r"^ExecStart=(\S+) -m npu_affinity (\w+)", re.MULTILINE)
_VERSION = re.compile(r"/python3\.(\d+)\Z")
WHY_FAILED = "'journalctl -u %s' shows why; correct that and bind again"
_ADVICE = "set npu_affinity_python to a Python 3.7 or newer of this host"


def programs(files: Mapping[str, FileState]) -> dict[tuple[str, str], str]:
    """Return ``{(interpreter, program): unit}`` of the unit files among ``{path: FileState}`` that run programs of the collection."""
    commands: dict[tuple[str, str], str] = {}
    for path, state in files.items():
        for command in _COMMAND.findall(state.text or ""):
            commands.setdefault(command, posixpath.basename(path))
    return commands


def refuse_missing(host: Host, files: Mapping[str, FileState]) -> None:
    """Raise ``ValueError`` when a program that a unit, a udev rule or a script names cannot be executed, before anything is installed."""
    interpreters = {interpreter for interpreter, _module in programs(files)}
    for wrong in unusable(host, {path: state.text or "" for path, state in files.items() if state.link is None}):
        advice = "install it, and bind again"
        if wrong.program in interpreters or "python" in posixpath.basename(wrong.program):
            advice = _ADVICE
        elif wrong.elsewhere:
            advice = "this host has %s: bind it again, which names that one" % wrong.elsewhere
        elif posixpath.basename(wrong.program) == "systemctl":
            advice = "install systemd with its systemctl, and bind again"
        text = "%s could not run: %s %s; %s"
        state = "not executable:" if wrong.there else "there is no program"
        raise ValueError(text % (posixpath.basename(wrong.file), state, wrong.program, advice))


def try_out(host: Host, files: Mapping[str, FileState]) -> None:
    """Let every installed program print its help, as the units would run it. Raises ``ValueError`` when one cannot."""
    archives = [host.path(path) for path in files if is_archive(path)]
    environment = ["env", "PYTHONPATH=" + ":".join(archives), "PYTHONDONTWRITEBYTECODE=1"]
    for (interpreter, program), unit in programs(files).items():
        command = environment + [host.path(interpreter), "-m", "npu_affinity", program, "--help"]
        try:
            result = host.run(command)
        except CommandError as error:
            raise ValueError("%s could not run: %s; %s" % (unit, error, _ADVICE))
        if result.rc != 0:
            last = (result.output.strip().splitlines() or ["no output"])[-1]
            raise ValueError("%s could not run: '%s' ended with status %d: %s; %s" % (unit, " ".join(command), result.rc, last, _ADVICE))


def untried(host: Host, files: Mapping[str, FileState]) -> list[str]:
    """Return sentences on the interpreters of another tree's units, which only that machine can run, unless their names tell enough."""
    sentences: dict[str, str] = {}
    for (interpreter, _program), unit in programs(files).items():
        problem = "is not installed on the host image"
        if host.exists(interpreter):
            version = _VERSION.search(os.path.realpath(host.path(interpreter)))
            if version and int(version.group(1)) >= 7:
                continue
            problem = "of the host image is Python 3.%s" % version.group(1) if version else "of the host image could not be tried out"
        sentences.setdefault(interpreter, "%s %s; %s needs Python 3.7 or newer" % (interpreter, problem, unit))
    return [] if host.live else list(sentences.values())


def failed(host: Host) -> dict[str, str]:
    """Return ``{unit: result}`` of the managed units, instances included, whose last run failed.

    systemd keeps the result of a unit whose file an interrupted unbind has removed.
    """
    if not host.live or not (host.names(UNIT_FOLDER, "npu-affinity-*") or host.exists(previous.PATH)):
        return {}
    states = Systemd(host).show(["ActiveState", "Result"], ["npu-affinity-*"])
    return {unit: values.get("Result") or "failed" for unit, values in sorted(states.items()) if values.get("ActiveState") == "failed"}


def run_again(host: Host, units: Iterable[str]) -> list[str]:
    """Start units whose last run failed, and return sentences on those that fail again. They take the lock: nobody else may hold it."""
    sentences = []
    for unit in units:
        try:
            Systemd(host).start([unit])
        except (CommandError, ValueError):
            sentences.append("%s failed again: %s" % (unit, WHY_FAILED % unit))
    return sentences
