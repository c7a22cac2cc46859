# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature metrics: the timer that compares a host with its plan and writes the result for Prometheus' node exporter."""

from __future__ import annotations


from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.metrics.feature import METRICS_SERVICE
from ansible_collections.npu.affinity.plugins.module_utils._features.metrics.feature import METRICS_TIMER, SETTINGS
from ansible_collections.npu.affinity.plugins.module_utils._features.metrics.textfile import settings_text
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature, oneshot, timer, unit
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import OfRole

ENDING = ".prom"
_ORDER = "After=npu-affinity-irq.service npu-affinity-tuning.service npu-affinity-device-share.service\n"


def wanted(topology: Topology, plan: Plan, settings: OfRole) -> Feature:
    textfile = settings["textfile"]
    if textfile and not (textfile.startswith("/") and textfile.endswith(ENDING)):
        raise ValueError(
            f"npu_affinity_metrics_textfile is '{textfile}', and node exporter reads files whose names end in {ENDING}: set it to an "
            "absolute path such as /var/lib/prometheus/node-exporter/npu_affinity.prom, or leave it out."
        )
    does, run = "Write metrics of how the CPUs of this host are bound", f"{settings['python']} -m npu_affinity metrics"
    return Feature(
        files=(
            {"path": SETTINGS, "content": settings_text(textfile), "mode": "0644"},
            unit(METRICS_SERVICE, oneshot(does, SETTINGS, run, 600, _ORDER)),
            unit(METRICS_TIMER, timer(does, "30s", settings["interval"] or "5min", "5s")),
        ),
        enabled=(METRICS_TIMER,),
        started=(METRICS_TIMER,),
        python=settings["python"],
        needs_plan=True,
        live=textfile,
    )
