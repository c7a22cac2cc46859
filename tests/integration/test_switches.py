# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Switches arrive as text, from ``-e x=false`` and from INI inventories, and mean what the text says."""

from __future__ import annotations

import json
import re

import jinja2
import jinja2.nodes
import pytest
import yaml

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, specs
from tests.fakes.node import NODE, STATE, read_drop_ins
from tests.integration.conftest import REPOSITORY

PLAYS = {
    name: option
    for path in sorted(REPOSITORY.glob("playbooks/*.meta.yml"))
    for spec in yaml.safe_load(path.read_text())["argument_specs"].values()
    for name, option in spec["options"].items()
}
OF_PLAYBOOKS = {name for name, option in PLAYS.items() if option["type"] == "bool"}
BARE = {"when", "that", "changed_when", "failed_when", "until"}
JINJA = jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])


def switches():
    """The boolean options of all roles' argument specs, by role."""
    found = {}
    for path in sorted(REPOSITORY.glob("roles/*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text())["argument_specs"].values()
        options = {name for spec in specs for name, option in spec["options"].items() if option["type"] == "bool"}
        found[path.parts[-3]] = options
    return found


ROLES = switches()
SWITCHES = set().union(*ROLES.values()) | OF_PLAYBOOKS
ON, OFF = ["true", "yes", "1", True], ["false", "no", "0", False]


def expressions(node, bare=False):
    """The Jinja templates in a YAML document; conditions are such without braces."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from expressions(value, key in BARE)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value, bare)
    elif isinstance(node, str):
        yield "{{ (%s) }}" % node if bare and "{{" not in node else node


def read_as_text(template):
    """The switches that a template reads without filter bool; ``default`` may stand between."""
    found = set()

    def look(node, judged):
        if isinstance(node, jinja2.nodes.Name) and node.name in SWITCHES and not judged:
            found.add(node.name)
        is_bool = isinstance(node, jinja2.nodes.Filter) and node.name in ("bool", "ansible.builtin.bool")
        through = isinstance(node, jinja2.nodes.Filter) and node.name == "default"
        for child in node.iter_child_nodes():
            look(child, is_bool or (judged and through))

    look(JINJA.parse(template), judged=False)
    return found


def templates():
    """What roles and playbooks have templates in: ``(file, templates)``."""
    for path in sorted(REPOSITORY.glob("roles/**/*")) + sorted(REPOSITORY.glob("playbooks/**/*")):
        if path.suffix == ".j2":
            yield path, [path.read_text()]
        elif path.suffix == ".yml" and path.parent.name != "meta":
            yield path, list(expressions(yaml.safe_load(path.read_text())))


def test_no_template_reads_a_switch_without_parsing_its_text():
    found = {str(path.relative_to(REPOSITORY)): set().union(*map(read_as_text, texts)) for path, texts in templates()}
    assert {path: names for path, names in found.items() if names} == {}
    assert len(found) > 35 and len(SWITCHES) > 15


EXAMPLES = [
    ("{{ (npu_affinity_repair) }}", True),
    ("{{ npu_affinity_repair | default(false) }}", True),
    ("{{ npu_affinity_repair | bool | default(false) }}", False),
    ("{{ npu_affinity_repair | default(npu_affinity_replan) | bool }}", False),
    ("{% if not npu_affinity_repair %}{% endif %}", True),
    ("{{ 'npu_affinity_repair' if npu_affinity_repair | default(false) | ansible.builtin.bool }}", False),
    ("{{ [npu_affinity_repair] | length | bool }}", True),
]


@pytest.mark.parametrize("template, as_text", EXAMPLES)
def test_what_reads_a_switch_as_text(template, as_text):
    assert bool(read_as_text(template)) is as_text


READS = re.compile(r"\b(npu_affinity_\w+)(?: \| default\(\w+\))? \| bool")


def test_every_value_that_a_switch_can_have(fleet, tmp_path):
    """Every way in which a role or playbook reads a switch, evaluated by Ansible with every value."""
    reads = {match.group(0): match.group(1) for _path, texts in templates() for text in texts for match in READS.finditer(text)}
    in_python = features.names() | specs.of_playbooks().keys() | specs.options()["verify"].keys()
    assert set(reads.values()) <= SWITCHES <= set(reads.values()) | in_python
    values = dict(enumerate(ON + OFF))
    seen = ", ".join(f"{json.dumps(read)}: {read}" for read in reads)
    hosts = {f"value{place}": dict.fromkeys(SWITCHES, value) for place, value in values.items()}
    (tmp_path / "values.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    task = {"ansible.builtin.debug": {"msg": "{{ {%s} }}" % seen}}
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    run = fleet().succeed(str(tmp_path / "play.yml"), "-i", str(tmp_path / "values.yml"))
    for place, value in values.items():
        (entry,) = run.of(f"value{place}")
        assert entry["result"]["msg"] == dict.fromkeys(reads, value in ON), value


def test_every_switch_of_every_role_means_what_its_text_says(fleet, tmp_path):
    """Text from an INI inventory, through bind."""
    hosts = fleet(true=NODE, false=NODE)
    log = tmp_path / "kubectl.log"
    shared = {
        "npu_affinity_batches": ["100%"],
        "npu_affinity_kubelet_drain": ["/bin/sh", "-c", f"echo {{{{ inventory_hostname }}}} >> {log}"],
        "npu_affinity_kubelet_uncordon": [],
        "npu_affinity_tuning": {"swappiness": "10"},
    }
    for name in hosts.hosts:
        (hosts.tree(name) / "var/lib/prometheus/node-exporter").mkdir(parents=True)
        read_drop_ins(hosts.tree(name))

    def play(playbook, switches, **variables):
        lines = ["[of_true]", "true", "[of_false]", "false"]
        for name in hosts.hosts:
            lines += [f"[of_{name}:vars]", *(f"{switch}={value}" for switch, value in switches[name].items())]
        (tmp_path / "switches.ini").write_text("\n".join(lines))
        return hosts.play(playbook, "-i", str(tmp_path / "switches.ini"), **{**shared, **variables})

    every = set().union(*ROLES.values())
    enabling = {name for name in every if name.endswith("_enabled")}
    inner = {name: dict.fromkeys(enabling, "true") | dict.fromkeys(every - enabling, name) for name in hosts.hosts}

    bound = play("bind", inner)
    assert bound.status == 0, bound.output
    assert log.read_text().split() == ["true"], "npu_affinity_kubelet_restart"
    for name in hosts.hosts:
        units = hosts.tree(name) / "etc/systemd/system"
        assert (hosts.tree(name) / STATE).exists() == (name == "false")
        for unit in ("watch.service", "device-share.service", "metrics.timer"):
            assert (units / f"npu-affinity-{unit}").exists(), unit

    known = {}
    for entry in bound.of("true", "ok"):
        known |= entry["result"].get("ansible_facts", {})
    facts = {name: known[name] for name in ("npu_affinity_topology", "npu_affinity_plan")} | {"npu_affinity_tuning": {}}
    none = dict.fromkeys(every - enabling, "true") | dict.fromkeys(enabling, "false")
    off = play("bind", dict.fromkeys(hosts.hosts, none), **facts)
    assert off.status == 0, off.output
    for name in hosts.hosts:
        left = {path.name for path in (hosts.tree(name) / "etc/systemd/system").rglob("*") if path.name.startswith("npu")}
        assert left == set(), name
    again = play("bind", dict.fromkeys(hosts.hosts, none), **facts)
    looked = ["npu.affinity.gather", "npu.affinity.host_files"]  # the host code, with which a host looks itself, is gone as well
    assert {name: again.modules(name) for name in hosts.hosts} == dict.fromkeys(hosts.hosts, looked)
    assert {name: again.changed(name) for name in hosts.hosts} == dict.fromkeys(hosts.hosts, 0)
