# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default of torch_npu's ``CPU_AFFINITY_CONF``: consecutive CPUs, the same number for each device.

Source: Ascend/pytorch@9e73e708ab9350d203475609f36f8a43f6a0c2ab, ``torch_npu/csrc/core/npu/NPUAffinityController.cpp``,
``getNPUDefaultCores`` and ``checkThreadAffinityConflict``, restated.

1. A device gets as many CPUs as there are online CPUs for each device, rounded down; device *n* starts at *n* times that number.
2. If the process may not use one CPU of one device, nothing is bound on the host. ``force:1`` is not the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import Rule
from tests.compare.subject import Subject


def blocks(online: int, devices: int) -> list[int]:
    """Return the CPUs of each device as masks, from the number of online CPUs."""
    size = online // devices
    return [((1 << size) - 1) << device * size for device in range(devices)]


def divide(subject: Subject) -> Mapping[Card, int]:
    made = blocks(subject.machine.online.bit_count(), len(subject.cards))
    for number, cpus in enumerate(made):
        if outside := cpus & ~subject.machine.usable:
            raise ValueError(f"device {number}: CPUs {text_of(outside)} are not in the thread's mask; nothing is bound")
    return dict(zip(subject.cards, made, strict=True))


RULES = (Rule("torch_npu, default", divide),)
