# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The strategies of a plan, one file each; a new file in this folder is a new strategy, its ``STRATEGY``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import cpus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine


@dataclass(eq=False)
class Pools:
    """What a strategy gives: pools as masks. ``strategy`` is the one that was used; ``closer`` says why others are taken
    instead, and ``kept`` why others still are not. ``floor`` is the smallest pool that a repair should reach.

    The order of a pool's CPUs decides their roles. It is ascending, except for the pools in ``printed``, which keep npu-smi's.
    """

    strategy: str
    masks: dict[Card, int]
    printed: dict[Card, list[int]] = field(default_factory=dict)
    warnings: list[Sentence] = field(default_factory=list)
    closer: str = ""
    kept: str = ""
    floor: int = 0

    def cpus(self, card: Card) -> list[int]:
        return self.printed.get(card) or cpus_of(self.masks[card])


class Strategy(NamedTuple):
    """``pools`` returns the pools of the cards requested, or of more, and raises ``ValueError`` with the published sentence.

    ``auto`` takes the strategy for chips of its ``families``. What the repair may do in its place: divide NUMA nodes without cards
    (``adjacent_nodes``), give at most ``max_cores`` to a pool, and replace pools where npu-smi's affinity contradicts sysfs
    (``reads_affinity``).
    """

    pools: Callable[[Machine, Collection[Card]], Pools]
    families: tuple[str, ...] = ()
    adjacent_nodes: bool = True
    max_cores: int | None = None
    reads_affinity: bool = False


def discover() -> dict[str, Strategy]:
    """Return the strategies of this folder by name; a file whose name begins with an underscore has none."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return {name: importlib.import_module(f"{__name__}.{name}").STRATEGY for name in names}
