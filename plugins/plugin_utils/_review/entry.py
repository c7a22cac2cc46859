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
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._state.history.difference import REST, difference, plan_steps
from ansible_collections.npu.affinity.plugins.module_utils._topology.hardware import hardware
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import with_slices
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import listed

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, Topology

Entry = Mapping[str, Any]
PLAN = ("strategy", "cpus", "housekeeping", "npus", "lost")
"""What a plan decides; the rest of it says why."""
UNITS = ("enabled", "started", "stopped", "released", "restarted")
NOTHING: Mapping[str, Any] = {"features": {}, "files": [], "units": "", "live": {}, "settings": {}}
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
        "files": [{"path": file["path"], "content": digest([file["content"], file["mode"]])} for file in state["files"]],
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
    return "; ".join(listed([text for _mark, text in plan_steps(dict(then), dict(now))], SHOWN)) or "they have other NPUs"


def differences(then: Entry, now: Entry) -> str:
    """Return in what the plans and the states of two entries differ; an empty text where they do not."""
    if (then["plan"], then["state"]) == (now["plan"], now["state"]):
        return ""
    before, after = ({**(found["state"] or NOTHING), "plan": found["plan"]} for found in (then, now))
    found = difference(cast("AppliedState", after), cast("AppliedState", before))
    if found == [REST] and before["units"] == after["units"]:
        names = before["settings"].keys() | after["settings"].keys()
        found = [f"{name} has another value" for name in sorted(names) if before["settings"].get(name) != after["settings"].get(name)]
    return "; ".join(listed(found, SHOWN)).replace(REST, "units differ")
