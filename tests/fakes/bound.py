# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host, and the desired state with every feature that it is bound to."""

from __future__ import annotations

import json

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

from tests.fakes.changes import VENDOR, state
from tests.fakes.small_host import two_cards
from tests.simulator.generate import generate

MACHINE = two_cards(0, 1)
PYTHON = "/usr/bin/python3"
TEXTFILE = "/var/lib/prometheus/node-exporter/npu_affinity.prom"
HISTORY = "/etc/npu-affinity/history"
ON = {"slices", "irq", "nic", "adopt", "threads", "tuning", "hugepages", "metrics"}
GIVEN = of_features(
    {
        "npu_affinity_services": [{"unit": "vllm@0.service", "npus": [0]}],
        "npu_affinity_nic": "near",
        "npu_affinity_adopt": "always",
        "npu_affinity_tuning": {"swappiness": "0"},
        "npu_affinity_hugepages": {"size": "2M", "per_npu": 100},
        "npu_affinity_metrics_textfile": TEXTFILE,
        "npu_affinity_interval": "10min",
        "npu_affinity_python": PYTHON,
    }
)
SETTINGS = {name: {**GIVEN[name], "enabled": name in ON} for name in [*GIVEN] if name in {*ON, "hard_vnpu", "device_share"}}
NOTHING = {"nic": "off", "adopt": "report", "tuning": {}, "hugepages": {}}
"""The values with which roles without a switch are off."""
SETTINGS["threads"] |= {"services": [], "interval": "1min"}


def host_in(folder):
    """Make a simulated host on which every feature has what it needs, and return its folder."""
    generate(MACHINE, folder)
    (folder / TEXTFILE[1:]).parent.mkdir(parents=True)
    (folder / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
    (folder / "proc/sys/vm/swappiness").write_text("60\n")
    return folder


def switched_off(role):
    return {**SETTINGS[role], "enabled": False, **{name: value for name, value in NOTHING.items() if name == role}}


def state_of(topology, *off):
    settings = {name: switched_off(name) if name in off else SETTINGS[name] for name in SETTINGS}
    return json.loads(json.dumps(of_plan(topology, plan(topology), settings)))


def files_of(root):
    """The files of a host, without those of the vendor and the history, in which a detour is seen."""
    found = state(root, (*VENDOR, HISTORY)).items()
    return {path: "" if isinstance(entry, str) else entry[1] for path, entry in found if isinstance(entry, str) or entry[1] is not None}
