# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the user: which hosts are taken, and sentences for what would be ignored in silence."""

from __future__ import annotations

import re

import pytest
from ansible.parsing.splitter import parse_kv

from ansible_collections.npu.affinity.plugins.plugin_utils._placement.fleet import LABELS
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import discover
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import archived, hosts, names, specs, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import ROLES as ROLES_FOLDER

ROLES = {"plan", "slices", "irq"}


@pytest.mark.parametrize(
    "given, groups, expected",
    [("", ["all", "npu_hosts"], "npu_hosts"), ("", ["all", "rack1"], "all"), ("rack1", ["all", "npu_hosts", "rack1"], "rack1")],
)
def test_the_pattern_of_hosts(given, groups, expected):
    assert hosts.pattern(given, groups) == expected


@pytest.mark.parametrize(
    "wanted, in_inventory, matched, limited, sentence",
    [
        ("all", 2, ["a", "b"], None, ""),
        ("npu_hosts", 3, ["a", "b"], ["b", "c"], ""),
        ("all", 0, [], None, "the inventory /site/hosts.yml has no hosts"),
        ("rakc1", 2, [], None, "no host of the inventory matches rakc1, of 2"),
        ("npu_hosts", 0, [], ["a"], "the inventory /site/hosts.yml has no hosts"),
        ("npu_hosts", 3, [], None, "no host of the inventory matches npu_hosts, of 3"),
        ("npu_hosts", 3, ["a", "b"], ["c"], "--limit names 1 hosts, and none of them is in npu_hosts"),
    ],
)
def test_why_there_is_no_host(wanted, in_inventory, matched, limited, sentence):
    found = hosts.refusal(wanted, in_inventory, matched, limited, ["/site/hosts.yml"])
    assert found.startswith(sentence) and bool(found) is bool(sentence)


@pytest.mark.parametrize(
    "tags, skipped, option",
    [
        (["all"], [], ""),
        (["untagged"], [], ""),
        (["all"], ["drain"], ""),  # perhaps of the user's own tasks before a host
        (["irq"], [], "--tags irq: "),
        (["irq", "slices"], ["plan"], "--tags irq,slices: "),
        (["all", "never"], [], "--tags never: "),
        (["all"], ["irq", "drain"], "--skip-tags irq: "),
    ],
)
def test_tags_that_the_playbooks_do_not_have(tags, skipped, option):
    found = hosts.tags_refusal(tags, skipped, ROLES)
    assert found.startswith(option) and bool(found) is bool(option)


def test_every_variable_that_roles_and_playbooks_read_is_a_known_name():
    files = [
        path for folder in ("roles", "playbooks") for path in (ROLES_FOLDER.parent / folder).glob("**/*") if path.suffix in (".yml", ".j2")
    ]
    read = {name for path in files for name in re.findall(r"\bnpu_affinity_\w+", path.read_text())}
    options = {name for options in specs.options().values() for name in options}
    of_playbooks = set(specs.of_playbooks())
    assert not options & (of_playbooks | names.FACTS)
    assert read - options - names.FACTS | set(LABELS.values()) == of_playbooks


@pytest.mark.parametrize(
    "name, advice",
    [
        ("npu_affinity_strategey", "did you mean npu_affinity_strategy?"),
        ("npu_affinity_batch", "did you mean npu_affinity_batches?"),
        ("npu_affinity_irqbalanced", "did you mean npu_affinity_irqbalance?"),
        ("npu_affinity_thread_patterns", "did you mean npu_affinity_threads_patterns?"),
        ("npu_affinity_kubelet_drain_hosts", "did you mean npu_affinity_kubelet_drain_host?"),
        ("npu_affinity_featurs", "did you mean npu_affinity_features?"),
        ("npu_affinity_site_contact", "leave it out, or call a variable of your own something that does not start with npu_affinity_."),
    ],
)
def test_names_that_nothing_reads(name, advice):
    (sentence,) = names.refusals("a2-01", [name, "npu_affinity_strategy", "npu_affinity_topology", "site_contact"], specs.settings())
    assert sentence == f"Host a2-01 has the variable {name}, which is not a setting of npu.affinity; {advice}"


@pytest.mark.parametrize(
    "given, off, expected",
    [
        (
            {"npu_affinity_governor": "performance"},
            ["tuning"],
            ["npu_affinity_governor has no effect here, because npu_affinity_tuning_enabled is false."],
        ),
        ({"npu_affinity_governor": "performance"}, ["threads"], []),
        ({"npu_affinity_governor": "", "npu_affinity_tuning_enabled": "false"}, ["tuning"], []),
        (
            {"npu_affinity_threads_patterns": [{"comm": "x"}], "npu_affinity_threads_timer": "no"},
            ["threads", "tuning"],
            [
                "npu_affinity_threads_patterns, npu_affinity_threads_timer have no effect here, "
                "because npu_affinity_threads_enabled is false."
            ],
        ),
        ({"npu_affinity_threads_timer": "yes", "npu_affinity_threads_memory_limit": "4096"}, ["threads"], []),
        ({"npu_affinity_python": "/opt/python"}, ["irq", "threads"], []),  # other roles read it, too
        ({"npu_affinity_kubelet_node": "{{ inventory_hostname }}"}, ["kubelet"], []),
        (
            {"npu_affinity_irqbalance": "stop"},
            ["irq"],
            ["npu_affinity_irqbalance has no effect here, because npu_affinity_irq_enabled is false."],
        ),
    ],
)
def test_settings_of_roles_that_are_off(given, off, expected):
    assert names.remarks(given, off, specs.settings()) == expected


def test_every_role_that_can_be_off_has_its_switch():
    assert set(names.switches(specs.settings())) == {"device_share", "irq", "kubelet", "metrics", "slices", "threads", "tuning", "vnpu"}


def test_the_role_takes_every_strategy_that_there_is():
    for role, name in (("plan", "npu_affinity_strategy"), ("report", "npu_affinity_report_strategies")):
        assert specs.options()[role][name]["choices"] == ["auto", *sorted(discover())]


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"npu_affinity_min_cpus": "five"}, "npu_affinity_min_cpus takes a whole number, and got 'five'."),
        ({"npu_affinity_smt": "corez"}, "npu_affinity_smt takes one of cores, threads, and got 'corez'; did you mean cores?"),
        ({"npu_affinity_irq_enabled": "maybe"}, "npu_affinity_irq_enabled takes true or false, and got 'maybe'."),
        ({"npu_affinity_npus": "a,b"}, "npu_affinity_npus takes a list, each entry a whole number, and got 'a,b'."),
        ({"npu_affinity_services": "vllm"}, "npu_affinity_services takes a list, each entry a dictionary, and got 'vllm'."),
        (
            {"npu_affinity_services": [{"npus": [0]}]},
            "npu_affinity_services: missing required arguments: unit found in npu_affinity_services.",
        ),
        ({"npu_affinity_services": [{"unit": "a", "npus": [0], "cpus": 1}]}, "npu_affinity_services has a key that it does not take: "),
        ({"npu_affinity_roles": {"irq": "many"}}, "npu_affinity_roles: argument 'irq' is of type str"),
        ({"npu_affinity_npus": "0,1", "npu_affinity_min_cpus": "5", "npu_affinity_irq_enabled": "no", "npu_affinity_cpus": None}, ""),
        ({"npu_affinity_site_contact": 5}, ""),
    ],
)
def test_values_that_no_role_takes_are_one_sentence(given, sentence):
    found = values.refusals("a2-01", given, specs.settings())
    assert [text.startswith(f"Host a2-01: {sentence}") and len(text) < 200 for text in found] == [True] * bool(sentence)


@pytest.mark.parametrize(
    "settings, taken, sentence",
    [
        ({"npu_affinity_housekeeping": "2", "npu_affinity_services": [{"unit": "a.service", "npus": [0]}]}, 2, ""),
        ({"npu_affinity_root": "/"}, 0, "npu_affinity_root of the archive is not taken: no plan"),
        ({"npu_affinity_kubelet_drain": ["rm"]}, 0, "npu_affinity_kubelet_drain of the archive is not taken: no plan"),
        ({"npu_affinity_reports": "/etc"}, 0, "npu_affinity_reports of the archive is not taken: no plan"),
        ({"ansible_connection": "ssh"}, 0, "ansible_connection of the archive is not taken: no plan"),
        ({"npu_affinity_cpus": "{{ lookup('pipe', 'id') }}"}, 0, "npu_affinity_cpus of the archive is not taken: it has a template"),
        ({"npu_affinity_services": [{"unit": "{% x %}"}]}, 0, "npu_affinity_services of the archive is not taken: it has a template"),
        ({"npu_affinity_roles": {"{# x #}": 1}}, 0, "npu_affinity_roles of the archive is not taken: it has a template"),
    ],
)
def test_what_is_taken_of_the_settings_of_an_archive(settings, taken, sentence):
    found, refused = archived.accepted(settings, specs.options())
    assert len(found) == taken
    assert [text.startswith(f"The setting {sentence}") for text in refused] == [True] * bool(sentence)


def test_what_is_cut_off_a_value_is_told():
    assert names.cut_off("a2-01", "") == []
    (sentence,) = names.cut_off("a2-01", parse_kv("npu_affinity_reason=two CPUs for the system")["_raw_params"])
    assert sentence.startswith("Host a2-01: of an option -e, 'CPUs for the system' was not taken, because")
    assert parse_kv("name='two words'") == {"name": "two words"}, "what the sentence advises"
