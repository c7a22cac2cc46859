# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One verdict on everything that a statement about a container says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._launch import checks


def verdict_on(statement: Mapping[str, Any]) -> checks.Verdict:
    """Return the worst verdict; among equals the first, with the effective CPUs where known."""
    given = {"driver": "systemd", "slice_cpus": None, "host_cpus": None, "cgroup": 2, "total_npus": 0, **statement}
    verdicts, effective, cpus = [], None, given["slice_cpus"] or given.get("container_cpus") or ""
    if "cgroup_parent" in given:
        verdicts.append(checks.parent_verdict(given["cgroup_parent"], given["driver"]))
    if "container_cpus" in given:
        verdicts.append(checks.set_verdict(given["container_cpus"], given["slice_cpus"], given["host_cpus"], given["cgroup"]))
        effective = verdicts[-1].effective
    if "kubelet" in given:
        verdicts.append(checks.kubelet_verdict(given["kubelet"], cpus))
    if given.get("binding"):
        verdicts.append(checks.binding_verdict(given["binding"], effective or cpus, given["total_npus"]))
    worst = min(verdicts, key=lambda verdict: (verdict.ok is not False, verdict.ok is True))
    return dataclasses.replace(worst, effective=effective)
