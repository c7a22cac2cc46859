# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host, and the desired state with every feature that it is bound to."""

from __future__ import annotations

import json

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

from tests.fakes.two_cards import two_cards

MACHINE = two_cards(0, 1)
PYTHON = "/usr/bin/python3"
TEXTFILE = "/var/lib/prometheus/node-exporter/npu_affinity.prom"
HISTORY = "/etc/npu-affinity/history"
SETTINGS = {
    "slices": {
        "enabled": True,
        "bound_by": "host",
        "services": [{"unit": "vllm@0.service", "npus": [0]}],
        "workloads": [],
        "environment": {},
        "vnpus": [],
        "vnpu_limiter": "",
        "vnpu_folder": "/srv/vnpu",
        "kubelet_becomes": "",
        "python": PYTHON,
    },
    "irq": {
        "enabled": True,
        "irqbalance": "policy",
        "failure": "fail",
        "interval": "10min",
        "wait": 60,
        "rebind_limit": 4,
        "python": PYTHON,
    },
    "nic": {"enabled": True, "nic": "near", "irq_enabled": True, "interval": "", "wait": 60, "rebind_limit": 4, "python": PYTHON},
    "adopt": {
        "enabled": True,
        "adopt": "always",
        "rebind_limit": 4,
        "move_memory": False,
        "pods": False,
        "environment": {},
        "bound_by": "host",
        "python": PYTHON,
    },
    "threads": {
        "enabled": True,
        "bound_by": "host",
        "services": [],
        "workloads": [],
        "processes": [],
        "patterns": {"acl": ["acl_thread*"]},
        "memory_limit": 0,
        "interval": "1min",
        "python": PYTHON,
    },
    "tuning": {
        "enabled": True,
        "tuning": {"swappiness": "0"},
        "python": PYTHON,
    },
    "hugepages": {"enabled": True, "hugepages": {"size": "2M", "per_npu": 100}, "python": PYTHON},
    "metrics": {"enabled": True, "textfile": TEXTFILE, "interval": "5min", "python": PYTHON},
    "hard_vnpu": {"enabled": False, "vnpus": [], "recover": "leave", "npu_smi": "", "timeout": 30, "python": PYTHON},
    "device_share": {
        "enabled": False,
        "npus": [],
        "ignore_busy": False,
        "wait": 60,
        "timeout": 30,
        "npu_smi": "",
        "python": PYTHON,
    },
}


def state_of(topology, *off):
    settings = {name: {**values, "enabled": values["enabled"] and name not in off} for name, values in SETTINGS.items()}
    settings["tuning"]["tuning"] = {} if "tuning" in off else SETTINGS["tuning"]["tuning"]
    return json.loads(json.dumps(of_plan(topology, plan(topology), settings)))


def files_of(root):
    """The files of a host, without those of the vendor and the history, in which a detour is seen."""
    vendor = ("/simulator", "/var/log", "/run/npu-smi", HISTORY)
    paths = ["/" + str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink() and not path.is_dir()]
    return {path: (root / path[1:]).read_bytes() if (root / path[1:]).is_file() else "" for path in paths if not path.startswith(vendor)}
