# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A comparison of a host with its plan as JUnit XML: a test case for every object that was compared.

Elements and attributes are those that Jenkins, GitLab and GitHub's report actions read (schema: jenkinsci/xunit-plugin, junit-10.xsd).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ansible_collections.npu.affinity.plugins.module_utils._base.outside import shown_lines

SUITE = "npu.affinity.verify"
_NOT_XML = dict.fromkeys((0xFFFE, 0xFFFF), "\ufffd")


class Case(NamedTuple):
    """An object that was compared: its outcome is failure, error, skipped, or '' for passed; ``npu`` is whose it is."""

    kind: str
    name: str
    outcome: str = ""
    message: str = ""
    type: str = ""
    npu: str = ""


def junit(result: object, host: str) -> str:
    """Return the report of one host; ``result`` is what module ``npu.affinity.binding_info`` returned, or failed with (``msg``).

    Raises ``ValueError`` when it is neither.
    """
    if not isinstance(result, Mapping) or not ({"bound", "drift", "checked"} <= set(result) or "msg" in result):
        raise ValueError(f"expected what npu.affinity.binding_info returned, with bound, drift and checked; got {type(result).__name__}")
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


def _cases(result: Mapping[str, Any]) -> Iterator[Case]:
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
                yield Case(kind, name, "skipped", f"{entry['sentence']}; {why}", npu=_whose(entry))
            else:
                yield Case(kind, name, "failure", entry["sentence"], entry["cause"], _whose(entry))


def _clean(text: str) -> str:
    """Return a text without characters that XML cannot hold: those that are escaped wherever a text is shown, and two more."""
    return shown_lines(text).translate(_NOT_XML)


def _whose(entry: Mapping[str, Any]) -> str:
    """Return the NPU of a drift, where it belongs to one."""
    if entry["npu"] is None:
        return ""
    return f"{entry['device'].upper()} {entry['npu']}" + (f" (PCI {entry['pci']})" if entry["pci"] else "")
