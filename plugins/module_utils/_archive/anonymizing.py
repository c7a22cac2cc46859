# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the names of a host and serial numbers out of the texts of an archive.

A name counts in any case, and also where it is joined to other words by a hyphen, an underscore, a dot or a capital. The kernel's own names
below /sys, PCI addresses and the slices of NPUs stay, whatever the host is called.
"""

from __future__ import annotations

import re
from typing import Callable, Iterable, Match, Sequence

REMOVED = "removed"
GENERIC = frozenset(
    re.findall(
        r"\w+",
        "absent auto bin bind boot bound cgroup changed cluster container cpu cpus default dev driver etc file files gpu home host idle "
        "irq irqbalance kernel kubelet lib linux local localhost machine main manual memory near node none npu npus off open opt plan pod "
        "pool present proc root run service services session slice slices static sys system systemd threads tmp tool unit units unknown "
        "user usr var vllm workers",
    )
)
"""Words of which an archive is made: a host of such a name cannot be told from them."""
_JOINT = r"(?:[-_.]|\\{1,2}x2d)"
"""What a name's parts are joined by; systemd writes a hyphen as ``\\x2d`` where a hyphen means a folder."""
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\x2d)|(?<=[a-z0-9])(?=[A-Z]))"
_RIGHT_OF_DIGIT = r"(?![0-9])"
_RIGHT_OF_LETTER = r"(?:(?![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))"
_ADDRESS = re.compile(r"[0-9.]+\Z|[0-9a-f:]*:[0-9a-f:]*\Z", re.IGNORECASE)
_KERNEL_PATH = re.compile(r"/sys/(?!fs/cgroup/)[\w./:-]*\Z")
_PATH_BEFORE = 200
_OURS = re.compile(r"(?:npu|gpu)(?:-\d+)?\.slice|(?:system|user|machine)\.slice|npu\d+:|npu[-_](?:affinity|smi)")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_IDENTITY = re.compile(r"^(.*(?:serial|die id|uuid|mac addr)[^:\n]*[:=][ \t]*)\S.*", re.IGNORECASE)
_GPU_IDENTITY = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", re.IGNORECASE)


def names_of(known_as: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names to take out of a host that is ``known_as`` these, short names included, and those that are too common for that."""
    found = set()
    for name in (text.strip() for text in known_as):
        found |= {name} if _ADDRESS.match(name) else {name, name.partition(".")[0]}
    found = {name for name in found if len(name) > 1 and (not name.isdigit())}
    return sorted(found - GENERIC), sorted(name for name in found & GENERIC if name != "localhost")


def without_names(names: Sequence[str]) -> Callable[[str], str]:
    """Return the function that takes the given names, serial numbers and identities of GPUs out of a line of text."""
    patterns = [_pattern(name) for name in sorted(names, key=len, reverse=True)]
    any_name = re.compile("|".join(patterns)) if patterns else None

    def hide(text: str) -> str:
        text = any_name.sub(_replaced, text) if any_name else text
        return _GPU_IDENTITY.sub(REMOVED, _IDENTITY.sub(r"\g<1>" + REMOVED, text))

    return hide


def _pattern(name: str) -> str:
    parts = [re.escape(part) for part in re.split(r"[-_.]", name)]
    return "%s(?i:%s)%s" % (_LEFT, _JOINT.join(parts), _RIGHT_OF_DIGIT if name[-1].isdigit() else _RIGHT_OF_LETTER)


def _replaced(match: Match[str]) -> str:
    start, end = match.span()
    before, around = match.string[max(0, start - _PATH_BEFORE) : start], match.string[max(0, start - 12) : end + 12]
    is_kept = (
        _KERNEL_PATH.search(before)
        or _OURS.match(match.string, start)
        or any(found.group().find(match.group()) >= 0 for found in _PCI.finditer(around))
    )
    return match.group() if is_kept else REMOVED
