# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of the comparison: for each rule, the machines by the worst defect of their pools. It follows the reader's colour scheme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from tests.compare.results import OURS, REFUSED, RULES, Outcome, Row

WIDTH, BAR, STEP, TOP, LINE = 480, 18, 46, 84, 24
KINDS: Mapping[str, str] = {
    "local": "disjoint, whole cores, all CPUs local",
    "remote": "disjoint, whole cores, some CPUs remote",
    "split": "split cores",
    "overlap": "overlapping pools",
    "refused": "refused",
    "unknown": "not known, or the rule is for other cards",
}
LIGHT = {"local": "#009e73", "remote": "#56b4e9", "split": "#e69f00", "overlap": "#d55e00", "refused": "#9aa4af", "unknown": "#e2e6ea"}
DARK = {"local": "#19b88c", "remote": "#3d9fdb", "split": "#f0b53a", "overlap": "#e8772a", "refused": "#b4bdc7", "unknown": "#7d8590"}


def kind(outcome: Outcome) -> str:
    score = outcome.score
    if score is None:
        return "refused" if outcome.state == REFUSED else "unknown"
    if score.overlapping:
        return "overlap"
    return "split" if score.split else "remote" if score.remote else "local"


def svg(rows: Sequence[Row]) -> str:
    names = list(RULES)
    counts = {name: {of: sum(kind(row.outcomes[name]) == of for row in rows) for of in KINDS} for name in names}
    height = TOP + STEP * len(names) + LINE * len(KINDS) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        ' role="img" class="rules">',
        f"<title>{escape(_words(counts, len(rows)))}</title>",
        f"<style>{_style(LIGHT, '#1b1f24', '#fff')}@media(prefers-color-scheme:dark){{{_style(DARK, '#e6edf3', '#0d1117')}}}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        '<text class="head" x="16" y="32">Pools of each rule</text>',
        f'<text x="16" y="56">{len(rows)} machines, by the worst defect</text>',
        *(part for number, name in enumerate(names) for part in _bar(name, counts[name], TOP + STEP * number, len(rows))),
        *(part for number, name in enumerate(KINDS) for part in _key(name, TOP + STEP * len(names) + 16 + LINE * number)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _style(colours: Mapping[str, str], ink: str, page: str) -> str:
    rules = {f".{name}": f"fill:{colour}" for name, colour in colours.items()}
    rules |= {"text": f"fill:{ink};font:15px system-ui,sans-serif", ".head": "font-size:19px;font-weight:600", ".page": f"fill:{page}"}
    rules |= {"text.ours": "font-weight:700", "text.count": "fill:#000;font-size:13px;text-anchor:middle"}
    return "".join(f".rules {selector}{{{rule}}}" for selector, rule in rules.items())


def _bar(name: str, counts: Mapping[str, int], y: int, machines: int) -> Iterator[str]:
    yield f'<text class="{"ours" if name == OURS else "rule"}" x="16" y="{y + 14}">{escape(name)}</text>'
    x = 16.0
    for of, count in counts.items():
        width = (WIDTH - 32) * count / machines
        if count:
            yield f'<rect class="{of}" x="{x:.1f}" y="{y + 20}" width="{width:.1f}" height="{BAR}"/>'
            if width > 18:
                yield f'<text class="count" x="{x + width / 2:.1f}" y="{y + 34}">{count}</text>'
        x += width


def _key(name: str, y: int) -> Iterator[str]:
    yield f'<rect class="{name}" x="16" y="{y}" width="{BAR}" height="{BAR}"/>'
    yield f'<text x="44" y="{y + 14}">{KINDS[name]}</text>'


def _words(counts: Mapping[str, Mapping[str, int]], machines: int) -> str:
    """Return the numbers of the picture as text, for those who do not see it."""
    rules = (f"{name}: {', '.join(f'{count} {KINDS[of]}' for of, count in found.items() if count)}" for name, found in counts.items())
    return f"Pools of each rule on {machines} machines. {'. '.join(rules)}."
