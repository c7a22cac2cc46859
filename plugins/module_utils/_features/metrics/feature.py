# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature metrics: the file that node exporter reads, and the timer that writes it."""

from __future__ import annotations

from ..._host.installed import UNIT_FOLDER
from ..._state import sections
from ..feature import Feature, later, where_wanted

SETTINGS = "/etc/npu-affinity/metrics.json"
SECTION = "metrics"
"""The section of previous.json: the paths of all files that were written, so that none is left when another one is wanted."""
METRICS_SERVICE, METRICS_TIMER = "npu-affinity-metrics.service", "npu-affinity-metrics.timer"

FEATURE = Feature(
    "metrics",
    effect="exports metrics",
    live=str,
    owned=(SETTINGS, UNIT_FOLDER + "/" + METRICS_SERVICE, UNIT_FOLDER + "/" + METRICS_TIMER),
    sections={SECTION: sections.check_paths},
    programs=("npu-affinity-metrics*",),
    step=where_wanted("metrics", "metrics.textfile:of_state"),
    written=later("metrics.textfile:written"),
)
