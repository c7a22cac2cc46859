# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._command.metrics.exposition import Metric, text, value_of

METRICS = (
    Metric("a_ratio", "gauge", "One\nof two \\ ways."),
    Metric("b_total", "counter", "How often.", ("why",)),
    Metric("c_seconds", "gauge", "Not measured."),
)


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        ({}, []),
        ({"c_seconds": []}, []),
        ({"a_ratio": [({}, 0.98765432)]}, ["# HELP a_ratio One\\nof two \\\\ ways.", "# TYPE a_ratio gauge", "a_ratio 0.987654"]),
        (
            {"b_total": [({"why": 'a "b" \\'}, 2), ({"why": "c\nd"}, 3)], "a_ratio": [({}, 1)]},
            [
                "# HELP a_ratio One\\nof two \\\\ ways.",
                "# TYPE a_ratio gauge",
                "a_ratio 1",
                "# HELP b_total How often.",
                "# TYPE b_total counter",
                'b_total{why="a \\"b\\" \\\\"} 2',
                'b_total{why="c\\nd"} 3',
            ],
        ),
    ],
)
def test_the_text_of_metrics(samples, lines):
    assert text("ours", METRICS, samples) == "\n".join(["# ours", *lines]) + "\n"


@pytest.mark.parametrize(
    ("before", "value"),
    [("a_seconds 12\n", 12), ("# a_seconds 1\na_seconds_b 2\n", None), ("a_seconds x\n", None), ("", None), (None, None)],
)
def test_a_value_of_the_last_run(before, value):
    assert value_of(before, "a_seconds") == value
