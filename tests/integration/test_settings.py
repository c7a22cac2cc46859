# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that are refused once for a whole fleet, before any connection to a host, and switches that arrive as text."""

import jinja2
import pytest
import yaml
from jinja2.nodes import Name

from tests.fakes.small_host import KUBELET_STATE, NODE, read_drop_ins
from tests.integration.conftest import REPOSITORY

EXCERPT = ("[ERROR]", "Origin: ", "^ column")
PLAYBOOKS = ["plan", "bind", "verify", "report", "measure", "collect", "history", "rollback", "unbind"]


@pytest.fixture
def large(fleet):
    """200 hosts of an inventory; no connection is made to any."""
    hosts = fleet()
    names = {f"a{number:03}": None for number in range(1, 201)}
    hosts.inventory.write_text(yaml.safe_dump({"npu_hosts": {"hosts": names, "vars": {"ansible_connection": "local"}}}))
    return hosts


def test_a_misspelled_variable_of_a_fleet_is_said_in_a_few_lines(large):
    run = large.play("plan", npu_affinity_strateg="even_split")
    lines = run.output.splitlines()
    assert run.status != 0
    assert " ".join(run.output.split()).count("did you mean npu_affinity_strategy?") == 1
    assert "All 200 hosts: the variable npu_affinity_strateg is not a setting of npu.affinity" in run.output
    assert len(lines) < 20 and not any(mark in run.output for mark in EXCERPT), run.output
    assert {entry["host"] for entry in run.results} == {"a001"}, "one task for all of them"


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_looks_at_the_settings_first(large, playbook):
    run = large.play(playbook, "--limit", "a001", npu_affinity_batches="0")
    assert "Host a001: npu_affinity_batches: expected numbers of hosts from 1 on" in " ".join(run.output.split())
    assert run.modules("a001") == [] and not any(mark in run.output for mark in EXCERPT)


@pytest.mark.headline
def test_hosts_with_refused_settings_are_skipped_others_continue(fleet):
    hosts = fleet(good="i310_pro", typo="i310_pro", slip="i310_pro")
    hosts.give({name: {"npu_affinity_houskeeping": 1} for name in ("typo", "slip")})
    run = hosts.play("plan")
    assert run.summary["states"] == {"planned": ["good"], "refused": ["slip", "typo"]}
    assert run.output.count("did you mean npu_affinity_housekeeping?") == 1
    assert not any(mark in run.output for mark in EXCERPT)
    verified = hosts.play("verify")
    assert verified.summary["states"] == {"never bound": ["good"], "refused": ["slip", "typo"]}
    assert run.modules("typo") == verified.modules("typo") == []


WITHOUT_A_HOST = [
    (["-i", "missing.yml", "bind.yml"], "missing.yml has no hosts"),
    (["-i", "host,", "bind.yml", "-e", '{"npu_affinity_features": ["irq"]}'], "-e npu_affinity_features: only playbook unbind reads it"),
    (["-i", "host,", "bind.yml", "--tags", "x"], "[ERROR]: --tags x: the playbooks of npu.affinity have no tags"),
    (["-i", "host,other,", "playbooks/unbind.yml", "--limit", "other", "-e", "npu_affinity_hosts=host"], "none of them is in host"),
    (["-i", "host,", "bind.yml", "--limit", "nobody"], "Specified inventory, host pattern and/or --limit leaves us with no hosts"),
    (["-i", "host,", "bind.yml", "-e", "npu_affinity_hosts=nobody"], "[ERROR]: nobody matches no host of the inventory, which has 1 host"),
]


@pytest.mark.parametrize("arguments, sentence", WITHOUT_A_HOST, ids=["inventory", "features", "tags", "no host left", "limit", "hosts"])
def test_a_run_without_a_host_fails_and_says_why_in_one_line(fleet, arguments, sentence):
    run = fleet().run(arguments)
    assert run.status != 0 and any(sentence in line for line in run.output.splitlines()), run.output
    assert "Origin: " not in run.output and "PLAY RECAP" not in run.output


def test_what_a_module_refuses_has_no_lines_of_the_playbook(fleet):
    hosts = fleet(a="i310_pro")
    (hosts.tree("a") / "etc/systemd/system/npu-0.slice").mkdir(parents=True)
    failed = hosts.play("bind")
    assert failed.summary["states"] == {"failed": ["a"]}
    (hosts.tree("a") / "etc/systemd/system/npu-0.slice").rmdir()
    hosts.succeed("bind")
    refused = hosts.play("rollback", npu_affinity_to=77)
    assert refused.summary["states"] == {"refused": ["a"]}
    assert refused.output.count("'77' is not a state to restore") == 1
    assert not any(mark in run.output for mark in EXCERPT for run in (failed, refused))


BARE = {"when", "that", "changed_when", "failed_when", "until"}
JINJA = jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])


def switches(pattern):
    """The boolean options of argument specs."""
    specs = [spec for path in REPOSITORY.glob(pattern) for spec in yaml.safe_load(path.read_text())["argument_specs"].values()]
    return {name for spec in specs for name, option in spec["options"].items() if option["type"] == "bool"}


OF_ROLES = switches("roles/*/meta/argument_specs.yml")
SWITCHES = OF_ROLES | switches("playbooks/*.meta.yml")


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


def test_templates_read_switches_by_the_lookup_of_settings():
    names_in = {}
    for path in (*REPOSITORY.glob("roles/**/*.yml"), *REPOSITORY.glob("playbooks/**/*.yml")):
        if path.parent.name != "meta":
            templates = map(JINJA.parse, expressions(yaml.safe_load(path.read_text())))
            names_in[str(path)] = SWITCHES & {node.name for template in templates for node in template.find_all(Name)}
    assert {path: names for path, names in names_in.items() if names} == {}
    assert len(names_in) > 35 and len(SWITCHES) > 15


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

    enabling = {name for name in OF_ROLES if name.endswith("_enabled")}
    inner = {name: dict.fromkeys(enabling, "true") | dict.fromkeys(OF_ROLES - enabling, name) for name in hosts.hosts}

    bound = play("bind", inner)
    assert bound.status == 0, bound.output
    assert log.read_text().split() == ["true"], "npu_affinity_kubelet_restart"
    for name in hosts.hosts:
        units = hosts.tree(name) / "etc/systemd/system"
        assert (hosts.tree(name) / KUBELET_STATE).exists() == (name == "false")
        for unit in ("watch.service", "device-share.service", "metrics.timer"):
            assert (units / f"npu-affinity-{unit}").exists(), unit

    ansible_facts = {}
    for entry in bound.of("true", "ok"):
        ansible_facts |= entry["result"].get("ansible_facts", {})
    facts = {name: ansible_facts[name] for name in ("npu_affinity_topology", "npu_affinity_plan")} | {"npu_affinity_tuning": {}}
    none = dict.fromkeys(OF_ROLES - enabling, "true") | dict.fromkeys(enabling, "false")
    off = play("bind", dict.fromkeys(hosts.hosts, none), **facts)
    assert off.status == 0, off.output
    for name in hosts.hosts:
        units = {path.name for path in (hosts.tree(name) / "etc/systemd/system").rglob("*") if path.name.startswith("npu")}
        assert units == set(), name
    again = play("bind", dict.fromkeys(hosts.hosts, none), **facts)
    looked = ["npu.affinity.gather", "npu.affinity.host_files"]  # the host code, with which a host looks itself, is gone as well
    assert {name: again.modules(name) for name in hosts.hosts} == dict.fromkeys(hosts.hosts, looked)
    assert {name: again.changed(name) for name in hosts.hosts} == dict.fromkeys(hosts.hosts, 0)
