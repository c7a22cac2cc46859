# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How drivers name the files of their devices below ``/dev``: ``davinci<N>``, ``nvidia<N>``, and of hard vNPUs ``vdavinci<id>``."""

from __future__ import annotations

DAVINCI, VDAVINCI, NVIDIA = "davinci", "vdavinci", "nvidia"
NAME = "(?:v?davinci|nvidia)[0-9]{1,4}"
"""A regular expression for the name of a device file."""
FIRST_PART, PARTS = 100, 16
"""The id of a hard vNPU is 100, plus 16 for each number of a device below that of its NPU, plus its own number there (MindCluster,
``cdi/devnode.go``)."""


def parts(number: int) -> range:
    """Return the ids that hard vNPUs of a device can have: ``/dev/vdavinci<id>``, in containers ``/dev/davinci<id>``."""
    return range(FIRST_PART + PARTS * number, FIRST_PART + PARTS * (number + 1))


def device_of(part: int) -> int | None:
    """Return the number of the device of which a hard vNPU is a part, None for a number that no vNPU has."""
    return (part - FIRST_PART) // PARTS if part >= FIRST_PART else None
