# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of all rules on all machines: how good their pools are, by the same measures for every rule."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import measure
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare import packages
from tests.compare.machines import Shape, Subject, subjects
from tests.compare.rules import NotExpressed, Rule, balloons, engines, hwloc, restated, strategies

OURS = strategies.OURS
RULES: dict[str, Rule] = {
    rule.name: rule
    for rules in (strategies.RULES, restated.KUBELET, balloons.RULES, hwloc.RULES, restated.OTHERS, engines.RULES)
    for rule in rules
}
REFUSED, UNKNOWN, OTHER_CARDS = "refused", "not known", "other cards"


class Score(NamedTuple):
    """Measures of a division. All but ``smallest`` are better when they are smaller; ``remote`` is in thousandths of all pool CPUs."""

    overlapping: int
    split: int
    remote: int
    smallest: int
    idle: int
    imbalance: int

    def shown(self, name: str) -> str:
        value = getattr(self, name)
        return f"{value / 10:g} %" if name == "remote" else str(value)


HEADINGS = {"smallest": "smallest pool", "imbalance": "imbalance", "remote": "remote CPUs (%)"}
"""The measures that the page shows of rules with disjoint pools, in the order of their columns."""


def score(groups: Groups, pools: Mapping[Card, int]) -> Score:
    """Return the score of pools, which are masks. A card without a pool has one of no CPUs."""
    quality = measure(groups, pools)
    sizes = [pools.get(card, 0).bit_count() for card in groups.machine.cards]
    return Score(
        overlapping=sum(1 for one, other in combinations(pools.values(), 2) if one & other),
        split=quality["split_cores"],
        remote=round((1 - quality["local"]) * 1000) if quality["local"] is not None else 0,
        smallest=min(sizes),
        idle=mask(quality["idle_near"]).bit_count(),
        imbalance=max(sizes) - min(sizes),
    )


def better(one: Score, other: Score) -> list[str]:
    """Return the measures in which one score is better than another."""
    found = []
    for name in Score._fields:
        gain = getattr(one, name) - getattr(other, name)
        if (gain if name == "smallest" else -gain) > 0:
            found.append(name)
    return found


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
        return [_row(subject) for subject in found]


def _row(subject: Subject) -> Row:
    outcomes = {name: outcome(subject, rule) for name, rule in RULES.items()}
    return Row(subject.shape.family, subject.shape.name, len(subject.cards), subject.machine.usable.bit_count(), outcomes)


def outcome(subject: Subject, rule: Rule) -> Outcome:
    if not rule.is_for(subject):
        return Outcome(None, OTHER_CARDS)
    try:
        return Outcome(score(subject.groups, rule.divide(subject)))
    except ValueError as refusal:
        return Outcome(None, REFUSED, str(refusal))
    except NotExpressed as reason:
        return Outcome(None, UNKNOWN, str(reason))
