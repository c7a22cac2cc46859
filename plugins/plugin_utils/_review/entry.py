# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is reviewed of a host: its machine, the plan in force, the plan that a bind would apply, and what that makes of the host.

An entry is ``{machine, in_force, plan, state}``. It has what a bind applies, and neither times nor what a host is doing at the moment: two
entries of an unchanged host are equal. Contents of files are held as digests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import hardware
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import SETS, with_slices
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import listed

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology

Entry = Mapping[str, Any]
PLAN = ("strategy", "cpus", "housekeeping", "npus", "lost")
"""What a plan decides; the rest of it says why."""
UNITS = ("enabled", "started", "stopped", "released", "restarted")
SHOWN = 5
"""So many differences are named, and the others counted."""


def digest(value: Any) -> str:
    """Return the same short text for equal values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def review_entry(state: Mapping[str, Any], topology: Topology) -> dict[str, Any]:
    """Return the entry of a host by its desired state. Nothing is applied where the plan has no NPU. The settings of the state change what
    a bind does also where that is in no file (moving memory, waiting for busy cards)."""
    return {
        "machine": hardware(topology),
        "in_force": _decided(topology.get("applied")),
        "plan": _decided(state["plan"]),
        "state": _digested(state) if state["plan"]["npus"] else None,
    }


def _decided(plan: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {key: plan[key] for key in PLAN if plan.get(key)} | {"npus": with_slices(plan)["npus"]} if plan else None


def _digested(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "features": state["features"],
        "files": {file["path"]: digest([file["content"], file["mode"]]) for file in state["files"]},
        "units": digest([state[name] for name in UNITS]),
        "live": {feature: digest(wanted) for feature, wanted in state["live"].items()},
        "settings": {name: digest(value) for name, value in state["settings"].items()},
    }


def plan_differences(then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str:
    """Return in what two plans differ, of which one may be missing; an empty text where they do not."""
    if then == now:
        return ""
    if then is None or now is None:
        return f"there was {'none' if then is None else 'one'} and is {'none' if now is None else 'one'} now"
    return ", ".join(listed(_changed(_words(then), _words(now)), SHOWN)) or "they have other NPUs"


def differences(then: Entry, now: Entry) -> str:
    """Return in what the plans and the states of two entries differ; an empty text where they do not. Sets of CPUs come first: where they
    differ, so do files."""
    if (then["plan"], then["state"]) == (now["plan"], now["state"]):
        return ""
    one, other = (found["state"] or {"features": {}, "files": {}, "units": "", "live": {}, "settings": {}} for found in (then, now))
    found = _changed(_words(then["plan"]), _words(now["plan"]))
    found += _changed(*({f"feature {name}": value for name, value in state["features"].items()} for state in (one, other)))
    if not found:
        found = [f"{path} {_word(one['files'].get(path), other['files'].get(path))}" for path in _differing(one["files"], other["files"])]
        found += [f"the settings of {feature} differ" for feature in _differing(one["live"], other["live"])]
    if not found and one["units"] == other["units"]:
        found = [f"{name} has another value" for name in _differing(one["settings"], other["settings"])]
    return ", ".join(listed(found, SHOWN)) or "units differ"


def _words(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a plan decides, each set of CPUs by its name."""
    names = {key: str(plan.get(key) or "") for key in ("strategy", "housekeeping")}
    npus = [{"memory_nodes": npu.get("mems"), **npu} for npu in [*plan["npus"], *(plan.get("lost") or ())]]
    return names | {f"{words} of {title(npu)}": str(npu.get(key) or "") for npu in npus for key, words in SETS.items()}


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [f"{name} {then.get(name) or 'none'} -> {now.get(name) or 'none'}" for name in _differing(then, now)]


def _differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = [*then, *(name for name in now if name not in then)]
    return [name for name in names if then.get(name) != now.get(name)]


def _word(then: str | None, now: str | None) -> str:
    return "would be new" if then is None else "would be removed" if now is None else "would differ"
