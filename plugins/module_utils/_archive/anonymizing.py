# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the names of a host, serial numbers and who bound it out of an archive, from contents and from names of files alike.

A name counts in any case, and also where it is joined to other words by a hyphen, an underscore, a dot or a capital. The kernel's own names
(``node1`` below /sys), PCI addresses and the slices of NPUs stay, whatever the host is called.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Match, Sequence

from .._state.history.entries import FOLDER as HISTORY
from .command_lines import REMOVED

GENERIC = frozenset(
    re.findall(
        r"\w+",
        "bin boot cgroup cpu cpus default dev etc gpu home host irq irqbalance kernel kubelet lib linux local localhost machine node npu "
        "opt plan pod proc root run service slice slices sys system systemd tmp user usr var vllm",
    )
)
"""Words of which an archive is made: a host of such a name cannot be told from them."""
_JOINT = r"(?:[-_.]|\\{1,2}x2d)"
"""What a name's parts are joined by; systemd writes a hyphen as ``\\x2d`` where a hyphen means a folder."""
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\x2d)|(?<=[a-z0-9])(?=[A-Z]))"
_RIGHT_OF_DIGIT = r"(?![0-9])"
_RIGHT_OF_LETTER = r"(?:(?![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))"
_ADDRESS = re.compile(r"[0-9.]+\Z|[0-9a-f:]*:[0-9a-f:]*\Z", re.IGNORECASE)
_KERNEL_PATH = re.compile(r"/?sys/(?!fs/cgroup(?:/|\Z))")
_IN_KERNEL_PATH = re.compile(r"/sys/(?!fs/cgroup/)[\w./:-]*\Z")
_PATH_BEFORE = 200
_KEY = re.compile(r'"[a-z_]+"\s*:')
_OURS = re.compile(r"(?:npu|gpu)(?:-\d+)?\.slice|(?:system|user|machine)\.slice|npu\d+:|npu[-_](?:affinity|smi)")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_IDENTITY = re.compile(r"^(.*(?:serial|die id|uuid|mac addr)[^:\n]*[:=][ \t]*)\S.*$", re.IGNORECASE | re.MULTILINE)
_GPU_IDENTITY = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", re.IGNORECASE)
_WHO = re.compile(r'("(?:author|reason)":\s*)"(?:[^"\\]|\\.)*"')


def names_of(known_as: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names to take out of a host that is ``known_as`` these, short names included, and those that are too common for that."""
    found = set()
    for name in (text.strip() for text in known_as):
        found |= {name} if _ADDRESS.match(name) else {name, name.partition(".")[0]}
    found = {name for name in found if len(name) > 1 and (not name.isdigit())}
    return sorted(found - GENERIC), sorted(name for name in found & GENERIC if name != "localhost")


class Anonymous:
    """What takes the given names out of everything that goes into an archive."""

    def __init__(self, names: Sequence[str]) -> None:
        patterns = [self._pattern(name) for name in sorted(names, key=len, reverse=True)]
        self._names = re.compile("|".join(patterns)) if patterns else None

    @staticmethod
    def _pattern(name: str) -> str:
        parts = [re.escape(part) for part in re.split(r"[-_.]", name)]
        return "%s(?i:%s)%s" % (_LEFT, _JOINT.join(parts), _RIGHT_OF_DIGIT if name[-1].isdigit() else _RIGHT_OF_LETTER)

    def text(self, text: str) -> str:
        return self._names.sub(self._replaced, text) if self._names else text

    def path(self, path: str) -> str:
        """Return a path without the names; what the kernel names below /sys, units apart, stays."""
        return path if _KERNEL_PATH.match(path) else self.text(path)

    def member(self, name: str, data: bytes) -> bytes:
        """Return the content of a member by its name without the names, serial numbers and who bound the host."""
        if _KERNEL_PATH.match(name):
            return data
        text = self.text(data.decode("utf-8", "surrogateescape"))
        text = _GPU_IDENTITY.sub(REMOVED, _IDENTITY.sub(r"\g<1>" + REMOVED, text))
        if name.startswith(HISTORY[1:] + "/"):
            text = _WHO.sub(r'\1"%s"' % REMOVED, text)
        return text.encode("utf-8", "surrogateescape")

    def document(self, value: Any, kernel: bool = False) -> Any:
        """Return a manifest without the names. ``kernel``: whether the value belongs to a folder of the kernel, whose names stay."""
        if isinstance(value, dict):
            return {self.path(key): self.document(inner, bool(_KERNEL_PATH.match(key))) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.document(inner, kernel) for inner in value]
        return self.path(value) if isinstance(value, str) and not kernel else value

    @staticmethod
    def _replaced(match: Match[str]) -> str:
        start, end = match.span()
        before, around = match.string[max(0, start - _PATH_BEFORE) : start], match.string[max(0, start - 12) : end + 12]
        kept = (
            _IN_KERNEL_PATH.search(before)
            or _OURS.match(match.string, start)
            or before.endswith('"')
            and _KEY.match(match.string, start - 1)
            or any(found.group().find(match.group()) >= 0 for found in _PCI.finditer(around))
        )
        return match.group() if kept else REMOVED
