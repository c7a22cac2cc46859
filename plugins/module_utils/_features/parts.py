# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A desired state limited to some of its features, or completed with those of another."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence, TypeVar, cast

from .._host import installed
from .._state.systemd import unit_of
from .feature import Feature
from .register import FEATURES, require_known

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry, Live, Traces

T = TypeVar("T")
NAMED = ("features", "live", "absent", "notes", "pending")
"""What a desired state has by the names of its features."""
SAID = (
    "refusals",
    "remarks",
    "codes",
    "summary",
    "difference",
    "digest",
    "converged",
    "outside",
    "processes",
    "settings",
    "profile",
    "muted",
)
"""What a desired state has for the user of the controller, and a host does not apply."""


def applied(state: AppliedState, names: Sequence[str] = ()) -> AppliedState:
    """Return what a host applies of a desired state: ``names`` of its features, or all; the others are left alone.

    Raises ``ValueError`` for one that must not be applied.
    """
    given: Mapping[str, Any] = state
    if given.get("refusals"):
        raise ValueError("This desired state must not be applied: %s" % " ".join(given["refusals"]))
    left = cast("AppliedState", {key: value for key, value in given.items() if key not in SAID})
    if names:
        require_known(names)
        left = without(left, [name for name in left["features"] if name not in names])
        left = cast("AppliedState", dict(left, **{key: _named(given[key], names) for key in NAMED if key in given}))
        has = _has(given)
        patterns = {pattern for name in names for pattern in _needed(FEATURES[name], has)}
        alone = {pattern for name in names for pattern in FEATURES[name].owned if pattern not in FEATURES[name].shared}
        patterns |= alone.intersection(owned(names, has))  # what is shared is left alone where these do not need it
        left["owned"] = sorted(patterns.intersection(left["owned"]))
    plan = left["plan"]
    left["plan"] = plan if plan and plan.get("npus") and left["runtime"] else None
    return left


def _named(parts: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    return {name: value for name, value in parts.items() if name in names}


def merged(state: AppliedState, in_force: AppliedState) -> AppliedState:
    """Return a state that has been applied, with those features of the state in force that it left alone."""
    others = [name for name in in_force["features"] if name not in state["features"]]
    if not others:
        return state
    rest: Mapping[str, Any] = applied(in_force, others)
    new: Mapping[str, Any] = state
    both = dict(rest, **new)
    for key, value in rest.items():
        if isinstance(value, list):
            both[key] = new.get(key, []) + [member for member in value if member not in new.get(key, [])]
        elif isinstance(value, dict) and key in NAMED:
            both[key] = dict(value, **new.get(key, {}))
        else:
            both[key] = new.get(key) or value
    return cast("AppliedState", both)


def deferred(state: AppliedState, in_force: AppliedState | None, names: Sequence[str]) -> AppliedState:
    """Return a state as it is in force while the changes of some of its features, which have no files of their own, are pending.

    These features are as before; ``pending`` has what they want of the running host, None where they are to be absent.
    """
    live: Mapping[str, Any] = state["live"]
    left: dict[str, Any] = {key: value for key, value in state.items() if key != "pending"}
    if names:
        left["pending"] = {name: live.get(name) for name in names}
        before: Mapping[str, Any] = in_force or {"features": {}, "live": {}}
        presence = {name: before["features"].get(name, "absent") for name in names}
        left["features"] = dict(state["features"], **presence)
        left["live"] = dict({name: wanted for name, wanted in live.items() if name not in names}, **_named(before["live"], names))
        left["absent"] = {name: found for name, found in state["absent"].items() if name not in names}
        left["absent"].update(traces([name for name in names if presence[name] == "absent"], left["features"], left["files"]))
    return cast("AppliedState", left)


def without(state: AppliedState, names: Iterable[str]) -> AppliedState:
    """Return a desired state in which some of its features are absent, and nothing that they own is wanted."""
    gone = {name: FEATURES[name] for name in names}
    features = dict(state["features"], **dict.fromkeys(gone, "absent"))
    released = owned(gone, _has(state))
    patterns = installed.everywhere(released, [installed.code_folder(state)])
    files = [entry for entry in state["files"] if not any(fnmatch.fnmatchcase(entry["path"], pattern) for pattern in patterns)]
    units = {unit_of(entry["path"]) for entry in state["files"] if entry not in files}
    units |= {section for feature in gone.values() for section in feature.sections}

    def left(names: Iterable[str]) -> list[str]:
        return [unit for unit in names if unit not in units]

    absent: dict[str, Traces] = {
        name: {"owned": [pattern for pattern in feature.owned if pattern in released], "sections": list(feature.sections)}
        for name, feature in gone.items()
    }

    def others(parts: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in parts.items() if name not in gone}

    remaining: AppliedState = {
        **state,
        "files": files,
        "features": features,
        "live": cast("Live", others(state["live"])),
        "notes": others(state.get("notes", {})),
        "absent": {**state["absent"], **absent},
        "runtime": state["runtime"] and "present" in features.values(),
        "enabled": left(state["enabled"]),
        "started": left(state["started"]),
        "stopped": left(state["stopped"]),
        "released": left(state["released"]),
        "restarted": [entry for entry in state["restarted"] if entry["unit"] not in units],
        "expected": [entry for entry in state["expected"] if entry["unit"] not in units],
    }
    if "pending" in state:
        remaining["pending"] = others(state["pending"])
    if "slices" in gone:
        remaining["programs"], remaining["soft_split"] = [], ""
    return remaining


def owned(names: Iterable[str], has: Callable[[str], bool]) -> list[str]:
    """Return by which paths one finds the files of features, without those of others that are there: whose first file ``has`` tells."""
    others = {pattern for name, feature in FEATURES.items() if name not in names for pattern in _needed(feature, has)}
    return [pattern for name in names for pattern in FEATURES[name].owned if pattern not in others]


def _needed(feature: Feature, has: Callable[[str], bool]) -> list[str]:
    """Return those of a feature's patterns that it needs, by the files that ``has`` tells."""
    return [pattern for pattern in feature.owned if has(feature.owned[0]) and has(feature.shared.get(pattern, feature.owned[0]))]


def _has(state: Mapping[str, Any]) -> Callable[[str], bool]:
    return {entry["path"] for entry in state["files"]}.__contains__


def traces(names: Iterable[str], features: Mapping[str, str], files: Iterable[FileEntry] = ()) -> dict[str, Traces]:
    """Return by which paths and sections of previous.json one finds what earlier binds did for features, by their names.

    What a feature owns that is present by ``features``, and needs by the ``files``, is no trace of others.
    """
    paths = {entry["path"] for entry in files}
    present = [FEATURES[name] for name, presence in features.items() if presence == "present"]
    needed = {pattern for feature in present for pattern in feature.owned if feature.shared.get(pattern, "") in paths.union([""])}
    return {
        name: {"owned": [pattern for pattern in FEATURES[name].owned if pattern not in needed], "sections": list(FEATURES[name].sections)}
        for name in names
    }
