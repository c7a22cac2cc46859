# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the user: which hosts are taken, and sentences for what would be ignored in silence."""

import pathlib
import re

import pytest
import yaml
from ansible.parsing.splitter import parse_kv

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.host import LABELS
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import STRATEGIES
from ansible_collections.npu.affinity.plugins.plugin_utils._report import record
from ansible_collections.npu.affinity.plugins.plugin_utils._report.summary_text import refused_settings
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, hosts, specs, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import ROLES as ROLES_FOLDER
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.refusals import host_code_refusals

CASES = yaml.safe_load((pathlib.Path(__file__).parent / "settings.yml").read_text())
WORKLOAD = {"name": "a", "npus": [0]}


def test_the_pattern_of_hosts():
    patterns = [hosts.pattern(given, ["all", group, "rack1"]) for given, group in (("", "npu_hosts"), ("", "b"), ("rack1", "npu_hosts"))]
    assert patterns == ["npu_hosts", "all", "rack1"]


@pytest.mark.parametrize("name, meant", [("npu_host", True), ("npuhosts", True), ("rack1", False), ("ungrouped", False)])
def test_a_group_with_a_typing_error_is_not_all_hosts(name, meant):
    assert bool(hosts.misspelt(["all", "ungrouped", name])) == meant
    assert hosts.misspelt(["all", "npu_hosts", name]) == ""


INVENTORY = ["/site/hosts.yml"]
# What is asked, and how the refusal begins, if it is refused.
RUNS = [
    (hosts.refusal, ("all", 2, ["a", "b"], None, INVENTORY), ""),
    (hosts.refusal, ("npu_hosts", 3, ["a", "b"], ["b", "c"], INVENTORY), ""),
    (hosts.refusal, ("all", 0, [], None, INVENTORY), "the inventory /site/hosts.yml has no hosts"),
    (hosts.refusal, ("rakc1", 2, [], None, INVENTORY), "rakc1 matches no host of the inventory, which has 2 hosts"),
    (hosts.refusal, ("npu_hosts", 0, [], ["a"], INVENTORY), "the inventory /site/hosts.yml has no hosts"),
    (hosts.refusal, ("npu_hosts", 3, [], None, INVENTORY), "npu_hosts matches no host of the inventory, which has 3 hosts"),
    (hosts.refusal, ("npu_hosts", 3, ["a", "b"], ["c"], INVENTORY), "--limit names 1 host and none of them is in npu_hosts"),
    (hosts.tags_refusal, (["all"], []), ""),
    (hosts.tags_refusal, (["untagged"], []), ""),
    (hosts.tags_refusal, (["all"], ["drain"]), ""),  # perhaps of the user's own tasks before a host
    (hosts.tags_refusal, (["irq"], []), "--tags irq: "),
    (hosts.tags_refusal, (["irq", "slices"], ["plan"]), "--tags irq,slices: "),
    (hosts.tags_refusal, (["all", "never"], []), "--tags never: "),
    (hosts.tags_refusal, (["all"], ["irq", "drain"]), "--skip-tags irq: "),
    (hosts.unread_refusal, ({"npu_affinity_features": ["irq"]}, "bind"), "-e npu_affinity_features: only playbook unbind reads it, and b"),
    (hosts.unread_refusal, ({"npu_affinity_skip_busy": True}, "unbind"), "-e npu_affinity_skip_busy: only playbook bind reads"),
    (hosts.unread_refusal, ({"npu_affinity_features": ["irq"], "npu_affinity_confirm": True}, "unbind"), ""),
    (hosts.unread_refusal, ({"npu_affinity_batches": ["100%"], "npu_affinity_plan_file": "x"}, "verify"), ""),
]


@pytest.mark.parametrize("function, asked, beginning", RUNS)
def test_a_run_that_has_no_host_or_would_do_more_is_refused(function, asked, beginning):
    refusal = function(*asked)
    assert refusal.startswith(beginning) and bool(refusal) is bool(beginning)


def test_every_variable_of_roles_and_playbooks_is_a_known_name():
    files = [path for folder in ("roles", "playbooks") for path in (ROLES_FOLDER.parent / folder).glob("**/*")]
    texts = [path.read_text() for path in files if path.suffix in (".yml", ".j2")]
    read = {name for text in texts for name in re.findall(r"\bnpu_affinity_\w+", text)}
    texts += [path.read_text() for path in (ROLES_FOLDER.parent / "plugins/plugin_utils/_steps").glob("*.py")]
    looked_up = re.compile(r"""\bof_playbooks(?:\(\))?\["(\w+)""")
    read |= {specs.PREFIX + name for text in texts for name in looked_up.findall(text)}
    read |= {specs.PREFIX + name for name in record.OF_USER}
    options = {name for options in specs.options().values() for name in options}
    of_playbooks = set(specs.of_playbooks())
    assert not options & (of_playbooks | specs.FACTS)
    assert read - options - specs.FACTS | {LABELS} == of_playbooks


MISSPELT = ("strategey strategy", "batch batches", "irqbalanced irqbalance", "thread_patterns threads_patterns", "feature features")
ADVICE = [(name, f"did you mean npu_affinity_{meant}?") for name, _space, meant in (words.partition(" ") for words in MISSPELT)]
OWN = "leave it out, or call a variable of your own something that does not start with npu_affinity_."


@pytest.mark.parametrize("name, advice", [*ADVICE, ("site_contact", OWN)])
def test_names_that_nothing_reads(name, advice):
    (sentence,) = specs.refusals([f"npu_affinity_{name}", "npu_affinity_strategy", "npu_affinity_topology", "site_contact"])
    assert sentence == f"the variable npu_affinity_{name} is not a setting of npu.affinity; {advice}"


@pytest.mark.parametrize("case", CASES["without_effect"], ids=lambda case: str(case["set"]))
def test_settings_that_no_role_reads_are_told(case):
    given = case["set"]
    off = case["roles"] if "roles" in case else [*specs.off(given), *specs.reporting(given)]
    assert specs.remarks(given, off) == case.get("said", [])


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
    options = {name: option for role in features.FEATURES for name, option in specs.options()[role].items()}
    given = {name: value for name, option in options.items() if name not in features.NOT_APPLIED and (value := another(option)) is not None}
    assert len(given) > 30
    reviewed = features.non_default(given, [])
    assert reviewed.keys() == given.keys()
    assert {"npu_affinity_threads_memory_limit", "npu_affinity_move_memory", "npu_affinity_device_share_ignore_busy"} <= reviewed.keys()


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
    assert features.non_default(one, off) == features.non_default(other, off)


LIMITS = [
    *((*can_act, "") for can_act in (("10min", 4), ("15min", "4"), ("900", 4), ("20min", 0), ("20min", 3), ("now and then", 4))),
    ("20min", 4, "set the limit to 3 or less, or a shorter interval"),
    ("1h 30min", 1, "set an interval of less than an hour"),
]


@pytest.mark.parametrize("interval, limit, advice", LIMITS)
def test_a_limit_that_can_never_act_is_a_remark(interval, limit, advice):
    given = {"npu_affinity_interval": interval, "npu_affinity_rebind_limit": limit}
    remarks = values.remarks(given, [])
    assert len(remarks) == bool(advice) and advice in "".join(remarks)
    if advice:
        why = f"npu_affinity_rebind_limit {limit} has no effect on interrupts with npu_affinity_interval {interval}: "
        assert remarks[0].startswith(why)
    assert values.remarks(given, ["irq", "nic"]) == []
    assert values.remarks(given, ["irq"]) == values.remarks(given, ["nic"]) == remarks


SPANS = {"5min 20s": 320, "2 hours": 7200, "1h30min": 5400, "100ms": 0.1, "1 d": 86400, "1M 1y": 34187400}
NO_SPANS = dict.fromkeys(("5min\n20s", "\n5min", "", "5 parsecs", "x"))


@pytest.mark.parametrize("span, expected", (SPANS | NO_SPANS).items())
def test_time_spans_of_systemd(span, expected):
    assert values.seconds(span) == expected


def test_settings_offer_every_switch_strategy_and_feature():
    assert set(specs.switches()) == {"device_share", "irq", "kubelet", "metrics", "slices", "threads", "vnpu"}
    for role, name in (("plan", "npu_affinity_strategy"), ("report", "npu_affinity_report_strategies")):
        assert specs.options()[role][name]["choices"] == ["auto", *STRATEGIES]
    assert specs.of_playbooks()["npu_affinity_features"]["choices"] == list(FEATURES)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: str(case["set"]))
def test_a_value_that_no_role_takes_is_one_sentence(case):
    sentences = values.refusals({f"npu_affinity_{name}": value for name, value in case["set"].items()}, specs.by_name())
    expected = f"npu_affinity_{next(iter(case['set']))}{case['said']}" if "said" in case else ""
    assert len(sentences) == bool(expected) and "".join(sentences).startswith(expected)


ELSEWHERE, TEMPLATE = "of the archive is not taken: no plan", "of the archive is not taken: it has a template"
ARCHIVED = [
    ({"npu_affinity_root": "/"}, ELSEWHERE),
    ({"npu_affinity_kubelet_drain": ["rm"]}, ELSEWHERE),
    ({"npu_affinity_reports": "/etc"}, ELSEWHERE),
    ({"ansible_connection": "ssh"}, ELSEWHERE),
    ({"npu_affinity_cpus": "{{ lookup('pipe', 'id') }}"}, TEMPLATE),
    ({"npu_affinity_services": [{"unit": "{% x %}"}]}, TEMPLATE),
    ({"npu_affinity_roles": {"{# x #}": 1}}, TEMPLATE),
]


@pytest.mark.parametrize("settings, why", ARCHIVED)
def test_what_is_taken_of_the_settings_of_an_archive(settings, why):
    good = {"npu_affinity_housekeeping": "2", "npu_affinity_services": [{"unit": "a.service", "npus": [0]}]}
    assert len(features.from_archive(good)[0]) == 2 and features.from_archive(good)[1] == []
    taken, (refused,) = features.from_archive(settings)
    assert not taken and refused.startswith(f"The setting {next(iter(settings))} {why}")


def test_what_is_cut_off_a_value_is_told():
    assert specs.cut_off("") == []
    (sentence,) = specs.cut_off(parse_kv("npu_affinity_reason=two CPUs for the system")["_raw_params"])
    assert sentence.startswith("of an option -e, 'CPUs for the system' was not taken, because")
    assert parse_kv("name='two words'") == {"name": "two words"}, "what the sentence advises"


def test_every_feature_has_all_of_its_settings():
    by_role = features.of_features({})
    assert list(by_role) == ["plan", *FEATURES]
    assert {name: len(settings) for name, settings in by_role.items()} == {name: len(specs.options()[name]) for name in by_role}
    typed, added = features.OfRole.__annotations__.keys(), {"enabled", "kubelet_becomes", "left_alone"}
    assert set().union(*(by_role[name] for name in FEATURES)) <= typed <= set().union(*by_role.values()) | added


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


NEGATIVE = {"npu_affinity_rebind_limit": -1}, "npu_affinity_rebind_limit: expected 0 or more; got -1"
REJECTED = [(*NEGATIVE, [role]) for role in ("irq", "nic", "adopt")]
REJECTED += [({"npu_affinity_wait": "soon"}, "^npu_affinity_wait: .*soon", features.ROLES)]


@pytest.mark.parametrize("given, sentence, roles", REJECTED)
def test_a_value_that_cannot_be_converted_names_its_variable(given, sentence, roles):
    with pytest.raises(ValueError, match=sentence):
        features.by_role(given, roles)


BATCHES = [1, "5%", "25%", "100%"]
OF_PLAYBOOKS = [
    ({}, "batches", BATCHES),
    ({"npu_affinity_batches": "2"}, "batches", [2]),
    ({"npu_affinity_batches": "100%"}, "batches", ["100%"]),
    ({"npu_affinity_batches": [" 10% ", "7"]}, "batches", ["10%", 7]),
    ({"npu_affinity_reviewed": "/plans/a.json,b.json"}, "reviewed", ["/plans/a.json", "/home/alice/b.json"]),
    ({"npu_affinity_soak": "5"}, "soak", 5),
    ({"npu_affinity_confirm": "yes"}, "confirm", True),
    ({}, "to", None),
]


@pytest.mark.parametrize("given, setting, expected", OF_PLAYBOOKS)
def test_settings_of_playbooks_are_converted_once(monkeypatch, given, setting, expected):
    monkeypatch.setenv("PWD", "/home/alice")
    assert features.of_playbooks(given)[setting] == expected


def test_what_is_gathered_follows_from_the_settings_of_role_plan():
    workloads = [{"name": "w", "npus": [1], "units": ["b.service"]}, {"name": "x", "npus": [2]}]
    given = {"npu_affinity_services": [{"unit": "a.service", "npus": [0]}], "npu_affinity_workloads": workloads}
    options = features.gathered_by(features.of_features(given)["plan"])
    assert (options["units"], options["device_share"]) == (["a.service", "b.service"], False)


@pytest.mark.parametrize("text, value", [("yes", True), ("False", False), ("0", False), ("on", True)])
def test_every_switch_means_what_its_text_says(text, value):
    of_features = {name for role in ("plan", *FEATURES) for name, option in specs.options()[role].items() if option["type"] == "bool"}
    by_role = features.of_features(dict.fromkeys(of_features, text))
    assert {setting for settings in by_role.values() for setting in settings.values() if isinstance(setting, bool)} == {value}
    of_playbooks = {name for name, option in specs.of_playbooks().items() if option["type"] == "bool"}
    given = features.of_playbooks(dict.fromkeys(of_playbooks, text))
    assert {given[name.removeprefix(specs.PREFIX)] for name in of_playbooks} == {value}


GROUPS = {"all": ["node1", "node2", "both"], "npu_hosts": ["node1", "both"], "both": ["node2"]}
NO_HOST = [
    ("npu_hosts", "it is a group of 2 hosts"),
    ("all", "it is a group of 3 hosts"),
    ("both", "it is a group of 1 hosts"),
    ("node3", "the inventory has no host of that name"),
    ("node2", "it is not among the hosts of npu_affinity_hosts"),
    *((name, "it is not a name") for name in ("", "*", "node1,node2", "node1:node2", "!node1", "~node.*", "@file", "node1\n", "a[0]")),
    *((name, "it is not a name") for name in (["node1"], 1)),
]


@pytest.mark.parametrize("name, why", NO_HOST)
def test_one_host_is_neither_a_group_nor_a_pattern(name, why):
    assert hosts.one_host("node1", GROUPS, GROUPS["npu_hosts"]) == "node1"
    with pytest.raises(ValueError, match=re.escape(why)):
        hosts.one_host(name, GROUPS, GROUPS["npu_hosts"])


FLEET = [f"a{number:03}" for number in range(1, 201)]
GROUPS_OF_FLEET = {"all": FLEET, "a2": [*FLEET[:40], "elsewhere"], "ungrouped": FLEET[40:]}


@pytest.mark.parametrize(
    ("hosts", "which"),
    [(FLEET, "All 200 hosts"), (FLEET[:40], "Group a2 (40 hosts)"), (FLEET[40:], "Hosts a[041:200]"), (FLEET[:2], "Hosts a001, a002")],
    ids=["all", "a group", "many", "two"],
)
def test_settings_of_a_fleet_are_refused_once_with_their_hosts(hosts, which):
    lines = refused_settings(dict.fromkeys(hosts, ["x."]), FLEET, GROUPS_OF_FLEET)
    assert lines == [f"{which}: x. [NPU_SETTING_INVALID]"]
    assert refused_settings({"a": ["x."]}, ["a"], {"g": ["a"]}) == ["Host a: x. [NPU_SETTING_INVALID]"]


@pytest.mark.parametrize("given", [0, -1, "0%", "101%", "5 %", "all", True, [1, None], []])
def test_batches_that_are_refused(given):
    with pytest.raises(ValueError, match="npu_affinity_batches: "):
        hosts.checked(given, "npu_affinity_batches")


NO_PATH, NOT_KEPT = "it must be an absolute path", "what is there is lost at the next boot"
FOLDERS = [
    *((folder, "") for folder in ("/usr/local/lib/npu-affinity", "/var/lib/npu-affinity", "/opt/npu_affinity-1.0+a", "/runtime/code")),
    *((folder, NO_PATH) for folder in ("", "var/lib/npu-affinity", "/", "/var/lib/npu-affinity/", "/var/../etc", "/var/./lib")),
    *((folder, NO_PATH) for folder in ("/srv/..", "/srv/two words", '/srv/"quoted"', "/srv/%i", "/srv/a\n")),
    *((folder, NOT_KEPT) for folder in ("/tmp", "/run/npu-affinity", "/var/run/npu-affinity")),
]


@pytest.mark.parametrize(("folder", "why"), FOLDERS)
def test_folders_that_units_cannot_name_are_refused(folder, why):
    sentences = host_code_refusals(folder)
    assert bool(sentences) == bool(why)
    assert all(sentence.startswith(f"npu_affinity_library cannot be '{folder}': {why}") for sentence in sentences)


def test_an_option_of_several_playbooks_is_the_same_in_each():
    first = {}
    for options in specs.by_playbook().values():
        for name, option in options.items():
            assert first.setdefault(name, option) == option, name
    assert specs.by_playbook().keys() == {path.stem for path in specs.PLAYBOOKS.glob("*.yml") if not path.stem.endswith(".meta")}
