# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host follows its desired state: features come, go when they are switched off, and are undone one by one."""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied, merged, without
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES as ON_HOST
from ansible_collections.npu.affinity.plugins.module_utils._state.history import entries
from ansible_collections.npu.affinity.plugins.module_utils._state.history.difference import difference
from ansible_collections.npu.affinity.plugins.module_utils._state.history.digest import digest
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import FEATURES, desired_state, of_plan
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.library import with_library
from tests.fakes.bound import HISTORY, MACHINE, PYTHON, SETTINGS, TEXTFILE, files_of, state_of
from tests.simulator import generate as simulator
from tests.fakes.changes import touched
from tests.fakes.states import a_state
from tests.simulator.faults import set_faults

SLOWER = {**SETTINGS, "irq": {**SETTINGS["irq"], "interval": "20min"}}
RECORD = "/etc/npu-affinity/previous.json"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
APPLIED = [name for name in SETTINGS if name not in ("device_share", "hard_vnpu")]
"""The features that module host_files applies by itself."""


def made(folder):
    """Make the simulated host in a folder, and return the folder."""
    simulator.generate(MACHINE, folder)
    (folder / TEXTFILE[1:]).parent.mkdir(parents=True)
    (folder / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
    (folder / "proc/sys/vm/swappiness").write_text("60\n")
    return folder


def bound_to(root, settings):
    """The desired state of a host with other settings."""
    topology = gather(Host(str(root)))
    return json.loads(json.dumps(of_plan(topology, plan(topology), settings)))


@pytest.fixture
def root(tmp_path):
    return made(tmp_path)


@pytest.fixture
def bind(run_module, root):
    """Bind with some features switched off, and return what module host_files answers."""

    topology = gather(Host(str(root)))

    def run(*off, check=False):
        return run_module("host_files", root=str(root), state=state_of(topology, *off), _ansible_check_mode=check)

    return run


REPORTED = {**SETTINGS, "nic": {**SETTINGS["nic"], "nic": "report"}}
PREDICTED = ("changed", "files", "removed", "actions", "settings", "diff")


@pytest.mark.parametrize(
    "feature, reported, action",
    [
        *(pytest.param(feature, False, "bind", id=feature) for feature in APPLIED),
        pytest.param("nic", True, "bind", id="nic that is reported"),
        pytest.param("nic", True, "rollback", id="nic that is reported, by a rollback"),
    ],
)
def test_a_feature_that_is_off_or_undone_leaves_no_trace(bind, root, run_module, feature, reported, action):
    state = bound_to(root, REPORTED) if reported else state_of(gather(Host(str(root))), feature)

    def apply(**options):
        return run_module("host_files", root=str(root), state=state, action=action, **options)

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
    predicted = run_module("unbind", root=str(root), features=[feature], _ansible_check_mode=True)
    assert predicted["message"] == f"Only these features would be removed from this host: {feature}."
    result = run_module("unbind", root=str(root), features=[feature])
    assert result["changed"] and result["partly"]
    assert result["message"] == f"Only these features were removed from this host: {feature}."
    left = {RECORD, *([POLICY] if feature == "nic" else [])}  # which looks for the file of feature nic
    assert touched(files_of(root), never) <= left
    again = run_module("unbind", root=str(root), features=[feature])
    assert (again["changed"], again["message"]) == (False, f"This host has nothing of these features to remove: {feature}.")


def test_a_slice_that_withholds_cpusets_is_named_before_a_write(bind, root):
    path = "/etc/systemd/system/-.slice.d/10-site.conf"
    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (root / path[1:]).write_text("[Slice]\nDisableControllers=cpuset\n")
    before = files_of(root)
    assert f"{path} says DisableControllers=cpuset, and systemd grants no CPU set in -.slice" in bind()["msg"]
    assert files_of(root) == before


def test_work_stays_adopted_until_that_is_switched_off_by_name(bind, root):
    def adopted(**settings):
        topology = gather(Host(str(root)))
        return desired_state(topology, of_features({f"npu_affinity_{name}": value for name, value in settings.items()}))

    assert adopted()["features"]["adopt"] == "absent"
    bind()
    kept = adopted()
    assert kept["features"]["adopt"] == "present" and kept["live"]["adopt"]["mode"] == "always"
    assert adopted(adopt="now")["live"]["adopt"]["mode"] == "now"
    off = adopted(adopt="report")
    assert off["features"]["adopt"] == "absent"
    assert any("A bind gives work adopted by npu_affinity_adopt=always the CPUs that it had before" in text for text in off["remarks"])
    assert not any("gives work adopted" in text for text in kept["remarks"])
    bind("adopt")
    assert adopted()["features"]["adopt"] == "absent"


def test_everything_off_leaves_no_setting_and_no_program(bind, root):
    before = files_of(root)
    bind()
    bind(*APPLIED)
    left = {path for path, text in files_of(root).items() if text != before.get(path)}
    assert left <= {RECORD, "/etc/npu-affinity/plan.json"}


def test_all_of_it_is_undone_after_features_went_one_by_one(bind, root, run_module):
    before = files_of(root)
    bind()
    for feature in APPLIED:
        run_module("unbind", root=str(root), features=[feature])
    run_module("unbind", root=str(root))
    assert files_of(root) == before and not (root / HISTORY[1:]).exists()


def test_a_feature_that_cannot_be_undone_fails_the_bind_in_words(bind, root, run_module):
    bind()
    sharing(run_module, root)
    tool = root / "usr/local/Ascend/driver/tools/npu-smi"
    tool.write_text("#!/bin/sh\necho broken\nexit 1\n")
    result = bind()
    assert result["failed"] and "what is switched off could not all be unbound: device share could not be restored" in result["msg"]


def sharing(run_module, root, **settings):
    """Apply device share alone, and return what module host_files answers, and the states of the chips afterwards."""
    wanted = {"device_share": {**SETTINGS["device_share"], "enabled": True, **settings}}
    result = run_module("host_files", root=str(root), state=bound_to(root, wanted))
    return result, shares(run_module, root)


def shares(run_module, root):
    """Whether each chip is shared, as gathering reads it."""
    facts = run_module("topology_facts", root=str(root), device_share=True)["ansible_facts"]
    return [npu["device_share"] for npu in facts["npu_affinity_topology"]["npus"]]


def hold_a_card(root):
    set_faults(root, busy=[1])


def block_the_history(root):
    (root / HISTORY[1:]).rename(root / "elsewhere")
    (root / HISTORY[1:]).write_text("in the way\n")


FAILING = [
    (("irq", "threads", "tuning"), hold_a_card, "a container holds the card"),
    (("nic", "adopt", "irq"), hold_a_card, "a container holds the card"),
    (("slices", "hugepages", "metrics"), block_the_history, "/etc/npu-affinity/history cannot be written"),
]


@pytest.mark.parametrize(("off", "happen", "why"), FAILING, ids=["-".join(case[0]) for case in FAILING])
def test_a_failed_bind_brings_back_what_it_switched_off(run_module, bind, root, monkeypatch, off, happen, why):
    bind()
    happen(root)
    before = files_of(root)
    monkeypatch.setitem(SETTINGS["device_share"], "enabled", True)
    result = bind(*off)
    assert result["failed"] and why in result["msg"]
    assert touched(files_of(root), before) == set(), result["msg"]
    assert shares(run_module, root) == [False, False]


def test_a_busy_card_that_may_wait_is_a_warning(run_module, root):
    set_faults(root, busy=[1])
    result, chips = sharing(run_module, root, ignore_busy=True)
    assert "card 1: chip 0 is not on, because a container holds the card" in str(result["warnings"])
    assert (chips, result["device_share"]["busy"], result["history"]) == ([True, False], [1], 1)


def test_a_driver_without_soft_slicing_is_refused_unwritten(run_module, root):
    version = root / "usr/local/Ascend/driver/version.info"
    version.write_text(version.read_text().replace("25.5.1", "25.3.rc1"))
    before = files_of(root)
    result, chips = sharing(run_module, root)
    assert "the Ascend driver is 25.3.rc1, and 25.5 or newer is required" in result["msg"]
    assert chips == [False, False] and files_of(root) == before


def test_what_is_bound_alone_is_compared_with_its_plan(bind, root, run_module):
    assert bind("slices", "irq", "threads")["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []


def test_controller_and_host_have_the_same_features():
    assert FEATURES.keys() == ON_HOST.keys()
    assert [pattern for name in ON_HOST for pattern in ON_HOST[name].owned if list(ON_HOST.values()).count(pattern) > 1] == []


@pytest.mark.parametrize("feature", SETTINGS)
def test_a_state_limited_to_a_feature_is_that_of_its_settings(root, feature):
    needed = {name: SETTINGS[name] for name in [feature, *(["nic"] if feature == "irq" else [])]}
    alone = applied(bound_to(root, needed), [feature])
    assert applied(state_of(gather(Host(str(root)))), [feature]) == {**alone, "python": PYTHON}


def test_a_single_feature_is_applied_and_others_are_left_alone(root, run_module, bind):
    state = state_of(gather(Host(str(root))))
    assert run_module("host_files", root=str(root), state=state, features=["tuning"])["changed"]
    assert (root / "etc/npu-affinity/tuning.json").exists() and not (root / IRQ).exists()
    bind()
    assert not run_module("host_files", root=str(root), state=state_of(gather(Host(str(root))), "irq"), features=["slices"])["changed"]
    assert (root / IRQ).exists()


def test_a_single_feature_leaves_the_others_in_force(root, run_module, bind):
    bind()
    state = bound_to(root, SLOWER)
    assert run_module("host_files", root=str(root), state=state, features=["irq"])["history"] == 2
    whole = entries.newest(Host(str(root))).state
    assert whole["features"] == state["features"] and digest(whole) == digest(applied(state))
    assert run_module("host_files", root=str(root), state=state)["history"] is None
    for feature in ("slices", "irq", "slices", "irq"):
        assert run_module("host_files", root=str(root), state=state, features=[feature])["history"] is None
    assert run_module("binding_info", root=str(root), desired=state)["changes"] == []


OTHERWISE = {
    "path of npu-smi": ([], {"npu_smi": "/opt/npu-smi"}),
    "hardware": ([], {"hardware": {}}),
    "features after a single role": (["irq", "device_share"], {}),
}


@pytest.mark.parametrize(("first", "other"), OTHERWISE.values(), ids=OTHERWISE)
def test_a_document_is_in_force_after_one_bind(root, run_module, first, other):
    off = {name: {**SETTINGS[name], "enabled": False} for name in SETTINGS.keys() - {"irq"}} | {"tuning": {"enabled": False, "tuning": {}}}

    def state(**changed):
        share = {**SETTINGS["device_share"], "enabled": bool(first), **changed}
        return bound_to(root, {**SETTINGS, **off, "device_share": share})

    assert run_module("host_files", root=str(root), state=state(), features=first)["history"] == 1
    wanted = {**state(ignore_busy=bool(first)), **other}
    assert run_module("host_files", root=str(root), state=wanted)["history"] == 2
    assert digest(entries.newest(Host(str(root))).state) == digest(applied(wanted))
    assert not run_module("host_files", root=str(root), state=wanted)["changed"]


@functools.cache
def states_of_one_host():
    """Return states with each feature alone, with all but one, and with other settings; and for each the one that single roles leave."""
    with tempfile.TemporaryDirectory() as folder:
        simulator.generate(MACHINE, Path(folder))
        topology, slower = gather(Host(folder)), bound_to(folder, SLOWER)
    names = list(SETTINGS)
    found = [state_of(topology, *off) for off in ([], *([name] for name in names), *(set(names) - {name} for name in names))]
    found = list(map(applied, [*found, slower]))
    return found, [one_by_one(state) for state in found]


def one_by_one(state):
    present = [name for name, presence in state["features"].items() if presence == "present"] or ["irq"]
    return functools.reduce(lambda before, name: merged(applied(state, [name]), before), present[::-1], a_state())


def test_states_without_a_difference_have_the_same_digest():
    wholes, singles = states_of_one_host()
    for one, other in itertools.combinations([*wholes, *singles], 2):
        assert (difference(one, other) == []) == (digest(one) == digest(other)), difference(one, other)


def test_single_roles_make_the_state_of_a_bind():
    for whole, single in zip(*states_of_one_host(), strict=True):
        assert digest(whole) == digest(single), whole["features"]


@pytest.mark.parametrize("off", [("irq", "tuning"), ("metrics", "slices"), ("irq", "slices")])
def test_features_taken_out_are_as_if_switched_off(off, tmp_path):
    simulator.generate(MACHINE, tmp_path)
    topology = gather(Host(str(tmp_path)))
    assert without(applied(state_of(topology)), off)["absent"] == applied(state_of(topology, *off))["absent"]


def test_a_refused_state_changes_nothing(root, run_module):
    before = files_of(root)
    state = {**state_of(gather(Host(str(root)))), "refusals": ["There is no systemd."]}
    assert run_module("host_files", root=str(root), state=state)["msg"] == "This desired state must not be applied: There is no systemd."
    assert files_of(root) == before


@pytest.mark.parametrize("feature", ["adopt", "threads"])
def test_a_live_feature_without_a_plan_changes_nothing(root, feature):
    wanted = {"mode": "once", "processes": [{"npus": []}], "patterns": {}, "memory": "none", "memory_limit": 0}
    assert ON_HOST[feature].step(Host(str(root)), a_state(live={feature: wanted}), Choices()) is None


def test_an_unknown_feature_is_refused():
    with pytest.raises(ValueError, match="there is no feature interrupts; there are hard_vnpu, vnpu, slices, irq"):
        of_plan({}, None, {"interrupts": {"enabled": True}})


def test_without_a_plan_everything_is_absent():
    state = of_plan({"irqbalance": {}}, None, SETTINGS)
    assert state["features"] == dict.fromkeys(state["features"], "absent") and state["files"] == [] and state["plan"] is None


RULES, IRQ = "etc/udev/rules.d/90-npu-affinity.rules", "etc/systemd/system/npu-affinity-irq.service"


def install(root, path):
    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (root / path[1:]).write_text("#!/bin/sh\n")
    (root / path[1:]).chmod(0o755)


def test_units_and_rules_name_programs_where_the_host_has_them(root, run_module):
    """As on a host whose /usr is not merged, and whose Python an administrator built."""
    (root / "usr/bin/python3").unlink()
    install(root, "/bin/systemctl")
    install(root, "/usr/local/bin/python3")

    def run(module, **options):
        state = state_of(gather(Host(str(root))), "nic")
        return run_module(module, root=str(root), state=state, **options)

    assert run("host_files")["changed"]
    assert 'RUN+="/bin/systemctl --no-block start' in (root / RULES).read_text()
    assert "ExecStart=/usr/local/bin/python3 -m npu_affinity irq" in (root / IRQ).read_text()
    assert (root / "usr/local/bin/npu-affinity").read_text().startswith("#!/usr/local/bin/python3 -IS\n")
    bound = state_of(gather(Host(str(root))), "nic")
    assert run_module("binding_info", root=str(root))["drift"] == []
    (root / "bin/systemctl").unlink()
    install(root, "/usr/bin/systemctl")
    (root / "usr/local/bin/python3").chmod(0o644)
    drift = {entry["object"]: entry for entry in run_module("binding_info", root=str(root))["drift"]}
    assert drift.keys() == {"/bin/systemctl", "/usr/local/bin/python3"}
    assert drift["/bin/systemctl"]["expected"] == f"a program that /{RULES} runs"
    assert drift["/bin/systemctl"]["found"] == "no such file; this host has /usr/bin/systemctl"
    assert drift["/usr/local/bin/python3"]["found"] == "not executable"
    before = files_of(root)
    refused = run_module("host_files", root=str(root), state=bound)
    assert refused["failed"] and files_of(root) == before
    (root / "usr/local/bin/python3").chmod(0o755)
    assert run("host_files")["changed"] and run_module("binding_info", root=str(root))["drift"] == []
    assert 'RUN+="/usr/bin/systemctl --no-block start' in (root / RULES).read_text()


def test_a_rollback_to_a_rule_with_a_moved_program_is_refused(root, run_module):
    install(root, "/bin/systemctl")
    older = state_of(gather(Host(str(root))))
    install(root, "/usr/bin/systemctl")
    (root / "bin/systemctl").unlink()
    before = files_of(root)
    result = run_module("host_files", root=str(root), state=older, action="rollback")
    advice = "this host has /usr/bin/systemctl: bind it again, which names that one"
    assert result["msg"] == f"90-npu-affinity.rules could not run: there is no program /bin/systemctl; {advice}"
    assert files_of(root) == before


def test_a_plan_that_is_none_is_refused():
    with pytest.raises(ValueError, match="plan: expected a plan of npu.affinity.plan; got ''"):
        desired_state({}, dict.fromkeys(("plan", *FEATURES), {}), plan="")


USUAL, OTHER, THIRD = installed.LIBRARY, "/var/lib/npu-affinity", "/opt/npu/code"


@pytest.fixture
def place(run_module, root):
    topology = gather(Host(str(root)))

    def run(library, *off, only=(), **options):
        state = with_library(state_of(topology, *off), library)
        return run_module("host_files", root=str(root), state=applied(state, only), **options)

    return run


def naming(root, library):
    """The files that lie in a folder of the host code, or name it."""
    texts = {path: text for path, text in files_of(root).items() if text and path != RECORD and not path.endswith(".zip")}
    return {path for path, text in texts.items() if path.startswith(library + "/") or library.encode() in text}


def test_all_files_name_the_folder_of_the_settings(place, root, run_module):
    before = files_of(root)
    assert place(OTHER)["changed"]
    found = files_of(root)
    assert naming(root, USUAL) == set() and not (root / "usr/local/bin/npu-affinity").exists()
    assert {f"{OTHER}/{name}" for name in ("npu_affinity.zip", "irqbalance-policy", "npu-affinity", "npu-affinity.bash")} <= found.keys()
    assert f'sys.path.insert(0, "{OTHER}/npu_affinity.zip")'.encode() in found[f"{OTHER}/npu-affinity"]
    assert f"--policyscript={OTHER}/irqbalance-policy".encode() in found["/etc/npu-affinity/irqbalance.env"]
    units = {path: text for path, text in found.items() if path.startswith("/etc/systemd/system/npu-affinity") and b"PYTHONPATH" in text}
    assert units and all(f"PYTHONPATH={OTHER}/npu_affinity.zip ".encode() in text for text in units.values())
    assert not place(OTHER)["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []
    assert run_module("unbind", root=str(root))["changed"]
    assert files_of(root) == before and not (root / OTHER[1:]).exists()


@pytest.mark.parametrize(("first", "second"), [(USUAL, OTHER), (OTHER, USUAL), (OTHER, THIRD)])
def test_a_changed_setting_moves_the_code(place, root, run_module, first, second):
    before = files_of(root)
    place(first)
    predicted = place(second, _ansible_check_mode=True)
    done = place(second)
    assert (done["files"], done["removed"]) == (predicted["files"], predicted["removed"])
    assert f"{first}/npu_affinity.zip" in done["removed"] and f"{second}/npu_affinity.zip" in done["files"]
    assert naming(root, first) == set() and not (root / first[1:]).exists()
    assert not place(second)["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []
    run_module("unbind", root=str(root))
    assert files_of(root) == before


def test_an_undone_feature_leaves_nothing_in_the_folder(place, root, run_module):
    place(OTHER, "nic")
    assert run_module("unbind", root=str(root), features=["irq"])["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists() and (root / OTHER[1:] / "npu_affinity.zip").exists()
    assert place(OTHER, "nic")["changed"]
    assert place(OTHER, "nic", "irq")["changed"]
    assert not (root / OTHER[1:] / "irqbalance-policy").exists()


def test_one_feature_does_not_take_the_code_from_others(place, root):
    place(USUAL)
    before = files_of(root)
    result = place(OTHER, only=["tuning"])
    assert result["failed"] and f"npu_affinity_library is {OTHER}, and the host code is in {USUAL}, where feature " in result["msg"]
    assert files_of(root) == before


def test_a_folder_that_every_user_can_write_is_refused(place, root):
    (root / OTHER[1:]).mkdir(parents=True)
    (root / OTHER[1:]).chmod(0o1777)
    result = place(OTHER)
    assert result["failed"] and f"every user can write to {OTHER}, and root runs the host code" in result["msg"]
    assert list((root / OTHER[1:]).iterdir()) == []
