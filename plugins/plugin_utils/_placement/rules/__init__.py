# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips of a host a job gets, by the rule of each product, one file each; a new file in this folder is a new rule.

Source: Ascend/mind-cluster@22bb3d98, ``component/ascend-for-volcano/internal/npu`` and the document "Affinity Scheduling". The aims of
these rules are few fragments (large blocks stay whole) and little traffic (same card, then HCCS, then PCIe).

This package is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, cast

from ansible_collections.npu.affinity.plugins.plugin_utils._discovery import modules_of


class Rule(Protocol):
    """What every file of this folder has. ``free`` is ascending, ``multi`` says that the job has several tasks."""

    NAME: str
    PRODUCT: str
    CHIPS: int
    """The most chips that a host of the product has."""
    GROUP: int
    """Chips of a group: numbers from a multiple of this."""
    WORD: str
    WORDS: str
    """What a group and groups are called."""

    def sizes(self, multi: bool) -> Collection[int]:
        """Return the numbers of chips that a task may ask for."""

    def pick(self, free: Sequence[int], count: int, multi: bool) -> list[int] | None:
        """Return the chips in the order in which they are taken, None where none fit. ``count`` is one of the sizes."""

    def score(self, free: Sequence[int], count: int, allocatable: int, multi: bool) -> int:
        """Return how well a host suits, the most suitable first; 0 where the rule has no score or does not fit."""


def _rules() -> dict[str, Rule]:
    rules = [cast(Rule, module) for module in modules_of(__name__).values()]
    return {rule.NAME: rule for rule in sorted(rules, key=lambda rule: rule.NAME)}


RULES = _rules()
