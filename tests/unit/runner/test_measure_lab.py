# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``make measure-lab`` makes of cyclictest's histogram and of what playbook measure counted."""

from __future__ import annotations

import pytest

from tests.lab import measure

THREAD = {"histogram": {"1000": 1, "50": 97, "200": 1}, "cycles": 100, "max": 2500000}


@pytest.mark.parametrize(("share", "milliseconds"), [(0.5, 0.05), (0.97, 0.05), (0.98, 0.2), (0.99, 1.0), (0.999, 2500.0)])
def test_a_percentile_counts_latencies_beyond_the_histogram(share, milliseconds):
    assert measure.percentile(THREAD, share) == milliseconds


def test_remote_memory_is_a_share_of_the_workers():
    windows = {name: {"windows": [number]} for number, name in enumerate(("cpu_migrations", "involuntary_switches", "waiting"))}
    memory = [{"mib": {"0": 10.0, "1": 25.0}, "remote_mib": 10.0}, {"mib": {"1": 5.0}, "remote_mib": 0.0}]
    rows = [{"processes": [], "memory": []}, {"processes": [{}], "metrics": windows, "memory": memory}]
    assert list(measure.counts({"workloads": rows}).values()) == [[0], [1], [2], [25.0]]


def test_the_table_concludes_from_windows():
    before = {"latency": [10.0, 11.0] * 5, "noise": [1.0, 3.0] * 5, "once": [80.0]}
    after = {"latency": [2.0, 2.1] * 5, "noise": [3.0, 1.0] * 5, "once": [5.0]}
    heading, latency, noise, once = measure.table(before, after)
    assert heading.split() == ["unbound", "bound", "change", "(95", "%)"]
    assert latency.startswith("latency  10.5     2.0") and latency.endswith("-80 %") and noise.endswith("no conclusion")
    assert once.split() == ["once", "80.0", "5.0"]
