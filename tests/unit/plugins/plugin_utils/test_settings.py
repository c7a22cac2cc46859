# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the user: which hosts are taken, and sentences for what would be ignored in silence."""

from __future__ import annotations

import re

import pytest
from ansible.parsing.splitter import parse_kv

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import LABELS
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import discover
from ansible_collections.npu.affinity.plugins.plugin_utils._report import record, refused_settings
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import archived, features, hosts, limits, names, specs, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import ROLES as ROLES_FOLDER
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.hosts import checked
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.library import library_refusals

ROLES = {"plan", "slices", "irq"}
NOT_HERE = "has no effect here, because"


@pytest.mark.parametrize(
    "given, groups, expected",
    [("", ["all", "npu_hosts"], "npu_hosts"), ("", ["all", "rack1"], "all"), ("rack1", ["all", "npu_hosts", "rack1"], "rack1")],
)
def test_the_pattern_of_hosts(given, groups, expected):
    assert hosts.pattern(given, groups) == expected


@pytest.mark.parametrize("name, meant", [("npu_host", True), ("npuhosts", True), ("rack1", False), ("ungrouped", False)])
def test_a_group_with_a_typing_error_is_not_all_hosts(name, meant):
    assert bool(hosts.misspelt(["all", "ungrouped", name])) == meant
    assert hosts.misspelt(["all", "npu_hosts", name]) == ""


@pytest.mark.parametrize(
    "wanted, in_inventory, matched, limited, sentence",
    [
        ("all", 2, ["a", "b"], None, ""),
        ("npu_hosts", 3, ["a", "b"], ["b", "c"], ""),
        ("all", 0, [], None, "the inventory /site/hosts.yml has no hosts"),
        ("rakc1", 2, [], None, "rakc1 matches no host of the inventory, which has 2 hosts"),
        ("npu_hosts", 0, [], ["a"], "the inventory /site/hosts.yml has no hosts"),
        ("npu_hosts", 3, [], None, "npu_hosts matches no host of the inventory, which has 3 hosts"),
        ("npu_hosts", 3, ["a", "b"], ["c"], "--limit names 1 host and none of them is in npu_hosts"),
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


@pytest.mark.parametrize(
    "extra, playbook, option",
    [
        ({"npu_affinity_features": ["irq"]}, "bind", "-e npu_affinity_features: only playbook unbind reads it, and bind would do more "),
        ({"npu_affinity_skip_busy": True, "npu_affinity_confirm": True}, "unbind", "-e npu_affinity_skip_busy: only playbook bind reads"),
        ({"npu_affinity_features": ["irq"]}, "unbind", ""),
        ({"npu_affinity_batches": ["100%"], "npu_affinity_plan_file": "x"}, "verify", ""),
    ],
)
def test_what_would_narrow_another_playbook(extra, playbook, option):
    found = hosts.unread_refusal(extra, playbook)
    assert found.startswith(option) and bool(found) is bool(option)


def test_every_variable_of_roles_and_playbooks_is_a_known_name():
    files = [
        path for folder in ("roles", "playbooks") for path in (ROLES_FOLDER.parent / folder).glob("**/*") if path.suffix in (".yml", ".j2")
    ]
    texts = [path.read_text() for path in files]
    read = {name for text in texts for name in re.findall(r"\bnpu_affinity_\w+", text)}
    texts += [path.read_text() for path in (ROLES_FOLDER.parent / "plugins/plugin_utils/_steps").glob("*.py")]
    looked_up = re.compile(r"""\bof_playbooks(?:\(\))?\["(\w+)""")
    read |= {names.PREFIX + name for text in texts for name in looked_up.findall(text)}
    read |= {names.PREFIX + name for name in record.OF_USER}
    options = {name for options in specs.options().values() for name in options}
    of_playbooks = set(specs.of_playbooks())
    assert not options & (of_playbooks | names.FACTS)
    assert read - options - names.FACTS | {LABELS} == of_playbooks


@pytest.mark.parametrize(
    "name, advice",
    [
        ("npu_affinity_strategey", "did you mean npu_affinity_strategy?"),
        ("npu_affinity_batch", "did you mean npu_affinity_batches?"),
        ("npu_affinity_irqbalanced", "did you mean npu_affinity_irqbalance?"),
        ("npu_affinity_thread_patterns", "did you mean npu_affinity_threads_patterns?"),
        ("npu_affinity_kubelet_drains", "did you mean npu_affinity_kubelet_drain?"),
        ("npu_affinity_featurs", "did you mean npu_affinity_features?"),
        ("npu_affinity_site_contact", "leave it out, or call a variable of your own something that does not start with npu_affinity_."),
    ],
)
def test_names_that_nothing_reads(name, advice):
    (sentence,) = names.refusals([name, "npu_affinity_strategy", "npu_affinity_topology", "site_contact"], specs.settings())
    assert sentence == f"the variable {name} is not a setting of npu.affinity; {advice}"


@pytest.mark.parametrize(
    "given, off, expected",
    [
        (
            {"npu_affinity_metrics_textfile": "/m.prom"},
            ["metrics"],
            [f"npu_affinity_metrics_textfile {NOT_HERE} npu_affinity_metrics_enabled is false."],
        ),
        ({"npu_affinity_metrics_textfile": "/m.prom"}, ["threads"], []),
        ({"npu_affinity_kubelet_reserved": "", "npu_affinity_kubelet_enabled": "false"}, ["kubelet"], []),
        (
            {"npu_affinity_threads_patterns": [{"comm": "x"}], "npu_affinity_threads_processes": [{}]},
            ["threads", "metrics"],
            [
                "npu_affinity_threads_patterns, npu_affinity_threads_processes have no effect here, "
                "because npu_affinity_threads_enabled is false."
            ],
        ),
        ({"npu_affinity_threads_memory_limit": "0"}, ["threads"], []),
        ({"npu_affinity_python": "/opt/python"}, ["irq", "threads"], []),  # other roles read it, too
        ({"npu_affinity_irqbalance": "stop"}, ["irq"], [f"npu_affinity_irqbalance {NOT_HERE} npu_affinity_irq_enabled is false."]),
        (
            {"npu_affinity_housekeeping_confine_holders": True, "npu_affinity_vnpu_limiter": ""},
            ["vnpu"],
            [
                f"npu_affinity_housekeeping_confine_holders {NOT_HERE} npu_affinity_housekeeping is empty.",
                f"npu_affinity_vnpu_limiter {NOT_HERE} npu_affinity_vnpus is empty.",
            ],
        ),
        ({"npu_affinity_housekeeping_confine_holders": True, "npu_affinity_housekeeping": "0-1"}, [], []),
        ({"npu_affinity_housekeeping_confine_holders": "no"}, [], []),
    ],
)
def test_settings_of_roles_that_are_off(given, off, expected):
    assert names.remarks(given, off, specs.settings()) == expected


LIMIT = {"npu_affinity_irq_enabled": False, "npu_affinity_rebind_limit": 2, "npu_affinity_wait": 90}
IDLE = [
    "npu_affinity_rebind_limit has no effect here, because npu_affinity_irq_enabled is false.",
    "npu_affinity_wait has no effect here, because npu_affinity_device_share_enabled, npu_affinity_irq_enabled, "
    "npu_affinity_kubelet_enabled are false.",
]


@pytest.mark.parametrize(
    "given, expected",
    [
        (LIMIT, IDLE),
        ({**LIMIT, "npu_affinity_nic": "report", "npu_affinity_adopt": "report"}, IDLE),
        ({**LIMIT, "npu_affinity_nic": "near"}, []),
        ({**LIMIT, "npu_affinity_adopt": "always", "npu_affinity_wait": 60}, []),
        ({**LIMIT, "npu_affinity_irq_enabled": "yes"}, []),
        ({"npu_affinity_kubelet_restart": True, "npu_affinity_kubelet_drain": ["true"]}, []),
        ({"npu_affinity_slices_enabled": "no", "npu_affinity_adopt": "now", "npu_affinity_move_memory": True}, []),
    ],
)
def test_settings_that_no_role_reads_where_it_changes_nothing(given, expected):
    off = names.off(given, specs.settings())
    assert names.remarks(given, [*off, *names.reporting(given)], specs.settings()) == expected


OTHER = {"bool": lambda default: not default, "int": lambda default: (default or 0) + 7, "float": lambda default: (default or 0) + 0.5}


def another(option):
    """A value of an option's type that is not its default."""
    default, kind = option.get("default"), option.get("type", "str")
    if option.get("choices"):
        return next(choice for choice in option["choices"] if choice != default)
    if kind == "list":
        return [7] if option.get("elements") in ("int", "raw") else ["another"] if option.get("elements") != "dict" else None
    return OTHER.get(kind, lambda _default: "another")(default)


def test_every_setting_of_the_binding_roles_is_reviewed():
    options = {name: option for role in archived.FEATURES for name, option in specs.options()[role].items()}
    given = {name: value for name, option in options.items() if name not in archived.NOT_APPLIED and (value := another(option)) is not None}
    assert len(given) > 30
    found = archived.applied(given, [], specs.options())
    assert found.keys() == given.keys()
    assert {"npu_affinity_threads_memory_limit", "npu_affinity_move_memory", "npu_affinity_device_share_ignore_busy"} <= found.keys()


SAME = [
    ({"npu_affinity_move_memory": "yes"}, {"npu_affinity_move_memory": True}, []),
    ({"npu_affinity_move_memory": "no"}, {}, []),
    ({"npu_affinity_wait": "90"}, {"npu_affinity_wait": 90}, []),
    ({"npu_affinity_threads_memory_limit": 7}, {}, ["threads"]),
    ({"npu_affinity_isolation": "explain"}, {}, []),
    ({"npu_affinity_isolation": "off"}, {}, []),
]


@pytest.mark.parametrize("one, other, off", SAME)
def test_settings_that_mean_the_same_are_reviewed_as_the_same(one, other, off):
    assert archived.applied(one, off, specs.options()) == archived.applied(other, off, specs.options())


LIMITS = [
    ("10min", 4, ""),
    ("15min", "4", ""),
    ("900", 4, ""),
    ("20min", 4, "set the limit to 3 or less, or a shorter interval"),
    ("1h 30min", 1, "set an interval of less than an hour"),
    ("20min", 0, ""),
    ("20min", 3, ""),
    ("now and then", 4, ""),
]


@pytest.mark.parametrize("interval, limit, advice", LIMITS)
def test_a_limit_that_can_never_act_is_a_remark(interval, limit, advice):
    given = {"npu_affinity_interval": interval, "npu_affinity_rebind_limit": limit}
    options = specs.options()["irq"]
    defaults = {name: option.get("default") for name, option in options.items()}
    found = limits.remarks(given, [], defaults)
    assert len(found) == bool(advice) and advice in "".join(found)
    if advice:
        assert found[0].startswith(f"npu_affinity_rebind_limit {limit} has no effect on interrupts with npu_affinity_interval {interval}: ")
    assert limits.remarks(given, ["irq", "nic"], defaults) == []
    assert limits.remarks(given, ["irq"], defaults) == limits.remarks(given, ["nic"], defaults) == found


SPANS = [
    ("5min 20s", 320),
    ("2 hours", 7200),
    ("1h30min", 5400),
    ("100ms", 0.1),
    ("1 d", 86400),
    ("1M 1y", 34187400),
    ("5min\n20s", None),
    ("\n5min", None),
    ("", None),
    ("5 parsecs", None),
    ("x", None),
]


@pytest.mark.parametrize("span, expected", SPANS)
def test_time_spans_of_systemd(span, expected):
    assert limits.seconds(span) == expected


def test_settings_offer_every_switch_strategy_and_feature():
    assert set(names.switches(specs.settings())) == {"device_share", "irq", "kubelet", "metrics", "slices", "threads", "vnpu"}
    for role, name in (("plan", "npu_affinity_strategy"), ("report", "npu_affinity_report_strategies")):
        assert specs.options()[role][name]["choices"] == ["auto", *sorted(discover())]
    assert specs.of_playbooks()["npu_affinity_features"]["choices"] == list(FEATURES)


SERVICE, WORKLOAD = {"unit": "a", "npus": [0]}, {"name": "a", "npus": [0]}
# a setting, its value, and how the sentence on it continues after its name, if there is one
VALUES = [
    ("min_cpus", "five", " takes a whole number, and got 'five'."),
    ("smt", "corez", " takes one of cores, threads, and got 'corez'; did you mean cores?"),
    (
        "features",
        "threads,tunng",
        " takes some of hard_vnpu, vnpu, slices, irq, nic, device_share, adopt, threads, tuning, hugepages, metrics, kubelet, and "
        "got 'tunng'; did you mean tuning?",
    ),
    ("irq_enabled", "maybe", " takes true or false, and got 'maybe'."),
    ("npus", "a,b", " takes a list, each entry a whole number, and got 'a,b'."),
    ("services", "vllm", " takes a list, each entry a dictionary, and got 'vllm'."),
    ("hugepages", "20480", " takes a dictionary, and got '20480'."),
    ("hugepages", [1], " takes a dictionary, and got [1]."),
    ("hugepages", {"node": [1]}, ", node takes a dictionary, and got [1]."),
    ("hugepages", {"node": {0: None}}, ", node has no value for 0; set one, or remove the key."),
    ("services", [{"npus": [0]}], ": entry 1 lacks the key unit."),
    ("services", [SERVICE, {"unit": "b", "npu": [0]}], ": entry 2 has the key npu, which nothing reads; did you mean npus?"),
    ("services", [{**SERVICE, "colour": 1}], ": entry 1 has the key colour, which nothing reads; its keys are engine, npus, unit."),
    ("services", [{"unit": "a", "npus": "0-3"}], ": entry 1: npus is '0-3', which is not a list; write [0, 1, 2, 3]."),
    ("workloads", [{"name": "a", "npus": 0, "units": ["a.service"]}], ": entry 1: npus is 0, which is not a list; write [0]."),
    ("workloads", [{**WORKLOAD, "roles": {"aclx": 1}}], ": entry 1, roles has the key aclx, which nothing reads; did you mean acl?"),
    (
        "services",
        [{"unit": "a", "npus": [0], "engine": "vllm-ascend"}],
        ": entry 1, engine takes one of dynamo, mindie, mindspore, nemo_rl, sglang, tensorrt_llm, verl, vllm, vllm_ascend, and got "
        "'vllm-ascend'; did you mean vllm_ascend?",
    ),
    ("tuning", {"transparent_hugepages": "Never"}, ", transparent_hugepages takes one of always, madvise, never, and got 'Never'"),
    ("tuning", {"numa_balancing": "many"}, ", numa_balancing takes "),
    ("tuning", {"numa_balancing": False}, ""),
    ("roles", {"irqs": 2}, " has the key irqs, which nothing reads; did you mean irq?"),
    ("interval", "foo", ": expected a time span of systemd, such as 5min or 1h 30min; got 'foo'."),
    ("interval", "0s", ": expected a time span of systemd"),
    ("wait", "-5", ": expected 0 or more; got -5."),
    ("timeout", 0, ": expected 1 or more; got 0."),
    ("rebind_limit", -1, ": expected 0 or more; got -1."),
    ("batches", "0", ": expected numbers of hosts from 1 on"),
    ("roles", {"irq": "many"}, ", irq takes a whole number, and got 'many'."),
    (
        "threads_patterns",
        {"release": ["release_thread_of_mine"]},
        ", release: 'release_thread_of_mine' is the name of no thread, because the kernel keeps 15 characters of a name; "
        "write 'release_thread_'.",
    ),
    ("threads_patterns", {"release": ["release_thread_[0-9]*", "kv_?", "fifteen_letters"]}, ""),
    ("threads_memory_limit", -5, ": expected 0 or more; got -5."),
    ("threads_processes", [{"npus": [0], "untis": "x.service"}], ": entry 1 has the key untis, which nothing reads; did you mean unit?"),
    ("tuning", {"swappiness": "abc"}, ", swappiness: expected a whole number from 0 to 200; got 'abc'."),
    ("tuning", {"swappiness": 500}, ", swappiness: expected a whole number from 0 to 200; got "),
    ("tuning", {"swappiness": "60"}, ""),
    ("site_contact", 5, ""),
]


@pytest.mark.parametrize("name, value, said", VALUES)
def test_a_value_that_no_role_takes_is_one_sentence(name, value, said):
    found = values.refusals({f"npu_affinity_{name}": value}, specs.settings())
    assert [text.startswith(f"npu_affinity_{name}{said}") and len(text) < 200 for text in found] == [True] * bool(said)


def test_values_that_are_understood_are_taken():
    given = {"interval": "900", "wait": 0, "rebind_limit": "0", "npus": "0,1", "min_cpus": "5", "irq_enabled": "no", "cpus": None}
    assert values.refusals({f"npu_affinity_{name}": value for name, value in given.items()}, specs.settings()) == []


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
    assert names.cut_off("") == []
    (sentence,) = names.cut_off(parse_kv("npu_affinity_reason=two CPUs for the system")["_raw_params"])
    assert sentence.startswith("of an option -e, 'CPUs for the system' was not taken, because")
    assert parse_kv("name='two words'") == {"name": "two words"}, "what the sentence advises"


def test_every_feature_has_all_of_its_settings():
    found = features.of_features({})
    assert list(found) == ["plan", *FEATURES]
    assert {name: len(settings) for name, settings in found.items()} == {name: len(specs.options()[name]) for name in found}


@pytest.mark.parametrize(
    "given, feature, setting, expected",
    [
        ({}, "irq", "wait", 60),
        ({"npu_affinity_irq_enabled": "no"}, "irq", "enabled", False),
        ({"npu_affinity_irq_enabled": None}, "irq", "enabled", True),
        ({"npu_affinity_vnpu_enabled": "off"}, "vnpu", "enabled", False),
        ({"npu_affinity_tuning": {"swappiness": 0}}, "tuning", "tuning", {"swappiness": "0"}),
        ({"npu_affinity_wait": "90"}, "irq", "wait", 90),
        ({"npu_affinity_threads_processes": [{"npus": ["0"], "pids": ["12"]}]}, "threads", "processes", [{"npus": ["0"], "pids": [12]}]),
        ({"npu_affinity_python": "/opt/python"}, "metrics", "python", "/opt/python"),
        ({"npu_affinity_services": [{"unit": "vllm.service", "npus": [0]}]}, "slices", "services", [{"unit": "vllm.service", "npus": [0]}]),
        ({"npu_affinity_workloads": [WORKLOAD]}, "threads", "workloads", [{**WORKLOAD, "share": False}]),
    ],
)
def test_settings_are_converted_once(given, feature, setting, expected):
    assert features.of_features(given)[feature][setting] == expected


@pytest.mark.parametrize("role", ["irq", "nic", "adopt"])
def test_no_role_takes_a_limit_that_its_units_could_not(role):
    with pytest.raises(ValueError, match="npu_affinity_rebind_limit: expected 0 or more; got -1"):
        features.of_features({"npu_affinity_rebind_limit": -1}, [role])


@pytest.mark.parametrize(
    "given, setting, expected",
    [
        ({}, "batches", [1, "5%", "25%", "100%"]),
        ({"npu_affinity_batches": "2"}, "batches", [2]),
        ({"npu_affinity_reviewed": "/plans/a.json,b.json"}, "reviewed", ["/plans/a.json", "/home/alice/b.json"]),
        ({"npu_affinity_soak": "5"}, "soak", 5),
        ({"npu_affinity_confirm": "yes"}, "confirm", True),
        ({}, "to", None),
    ],
)
def test_settings_of_playbooks_are_converted_once(monkeypatch, given, setting, expected):
    monkeypatch.setenv("PWD", "/home/alice")
    assert features.of_playbooks(given)[setting] == expected


def test_what_is_gathered_follows_from_the_settings_of_role_plan():
    given = {
        "npu_affinity_services": [{"unit": "a.service", "npus": [0]}],
        "npu_affinity_workloads": [{"name": "w", "npus": [1], "units": ["b.service"]}, {"name": "x", "npus": [2]}],
        "npu_affinity_housekeeping": 0,
    }
    found = features.gathered_by(features.of_features(given)["plan"])
    assert (found["units"], found["device_share"]) == (["a.service", "b.service"], False)


@pytest.mark.parametrize("text, value", [("yes", True), ("False", False), ("0", False), ("on", True)])
def test_every_switch_means_what_its_text_says(text, value):
    of_features = {name for role in ("plan", *FEATURES) for name, option in specs.options()[role].items() if option["type"] == "bool"}
    found = features.of_features(dict.fromkeys(of_features, text))
    assert {setting for settings in found.values() for setting in settings.values() if isinstance(setting, bool)} == {value}
    of_playbooks = {name for name, option in specs.of_playbooks().items() if option["type"] == "bool"}
    given = features.of_playbooks(dict.fromkeys(of_playbooks, text))
    assert {given[name.removeprefix(names.PREFIX)] for name in of_playbooks} == {value}


def test_a_value_that_cannot_be_converted_names_its_variable():
    with pytest.raises(ValueError, match="^npu_affinity_wait: .*soon"):
        features.of_features({"npu_affinity_wait": "soon"})


GROUPS = {"all": ["node1", "node2", "both"], "npu_hosts": ["node1", "both"], "both": ["node2"]}
NO_HOST = [
    ("npu_hosts", "it is a group of 2 hosts"),
    ("all", "it is a group of 3 hosts"),
    ("both", "it is a group of 1 hosts"),
    ("node3", "the inventory has no host of that name"),
    ("node2", "it is not among the hosts of npu_affinity_hosts"),
    *(
        (name, "it is not a name")
        for name in ("", "*", "node1,node2", "node1:node2", "!node1", "~node.*", "@file", "node1\n", "npu_hosts[0]", ["node1"], 1)
    ),
]


@pytest.mark.parametrize("name, why", NO_HOST)
def test_one_host_is_neither_a_group_nor_a_pattern(name, why):
    assert hosts.one_host("node1", GROUPS, GROUPS["npu_hosts"]) == "node1"
    with pytest.raises(ValueError, match=re.escape(why)):
        hosts.one_host(name, GROUPS, GROUPS["npu_hosts"])


FLEET = [f"a{number:03}" for number in range(1, 201)]
GROUPS_OF_FLEET = {"all": FLEET, "a2": [*FLEET[:40], "elsewhere"], "ungrouped": FLEET[40:]}


@pytest.mark.parametrize(
    ("hosts", "named"),
    [
        (FLEET, "All 200 hosts"),
        (FLEET[:40], "Group a2 (40 hosts)"),
        (FLEET[40:], "Hosts a[041:200]"),
        (FLEET[:2], "Hosts a001, a002"),
        (FLEET[:1], "Host a001"),
    ],
)
def test_settings_of_a_fleet_are_refused_once_with_their_hosts(hosts, named):
    found = refused_settings.fleet(dict.fromkeys(hosts, ["the variable x is not a setting."]), FLEET, GROUPS_OF_FLEET)
    assert found["lines"] == [f"{named}: the variable x is not a setting. [NPU_SETTING_INVALID]"]
    assert found["everywhere"] == (hosts == FLEET)
    assert list(found["refused"]) == hosts


def test_one_host_is_not_called_all_hosts():
    assert refused_settings.fleet({"a": ["x."]}, ["a"], {"g": ["a"]})["lines"] == ["Host a: x. [NPU_SETTING_INVALID]"]


GOOD = [([1, "5%", "25%", "100%"], [1, "5%", "25%", "100%"]), ("100%", ["100%"]), ("2", [2]), (3, [3]), ([" 10% ", "7"], ["10%", 7])]


@pytest.mark.parametrize("given, expected", GOOD)
def test_batches(given, expected):
    assert checked(given, "npu_affinity_batches") == expected


@pytest.mark.parametrize("given", [0, -1, "0%", "101%", "5 %", "all", True, [1, None], []])
def test_what_is_refused(given):
    with pytest.raises(ValueError, match="npu_affinity_batches: "):
        checked(given, "npu_affinity_batches")


NO_PATH, NOT_KEPT = "it must be an absolute path", "what is there is lost at the next boot"
FOLDERS = [
    *((folder, "") for folder in ("/usr/local/lib/npu-affinity", "/var/lib/npu-affinity", "/opt/npu_affinity-1.0+a", "/runtime/code")),
    *((folder, NO_PATH) for folder in ("", "var/lib/npu-affinity", "/", "/var/lib/npu-affinity/", "/var/../etc", "/var/./lib")),
    *((folder, NO_PATH) for folder in ("/srv/..", "/srv/two words", '/srv/"quoted"', "/srv/%i", "/srv/a\n")),
    *((folder, NOT_KEPT) for folder in ("/tmp", "/run/npu-affinity", "/var/run/npu-affinity")),
]


@pytest.mark.parametrize(("folder", "why"), FOLDERS)
def test_folders_that_units_cannot_name_are_refused(folder, why):
    found = library_refusals(folder)
    assert bool(found) == bool(why)
    assert all(sentence.startswith(f"npu_affinity_library cannot be '{folder}': {why}") for sentence in found)


def test_an_option_of_several_playbooks_is_the_same_in_each():
    found = {}
    for options in specs.by_playbook().values():
        for name, option in options.items():
            assert found.setdefault(name, option) == option, name
    assert specs.by_playbook().keys() == {path.stem for path in specs.PLAYBOOKS.glob("*.yml") if not path.stem.endswith(".meta")}
