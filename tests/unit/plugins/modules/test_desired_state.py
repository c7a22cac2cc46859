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

from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._features.parts import applied, merged  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES as ON_HOST  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._state.history import entries  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._state.history.difference import changes  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._state.history.digest import digest  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host  # noqa: E402
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import FEATURES, desired_state, of_plan  # noqa: E402
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan  # noqa: E402
from tests.fakes.bound import HISTORY, MACHINE, PYTHON, SETTINGS, TEXTFILE, files_of, simulator, state_of
from tests.fakes.states import a_state  # noqa: E402
from tests.simulator.faults import set_faults  # noqa: E402

POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
APPLIED = [name for name in SETTINGS if name != "device_share"]
"""The features that module host_files applies by itself."""


def made(folder):
    """Make the simulated host in a folder, and return the folder."""
    simulator.generate(MACHINE, folder)
    (folder / TEXTFILE[1:]).parent.mkdir(parents=True)
    (folder / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
    (folder / "proc/sys/vm/swappiness").write_text("60\n")
    return folder


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


def without(feature, bind, root):
    """The files of a host on which a feature was never switched on."""
    assert bind(feature)["changed"]
    return files_of(root)


@pytest.mark.parametrize("feature", APPLIED)
def test_a_feature_switched_off_leaves_no_trace(bind, root, feature):
    never = without(feature, bind, root)
    assert bind()["changed"]
    everything = files_of(root)
    assert everything != never

    predicted = bind(feature, check=True)
    assert files_of(root) == everything
    done = bind(feature)
    assert {key: done[key] for key in ("changed", "files", "removed", "actions", "settings", "diff")} == {
        key: predicted[key] for key in ("changed", "files", "removed", "actions", "settings", "diff")
    }
    record = "/etc/npu-affinity/previous.json"
    now = files_of(root)
    assert {path for path in now.keys() | never.keys() if now.get(path) != never.get(path)} <= {record}
    assert json.loads(now[record]).keys() == json.loads(never[record]).keys()
    assert not bind(feature)["changed"]
    assert bind()["changed"] and files_of(root).keys() == everything.keys()


def test_everything_off_leaves_no_setting_and_no_program(bind, root):
    before = files_of(root)
    bind()
    bind(*APPLIED)
    left = {path for path, text in files_of(root).items() if text != before.get(path)}
    assert left <= {"/etc/npu-affinity/previous.json", "/etc/npu-affinity/plan.json"}


@pytest.mark.parametrize("action", ["bind", "rollback"])
def test_a_report_restores_the_queues_that_a_bind_moved(bind, root, run_module, action):
    topology = gather(Host(str(root)))
    report = {**SETTINGS, "nic": {**SETTINGS["nic"], "nic": "report"}}
    state = json.loads(json.dumps(of_plan(topology, plan(topology), report)))

    def apply(**options):
        return run_module("host_files", root=str(root), state=state, **options)

    apply()
    never = files_of(root)
    bind()
    everything = files_of(root)
    assert any("/smp_affinity_list" in path and text != never[path] for path, text in everything.items() if path in never)
    predicted = apply(action=action, _ansible_check_mode=True)
    assert files_of(root) == everything
    done = apply(action=action)
    assert done["changed"] and (done["diff"], done["files"], done["removed"]) == tuple(
        predicted[key] for key in ("diff", "files", "removed")
    )
    now, record = files_of(root), "/etc/npu-affinity/previous.json"
    assert {path for path in now.keys() | never.keys() if now.get(path) != never.get(path)} <= {record}
    assert json.loads(now[record]).keys() == json.loads(never[record]).keys()
    assert not apply(action=action)["changed"]


@pytest.mark.parametrize("feature", APPLIED)
def test_a_feature_is_undone_alone(bind, root, run_module, feature):
    never = without(feature, bind, root)
    bind()
    predicted = run_module("unbind", root=str(root), features=[feature], _ansible_check_mode=True)
    assert predicted["message"] == f"Only these features would be removed from this host: {feature}."
    result = run_module("unbind", root=str(root), features=[feature])
    assert result["changed"] and result["message"] == f"Only these features were removed from this host: {feature}."
    assert result["partly"]
    now = files_of(root)
    left = {"/etc/npu-affinity/previous.json", *([POLICY] if feature == "nic" else [])}  # which looks for the file of feature nic
    assert {path for path in now.keys() | never.keys() if now.get(path) != never.get(path)} <= left
    again = run_module("unbind", root=str(root), features=[feature])
    assert (again["changed"], again["message"]) == (False, f"This host has nothing of these features to remove: {feature}.")


def test_all_of_it_is_undone_after_features_went_one_by_one(bind, root, run_module):
    before = files_of(root)
    bind()
    for feature in APPLIED:
        run_module("unbind", root=str(root), features=[feature])
    run_module("unbind", root=str(root))
    assert files_of(root) == before and not (root / HISTORY[1:]).exists()


def test_a_feature_that_cannot_be_undone_fails_the_bind_in_words(bind, root, run_module):
    bind()
    run_module("device_share", root=str(root), enabled=True)
    tool = root / "usr/local/Ascend/driver/tools/npu-smi"
    tool.write_text("#!/bin/sh\necho broken\nexit 1\n")
    result = bind()
    assert result["failed"] and "what is switched off could not all be unbound: device share could not be restored" in result["msg"]


def test_device_share_that_is_switched_off_is_put_back(bind, root, run_module):
    bind()
    share = run_module("device_share", root=str(root), enabled=True)
    assert share["changed"]
    assert bind()["changed"] and not bind()["changed"]
    assert [chip["before"] for chip in run_module("device_share", root=str(root), enabled=False)["chips"]] == [False, False]


def sharing(run_module, root, **settings):
    """Apply device share alone, and return what module host_files answers, and the states of the chips afterwards."""
    topology = gather(Host(str(root)))
    wanted = {"device_share": {**SETTINGS["device_share"], "enabled": True, **settings}}
    result = run_module("host_files", root=str(root), state=json.loads(json.dumps(of_plan(topology, plan(topology), wanted))))
    chips = run_module("device_share", root=str(root), enabled=True, min_driver="", _ansible_check_mode=True)["chips"]
    return result, [chip["before"] for chip in chips]


def test_a_busy_card_restores_the_files_and_the_other_cards(run_module, root):
    set_faults(root, busy=[1])
    before = files_of(root)
    result, chips = sharing(run_module, root)
    assert result["failed"] and "card 1: chip 0 is not on, because a container holds the card" in result["msg"]
    assert "All files and device share settings were restored" in result["msg"]
    assert chips == [False, False] and files_of(root) == before


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
    after = files_of(root)
    assert {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)} == set(), result["msg"]
    chips = run_module("device_share", root=str(root), enabled=True, _ansible_check_mode=True)["chips"]
    assert [chip["before"] for chip in chips] == [False, False]


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


def soft_split(run_module, root, files):
    topology = gather(Host(str(root)))
    layout = {"folder": "/usr/local/hami-vnpu-core", "shared_region": "/usr/local/hami-shared-region", "shared_mode": "1777"}
    wanted = {"vnpu": {"enabled": True, **layout, "files": files}}
    return run_module("host_files", root=str(root), state=json.loads(json.dumps(of_plan(topology, plan(topology), wanted))))


def test_soft_split_is_part_of_the_call_and_needs_all_files(run_module, root):
    def paths():
        return sorted(str(path) for path in root.rglob("*") if not str(path).startswith((str(root / "run"), str(root / "var/log"))))

    before = paths()
    digest = "ab" * 32
    missing = soft_split(run_module, root, [{"name": "libvnpu.so", "sha256": digest}])
    assert "/usr/local/hami-vnpu-core/libvnpu.so with SHA-256 %s is not on the host" % digest in missing["msg"]
    (root / HISTORY[1:]).parent.mkdir(parents=True)
    (root / HISTORY[1:]).write_text("no folder")
    failed = soft_split(run_module, root, [])
    assert "directories of soft split were restored" in failed["msg"]
    (root / HISTORY[1:]).unlink()
    (root / HISTORY[1:]).parent.rmdir()
    assert paths() == before
    made = soft_split(run_module, root, [])
    assert made["vnpu"]["folders"] == ["/usr/local/hami-shared-region", "/usr/local/hami-vnpu-core"] and made["history"] == 1
    assert (root / "usr/local/hami-shared-region").stat().st_mode & 0o7777 == 0o1777
    assert not soft_split(run_module, root, [])["changed"]


def test_verify_by_the_same_document(bind, root, run_module):
    bind()
    topology = gather(Host(str(root)))

    def verify(*off):
        result = run_module("binding_info", root=str(root), desired=state_of(topology, *off))
        assert result["drift"] == []
        return set(result["changes"])

    assert verify() == set()
    assert verify("tuning") == {
        "feature tuning: present -> absent",
        "file /etc/npu-affinity/tuning.json: removed",
        "file /etc/systemd/system/npu-affinity-tuning.service: removed",
    }


def test_what_is_bound_alone_is_compared_with_its_plan(bind, root, run_module):
    assert bind("slices", "irq", "threads")["changed"]
    assert run_module("binding_info", root=str(root))["drift"] == []


def test_controller_and_host_have_the_same_features():
    assert FEATURES.keys() == ON_HOST.keys()
    assert [pattern for name in ON_HOST for pattern in ON_HOST[name].owned if list(ON_HOST.values()).count(pattern) > 1] == []


@pytest.mark.parametrize("feature", SETTINGS)
def test_a_state_limited_to_a_feature_is_that_of_its_settings(root, feature):
    topology = gather(Host(str(root)))
    needed = {name: SETTINGS[name] for name in [feature, *(["nic"] if feature == "irq" else [])]}
    alone = applied(json.loads(json.dumps(of_plan(topology, plan(topology), needed))), [feature])
    assert applied(state_of(topology), [feature]) == {**alone, "python": PYTHON}


def test_a_single_feature_is_applied_and_others_are_left_alone(root, run_module, bind):
    state = state_of(gather(Host(str(root))))
    assert run_module("host_files", root=str(root), state=state, features=["tuning"])["changed"]
    assert (root / "etc/npu-affinity/tuning.json").exists() and not (root / IRQ).exists()
    bind()
    assert not run_module("host_files", root=str(root), state=state_of(gather(Host(str(root))), "irq"), features=["slices"])["changed"]
    assert (root / IRQ).exists()


def test_a_single_feature_leaves_the_others_in_force(root, run_module, bind):
    bind()
    topology = gather(Host(str(root)))
    slower = {**SETTINGS, "irq": {**SETTINGS["irq"], "interval": "20min"}}
    state = json.loads(json.dumps(of_plan(topology, plan(topology), slower)))
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
    topology = gather(Host(str(root)))

    def state(**changed):
        share = {**SETTINGS["device_share"], "enabled": bool(first), **changed}
        return json.loads(json.dumps(of_plan(topology, plan(topology), {**SETTINGS, **off, "device_share": share})))

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
        topology = gather(Host(folder))
    names = list(SETTINGS)
    found = [state_of(topology, *off) for off in ([], *([name] for name in names), *(set(names) - {name} for name in names))]
    slower = {**SETTINGS, "irq": {**SETTINGS["irq"], "interval": "20min"}}
    found = list(map(applied, [*found, json.loads(json.dumps(of_plan(topology, plan(topology), slower)))]))
    return found, [one_by_one(state) for state in found]


def one_by_one(state):
    present = [name for name, presence in state["features"].items() if presence == "present"] or ["irq"]
    return functools.reduce(lambda before, name: merged(applied(state, [name]), before), present[::-1], a_state())


def test_states_without_a_difference_have_the_same_digest():
    wholes, singles = states_of_one_host()
    for one, other in itertools.combinations([*wholes, *singles], 2):
        assert (changes(one, other) == []) == (digest(one) == digest(other)), changes(one, other)


def test_single_roles_make_the_state_of_a_bind():
    for whole, single in zip(*states_of_one_host(), strict=True):
        assert digest(whole) == digest(single), whole["features"]


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
    with pytest.raises(ValueError, match="there is no feature interrupts; there are vnpu, slices, irq"):
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
    install(root, "/bin/systemctl")
    install(root, "/usr/local/bin/python3")

    def run(module, **options):
        state = state_of(gather(Host(str(root))), "nic")
        return run_module(module, root=str(root), state=state, **options)

    assert run("host_files")["changed"]
    assert 'RUN+="/bin/systemctl --no-block start' in (root / RULES).read_text()
    assert "ExecStart=/usr/local/bin/python3 -m npu_affinity irq" in (root / IRQ).read_text()
    assert (root / "usr/local/bin/npu-affinity").read_text().startswith("#!/usr/local/bin/python3 -I\n")
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
