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
from collections.abc import Callable, Iterable, Iterator, Sequence

from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from tests.compare.results import OURS, RULES, UNKNOWN, Row
from tests.compare.rules import hwloc
from tests.compare.scores import HEADINGS, Score, better

DATE = re.compile(r"^Made on (\d{4}-\d\d-\d\d)", re.MULTILINE)
NAMED = 3
"""So many rules are named in a cell; the data has all of them."""

TEMPLATE = pathlib.Path(__file__).with_name("page.md")

MEANINGS = {
    "overlapping": "pairs of cards whose pools have CPUs in common",
    "split": "cores of which a pool has some usable threads and not all",
    "remote": "share of pool CPUs that are not [local](strategies-reference.md#remote-cpus)",
    "smallest": "CPUs of the smallest pool; 0 if a card has none",
    "imbalance": "CPUs of the largest pool minus those of the smallest",
}


def text(rows: Sequence[Row], date: str) -> str:
    free, priced, refused = list(_free(rows)), list(_priced(rows)), list(_refused(rows))
    families = list(dict.fromkeys(row.family for row in rows))
    return TEMPLATE.read_text().format(
        rules=len(RULES),
        machines=len(rows),
        date=date,
        version=VERSION,
        hwloc=hwloc.recorded()["version"],
        better=_better(rows, free, priced, refused),
        free=_table(["machine", "measure", OURS, "better", "rules"], free),
        priced=_table(["machine", "measure", OURS, "better", "rule", "disadvantage"], priced),
        refused=_table(["machine", "rule", *list(HEADINGS.values())[1:]], refused),
        summary=_table(
            ["rule", "divides", "overlapping pools", "split cores", "all CPUs local", "remote CPUs", "smallest pool", "imbalance"],
            [_summary(rows, rule) for rule in RULES],
        ),
        remote=_by_family(rows, families, lambda row, score: score.remote / 1000),
        smallest=_by_family(rows, families, _of_equal_share),
        defects=_table(["rule", *families], [_defects(rows, families, rule) for rule in RULES]),
        measures=_table(["measure", "meaning"], [(HEADINGS[name], meaning) for name, meaning in MEANINGS.items()]),
        sources=_table(["rule", "runs as", "source"], [(rule.name, rule.how, rule.source) for rule in RULES.values()]),
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
    """Yield the machines on which a rule is better in a measure, and in none worse: the best rules for each measure."""
    for row in rows:
        if row.ours is None:
            continue
        found = {rule: score for rule, score in row.scores().items() if better(score, row.ours) and not better(row.ours, score)}
        for name in Score._fields:
            ahead = {rule: score for rule, score in found.items() if name in better(score, row.ours)}
            if ahead:
                best = _best(ahead, name)
                names = [rule for rule, score in ahead.items() if getattr(score, name) == getattr(best, name)]
                yield [_title(row), HEADINGS[name], row.ours.shown(name), best.shown(name), _named(names)]


def _priced(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the machines on which a rule with disjoint pools is better in a measure and worse in another: the best for each measure."""
    for row in rows:
        if row.ours is None:
            continue
        disjoint = {rule: score for rule, score in row.scores().items() if not score.overlapping}
        for name in Score._fields:
            ahead = {rule: score for rule, score in disjoint.items() if name in better(score, row.ours)}
            if not ahead or any(not better(row.ours, score) for score in ahead.values()):
                continue
            best = _best(ahead, name)
            rule = [rule for rule, score in ahead.items() if score == best][0]
            worse = [f"{HEADINGS[other]} {best.shown(other)} (not {row.ours.shown(other)})" for other in better(row.ours, best)]
            yield [_title(row), HEADINGS[name], row.ours.shown(name), best.shown(name), rule, "; ".join(worse)]


def _refused(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield the machines that npu.affinity refuses, with the rule of disjoint pools that has the fewest split cores and remote CPUs."""
    for row in rows:
        disjoint = {rule: score for rule, score in row.scores().items() if not score.overlapping}
        if row.ours is None and disjoint:
            rule, best = min(disjoint.items(), key=lambda item: (item[1].split, item[1].remote, -item[1].smallest))
            yield [_title(row), rule, *(best.shown(name) for name in Score._fields[1:])]


def _best(scores: dict[str, Score], name: str) -> Score:
    """Return the score that is best in a measure, and among equal ones in the measures in their order."""

    def order(score: Score) -> tuple[int, ...]:
        value = getattr(score, name)
        return -value if name == "smallest" else value, *score[:3], -score.smallest

    return min(scores.values(), key=order)


def _better(rows: Sequence[Row], free: Sequence[list[str]], priced: Sequence[list[str]], refused: Sequence[list[str]]) -> str:
    overlapping = sum(any(score.overlapping for score in row.scores().values()) for row in rows)
    counts = [len({line[0] for line in lines}) for lines in (free, priced, refused)]
    return (
        f"Another rule is better without a disadvantage on {counts[0]} of {len(rows)} machines, and with one on {counts[1]}. npu.affinity\n"
        f"refuses {counts[2]} that another rule divides. Rules with overlapping pools are not listed there. Their pools can be larger,\n"
        f"because cards share CPUs (on {overlapping} machines)."
    )


def _summary(rows: Sequence[Row], rule: str) -> list[str]:
    divided = _divided(rows, rule)
    if not divided:
        return [rule, "0", *["–"] * 6]
    scores = [score for _row, score in divided]
    return [
        rule,
        f"{len(divided)} of {len(rows)}",
        str(sum(score.overlapping > 0 for score in scores)),
        str(sum(score.split > 0 for score in scores)),
        str(sum(score.remote == 0 for score in scores)),
        f"{statistics.mean(score.remote for score in scores) / 10:.0f} %",
        f"{statistics.mean(_of_equal_share(*pair) for pair in divided):.0%}".replace("%", " %"),
        f"{statistics.mean(score.imbalance for score in scores):.1f}",
    ]


def _by_family(rows: Sequence[Row], families: Sequence[str], value: Callable[[Row, Score], float]) -> str:
    def cell(rule: str, family: str) -> str:
        values = [value(row, score) for row, score in _divided(rows, rule) if row.family == family]
        return f"{statistics.mean(values) * 100:.0f} %" if values else "–"

    return _table(["rule", *families], [[rule, *(cell(rule, family) for family in families)] for rule in RULES])


def _defects(rows: Sequence[Row], families: Sequence[str], rule: str) -> list[str]:
    cells = []
    for family in families:
        scores = [score for row, score in _divided(rows, rule) if row.family == family]
        cells.append(f"{sum(bool(score.overlapping or score.split) for score in scores)} of {len(scores)}" if scores else "–")
    return [rule, *cells]


def _divided(rows: Iterable[Row], rule: str) -> list[tuple[Row, Score]]:
    return [(row, score) for row in rows if (score := row.outcomes[rule].score)]


def _of_equal_share(row: Row, score: Score) -> float:
    return score.smallest / (row.cpus / row.cards)


def _title(row: Row) -> str:
    return f"{row.family}: {row.name}"


def _named(rules: Sequence[str]) -> str:
    more = len(rules) - NAMED
    return "; ".join(rules[:NAMED]) + (f"; {more} more" if more > 0 else "")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None."
    lines = [" | ".join(cells) for cells in (headings, *rows)]
    return "\n".join([f"| {lines[0]} |", "|---" * len(headings) + "|", *(f"| {line} |" for line in lines[1:])])
