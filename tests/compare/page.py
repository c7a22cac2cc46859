# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the comparison, and its data."""

from __future__ import annotations

import csv as _csv
import io
import pathlib
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from tests.compare.results import HEADINGS, RULES, UNKNOWN, Row, Score, better
from tests.compare.rules import engines, hwloc

DATE = re.compile(r"^Made on (\d{4}-\d\d-\d\d)", re.MULTILINE)
NAMED = 1
"""So many rules are named in a cell; the data has all of them."""

TEMPLATE = pathlib.Path(__file__).with_name("page.md")


def text(rows: Sequence[Row], date: str) -> str:
    free, priced, refused = list(_free(rows)), list(_priced(rows)), list(_refused(rows))
    return TEMPLATE.read_text().format(
        rules=len(RULES),
        machines=len(rows),
        date=date,
        version=VERSION,
        hwloc=hwloc.recorded()["version"],
        better=_better(rows, free, priced, refused),
        free=_table(["machine", "rule", *HEADINGS.values()], free),
        priced=_table(["machine", "rule", *HEADINGS.values()], priced),
        refused=_table(["machine", "rule", *HEADINGS.values()], refused),
        summary=_table(
            ["rule", "divided", "disjoint", "remote CPUs (%)", "smallest pool (%)", "imbalance"], [_summary(rows, rule) for rule in RULES]
        ),
        versions=engines.recorded()["versions"],
        unknown=sum(outcome.state == UNKNOWN for row in rows for outcome in row.outcomes.values()),
    )


def csv(rows: Sequence[Row]) -> str:
    """Return one line for each machine and rule."""
    out = io.StringIO()
    writer = _csv.writer(out, lineterminator="\n")
    writer.writerow(["family", "machine", "cards", "cpus", "rule", "result", *Score._fields, "reason"])
    for row in rows:
        for rule, outcome in row.outcomes.items():
            values = list(outcome.score) if outcome.score else [""] * len(Score._fields)
            if outcome.score:
                values[Score._fields.index("remote")] = outcome.score.remote / 1000
            writer.writerow([row.family, row.name, row.cards, row.cpus, rule, outcome.state or "divided", *values, outcome.reason])
    return out.getvalue()


def _free(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the machines on which a rule is better in a measure, and in none worse: the best such rules."""
    for row in rows:
        if row.ours is None:
            continue
        found = {rule: score for rule, score in row.scores().items() if not better(row.ours, score)}
        for best in dict.fromkeys(_best(ahead, name) for name, ahead in _ahead(row.ours, found)):
            yield [_title(row), _named([rule for rule, score in found.items() if score == best]), *_beside(row.ours, best)]


def _priced(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the machines on which a rule with disjoint pools is better in a measure, but none without being worse in another: the rule with
    the fewest split cores and remote CPUs."""
    for row in rows:
        if row.ours is None:
            continue
        disjoint = {rule: score for rule, score in row.scores().items() if not score.overlapping}
        first = {score: rule for rule, score in reversed(disjoint.items())}
        priced = [pair for pair in _ahead(row.ours, disjoint) if all(better(row.ours, score) for score in pair[1].values())]
        if priced:
            best = min((_best(ahead, name) for name, ahead in priced), key=_price)
            yield [_title(row), first[best], *_beside(row.ours, best)]


def _ahead(ours: Score, scores: Mapping[str, Score]) -> Iterator[tuple[str, dict[str, Score]]]:
    """Yield the measures in which rules are better, with these."""
    for name in Score._fields:
        if ahead := {rule: score for rule, score in scores.items() if name in better(score, ours)}:
            yield name, ahead


def _beside(ours: Score | None, theirs: Score) -> Iterator[str]:
    """Yield the values of a rule, with those of npu.affinity in brackets where they differ."""
    for name in HEADINGS:
        value, known = (None if score is None else score.shown(name).removesuffix(" %") for score in (theirs, ours))
        yield str(value) if known in (None, value) else f"{value} ({known})"


def _refused(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the machines that npu.affinity refuses, with the rule of disjoint pools that has the fewest split cores and remote CPUs."""
    for row in rows:
        disjoint = {rule: score for rule, score in row.scores().items() if not score.overlapping}
        if row.ours is None and disjoint:
            rule, best = min(disjoint.items(), key=lambda item: _price(item[1]))
            yield [_title(row), rule, *_beside(None, best)]


def _price(score: Score) -> tuple[int, int, int]:
    return score.split, score.remote, -score.smallest


def _best(scores: Mapping[str, Score], name: str) -> Score:
    """Return the score that is best in a measure, and among equal ones in the measures in their order."""

    def order(score: Score) -> tuple[int, ...]:
        value = getattr(score, name)
        return -value if name == "smallest" else value, *score[:3], -score.smallest

    return min(scores.values(), key=order)


def _better(rows: Sequence[Row], free: Sequence[list[str]], priced: Sequence[list[str]], refused: Sequence[list[str]]) -> str:
    counts = [len({line[0] for line in lines}) for lines in (free, priced, refused)]
    return (
        f"Another rule is better without a disadvantage on {counts[0]} of {len(rows)} machines, and with one on {counts[1]}. npu.affinity\n"
        f"refuses {counts[2]} that another rule divides."
    )


def _summary(rows: Sequence[Row], rule: str) -> list[str]:
    divided = [(row, score) for row in rows if (score := row.outcomes[rule].score)]
    disjoint = [(row, score) for row, score in divided if not score.overlapping]
    counts = [rule, str(len(divided)), str(len(disjoint))]
    if not disjoint:
        return [*counts, *["–"] * 3]
    scores = [score for _row, score in disjoint]
    return [
        *counts,
        f"{statistics.mean(score.remote for score in scores) / 10:.0f}",
        f"{statistics.mean(score.smallest / (row.cpus / row.cards) for row, score in disjoint) * 100:.0f}",
        f"{statistics.mean(score.imbalance for score in scores):.1f}",
    ]


def _title(row: Row) -> str:
    return f"{row.family}: {row.name}"


def _named(rules: Sequence[str]) -> str:
    more = len(rules) - NAMED
    return "; ".join(rules[:NAMED]) + (f"; {more} more" if more > 0 else "")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None."
    columns = [column for column in zip(headings, *rows, strict=True) if set(column[1:]) != {"0"}]
    lines = [" | ".join(cells) for cells in zip(*columns, strict=True)]
    return "\n".join([f"| {lines[0]} |", "|---" * len(columns) + "|", *(f"| {line} |" for line in lines[1:])])
