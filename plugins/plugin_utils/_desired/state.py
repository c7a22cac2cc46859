# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired state of a host: one plain document, made of topology, plan and settings.

Bind applies it, and verify compares the host with it. What a feature adds to it is in the file of that name.

This module is private to the collection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._features import FEATURES as ON_HOST, traces
from ansible_collections.npu.affinity.plugins.module_utils._programs import USUAL
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import (
    device_share,
    irq,
    kubelet,
    metrics,
    slices,
    threads,
    tuning,
    vnpu,
)
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.feature import Feature
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.hardware import hardware

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology

FEATURES = {
    "vnpu": vnpu.wanted,
    "slices": slices.wanted,
    "irq": irq.wanted,
    "device_share": device_share.wanted,
    "threads": threads.wanted,
    "tuning": tuning.wanted,
    "metrics": metrics.wanted,
    "kubelet": kubelet.wanted,
}
"""The functions that say what a feature wants of a host, in the order in which a bind applies them."""
PRESENT, ABSENT = "present", "absent"


def desired_state(
    topology: Topology,
    plan: Plan | None,
    settings: Mapping[str, Mapping[str, Any]],
    only: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return what the host should be, by ``settings`` (``{feature: settings of its role without the prefix}``), of all features that they
    name or of those in ``only``; the others are left alone.

    A feature whose ``enabled`` is false is absent: its files are owned and not wanted. So is each without a plan.

    Keys of the result: ``schema``, ``features`` (``{name: present or absent}``), ``hardware`` (for which machine it is), ``plan`` (what
    goes to plan.json, or None), ``live`` (what features want of the running host, by feature), ``absent`` (by which paths and sections of
    previous.json one finds what an earlier bind did for a feature that is absent), and what :meth:`Feature.document` returns, of all
    features together.

    Raises ``ValueError`` with a sentence when a feature is not known, or when the plan must not be applied.
    """
    if unknown := (settings.keys() | set(only or ())) - FEATURES.keys():
        raise ValueError(f"there is no feature {' or '.join(sorted(unknown))}; there are {', '.join(FEATURES)}.")
    together, features, live = Feature(), {}, {}
    for name in (name for name in FEATURES if name in (settings if only is None else only)):
        is_wanted = bool(settings[name]["enabled"] and plan)
        own = {**(_neighbours(settings) if name == "slices" else {}), **_on_this_host(topology, settings[name])}
        found = FEATURES[name](topology, plan or {}, {**own, "enabled": is_wanted})
        features[name] = PRESENT if is_wanted else ABSENT
        together = together.with_those_of(found)
        if found.live is not None:
            live[name] = found.live
    state = together.document()
    kept = {"vnpu"} if settings.get("slices", {}).get("vnpus") else set()  # a limiter stays as long as a vNPU needs it
    absent = {name: ON_HOST[name] for name, presence in features.items() if presence == ABSENT and name not in kept}
    return {
        "schema": 1,
        "features": features,
        "hardware": hardware(topology),
        "plan": plan if together.needs_plan else None,
        "live": live,
        "absent": {name: traces(feature) for name, feature in absent.items()},
        **state,
    }


def _neighbours(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what feature slices has to know of others: the policy of a kubelet that owns the CPUs from this bind on, and where the soft
    split lies."""
    kubelet, vnpu = settings.get("kubelet"), settings.get("vnpu")
    becomes_static = kubelet and kubelet["enabled"] and kubelet["policy"] == "static"
    return {"kubelet_becomes": "static" if becomes_static else "", "vnpu_folder": vnpu["folder"] if vnpu else ""}


def _on_this_host(topology: Topology, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the Python that the host has, where they name the usual one, which it need not have."""
    found = (topology.get("programs") or {}).get("python3")
    return {**settings, "python": found} if found and settings.get("python") == USUAL["python3"] else dict(settings)
