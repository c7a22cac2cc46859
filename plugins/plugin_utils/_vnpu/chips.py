# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chips that HAMi knows, and the fixed templates into which the driver splits each of them (hard split).

Project-HAMi/HAMi@4707fb02 ``charts/hami/templates/scheduler/device-configmap.yaml``. Memory is in MB, as HAMi counts it. The templates of a
driver at hand are what ``npu-smi info -t template-info`` answers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Template:
    """A part of a chip: ``memory`` in MB, numbers of AI cores and AI CPUs (None: not stated)."""

    name: str
    memory: int
    ai_core: int
    ai_cpu: int | None = None


@dataclass(frozen=True)
class Chip:
    """A chip: ``name`` as npu-smi prints it, ``word`` as HAMi's resources have it.

    ``allocatable`` MB can be handed out of ``capacity`` MB; ``templates`` ascend by memory. ``pairs``: both dies of a card are handed out
    together. ``core_in_plugin``: whether the device plugin's own configuration offers ``-core``, as HAMi's chart does for every chip.
    """

    name: str
    word: str
    allocatable: int
    capacity: int
    ai_core: int
    ai_cpu: int | None
    templates: tuple[Template, ...]
    memory_factor: int = 1
    pairs: bool = False
    core_in_plugin: bool = False

    @property
    def resource(self) -> str:
        return f"huawei.com/{self.word}"

    @property
    def memory_resource(self) -> str:
        return f"{self.resource}-memory"

    @property
    def core_resource(self) -> str:
        return f"{self.resource}-core"


_QUARTER_AND_HALF = (Template("vir05_1c_16g", 16384, 5, 1), Template("vir10_3c_32g", 32768, 10, 3))

CHIPS = (
    Chip(
        "910A",
        "Ascend910A",
        32768,
        32768,
        30,
        None,
        (Template("vir02", 2184, 2), Template("vir04", 4369, 4), Template("vir08", 8738, 8), Template("vir16", 17476, 16)),
    ),
    Chip(
        "910B2",
        "Ascend910B2",
        65536,
        65536,
        24,
        6,
        (Template("vir03_1c_8g", 8192, 3, 1), Template("vir06_1c_16g", 16384, 6, 1), Template("vir12_3c_32g", 32768, 12, 3)),
    ),
    Chip("910B3", "Ascend910B3", 65536, 65536, 20, 7, _QUARTER_AND_HALF, core_in_plugin=True),
    Chip("910B4-1", "Ascend910B4-1", 65536, 65536, 20, 7, _QUARTER_AND_HALF),
    Chip(
        "910B4",
        "Ascend910B4",
        32768,
        32768,
        20,
        7,
        (Template("vir05_1c_8g", 8192, 5, 1), Template("vir10_3c_16g", 16384, 10, 3)),
    ),
    Chip(
        "310P3",
        "Ascend310P",
        21527,
        24576,
        8,
        7,
        (Template("vir01", 3072, 1, 1), Template("vir02", 6144, 2, 2), Template("vir04", 12288, 4, 4)),
    ),
    Chip("Ascend910", "Ascend910C", 65536, 65536, 20, 7, _QUARTER_AND_HALF, pairs=True, core_in_plugin=True),
)


def chip_of(name: str) -> Chip:
    """Return the chip of a name (``910B3``) or a word (``Ascend910B3``). ``ValueError`` for one that HAMi does not know."""
    for chip in CHIPS:
        if name in (chip.name, chip.word):
            return chip
    known = ", ".join(f"{chip.name} ({chip.word})" for chip in CHIPS)
    raise ValueError(f"chip: HAMi has no templates and resources for '{name}'; it knows {known}")


def slots(memory: int, templates: tuple[int, ...], count: int = 0) -> int:
    """Return how many containers may share a chip: ``count`` where it is set, else memory ÷ smallest template, else 1. Memory in MB."""
    if count > 0:
        return count
    return memory // min(templates) if templates else 1
