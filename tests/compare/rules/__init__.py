# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that are compared. Each has one file, which says where it comes from and whether it runs or is restated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.subject import Subject

Divide = Callable[[Subject], Mapping[Card, int]]


class NotExpressed(Exception):
    """A rule gives a machine CPUs that its restatement cannot tell."""


class Rule(NamedTuple):
    """A rule by its name on the page, and the kinds of cards that it is for.

    ``divide`` raises ``ValueError`` for a machine that it refuses, or :class:`NotExpressed`.
    """

    name: str
    divide: Divide
    kinds: tuple[str, ...] = ("npu", "gpu")

    def is_for(self, subject: Subject) -> bool:
        return {card.kind for card in subject.cards} <= {*self.kinds}
