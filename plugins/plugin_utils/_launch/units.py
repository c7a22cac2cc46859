# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit files of systemd: quoting (systemd.syntax(7), systemd.service(5)) and the settings that hold CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.way import affinity
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.workload import Workload

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def literal(text: str) -> str:
    """Return text in which systemd finds no specifier."""
    return text.replace("%", "%%")


def command_line(words: Iterable[str]) -> str:
    """Return words as a command of a unit file that systemd splits into the same words."""
    return " ".join(_word(word) for word in words)


def _word(word: str) -> str:
    plain = literal(word).replace("$", "$$")
    if plain.isprintable() and plain and not re.search(r"""[\s"'\\;#]""", plain):
        return plain
    return '"' + "".join(_ESCAPES.get(character) or _printable(character) for character in plain) + '"'


def _printable(character: str) -> str:
    return character if character.isprintable() else "".join(f"\\x{byte:02x}" for byte in character.encode())


def settings(workload: Workload) -> dict[str, str]:
    """Return the settings that put a service on a workload's CPUs: its slice, its own sets, or affinity where systemd has no sets."""
    found = {"Slice": workload.slice} if workload.slice else {}
    if workload.held_by_slice:
        return found
    if workload.cgroup_sets_cpus:
        return found | {"AllowedCPUs": workload.cpus} | ({"AllowedMemoryNodes": workload.mems} if workload.mems else {})
    return found | affinity(workload.topology["machine"], workload.cpus, workload.nearest, workload.mems)


def text(sections: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Return a unit file; sections without settings are left out."""
    written = {name: list(pairs) for name, pairs in sections.items()}
    return "\n".join(f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in pairs) for name, pairs in written.items() if pairs)
