# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan next to the plan in force: what every NPU, service, workload and vNPU has now and gets, and which services need a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, NotRequired, TypedDict

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import AppliedState, Comparison, Difference, DifferingNpu
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import DifferingUser, FileEntry, Plan, PlanEntry, SlicesLive
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.module_utils._state import difference as states
from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import drop_in_of, text_digest
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.module_utils._state.systemd import unit_of
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import SLICES, Work
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import union
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import Entry, kind_and_number, members, title
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.moves import of_npu, pairs, with_slices


class InForce(TypedDict):
    """What module gather returns of the state in force, with that ``state`` where it was gathered, too."""

    digest: str
    differs: list[str]
    compared: Comparison | None
    state: NotRequired[AppliedState]


def difference(topology: Topology, plan: Plan, document: AppliedState, work: Work) -> Difference:
    """Return a plan next to the one in force. ``document``: what the host should be by the plan, without features where a bind refuses it.

    The sentence of an NPU is None on a first bind and where nothing differs, and what a user has now where it is not known. ``changes`` is
    None until :func:`changes` tells what else a bind changes.
    """
    both, live = pairs(topology.get("applied"), plan), document["live"].get("slices")
    return {
        "in_force": bool(both),
        "slices": bool(live and live["method"] == SLICES),
        "npus": [_npu(record, entry, next(map(coded, of_npu(record, entry)), None)) for record, entry in both]
        or [_npu(None, entry, None) for entry in plan["npus"]],
        "users": list(_users(topology, plan, live, work)),
        "restart": _restart(topology, document["files"]) if document["features"] else [],
        "changes": None,
    }


def changes(document: AppliedState, in_force: InForce | None) -> list[str] | None:
    """Return what a bind would change besides the plan, a line each: what differs from the state in force, as module gather returns it,
    and what applying that once more changes. On a first bind, this is what it switches on. None where it is not known."""
    if in_force is None:
        lines = [states.switched(name, present) for name, present in document["features"].items() if present != "absent"]
        return [*lines, *_host_settings({}, document)]
    before = in_force.get("state")
    if before is None:
        return None
    lines = states.difference(document, {**before, "plan": document["plan"]})
    lines = list(dict.fromkeys([*lines, *_without_files(before, document)]))
    return [*lines, *_host_settings(before["live"], document), *in_force["differs"]]


def _without_files(before: AppliedState, document: AppliedState) -> Iterator[str]:
    """Yield a line for each feature that stays and changes in nothing that its files say."""
    files = [{entry["path"]: entry for entry in state["files"]} for state in (before, document)]
    paths = [path for path in files[0].keys() | files[1].keys() if files[0].get(path) != files[1].get(path)]
    for name, wanted in document["live"].items():
        if wanted != before["live"].get(name, wanted) and not any(fnmatch(path, of) for of in FEATURES[name].owned for path in paths):
            yield f"settings of feature {name}: changed"


def _host_settings(in_force: Mapping[str, Any], document: AppliedState) -> list[str]:
    """Return a line on the settings of the kernel that a bind sets to another value, or restores."""
    before, wanted = (_settings_of(live) for live in (in_force, document["live"]))
    sets = [f"{key[1]} {value}" for key, value in wanted.items() if before.get(key) != value]
    restores = [f"{key[1]} as before the first bind" for key in before if key not in wanted]
    return [f"host settings: {', '.join([*sets, *restores])}"] if sets or restores else []


def _settings_of(live: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the value of each setting of the kernel by its feature and name."""
    wanted = {name: live.get(name) or {} for name, feature in FEATURES.items() if feature.settings}
    return {(name, setting): value for name, values in wanted.items() for setting, value in values.items()}


def _npu(record: Entry | None, entry: Entry | None, sentence: str | None) -> DifferingNpu:
    either: Entry = entry or record or {}
    return {
        "npu": title(either),
        "pci": either["pci"],
        "slice": either["slice"],
        "now": record["pool"] if record else None,
        "then": entry["pool"] if entry else None,
        "sentence": sentence,
    }


def _users(topology: Topology, plan: Plan, live: SlicesLive | None, work: Work) -> Iterator[DifferingUser]:
    homes: dict[str, str] = {}
    if live and live["method"] == SLICES:
        homes |= {entry["name"]: entry["settings"]["Slice"] for entry in live["services"]}
        homes |= {f"workload {entry['name']}": entry["slice"] for entry in live["workloads"]}
    applied = with_slices(topology.get("applied") or {})
    users = [(entry["unit"], entry["npus"]) for entry in work.services]
    users += [(f"workload {entry['name']}", entry["npus"]) for entry in work.workloads]
    for user, npus in users:
        if entries := _members(plan, npus):
            before = _members(applied, npus)
            yield {
                "user": user,
                "npus": ",".join(str(kind_and_number(entry["slice"])[1]) for entry in entries),
                "cpus": union(entry["pool"] for entry in entries),
                "mems": union(map(memory_nodes, entries)),
                "slice": homes.get(user),
                "now": union(entry["pool"] for entry in before) if before else None,
            }
    for vnpu in live["vnpus"] if live else ():
        yield {
            "user": f"vNPU {vnpu['name']}",
            "npus": vnpu["of"].partition(" ")[2],
            "cpus": vnpu["pool"],
            "mems": vnpu["memory_nodes"],
            "slice": vnpu["slice"],
            "now": None,
        }


def _members(plan: Plan, names: Sequence[Any]) -> list[PlanEntry]:
    """Return the entries of a plan that names stand for; none where one stands for none."""
    try:
        entries, unknown = members(plan, names)
    except ValueError:
        return []
    return [] if unknown else entries


def _restart(topology: Topology, files: Sequence[FileEntry]) -> list[str]:
    """Return the services whose drop-in a bind would write or remove, except for those that the host does not have."""
    units = [(unit_of(entry["path"]) or "", entry) for entry in files]
    ours = [(unit, entry) for unit, entry in units if unit.endswith(".service") and entry["path"] == drop_in_of(unit)]
    wanted = {unit: text_digest(entry["content"]) for unit, entry in ours}
    present = topology.get("drop_ins") or {}
    missing = topology.get("missing_units") or ()
    return sorted(unit for unit in wanted.keys() | present.keys() if wanted.get(unit) != present.get(unit) and unit not in missing)
