# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of all rules on all machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.compare import packages
from tests.compare.machines import Shape
from tests.compare.rules import NotExpressed, Rule, balloons, engines, hwloc, kubelet, slurm, strategies, torch_npu
from tests.compare.scores import Score, score
from tests.compare.subject import Subject, subjects

OURS = strategies.OURS
RULES: dict[str, Rule] = {
    rule.name: rule for module in (strategies, kubelet, balloons, hwloc, slurm, torch_npu, engines) for rule in module.RULES
}
REFUSED, UNKNOWN, OTHER_CARDS = "refused", "not known", "other cards"


class Outcome(NamedTuple):
    """What a rule makes of a machine: its score, or :data:`REFUSED` or :data:`UNKNOWN` with the reason, or :data:`OTHER_CARDS`."""

    score: Score | None
    state: str = ""
    reason: str = ""


class Row(NamedTuple):
    """A machine with the outcomes of all rules by name."""

    family: str
    name: str
    cards: int
    cpus: int
    outcomes: Mapping[str, Outcome]

    @property
    def ours(self) -> Score | None:
        return self.outcomes[OURS].score

    def scores(self) -> dict[str, Score]:
        """Return the scores of the other rules that divide this machine."""
        return {rule: outcome.score for rule, outcome in self.outcomes.items() if outcome.score and rule != OURS}


def results(machines: list[Shape], record: bool = False) -> list[Row]:
    """Return the rows of machines. With ``record``, programs run, and their outputs are recorded: hwloc-distrib if it is installed, and
    those of packages that pip can download.
    """
    with subjects(machines) as found:
        if record and not hwloc.record(found):
            print("hwloc-distrib is not installed: its recorded outputs are used")
        if record:
            try:
                engines.record(found)
            except packages.CONNECTION_FAILED as error:
                print(f"packages of engines cannot be downloaded: their recorded outputs are used: {error}")
        return [
            Row(
                subject.shape.family,
                subject.shape.name,
                len(subject.cards),
                subject.machine.usable.bit_count(),
                {name: outcome(subject, rule) for name, rule in RULES.items()},
            )
            for subject in found
        ]


def outcome(subject: Subject, rule: Rule) -> Outcome:
    if not rule.is_for(subject):
        return Outcome(None, OTHER_CARDS)
    try:
        return Outcome(score(subject.groups, rule.divide(subject)))
    except ValueError as refusal:
        return Outcome(None, REFUSED, str(refusal))
    except NotExpressed as reason:
        return Outcome(None, UNKNOWN, str(reason))
