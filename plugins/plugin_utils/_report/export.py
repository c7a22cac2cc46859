# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results for other programs: a table with a row for each NPU of a fleet, and the comparison of a host as JUnit XML."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from xml.etree import ElementTree

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import measured
from ansible_collections.npu.affinity.plugins.plugin_utils._report.views import keys_of

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Drift, Npu, Plan, Topology
    from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import Record

OF_DEVICE = ("kind", "id", "card", "chip", "phy_id", "name", "family", "pci", "numa", "memory_mib")
OF_PLAN = ("pool", "irq", "main", "acl", "release", "mems", "memory_nodes", "slice")
COLUMNS = ("host", *OF_DEVICE, "plan", "strategy", *OF_PLAN, "local")
"""What a row has, in this order."""
FORMATS = ("csv", "json")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these a cell begins that a spreadsheet would compute."""
SUITE = "npu.affinity.verify"
_NOT_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")


def rows(records: Iterable[Record]) -> list[dict[str, object]]:
    """Return a row for each NPU and GPU of hosts, by host and then as the host has them; what is not known is None.

    Records are those of :func:`_report.records.fleet`. The plan is the one in force, else what a bind would plan now.
    """
    return [row for record in sorted(records, key=lambda record: str(record["host"])) for row in _of_host(record)]


def _of_host(record: Record) -> Iterator[dict[str, object]]:
    topology = record.get("topology") or cast("Topology", {})
    in_force = topology.get("applied")
    plan: Plan = in_force or record.get("plan") or {}
    entries = dict(zip(keys_of(plan.get("npus") or ()), plan.get("npus") or (), strict=True))
    devices = topology.get("npus") or ()
    pairs = [(device, entries.get(key)) for key, device in zip(keys_of(devices), devices, strict=True)]
    shares = _local_shares({_name(device): entry["pool"] for device, entry in pairs if entry}, plan, topology)
    for device, entry in pairs:
        values: dict[str, object] = {"host": str(record["host"]), **device}
        if entry:
            values |= {name: entry.get(name) or None for name in OF_PLAN}
            values |= {"local": shares.get(_name(device)), "plan": "in force" if in_force else "planned", "strategy": plan.get("strategy")}
        yield {name: values.get(name) for name in COLUMNS}


def _name(device: Npu) -> str:
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
    cells = rows(records)
    if form == "json":
        return json.dumps(cells, indent=1) + "\n"
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


class Case(NamedTuple):
    """An object that was compared: its outcome is failure, error, skipped, or '' for passed; ``npu`` is whose it is."""

    kind: str
    name: str
    outcome: str = ""
    message: str = ""
    type: str = ""
    npu: str = ""


def junit(result: Record, host: str) -> str:
    """Return the report of one host as XML; ``result`` is what module ``npu.affinity.binding_info`` returned, or failed with (``msg``).

    Elements and attributes are those that Jenkins, GitLab and GitHub's report actions read (schema: jenkinsci/xunit-plugin, junit-10.xsd).
    """
    cases = list(_cases(result))
    outcomes = [case.outcome for case in cases]
    names = (("tests", len(cases)), *((f"{word}s", outcomes.count(word)) for word in ("failure", "error")))
    counts = {name: str(number) for name, number in (*names, ("skipped", outcomes.count("skipped")))}
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(host), "hostname": _clean(host), **counts})
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", {"classname": _clean(f"{host}.{case.kind}"), "name": _clean(case.name)})
        if case.outcome:
            attributes = {"message": _clean(case.message), **({"type": _clean(case.type)} if case.type else {})}
            text = f"{host}: {case.message}" + (f"\nIt belongs to {case.npu}." if case.npu else "")
            ElementTree.SubElement(element, case.outcome, attributes).text = _clean(text)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(result: Record) -> Iterator[Case]:
    if "drift" not in result:
        yield Case("plan", "comparison", "error", str(result["msg"]), "npu.affinity.binding_info")
        return
    if not result["bound"] and not result["drift"]:
        yield Case("plan", "the plan in force", "skipped", "The host was never bound.")
        return
    drift = {(entry["kind"], entry["object"]): entry for entry in result["drift"]}
    for kind, objects in result["checked"].items():
        for name in objects:
            entry = drift.get((kind, name))
            why = (result.get("muted") or {}).get(entry.get("code")) if entry else None
            if entry is None:
                yield Case(kind, name)
            elif why:
                yield Case(kind, name, "skipped", f"{entry['sentence']}; {why}", npu=_npu_of(entry))
            else:
                yield Case(kind, name, "failure", entry["sentence"], entry["cause"], _npu_of(entry))


def _npu_of(entry: Drift) -> str:
    """Return the NPU of a drift, where it belongs to one."""
    device = str(entry["device"]).upper()
    return "" if entry["npu"] is None else f"{device} {entry['npu']}" + (f" (PCI {entry['pci']})" if entry["pci"] else "")


def _clean(text: str) -> str:
    """Return a text without characters that XML cannot hold: those that are escaped wherever a text is shown, and two more."""
    return shown_lines(text).translate(_NOT_XML)
