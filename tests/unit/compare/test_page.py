# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page, the picture and the data of the comparison are those of the code."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import pytest

from tests.compare import __main__ as main
from tests.compare import page
from tests.compare.machines import shapes
from tests.compare.results import results


@pytest.fixture(scope="module")
def data():
    with main.DATA.open() as file:
        return list(csv.DictReader(file))


def test_results_are_those_of_the_code(data):
    """One machine of each family; make docs checks all of them, with the page and the picture. hwloc-distrib need not be installed."""
    first = list({shape.family: shape for shape in reversed(shapes())}.values())
    made = list(csv.DictReader(io.StringIO(page.csv(results(first)))))
    assert [line for line in made if line not in data] == [], "run make compare"
    assert len({(line["family"], line["rule"]) for line in made}) == 7 * 15


def test_every_rule_has_a_result_for_every_machine(data):
    rules = {line["rule"] for line in data}
    machines = {(line["family"], line["machine"]) for line in data}
    assert len(machines) == 60 and len(data) == len(rules) * len(machines)
    assert {line["family"] for line in data} == {"A2", "A3", "A5", "300I and 910A", "300I Duo", "GPU", "x86"}
    ours = [line for line in data if line["rule"] == "npu.affinity" and line["result"] == "divided"]
    assert len(ours) > 50 and {(line["overlapping"], line["split"]) for line in ours} == {("0", "0")}, "disjoint, and with whole cores"


def ahead(line, ours):
    lower = any(float(line[name]) < float(ours[name]) for name in ("remote", "imbalance"))
    return lower or int(line["smallest"]) > int(ours["smallest"])


def test_the_page_lists_all_machines_where_another_rule_wins(data):
    listed = main.PAGE.read_text().partition("## Summary")[0]
    machines: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for line in data:
        machines.setdefault((line["family"], line["machine"]), {})[line["rule"]] = line
    for (family, machine), lines in machines.items():
        ours = lines.pop("npu.affinity")
        others = [line for line in lines.values() if line["result"] == "divided" and line["overlapping"] == "0"]
        if ours["result"] == "divided":
            others = [line for line in others if ahead(line, ours)]
        assert (f"| {family}: {machine} |" in listed) == bool(others), (family, machine)


def test_the_picture_counts_every_machine_once_for_each_rule():
    title = ElementTree.parse(main.PICTURE).getroot()[0].text
    counts = [sum(map(int, re.findall(r"(\d+) ", rule.partition(": ")[2]))) for rule in title.split(". ")[1:]]
    assert len(counts) == 15 and set(counts) == {60}
