# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of placement over the facts of simulated hosts, and over the bundled site of 40 hosts."""

import json
import pathlib
import re

import pytest
import yaml

from ansible_collections.npu.affinity.plugins.filter.place import place
from ansible_collections.npu.affinity.plugins.filter.select_npus import DOCUMENTATION, select_npus
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.rules import RULES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import fleet
from tests.simulator import site


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    site.write(pathlib.Path(site.__file__).with_suffix(".yml"), target)
    return target


@pytest.fixture
def hosts(folder):
    inventory = yaml.safe_load((folder / "inventory.yml").read_text())
    variables = {name: labels for group in inventory.values() for name, labels in group["hosts"].items()}
    return fleet(variables, variables, {file.name: file.read_text() for file in (folder / "facts").iterdir()})


def test_a_site_of_forty_hosts_shows_which_can_take_a_task(hosts):
    found = place(hosts, {"npus": 2, "cpus": 20, "policy": "single-numa-node", "limit": 40})
    assert len(hosts) == 40 == len(found["hosts"]) + len(found["refused"])
    first = found["hosts"][0]
    assert (first["host"], first["npus"], first["cpus"], first["numa"]) == ("a2-07", [0, 1], "144-163", [6])


def test_the_guide_shows_lines_that_are_printed(hosts):
    root = pathlib.Path(site.__file__).parents[2]
    shown = re.search(r"^```\n(A task with .*?)^```", (root / "docs/placement.md").read_text(), re.DOTALL | re.MULTILINE)[1].splitlines()
    printed = iter(place(hosts, {"npus": 2, "cpus": 20, "policy": "single-numa-node", "limit": 3})["table"])
    assert len(shown) > 10 and [line for line in shown if line != "…" and line not in printed] == []


def test_labels_of_the_inventory_reach_switches_and_superpods(hosts):
    found = place(hosts, {"npus": 8, "family": "a2", "replicas": 2, "switch": {"schema": "large-model-schema"}})
    assert {hosts[task["host"]]["labels"]["switch"] for task in found["tasks"]} == {"switch-0"}
    found = place(hosts, {"npus": 16, "family": "a3", "replicas": 4, "superpod": {"sp_block": 64}})
    assert len({hosts[task["host"]]["labels"]["superpod"] for task in found["tasks"]}) == 1


def test_chips_of_a_simulated_host_by_its_product(hosts):
    chosen = select_npus(hosts["n910a-01"]["topology"], 1)
    assert (chosen["family"], chosen["chips"]) == ("atlas800_9000", [1]), "ring 0 has three free chips, ring 1 four"
    assert select_npus(hosts["a3-01"]["topology"], 4, multi=True)["chips"] == [0, 1, 2, 3]
    assert select_npus(hosts["duo-01"]["topology"], 2, mode="card")["chips"] == [2, 3]


def test_fleet_topologies_come_from_facts_or_variables(hosts):
    facts = {"npu_affinity_topology": hosts["a2-01"]["topology"]}
    given = {"facts": {"ansible_facts": facts}, "variable": facts, "neither": {"ansible_facts": {}}}
    found = fleet(given, list(given))
    assert found["facts"]["topology"] == found["variable"]["topology"] == hosts["a2-01"]["topology"]
    assert "gather it with npu.affinity.topology_facts" in found["neither"]["refused"]


def test_the_documentation_names_every_rule():
    options = yaml.safe_load(DOCUMENTATION)["options"]
    assert set(options["family"]["choices"]) == {"auto", *RULES}


def test_saved_facts_of_every_kind():
    topology = {"cpus": {"online": "0"}, "npus": []}
    texts = {
        "plain.json": json.dumps(topology),
        "s1_cached": json.dumps({"__payload__": json.dumps({"npu_affinity_topology": topology})}),
        "module.json": json.dumps({"ansible_facts": {"npu_affinity_topology": topology}, "changed": False}),
        "other.json": json.dumps({"ansible_hostname": "other"}),
        "list.json": "[]",
        "inside.json": json.dumps({"ansible_facts": 7}),
        "deep.json": "[" * 100_000,
    }
    found = fleet({"plain": {"npu_affinity_labels": {"superpod": 3, "product": "atlas950"}}}, [], texts)
    assert {name for name in found if "topology" in found[name]} == {"plain", "cached", "module"}
    assert found["plain"]["labels"] == {"superpod": 3, "product": "atlas950"}
    assert found["other"]["refused"] == "its saved facts do not have npu_affinity_topology"
