# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A desired state limited to some of its features, or completed with those of another."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterable, Sequence

from .._state.systemd import unit_of
from .feature import Feature
from .register import FEATURES

SAID = ("refusals", "remarks", "summary", "difference", "digest", "converged", "outside", "processes", "settings")
"""What a desired state has for the user of the controller, and a host does not apply."""


def applied(state: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """Return what a host applies of a desired state: ``names`` of its features, or all; the others are left alone.

    Raises ``ValueError`` for one that must not be applied.
    """
    if state.get("refusals"):
        raise ValueError("This desired state must not be applied: %s" % " ".join(state["refusals"]))
    left = {key: value for key, value in state.items() if key not in SAID}
    if names:
        left = without(left, [name for name in left["features"] if name not in names])
        for key in ("features", "absent", "notes"):
            left[key] = {name: value for name, value in left.get(key, {}).items() if name in names}
        patterns = {pattern for name in names for pattern in FEATURES[name].owned}
        left["owned"] = [pattern for pattern in left["owned"] if pattern in patterns]
    return dict(left, plan=left["plan"] if left["runtime"] and (left["plan"] or {}).get("npus") else None)


def beside(state: dict[str, Any], in_force: dict[str, Any]) -> dict[str, Any]:
    """Return a state that has been applied, with those features of the state in force that it left alone."""
    others = [name for name in in_force["features"] if name not in state["features"]]
    if not others:
        return state
    rest = applied(in_force, others)
    both = dict(rest, **state)
    for key, value in rest.items():
        if isinstance(value, list):
            both[key] = state.get(key, []) + [member for member in value if member not in state.get(key, [])]
        elif isinstance(value, dict) and key in ("features", "live", "absent", "notes"):
            both[key] = dict(value, **state.get(key, {}))
        else:
            both[key] = state.get(key) or value
    return both


def without(state: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a desired state in which some of its features are absent, and nothing that they own is wanted."""
    gone = {name: FEATURES[name] for name in names}
    patterns = [pattern for feature in gone.values() for pattern in feature.owned]
    files = [entry for entry in state["files"] if not any(fnmatch.fnmatchcase(entry["path"], pattern) for pattern in patterns)]
    units = {unit_of(entry["path"]) for entry in state["files"] if entry not in files}
    units |= {section for feature in gone.values() for section in feature.sections}
    left = dict(
        state,
        files=files,
        features=dict(state["features"], **dict.fromkeys(gone, "absent")),
        live={name: wanted for name, wanted in state["live"].items() if name not in gone},
        notes={name: sentences for name, sentences in state.get("notes", {}).items() if name not in gone},
        absent=dict(state["absent"], **{name: traces(feature) for name, feature in gone.items()}),
        runtime=state["runtime"] and any(presence == "present" and name not in gone for name, presence in state["features"].items()),
    )
    for key in ("enabled", "started", "stopped", "released"):
        left[key] = [unit for unit in state[key] if unit not in units]
    for key in ("restarted", "expected"):
        left[key] = [entry for entry in state[key] if entry["unit"] not in units]
    return dict(left, programs=[], soft_split="") if "slices" in gone else left


def traces(feature: Feature) -> dict[str, list[str]]:
    """Return by which paths and sections of previous.json one finds what an earlier bind did for a feature."""
    return {"owned": list(feature.owned), "sections": list(feature.sections)}
