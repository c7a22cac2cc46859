# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles: those of the collection, files of users, and what a host has by its profile and its own variables."""

import re

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible import template
import planner_hosts

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, profile
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.of_host import HostSettings

PROFILES = sorted(profile.bundled())


def test_the_collection_has_a_profile_for_each_purpose():
    assert {"latency", "shared", "throughput", "training"} <= set(PROFILES)


@pytest.mark.parametrize("name", PROFILES)
def test_each_setting_of_a_profile_has_an_effect_and_a_reason(name):
    for setting, value in profile.read(name).settings.items():
        option = profile.settable()[setting]
        assert features.converted(setting, option, value) != features.converted(setting, option, option["default"])
    lines = profile.bundled()[name].read_text().partition("settings:\n")[2].splitlines()
    assert lines and [line for line in lines if not line.endswith(":") and not re.search(r" # [A-Z].*\.$", line)] == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the user started Ansible, with a few profiles."""
    monkeypatch.setenv("PWD", str(tmp_path))
    for name, content in {
        "own.yml": {"settings": {"npu_affinity_wait": 7}},
        "site/decode.yml": {"include": "base.yml", "settings": {"npu_affinity_roles": {"kv": 2}, "npu_affinity_nic": "report"}},
        "site/base.yml": {"include": "latency", "settings": {"npu_affinity_wait": 9, "npu_affinity_nic": "off"}},
        "a.yml": {"include": "b.yml", "settings": {}},
        "b.yml": {"include": "./a.yml", "settings": {}},
        "list.yml": ["settings"],
        "nothing.yml": None,
        "empty.yml": {"settings": None},
        "key.yml": {"setings": {}},
        "included.yml": {"include": "latncy", "settings": {}},
        "name.yml": {"settings": {"npu_affinity_strateg": "even_split"}},
        "bare.yml": {"settings": {"swap": 0}},
        "host.yml": {"settings": {"npu_affinity_services": []}},
        "of_playbooks.yml": {"settings": {"npu_affinity_soak": 5}},
        "itself.yml": {"settings": {"npu_affinity_profile": "latency"}},
        "value.yml": {"settings": {"npu_affinity_tuning": {"governer": "performance"}}},
        "number.yml": {"settings": {3: 4, "npu_affinity_nic": "near"}},
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(content))
    (tmp_path / "broken.yml").write_text("settings: [")
    (tmp_path / "twice.yml").write_text("settings: {npu_affinity_nic: near}\nsettings: {npu_affinity_wait: 1, npu_affinity_wait: 2}\n")
    return tmp_path


INCLUDED = [
    ("", [], {}),
    ("own.yml", ["own.yml"], {"npu_affinity_wait": 7}),
    (
        "site/decode.yml",
        ["site/decode.yml", "base.yml", "latency", "throughput"],
        {"npu_affinity_roles": {"kv": 2}, "npu_affinity_nic": "report", "npu_affinity_wait": 9, "npu_affinity_threads_enabled": True},
    ),
]


@pytest.mark.parametrize("name, names, settings", INCLUDED)
def test_a_profile_replaces_settings_of_those_that_it_includes(folder, name, names, settings):
    included = profile.read(name)
    assert included.names == names and {setting: included.settings[setting] for setting in settings} == settings
    assert ("npu_affinity_environment" in included.settings) == ("throughput" in names)


REFUSED = [
    ("latncy", "npu_affinity_profile: there is no profile 'latncy'; did you mean latency?"),
    ("gaming", "npu_affinity_profile: there is no profile 'gaming'; there are latency, "),
    ("included.yml", "npu_affinity_profile: there is no profile 'latncy'; did you mean latency?"),
    ("absent.yml", "npu_affinity_profile: {folder}/absent.yml cannot be read as YAML: "),
    ("broken.yml", "npu_affinity_profile: {folder}/broken.yml cannot be read as YAML: "),
    ("a.yml", "npu_affinity_profile: a profile includes itself (a.yml -> b.yml -> ./a.yml). Remove the last include."),
    ("list.yml", "profile list.yml takes a dictionary, and got ['settings']."),
    ("nothing.yml", "profile nothing.yml is empty; write settings and their values."),
    ("empty.yml", "profile empty.yml lacks the key settings."),
    ("key.yml", "profile key.yml has the key setings, which nothing reads; did you mean settings?"),
    ("name.yml", "profile name.yml sets npu_affinity_strateg, which no profile can set; did you mean npu_affinity_strategy?"),
    ("bare.yml", "profile bare.yml sets swap, which no profile can set; leave it out."),
    ("host.yml", "profile host.yml sets npu_affinity_services, which no profile can set; set it in the inventory, or with -e."),
    ("of_playbooks.yml", "profile of_playbooks.yml sets npu_affinity_soak, which no profile can set; set it in the inventory, or with -e."),
    ("itself.yml", "profile itself.yml sets npu_affinity_profile, which no profile can set; write include in its place."),
    ("twice.yml", "profile twice.yml has the key settings more than once, of which only the last counts; keep one. profile twice.yml has"),
    ("number.yml", "profile number.yml sets 3, which no profile can set; leave it out."),
    ("value.yml", "profile value.yml: npu_affinity_tuning has the key governer, which nothing reads; did you mean governor?"),
]


@pytest.mark.parametrize("name, sentence", REFUSED)
def test_a_profile_that_cannot_be_used_is_refused(folder, name, sentence):
    with pytest.raises(ValueError) as refusal:
        profile.read(name)
    assert str(refusal.value).startswith(sentence.format(folder=folder)), str(refusal.value)
    variables = {"npu_affinity_profile": name}
    assert of_host(variables).refusals() == [str(refusal.value)]
    with pytest.raises(ValueError, match=re.escape(str(refusal.value))):
        of_host(variables).of_features()
    assert of_host(variables).for_gathering()["root"] == "/"


def of_host(variables):
    return HostSettings(variables, template.Templar(DataLoader(), variables=variables))


# what: variables besides the profile latency, whether threads is on, nic, and the message
OVER = ". The inventory overrides "
NOT_TRUE = "npu_affinity_threads_enabled (false instead of true)."
TEXT = {"npu_affinity_threads_enabled": "no", "npu_affinity_nic": "report"}
WON = [
    ("none", {}, True, "near", "."),
    ("the default", {"npu_affinity_threads_enabled": False}, False, "near", f"{OVER}{NOT_TRUE}"),
    ("text", TEXT, False, "report", f'{OVER}npu_affinity_nic ("report" instead of "near"), {NOT_TRUE}'),
    ("the same", {"npu_affinity_nic": "near", "npu_affinity_tuning": None}, True, "near", "."),
]


@pytest.mark.parametrize("given, threads, nic, message", [row[1:] for row in WON], ids=[row[0] for row in WON])
def test_variables_set_by_users_override_those_of_the_profile(given, threads, nic, message):
    variables = {"npu_affinity_profile": "latency", **given, "inventory_hostname": "a"}
    settings = of_host(variables).of_features()
    assert (settings["threads"]["enabled"], settings["nic"]["nic"]) == (threads, nic)
    assert settings["tuning"]["tuning"] == {"governor": "performance", "numa_balancing": "0", "swappiness": "0"}
    assert sorted(re.split(r"[ ,.]+", settings["profile"])) == sorted(re.split(r"[ ,.]+", f"latency, which includes throughput{message}"))
    assert of_host(variables).of_role("threads") == settings["threads"]
    assert of_host(variables).value("npu_affinity_nic") == nic
    assert "npu_affinity_environment" in settings["of_profile"]
    assert ("npu_affinity_nic" in settings["of_profile"]) is ("npu_affinity_nic" not in given)
    assert of_host(variables).refusals() == settings["remarks"] == []
    kept = of_host(variables).to_archive()
    assert kept["npu_affinity_isolation"] == "explain" and "npu_affinity_profile" not in kept


@pytest.mark.parametrize("name", ["npu_affinity_environment", "npu_affinity_nic", "npu_affinity_hugepages"])
def test_what_has_no_effect_is_said_if_no_profile_asks(name):
    topology = {**planner_hosts.host([0, 0]), "machine": {"cgroup": "v2", "systemd": 255}, "hugepages": {}, "nics": []}
    asked = {"npu_affinity_environment": {"openmp": True}, "npu_affinity_nic": "near", "npu_affinity_hugepages": {"per_npu": 8}}
    settings = features.of_features({"npu_affinity_irq_enabled": False, **asked})
    remarks, without = (desired_state(topology, {**settings, "of_profile": of})["remarks"] for of in ([], [name]))
    begun = f"{name} has no effect on this host"
    assert [remark for remark in remarks if not remark.startswith(begun)] == without and len(remarks) == len(without) + 1


@pytest.mark.parametrize("name, setting", [("latency", "npu_affinity_threads_enabled"), ("shared", "npu_affinity_strategy")])
def test_a_refusal_of_what_a_profile_sets_names_the_profile(name, setting):
    machine = {"cgroup": "v2", "systemd": 255, "architecture": "aarch64"}
    topology = {**planner_hosts.host([0, 1], nodes=2, cores=8), "machine": machine, "irqbalance": {}}
    asked = {"npu_affinity_bound_by": "workers", "npu_affinity_irq_enabled": False}
    settings = of_host({"npu_affinity_profile": name, **asked}).of_features()
    (refusal,) = desired_state(topology, settings)["refusals"]
    assert refusal.startswith(setting) and refusal.endswith(f". npu_affinity_profile sets {setting}."), refusal


def test_a_profile_can_depend_on_the_topology():
    trusted = getattr(template, "trust_as_template", str)  # since ansible-core 2.19
    later = trusted("{{ 'latency' if npu_affinity_topology.npus else '' }}")
    variables = {"npu_affinity_profile": later}
    assert of_host(variables).for_gathering()["root"] == "/" and of_host(variables).refusals() == []
    assert of_host({}).of_features()["profile"] == ""
    gathered = {**variables, "npu_affinity_topology": {"npus": [{}]}}
    assert of_host(gathered).of_features()["threads"]["enabled"]
