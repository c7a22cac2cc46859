# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that confine a process to its devices: without them a process on the CPUs of NPU 2 computes on NPU 0.

``ASCEND_RT_VISIBLE_DEVICES``: CANN, logic ids as the process sees them. ``CUDA_VISIBLE_DEVICES``: CUDA programming guide, environment
variables; it counts in the order of nvidia-smi only with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable

_OF_KIND = {"npu": ("ASCEND_RT_VISIBLE_DEVICES", {}), "gpu": ("CUDA_VISIBLE_DEVICES", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})}


def visible_devices(kind: str, ids: Iterable[int]) -> dict[str, str]:
    """Return the variables for devices of a kind (``npu`` or ``gpu``) by their ids, in the order in which the process is to count them."""
    name, order = _OF_KIND[kind]
    listed = ",".join(map(str, ids))
    return {**order, name: listed} if listed else {}
