# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In what two applied states differ, as lines to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence, Tuple, Union

from ..._base.device import Device
from ..._base.table import count
from .digest import digest
from .entries import Entry

if TYPE_CHECKING:
    from ..._base.documents import AppliedState

_Key = Tuple[str, Union[str, int], int]


def lines(before: AppliedState | None, after: AppliedState) -> list[str]:
    """Return a line for everything that differs: the strategy, the CPUs of NPUs, features, and files. ``before`` None: all of it is new."""
    if before is None:
        return ["%s, %s" % (count(len(_devices(after)), "NPU"), count(len(after["files"]), "file"))]
    found = _changed("strategy", {"": (before["plan"] or {}).get("strategy")}, {"": (after["plan"] or {}).get("strategy")})
    found += _moved(_devices(before), _devices(after))
    found += _changed("feature", *(_features(state, before, after) for state in (before, after)))
    files_before, files_after = ({entry["path"]: entry for entry in state["files"]} for state in (before, after))
    for path in sorted(files_before.keys() | files_after.keys()):
        if path not in files_before:
            found.append("file %s: added" % path)
        elif path not in files_after:
            found.append("file %s: removed" % path)
        elif files_before[path] != files_after[path]:
            found.append("file %s: changed" % path)
    live: Mapping[str, Any] = before["live"]
    of_features = ["settings of feature %s: changed" % name for name, value in after["live"].items() if value != live.get(name)]
    return found or of_features or ["only settings of the run"]


def changes(in_force: AppliedState | None, desired: AppliedState | None) -> list[str]:
    """Return :func:`lines` of what applying ``desired`` would change; none where one of the two is not known, or they are the same."""
    if not in_force or not desired or digest(in_force) == digest(desired):
        return []
    return lines(in_force, desired)


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a description of each entry of a history (oldest first), the newest first, each with its difference from the one before."""
    states = [None, *(entry.state for entry in entries)]
    found = [
        dict(entry.header(), features=entry.state["features"], difference=lines(before, entry.state))
        for before, entry in zip(states, entries)
    ]
    return found[::-1]


def paragraphs(entries: Sequence[Entry]) -> list[str]:
    """Return the same as lines."""
    return [line for row in rows(entries) for line in [heading(row)] + ["     " + line for line in row["difference"]]]


def heading(header: Mapping[str, Any]) -> str:
    """Return what an entry is called by its header: who applied it, when, and why."""
    who = " by %s" % header["author"] if header["author"] else ""
    why = ": %s" % header["reason"] if header["reason"] else ""
    return "%d  %s  %s%s, npu.affinity %s%s" % (header["id"], header["time"], header["action"], who, header["version"], why)


def _features(state: AppliedState, *both: AppliedState) -> dict[str, str]:
    """Return the features of both states as one of them has them: one that nobody has applied is absent, like one that was removed."""
    return {name: state["features"].get(name, "absent") for one in both for name in one["features"]}


def _devices(state: AppliedState) -> dict[_Key, tuple[Device, str]]:
    """Return each NPU with its CPUs, by what stays the same when ids change: its PCI function and chip."""
    npus = [(Device.of(npu), npu) for npu in (state["plan"] or {}).get("npus", [])]
    return {(device.kind, device.pci or device.id, npu.get("chip") or 0): (device, npu["pool"]) for device, npu in npus}


def _moved(before: Mapping[_Key, tuple[Device, str]], after: Mapping[_Key, tuple[Device, str]]) -> Iterator[str]:
    for key in dict.fromkeys([*before, *after]):
        device, _pool = before.get(key) or after[key]
        now, _pool = after.get(key) or before[key]
        if device.id != now.id:
            yield "%s is now %s" % (device.full_title, now.title)
        old, new = (found[key][1] if key in found else "" for found in (before, after))
        if old != new:
            yield "%s: CPUs %s -> %s" % (now.full_title, old or "none", new or "none")


def _changed(title: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    pairs = [(name, before.get(name), after.get(name)) for name in list(before) + [name for name in after if name not in before]]
    texts = [((title + " " + name).strip(), old or "none", new or "none") for name, old, new in pairs if old != new]
    return ["%s: %s -> %s" % text for text in texts]
