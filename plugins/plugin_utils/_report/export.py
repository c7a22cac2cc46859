# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and plans of a fleet as a table with a row for each NPU, for spreadsheets and other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import memory_nodes
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.measures import measured
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import keys_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

Record = Mapping[str, Any]
COLUMNS = (
    "host",
    "kind",
    "id",
    "card",
    "chip",
    "phy_id",
    "name",
    "family",
    "pci",
    "numa",
    "memory_mib",
    "plan",
    "strategy",
    "pool",
    "irq",
    "main",
    "acl",
    "release",
    "mems",
    "memory_nodes",
    "slice",
    "local",
)
"""What a row has, in this order; filter fleet_table documents each."""
OF_DEVICE = ("kind", "id", "card", "chip", "phy_id", "name", "family", "pci", "numa", "memory_mib")
OF_PLAN = ("pool", "irq", "main", "acl", "release", "mems", "memory_nodes", "slice")
FORMATS = ("csv", "json")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these a cell begins that a spreadsheet would compute."""


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row for each NPU and GPU of hosts, by host and then as the host has them; what is not known is None.

    Records are those of :func:`_report.records.fleet`. The plan is the one in force, else what a bind would plan now.
    """
    found = sorted(records, key=lambda record: str(record["host"]))
    return [row for record in found for row in _of_host(record)]


def _of_host(record: Record) -> Iterator[dict[str, Any]]:
    topology = cast("Topology", record.get("topology") or {})
    in_force = topology.get("applied")
    plan: Plan = in_force or cast("Plan", record.get("plan") or {})
    entries = dict(zip(keys_of(plan.get("npus") or ()), plan.get("npus") or (), strict=True))
    devices = topology.get("npus") or ()
    found = [(device, entries.get(key)) for key, device in zip(keys_of(devices), devices, strict=True)]
    shares = _local_shares({_name(device): entry["pool"] for device, entry in found if entry}, plan, topology)
    for device, entry in found:
        values = {"host": str(record["host"]), **{name: device.get(name) for name in OF_DEVICE}}
        if entry:
            values.update(
                {name: {**entry, "memory_nodes": memory_nodes(entry)}.get(name) or None for name in OF_PLAN},
                local=shares.get(_name(device)),
            )
            values.update(plan="in force" if in_force else "planned", strategy=plan.get("strategy"))
        yield {name: values.get(name) for name in COLUMNS}


def _name(device: Mapping[str, Any]) -> str:
    return f"{device['kind']}-{device['id']}"


def _local_shares(pools: Mapping[str, str], plan: Plan, topology: Topology) -> dict[str, float]:
    """Return the share of CPUs that are local to their NPU by kind and id; none where plan and host do not fit any more."""
    try:
        cards = measured(pools, topology, plan.get("cpus") or None)["npus"] if pools else []
    except ValueError:
        return {}
    return {card["name"].lower().replace(" ", "-"): card["local"] for card in cards}


def table(records: Iterable[Record], form: str) -> str:
    """Return :func:`rows` as text, ``csv`` with a head, or ``json``."""
    if form not in FORMATS:
        raise ValueError(f"format: '{form}' is none of {', '.join(FORMATS)}")
    found = rows(records)
    if form == "json":
        return json.dumps(found, indent=1) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in found)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
