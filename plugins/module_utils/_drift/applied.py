# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the last bind left on a host, by its history: an object that is still so was changed by nobody, and the settings are others now."""

from __future__ import annotations

import fnmatch
from typing import Any, Mapping

from .._history.entries import readable
from .._history.in_force import state_in_force
from .._host import Host
from .findings import CHANGED_CPUSET, CHANGED_SETTINGS, DRIVER_RELOAD, EDIT, IN_PROCESS, IRQBALANCE, OFFLINE_CPU, Cause, Finding, Findings

AS_LEFT = Cause(CHANGED_SETTINGS, "as the last bind left it; the settings have changed since")
_GUESSED = (EDIT, DRIVER_RELOAD, CHANGED_CPUSET, OFFLINE_CPU, IRQBALANCE, IN_PROCESS)
_FEATURES = {"interrupts": "irq", "workqueues": "irq", "device_share": "device_share", "tuning": "tuning"}
_LISTS = (("enabled", " at boot"), ("started", ""), ("stopped", ""))


def applied_to(host: Host) -> Mapping[str, Any] | None:
    """Return the state that the last bind applied; None where the history has none, or where it may not be read."""
    try:
        return state_in_force(readable(host)[0])
    except ValueError:
        return None


def explain(findings: Findings, applied: Mapping[str, Any] | None) -> None:
    """Give each finding on what the last bind left so, or left alone, that cause. Nothing changes where ``applied`` is not known."""
    if applied:
        findings.drift = [
            finding._replace(cause=AS_LEFT) if finding.cause.word in _GUESSED and _is_as_left(finding, applied) else finding
            for finding in findings.drift
        ]


def text_of(path: str, applied: Mapping[str, Any] | None) -> tuple[bool, str | None]:
    """Return whether the text of a file after the last bind is known, and that text (None: no file)."""
    if not applied:
        return False, None
    texts = {entry["path"]: entry.get("content") for entry in applied["files"]}
    owned = [pattern for of in (applied, *applied["absent"].values()) for pattern in of["owned"]]
    return path in texts or any(fnmatch.fnmatchcase(path, pattern) for pattern in owned), texts.get(path)


def _is_as_left(finding: Finding, applied: Mapping[str, Any]) -> bool:
    """Whether an object is as the last bind left it, as far as the state that it applied tells."""
    feature = _FEATURES.get(finding.kind)
    if finding.kind == "threads":
        feature = "threads" if " threads of " in finding.object else "irq"
    if feature:
        return applied["features"].get(feature) != "present" or _had(finding, applied["live"].get(feature))
    if finding.kind == "units":
        return not any(
            finding.object == unit + ending for key, ending in _LISTS for unit in [*applied[key], *_slices(applied).get(key, ())]
        )
    if finding.kind == "services":
        return finding.unit not in [service["name"] for service in _slices(applied).get("services", ())]
    if finding.kind == "cpusets":
        entry = {of["unit"]: of for of in applied["expected"]}.get(finding.unit or "")
        return entry is None or (finding.found[0].cpus or finding.found[0].mems) in (entry["cpus"], entry["mems"])
    return False


def _had(finding: Finding, live: Any) -> bool:
    """Whether the last bind wanted a host setting or device share to be what was found."""
    if finding.kind == "tuning":
        wanted = (live or {}).get(finding.object)
        return wanted is None or str(wanted) == finding.found[0].state
    if finding.kind == "device_share":
        return ("on" if (live or {}).get("enabled") else "off") == finding.found[0].state.partition(" ")[0]
    return False


def _slices(applied: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = applied["live"].get("slices") or {}
    return found
