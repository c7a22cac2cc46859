# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that are compared. Each has one file, which says where it comes from and whether it runs or is restated."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.machines import Subject

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


def save(file: pathlib.Path, sets: Mapping[str, Any], **about: Any) -> None:
    """Record what programs gave for machines by their digests, which the page can be made of without the programs: one line a machine."""
    lines = [f"{json.dumps(digest)}: {json.dumps(found, sort_keys=True)}" for digest, found in sorted(sets.items())]
    file.write_text(json.dumps({**about, "sets": None}).replace("null", "{\n" + ",\n".join(lines) + "\n}") + "\n")


def found_for(subject: Subject, sets: Mapping[str, Any], program: str) -> Any:
    if subject.digest not in sets:
        raise LookupError(f"no record of {program} for {subject.shape.title}: make compare records programs that are installed")
    return sets[subject.digest]
