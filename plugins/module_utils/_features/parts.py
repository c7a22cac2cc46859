# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A desired state limited to some of its features, or completed with those of another."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Callable, Container, Iterable, Mapping, Sequence, TypeVar, cast

from .._host import installed
from .._state.systemd import unit_of
from .feature import Feature
from .register import FEATURES, require_known

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry, Live, Traces

T = TypeVar("T")
OF_FEATURES = ("features", "live", "absent", "notes", "pending")
"""What a desired state has by the names of its features."""
OF_CONTROLLER = (
    *("refusals", "remarks", "codes", "summary", "difference", "digest", "converged"),
    *("outside", "processes", "settings", "profile", "muted"),
)
"""What a desired state has for the user of the controller, and a host does not apply."""


def applied(state: AppliedState, names: Sequence[str] = ()) -> AppliedState:
    """Return what a host applies of a desired state: ``names`` of its features, or all; the others are left alone.

    Raises ``ValueError`` for one that must not be applied.
    """
    document: Mapping[str, Any] = state
    if document.get("refusals"):
        raise ValueError("This desired state must not be applied: %s" % " ".join(document["refusals"]))
    reduced = cast("AppliedState", {key: value for key, value in document.items() if key not in OF_CONTROLLER})
    if names:
        require_known(names)
        reduced = without(reduced, [name for name in reduced["features"] if name not in names])
        by_feature = {key: _only(document[key], names) for key in OF_FEATURES if key in document}
        has = _has(state)
        patterns = {pattern for name in names for pattern in _needed(FEATURES[name], has)}
        alone = {pattern for name in names for pattern in FEATURES[name].owned if pattern not in FEATURES[name].shared}
        patterns |= alone.intersection(owned(names, has))  # what is shared stays where these do not need it
        reduced = cast("AppliedState", dict(reduced, **by_feature, owned=sorted(patterns.intersection(reduced["owned"]))))
    plan = reduced["plan"]
    reduced["plan"] = plan if plan and plan.get("npus") and reduced["runtime"] else None
    return reduced


def _only(parts: Mapping[str, T], names: Container[str]) -> dict[str, T]:
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
        elif isinstance(value, dict) and key in OF_FEATURES:
            both[key] = dict(value, **new.get(key, {}))
        else:
            both[key] = new.get(key) or value
    return cast("AppliedState", both)


def deferred(state: AppliedState, in_force: AppliedState | None, names: Sequence[str]) -> AppliedState:
    """Return a state as it is in force while the changes of some of its features, which have no files of their own, are pending.

    These features are as before; ``pending`` has what they want of the running host, None where they are to be absent.
    """
    live: Mapping[str, Any] = state["live"]
    document: dict[str, Any] = {key: value for key, value in state.items() if key != "pending"}
    if names:
        before: Mapping[str, Any] = in_force or {"features": {}, "live": {}}
        features = {name: before["features"].get(name, "absent") for name in names}
        document["pending"] = {name: live.get(name) for name in names}
        document["features"] = {**state["features"], **features}
        document["live"] = {**_only(live, live.keys() - set(names)), **_only(before["live"], names)}
        absent = traces([name for name in names if features[name] == "absent"], document["features"], document["files"])
        document["absent"] = {**_only(state["absent"], state["absent"].keys() - set(names)), **absent}
    return cast("AppliedState", document)


def without(state: AppliedState, names: Iterable[str]) -> AppliedState:
    """Return a desired state in which some of its features are absent, and nothing that they own is wanted."""
    removed = {name: FEATURES[name] for name in names}
    features = {**state["features"], **dict.fromkeys(removed, "absent")}
    freed = owned(removed, _has(state))
    patterns = installed.everywhere(freed, [installed.code_folder(state)])
    files = [entry for entry in state["files"] if not any(fnmatch.fnmatchcase(entry["path"], pattern) for pattern in patterns)]
    units = {unit_of(entry["path"]) for entry in state["files"] if entry not in files}
    units |= {section for feature in removed.values() for section in feature.sections}
    absent: dict[str, Traces] = {
        name: {"owned": [pattern for pattern in feature.owned if pattern in freed], "sections": list(feature.sections)}
        for name, feature in removed.items()
    }

    def of_others(parts: Mapping[str, T]) -> dict[str, T]:
        return _only(parts, parts.keys() - removed.keys())

    def kept(names: Iterable[str]) -> list[str]:
        return [unit for unit in names if unit not in units]

    remaining: AppliedState = {
        **state,
        "files": files,
        "features": features,
        "live": cast("Live", of_others(state["live"])),
        "notes": of_others(state.get("notes", {})),
        "absent": {**state["absent"], **absent},
        "runtime": state["runtime"] and "present" in features.values(),
        "enabled": kept(state["enabled"]),
        "started": kept(state["started"]),
        "stopped": kept(state["stopped"]),
        "released": kept(state["released"]),
        "restarted": [entry for entry in state["restarted"] if entry["unit"] not in units],
        "expected": [entry for entry in state["expected"] if entry["unit"] not in units],
    }
    if "pending" in state:
        remaining["pending"] = of_others(state["pending"])
    if "slices" in removed:
        remaining["programs"], remaining["soft_split"] = [], ""
    return remaining


def owned(names: Iterable[str], has: Callable[[str], bool]) -> list[str]:
    """Return by which paths one finds the files of features, without those of others that are there: whose first file ``has`` tells."""
    others = {pattern for name, feature in FEATURES.items() if name not in names for pattern in _needed(feature, has)}
    return [pattern for name in names for pattern in FEATURES[name].owned if pattern not in others]


def _needed(feature: Feature, has: Callable[[str], bool]) -> list[str]:
    """Return those of a feature's patterns that it needs, by the files that ``has`` tells."""
    return [pattern for pattern in feature.owned if has(feature.owned[0]) and has(feature.shared.get(pattern, feature.owned[0]))]


def _has(state: AppliedState) -> Callable[[str], bool]:
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
