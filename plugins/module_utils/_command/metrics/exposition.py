# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics as text for Prometheus (text exposition format 0.0.4, prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple, Union

from ..._base.outside import shown_lines

Labels = Dict[str, str]
Number = Union[int, float]
Sample = Tuple[Labels, Number]


class Metric(NamedTuple):
    """What there is to know of a metric before it is measured; ``kind`` is gauge or counter, ``labels`` are their names."""

    name: str
    kind: str
    help: str
    labels: Tuple[str, ...] = ()


def text(head: str, metrics: Iterable[Metric], samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return the text of the metrics that have samples, below a comment."""
    lines = ["# %s" % head]
    for metric in metrics:
        found = samples.get(metric.name) or ()
        if found:
            lines += ["# HELP %s %s" % (metric.name, _escaped(metric.help)), "# TYPE %s %s" % (metric.name, metric.kind)]
        lines += ["%s%s %s" % (metric.name, _labels(labels), _number(value)) for labels, value in found]
    return "\n".join(lines) + "\n"


def value_of(text: str | None, name: str) -> float | None:
    """Return the value of a metric without labels in a text, or None where it has none."""
    for line in (text or "").splitlines():
        word, _blank, value = line.partition(" ")
        if word == name:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _labels(labels: Labels) -> str:
    pairs = ['%s="%s"' % (name, _escaped(shown_lines(value)).replace('"', '\\"')) for name, value in labels.items()]
    return "{%s}" % ",".join(pairs) if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Number) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(value)
