# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the output of npu-smi and of nvidia-smi has in common: lines, values, PCI addresses, CPU lists."""

from __future__ import annotations

import re

from .._base import cpulist

_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""nvidia-smi underlines the header of its topology matrix, even when its output is not a terminal."""

_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", re.IGNORECASE)
_CPULIST = re.compile(r"[0-9]+(?:-[0-9]+(?::[0-9]+/[0-9]+)?)?(?:\s*,\s*[0-9]+(?:-[0-9]+(?::[0-9]+/[0-9]+)?)?)*")
_FRAME = re.compile(r"[\s|+=.-]*\Z")
_NO_VALUE = ("", "-", "NA", "N/A")


def lines_of(text: str) -> list[str]:
    """Return the lines of an output without escape sequences; no-break blanks of pasted text become blanks."""
    return _ESCAPE_SEQUENCE.sub("", text).replace("\u00a0", " ").replace("\ufeff", "").splitlines()


def first_line(text: str) -> str:
    """Return the first line of an output that is neither blank nor part of a frame, or ``no output``."""
    for line in lines_of(text):
        if not _FRAME.match(line):
            return line.strip()
    return "no output"


def value_of(text: str) -> str | None:
    """Return a printed value without surrounding blanks, or None for the tools' ways to say that there is none."""
    text = text.strip()
    if text.upper() in _NO_VALUE or (text.startswith("[") and text.endswith("]")):
        return None
    return text


def number_of(text: str) -> int | None:
    """Return a printed whole number (without sign) as int, or None for anything else."""
    text = text.strip()
    return int(text) if _NUMBER.match(text) else None


def pci_of(text: str) -> str | None:
    """Return a PCI address in sysfs's form (``0000:c1:00.0``), or None when the text is not one.

    npu-smi prints upper case, nvidia-smi a domain of eight digits.
    """
    match = _PCI.match(text.strip())
    return "%04x:%s" % (int(match.group(1) or "0", 16), match.group(2).lower()) if match else None


def cpulist_of(text: str) -> str | None:
    """Return the cpulist at the start of a text in the kernel's form (``0-23, 48-71 0`` -> ``0-23,48-71``), or None."""
    match = _CPULIST.match(text)
    if not match:
        return None
    try:
        return cpulist.normalize(match.group())
    except ValueError:
        return None
