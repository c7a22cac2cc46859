# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of a plan, and how settings name them: by logic id, slice, PCI address or physical id, the number of the device file.

A logic id is the number in the name of the NPU's slice. That is the id at the time of the plan in force: when a card drops off the bus,
npu-smi counts on without it, and what the settings name stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Plan, PlanEntry, Topology
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import noun, numbered
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import Sentence

Entry = Mapping[str, Any]

FORMS = 'a logic id (0), the name of a slice (npu-0, gpu-0), a PCI address ("0000:c1:00.0"), {phy_id: 0} or {pci: "0000:01:00.0", chip: 1}'
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""What a workload or a vNPU may be called: its slice and its files have that name."""
_SLICE = re.compile(r"(?:npu|gpu)-[0-9]+")
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_KEYS = ({"phy_id"}, {"pci"}, {"pci", "chip"})


def kind_and_number(slice_name: str) -> tuple[str, int]:
    """Return the kind and the number in the name of an NPU's slice: ``npu-3.slice`` -> ``("npu", 3)``."""
    kind, number = slice_name.removesuffix(".slice").split("-")
    return kind, int(number)


def printed(entry: Entry) -> str:
    """Return :func:`numbered` of an entry, by the number of its slice if it has one."""
    return numbered(entry["id"] if "slice" not in entry else kind_and_number(entry["slice"])[1], entry)


def title(entry: Entry) -> str:
    """Return what an entry is called: ``NPU 3``, by the number of its slice."""
    kind, number = kind_and_number(entry["slice"])
    return f"{kind.upper()} {number}"


def members(plan: Plan, names: Iterable[Any]) -> tuple[list[PlanEntry], list[str]]:
    """Return the entries that names stand for, by kind and number, lost ones included, and the names that stand for none.

    ``ValueError`` for what is not a name, and for names that are not a list.
    """
    if not isinstance(names, Iterable) or isinstance(names, str | Mapping):
        raise ValueError(f"{names!r} is not a list of NPUs: write [0, 1], each entry {FORMS}")
    resolved: dict[str, PlanEntry] = {}
    unknown = []
    for name in names:
        entries = find(plan, name)
        if not entries:
            unknown.append(shown(name))
        resolved |= {entry["slice"]: entry for entry in entries}
    return sorted(resolved.values(), key=lambda entry: kind_and_number(entry["slice"])), unknown


def find(plan: Plan, name: Any) -> list[PlanEntry]:
    """Return the entries that one name stands for: several where chips share a PCI function and only that is named.

    On a host with NPUs and GPUs, a number that both have means the NPU, and ``gpu-0`` the GPU. ``ValueError`` for what is not a name.
    """
    entries = [*plan["npus"], *(plan.get("lost") or ())]
    number = int(name) if isinstance(name, str) and name.strip().isdecimal() else name
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        same = [entry for entry in entries if kind_and_number(entry["slice"])[1] == number]
        return sorted(same, key=lambda entry: str(entry["slice"]).startswith("gpu-"))[:1]
    if isinstance(name, str) and _SLICE.fullmatch(stem := name.strip().removesuffix(".slice")):
        return [entry for entry in entries if entry["slice"] == f"{stem}.slice"]
    wanted = _wanted(name).items()
    return [entry for entry in entries if all({**entry, "pci": str(entry.get("pci")).lower()}.get(key) == value for key, value in wanted)]


def _wanted(name: Any) -> dict[str, Any]:
    wanted = dict(name) if isinstance(name, Mapping) else {"pci": name}
    match = _PCI.fullmatch(str(wanted.get("pci")).strip().lower())
    if set(wanted) not in _KEYS or "pci" in wanted and not match:
        raise ValueError(f"{shown(name)} names no NPU or GPU: expected {FORMS}")
    if match:
        wanted["pci"] = f"{match[1] or '0000'}:{match[2]}"
    for key in wanted.keys() & {"chip", "phy_id"}:
        if isinstance(wanted[key], bool) or not str(wanted[key]).isdecimal():
            raise ValueError(f"{shown(name)} names no NPU or GPU: {key} must be a whole number")
        wanted[key] = int(wanted[key])
    return wanted


def slices_of(plan: Plan, names: Iterable[Any]) -> set[str]:
    """Return the slices of the NPUs that names stand for; none for what is not a name."""
    try:
        return {str(entry["slice"]) for entry in members(plan, names)[0]}
    except ValueError:
        return set()


def shown(name: Any) -> str:
    if isinstance(name, Mapping):
        return "{" + ", ".join(f"{key}: {value}" for key, value in name.items()) + "}"
    return str(name)


def in_force(topology: Topology) -> list[tuple[Npu, PlanEntry]]:
    """Return the NPUs of a topology that the plan in force has, each with its entry: by PCI function and chip, for ids close up."""
    applied = (topology.get("applied") or {}).get("npus") or ()
    entries = {(str(entry.get("pci")).lower(), entry.get("chip")): entry for entry in applied}
    pairs = ((npu, entries.get((str(npu.get("pci")).lower(), npu.get("chip") or 0))) for npu in topology["npus"])
    return [(npu, entry) for npu, entry in pairs if entry]


def unknown_npus(variable: str, owner: str, names: Iterable[Any], plan: Plan) -> Sentence | None:
    """Return a sentence about the NPUs that a service, workload or vNPU names and the plan does not have, or None."""
    try:
        _entries, unknown = members(plan, names)
    except ValueError as error:
        return Sentence("NPU_SETTING_INVALID", f"{variable}: {owner}: {error}.")
    if not unknown:
        return None
    of, entries = noun(plan["npus"]), sorted(plan["npus"], key=lambda entry: kind_and_number(entry["slice"])[1])
    has = ", ".join(map(title if of == "accelerator" else printed, entries)) or "(none)"
    has = has if of == "accelerator" else f"{of} {has}"
    return Sentence("NPU_UNKNOWN_NPU", f"{variable}: {owner} wants {of} {', '.join(unknown)}, but the plan of this host has {has}.")


def is_lost(plan: Plan, entry: Entry) -> bool:
    return any(entry is other or entry["slice"] == other["slice"] for other in plan.get("lost") or ())


def present_ids(plan: Plan, names: Iterable[Any], variable: str, owner: str) -> list[int]:
    """Return the logic ids, ascending, of the plan for NPUs that settings name; lost NPUs have none.

    Raises ``ValueError`` if the plan has no such NPU, or if these are not names. The message names ``owner`` and ``variable``.
    """
    if unknown := unknown_npus(variable, owner, names, plan):
        raise ValueError(unknown)
    return sorted(int(entry["id"]) for entry in members(plan, names)[0] if not is_lost(plan, entry))
