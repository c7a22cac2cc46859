# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host follows its desired state: features come, go when they are switched off, and are undone one by one."""

from __future__ import annotations

import functools
import itertools
import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied, deferred, merged, without
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES as ON_HOST
from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.difference import difference
from ansible_collections.npu.affinity.plugins.module_utils._state.history import digest, newest
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import FEATURES, desired_state, of_plan, with_host_code
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from tests.fakes.bound import HISTORY, PYTHON, SETTINGS, files_of, state_of, switched_off
from tests.fakes.changes import touched
from tests.fakes.states import a_state

SLOWER = {**SETTINGS, "irq": {**SETTINGS["irq"], "interval": "20min"}}
REPORTED = {**SETTINGS, "nic": {**SETTINGS["nic"], "nic": "report"}}
SHARED = {"device_share": {**SETTINGS["device_share"], "enabled": True}}
RECORD = "/etc/npu-affinity/previous.json"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
RULES, IRQ = "etc/udev/rules.d/90-npu-affinity.rules", "etc/systemd/system/npu-affinity-irq.service"
APPLIED = [name for name in SETTINGS if name not in ("device_share", "hard_vnpu")]
"""The features that module host_files applies by itself."""
PREDICTED = ("changed", "files", "removed", "actions", "settings", "diff")


def of_settings(topology, settings):
    return json.loads(json.dumps(of_plan(topology, plan(topology), settings)))


ENDED = [*((feature, "bind") for feature in APPLIED), ("nic report", "bind"), ("nic report", "rollback")]


@pytest.mark.parametrize("feature, action", ENDED)
def test_a_feature_that_is_off_or_undone_leaves_no_trace(bind, root, topology, act, feature, action):
    reported = feature == "nic report"
    state = of_settings(topology, REPORTED) if reported else state_of(topology, feature)
    apply = functools.partial(act, "host_files", state=state, action=action)
    assert apply()["changed"]
    never = files_of(root)
    assert bind()["changed"]
    everything = files_of(root)
    assert everything != never
    predicted = apply(_ansible_check_mode=True)
    assert files_of(root) == everything
    done = apply()
    assert {key: done[key] for key in PREDICTED} == {key: predicted[key] for key in PREDICTED} and done["changed"]
    now = files_of(root)
    assert touched(now, never) <= {RECORD}
    assert json.loads(now[RECORD]).keys() == json.loads(never[RECORD]).keys()
    assert not apply()["changed"]
    assert bind()["changed"] and files_of(root).keys() == everything.keys()
    if reported:
        return
    predicted = act("unbind", features=[feature], _ansible_check_mode=True)
    assert predicted["message"] == f"Only these features would be removed from this host: {feature}."
    result = act("unbind", features=[feature])
    assert (result["changed"], result["partly"]) == (True, True)
    assert result["message"] == f"Only these features were removed from this host: {feature}."
    remaining = {RECORD, *([POLICY] if feature == "nic" else [])}  # which looks for the file of feature nic
    assert touched(files_of(root), never) <= remaining
    again = act("unbind", features=[feature])
    assert (again["changed"], again["message"]) == (False, f"This host has nothing of these features to remove: {feature}.")


def test_everything_off_leaves_no_setting_and_unbind_nothing(bind, root, act):
    before = files_of(root)
    bind()
    bind(*APPLIED)
    remaining = {path for path, text in files_of(root).items() if text != before.get(path)}
    assert remaining <= {RECORD, "/etc/npu-affinity/plan.json"}
    bind()
    for feature in APPLIED:
        act("unbind", features=[feature])
    act("unbind")
    assert files_of(root) == before and not (root / HISTORY[1:]).exists()


def withhold_cpusets(root):
    path = root / "etc/systemd/system/-.slice.d/10-site.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[Slice]\nDisableControllers=cpuset\n")


def move_systemctl(root):
    install(root, "/usr/bin/systemctl")
    (root / "bin/systemctl").unlink()


REFUSED = [
    ({"refusals": ["There is no systemd."]}, None, "This desired state must not be applied: There is no systemd."),
    ({}, withhold_cpusets, "/-.slice.d/10-site.conf says DisableControllers=cpuset, and systemd grants no CPU set in -.slice"),
    ({}, move_systemctl, "there is no program /bin/systemctl; this host has /usr/bin/systemctl: bind it again, which names that one"),
]


@pytest.mark.parametrize("parts, happen, sentence", REFUSED)
def test_a_refused_state_changes_nothing(root, act, parts, happen, sentence):
    install(root, "/bin/systemctl")
    state = {**state_of(gather(Host(str(root)))), **parts}
    happen and happen(root)
    before = files_of(root)
    result = act("host_files", state=state, action="rollback")
    assert result["failed"] and sentence in result["msg"]
    assert files_of(root) == before


def test_work_stays_adopted_until_that_is_switched_off_by_name(bind, root):
    def adopted(**settings):
        return desired_state(gather(Host(str(root))), of_features({f"npu_affinity_{name}": value for name, value in settings.items()}))

    assert adopted()["features"]["adopt"] == "absent"
    bind()
    kept = adopted()
    assert kept["features"]["adopt"] == "present" and kept["live"]["adopt"]["mode"] == "always"
    assert adopted(adopt="now")["live"]["adopt"]["mode"] == "now"
    off = adopted(adopt="report")
    given_back = "A bind gives work adopted by npu_affinity_adopt=always the CPUs that it had before"
    assert off["features"]["adopt"] == "absent"
    assert [any(given_back in text for text in state["remarks"]) for state in (off, kept)] == [True, False]
    bind("adopt")
    assert adopted()["features"]["adopt"] == "absent"


def test_a_feature_that_cannot_be_undone_fails_the_bind_in_words(bind, root, topology, act):
    bind()
    shared = act("host_files", state=of_settings(topology, SHARED))["device_share"]["chips"]
    assert [chip["after"] for chip in shared] == [True, True]
    (root / "usr/local/Ascend/driver/tools/npu-smi").write_text("#!/bin/sh\necho broken\nexit 1\n")
    result = bind()
    assert result["failed"] and "not everything that is switched off could be unbound: device share could not be restored" in result["msg"]


def test_controller_and_host_have_the_same_features():
    assert FEATURES.keys() == ON_HOST.keys()
    assert [pattern for name in ON_HOST for pattern in ON_HOST[name].owned if list(ON_HOST.values()).count(pattern) > 1] == []


@pytest.mark.parametrize("feature", SETTINGS)
def test_a_state_limited_to_a_feature_is_that_of_its_settings(topology, feature):
    needed = {name: SETTINGS[name] for name in [feature, *(["nic"] if feature == "irq" else [])]}
    alone = applied(of_settings(topology, needed), [feature])
    assert applied(state_of(topology), [feature]) == {**alone, "python": PYTHON}


def test_a_single_feature_leaves_the_others_in_force(root, topology, act, bind):
    assert act("host_files", state=state_of(topology), features=["tuning"])["changed"]
    assert (root / "etc/npu-affinity/tuning.json").exists() and not (root / IRQ).exists()
    bind()
    assert not act("host_files", state=state_of(topology, "irq"), features=["slices"])["changed"]
    state = of_settings(topology, SLOWER)
    assert act("host_files", state=state, features=["irq"])["history"] == 3
    whole = newest(Host(str(root))).state
    assert whole["features"] == state["features"] and digest(whole) == digest(applied(state))
    for features in ([], ["slices"], ["irq"], ["slices"]):
        assert act("host_files", state=state, features=features)["history"] is None
    assert act("binding_info", desired=state)["changes"] == []


OTHERWISE = {
    "path of npu-smi": ([], {"npu_smi": "/opt/npu-smi"}),
    "hardware": ([], {"hardware": {}}),
    "features after a single role": (["irq", "device_share"], {}),
}


@pytest.mark.parametrize("first, other", OTHERWISE.values(), ids=OTHERWISE)
def test_a_document_is_in_force_after_one_bind(root, topology, act, first, other):
    off = {name: switched_off(name) for name in SETTINGS.keys() - {"irq"}}

    def state(**changed):
        share = {**SETTINGS["device_share"], "enabled": bool(first), **changed}
        return of_settings(topology, {**SETTINGS, **off, "device_share": share})

    assert act("host_files", state=state(), features=first)["history"] == 1
    wanted = {**state(ignore_busy=bool(first)), **other}
    assert act("host_files", state=wanted)["history"] == 2
    assert digest(newest(Host(str(root))).state) == digest(applied(wanted))
    assert not act("host_files", state=wanted)["changed"]


def one_by_one(state):
    present = [name for name, presence in state["features"].items() if presence == "present"] or ["irq"]
    return functools.reduce(lambda before, name: merged(applied(state, [name]), before), present[::-1], a_state())


def test_single_roles_make_the_state_of_a_bind_by_its_digest(topology):
    """States with each feature alone, with all but one, and with other settings; and for each the one that single roles leave."""
    names = list(SETTINGS)
    wholes = [state_of(topology, *off) for off in ([], *([name] for name in names), *(set(names) - {name} for name in names))]
    wholes = list(map(applied, [*wholes, of_settings(topology, SLOWER)]))
    singles = list(map(one_by_one, wholes))
    for whole, single in zip(wholes, singles, strict=True):
        assert digest(whole) == digest(single), whole["features"]
    for (one, its), (other, others) in itertools.combinations([(state, digest(state)) for state in [*wholes, *singles]], 2):
        assert (difference(one, other) == []) == (its == others), difference(one, other)


@pytest.mark.parametrize("off", [("irq", "tuning"), ("metrics", "slices"), ("irq", "slices")])
def test_features_taken_out_are_as_if_switched_off(off, topology):
    assert without(applied(state_of(topology)), off)["absent"] == applied(state_of(topology, *off))["absent"]


def test_what_other_features_still_want_is_kept(topology):
    state = deferred(applied(state_of(topology)), None, ["irq", "tuning"])
    assert without(state, ["irq"])["pending"] == {"tuning": state["pending"]["tuning"]}


@pytest.mark.parametrize("feature", ["adopt", "threads"])
def test_a_live_feature_without_a_plan_changes_nothing(root, feature):
    wanted = {"mode": "once", "processes": [{"npus": []}], "patterns": {}, "memory": "none", "memory_limit": 0}
    assert ON_HOST[feature].step(Host(str(root)), a_state(live={feature: wanted}), Choices()) is None


def test_without_a_plan_everything_is_absent():
    state = of_plan({"irqbalance": {}}, None, SETTINGS)
    assert state["features"] == dict.fromkeys(state["features"], "absent") and state["files"] == [] and state["plan"] is None


def install(root, path):
    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (root / path[1:]).write_text("#!/bin/sh\n")
    (root / path[1:]).chmod(0o755)


def test_units_and_rules_name_programs_where_the_host_has_them(root, act):
    """As on a host whose /usr is not merged, and whose Python an administrator built."""
    (root / "usr/bin/python3").unlink()
    install(root, "/bin/systemctl")
    install(root, "/usr/local/bin/python3")
    assert act("host_files", state=state_of(gather(Host(str(root))), "nic"))["changed"]
    assert 'RUN+="/bin/systemctl --no-block start' in (root / RULES).read_text()
    assert "ExecStart=/usr/local/bin/python3 -m npu_affinity irq" in (root / IRQ).read_text()
    assert (root / "usr/local/bin/npu-affinity").read_text().startswith("#!/usr/local/bin/python3 -IS\n")
    assert act("binding_info")["drift"] == []
    move_systemctl(root)
    (root / "usr/local/bin/python3").chmod(0o644)
    drift = {entry["object"]: (entry["expected"], entry["found"]) for entry in act("binding_info")["drift"]}
    assert drift.keys() == {"/bin/systemctl", "/usr/local/bin/python3"} and drift["/usr/local/bin/python3"][1] == "not executable"
    assert drift["/bin/systemctl"] == (f"a program that /{RULES} runs", "no such file; this host has /usr/bin/systemctl")
    (root / "usr/local/bin/python3").chmod(0o755)
    assert act("host_files", state=state_of(gather(Host(str(root))), "nic"))["changed"] and act("binding_info")["drift"] == []
    assert 'RUN+="/usr/bin/systemctl --no-block start' in (root / RULES).read_text()


USUAL, OTHER, THIRD = installed.CODE_FOLDER, "/var/lib/npu-affinity", "/opt/npu/code"


@pytest.fixture
def place(act, topology):
    """Bind with the host code in a folder."""

    def run(folder, *off, only=(), **options):
        return act("host_files", state=applied(with_host_code(state_of(topology, *off), folder), only), **options)

    return run


def naming(root, folder):
    """The files that lie in a folder of the host code, or name it."""
    texts = {path: text for path, text in files_of(root).items() if text and path != RECORD and not path.endswith(".zip")}
    return {path for path, text in texts.items() if path.startswith(folder + "/") or folder.encode() in text}


def test_all_files_name_the_folder_of_the_settings(place, root):
    assert place(OTHER)["changed"]
    files = files_of(root)
    assert naming(root, USUAL) == set() and not (root / "usr/local/bin/npu-affinity").exists()
    assert {f"{OTHER}/{name}" for name in ("npu_affinity.zip", "irqbalance-policy", "npu-affinity", "npu-affinity.bash")} <= files.keys()
    assert f'sys.path.insert(0, "{OTHER}/npu_affinity.zip")'.encode() in files[f"{OTHER}/npu-affinity"]
    assert f"--policyscript={OTHER}/irqbalance-policy".encode() in files["/etc/npu-affinity/irqbalance.env"]
    units = {path: text for path, text in files.items() if path.startswith("/etc/systemd/system/npu-affinity") and b"PYTHONPATH" in text}
    assert units and all(f"PYTHONPATH={OTHER}/npu_affinity.zip ".encode() in text for text in units.values())


@pytest.mark.parametrize("first, second", [(USUAL, OTHER), (OTHER, USUAL), (OTHER, THIRD)])
def test_a_changed_setting_moves_the_code(place, root, act, first, second):
    before = files_of(root)
    place(first)
    predicted, done = place(second, _ansible_check_mode=True), place(second)
    assert (done["files"], done["removed"]) == (predicted["files"], predicted["removed"])
    assert f"{first}/npu_affinity.zip" in done["removed"] and f"{second}/npu_affinity.zip" in done["files"]
    assert naming(root, first) == set() and not (root / first[1:]).exists()
    assert not place(second)["changed"] and act("binding_info")["drift"] == []
    act("unbind")
    assert files_of(root) == before and not (root / second[1:]).exists()


def test_an_undone_feature_leaves_nothing_in_the_folder(place, root, act):
    place(OTHER, "nic")
    assert act("unbind", features=["irq"])["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists() and (root / OTHER[1:] / "npu_affinity.zip").exists()
    assert place(OTHER, "nic")["changed"] and place(OTHER, "nic", "irq")["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists()


def test_one_feature_does_not_take_the_code_from_others(place, root):
    place(USUAL)
    before = files_of(root)
    result = place(OTHER, only=["tuning"])
    assert result["failed"] and f"npu_affinity_library is {OTHER}, and the host code is in {USUAL}, where feature " in result["msg"]
    assert files_of(root) == before
