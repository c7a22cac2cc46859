# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of ``make test`` and ``make test-all``, and the table that says what became of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in \d[\d.]*s\b", re.MULTILINE)
"""How pytest ends. Programs of ours that count something end so, too."""
NOT_RUN = ("deselected", "warning", "warnings")
LAST_FAILED = "ARGS=--last-failed --last-failed-no-failures=none"


class Part(NamedTuple):
    """What one row of the table is about: a target of the Makefile."""

    name: str
    target: tuple[str, ...]
    """The arguments of make."""
    alone: bool = False
    """Whether it keeps all cores busy."""
    beside: bool = False
    """Whether it takes one core for long, and so is begun first and runs beside all others, also beside those that keep all cores busy."""
    setup: tuple[str, ...] = ()
    """A program that installs what the part needs, or says why it cannot, with its arguments."""
    retry: tuple[str, ...] = ()
    """The arguments of make that run once more what failed, where that may be the machine's fault."""
    kept: int = 0
    """Minutes kept for a part that runs last, with what is left of all minutes as its LAB_MINUTES."""
    recorded: bool = True
    """Whether that it passed says something about the tree alone."""

    @property
    def log(self) -> str:
        return self.name.replace(" ", "-") + ".log"


TEST = (
    Part("style", ("style",)),
    Part("sanity", ("sanity", "ARGS=--changed")),
    Part("types", ("types",)),
    Part("docs", ("docs",)),
    Part("licence", ("licence",)),
    Part("package", ("package",)),
    Part("unit", ("unit",), alone=True),
    Part("1000 machines", ("properties", "MACHINES=1000"), alone=True),
    Part("integration", ("integration",), alone=True),
)
REST = (
    Part("aarch64", ("arm",), beside=True, setup=("tests/lab/setup", "arm64"), retry=("arm", LAST_FAILED)),
    Part("whole sanity", ("sanity",)),
    Part("browser", ("browser",), setup=("tests/browser/setup",)),
    Part("slurm", ("slurm",), setup=("tests/slurm/setup",)),
    Part("events", ("events",), setup=("tests/events/setup",)),
    Part("metrics", ("metrics",), setup=("tests/metrics/setup",)),
    Part("engines", ("engines",), setup=("tests/lab/setup", "amd64"), retry=("engines", LAST_FAILED)),
    Part("site", ("docs-site",)),
    Part("matrix", ("matrix",), alone=True),
    Part("molecule", ("molecule",), alone=True, setup=("extensions/molecule/setup",)),
    Part("long tests", ("long",), alone=True),
    Part("20000 machines", ("properties", "MACHINES=20000"), alone=True),
    Part(
        "lab",
        ("lab",),
        alone=True,
        setup=("tests/lab/setup", "amd64"),
        retry=("lab", "LAB_MINUTES=5", LAST_FAILED),
        kept=20,
    ),
)


def conformance(shared: str) -> Part:
    """Return the part that looks at a directory outside of this tree."""
    return Part("conformance", ("conformance", f"SHARED={shared}"), alone=True, recorded=False)


@dataclasses.dataclass
class Row:
    """What became of a part."""

    part: Part
    result: str = ""
    good: bool = False
    tests: int = 0
    seconds: float = 0
    cpu: float = 0


def counts(log: str) -> dict[str, int]:
    """Return how many tests passed, failed, were skipped and so on, by the summaries in a log."""
    found: dict[str, int] = {}
    for summary in SUMMARY.findall(log):
        for number, word in re.findall(r"(\d+) ([a-z]+)", summary):
            if word not in NOT_RUN:
                found[word] = found.get(word, 0) + int(number)
    return found


def verdict(rows: Sequence[Row]) -> str:
    """Return the result of all parts together."""
    bad = [row for row in rows if not row.good]
    if not bad:
        return "passed"
    failed = any(row.result.startswith("FAILED") for row in bad)
    return ("FAILED: " if failed else "incomplete: ") + ", ".join(row.part.name for row in bad)


def table(rows: Sequence[Row], seconds: float) -> str:
    """Return the table that a run ends with; ``seconds`` is how long all of it took."""
    lines = [("part", "tests", "seconds", "CPU seconds", "result")]
    lines += [(row.part.name, str(row.tests or "-"), f"{row.seconds:.0f}", f"{row.cpu:.0f}", row.result) for row in rows]
    lines.append(("together", str(sum(row.tests for row in rows)), f"{seconds:.0f}", f"{sum(row.cpu for row in rows):.0f}", verdict(rows)))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    texts = []
    for name, *numbers, result in lines:
        columns = [name.ljust(widths[0]), *(number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)), result]
        texts.append("  ".join(columns))
    return "\n".join([texts[0], "-" * max(map(len, texts)), *texts[1:]])
