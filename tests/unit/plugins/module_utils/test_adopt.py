# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work gets the CPUs of its NPUs, and what it had before, on modelled kernels that keep or forget what threads asked for."""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._command import explaining
from ansible_collections.npu.affinity.plugins.module_utils._command.state import record_of
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import choosing, services
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import FEATURE, SECTION
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.record import check
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Unreadable
from ansible_collections.npu.affinity.plugins.module_utils._kernel import interrupts
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device, with_lost
from ansible_collections.npu.affinity.plugins.module_utils._state import diffs, plan_file, previous
from ansible_collections.npu.affinity.plugins.module_utils._users import finding
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Killed, Steps
from tests.fakes.work import CGROUPS, DOCKER, DROP_IN, ID, PLAN, PODMAN, SERVICE, SESSION, SYSTEMD
from tests.fakes.work import Adoption, adopt, all_cpus, container, everything, plan_of, switched_off, user, warnings, working


@pytest.fixture(params=[True, False], ids=["keeps", "forgets"])
def machine(request, tmp_path, monkeypatch):
    return working(tmp_path, monkeypatch, request.param)


def service(machine, *threads):
    """Start a service that uses NPU 1, and return its users as they are found."""
    machine.process(100, SERVICE, threads or (None,))
    return lambda: [user(machine, SERVICE, 1)]


WRITTEN = "[Service]\nAllowedCPUs=\nAllowedCPUs=4-7\nCPUAffinity=\nCPUAffinity=0-7"


def states(adoption):
    return {target.user["name"]: target.state for target in adoption.targets}


def drop_in(machine):
    return services.drop_in_sets(machine, "outside.service")


def test_each_kind_of_work_is_adopted_once_and_restored(machine):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found()).undo()
    assert (all_cpus(machine), machine.engines) == (before, {ID: "0-7"}) and not machine.exists(DROP_IN)
    assert set(states(adopt(machine, found())).values()) == {"adopted"}
    adopted, record = all_cpus(machine), machine.read(previous.PATH)
    of_service = {100: "4-7", 101: "4-7", 102: "5", 103: "5" if machine.keeps else "4-7"}
    assert adopted == {**of_service, 200: "4-7", 201: "6", 300: "0-1", 301: "0-1", 302: "0-1", 310: "0-7"}
    assert machine.engines == {ID: "4-7"} and machine.read(DROP_IN).endswith(WRITTEN)
    assert not machine.exists("/run/systemd/system.control") and "restart" not in " ".join(machine.calls)
    machine.calls.clear()
    again = adopt(machine, found())
    assert (again.changed, set(states(again).values()), machine.calls) == (False, {"inside"}, [])
    off = switched_off(machine)
    assert machine.cpus(100) == "0-7"
    off.undo()
    assert (all_cpus(machine), machine.engines, machine.read(previous.PATH)) == (adopted, {ID: "4-7"}, record)
    assert machine.read(DROP_IN).endswith(WRITTEN)
    predicted, report = unbind(machine, check=True), unbind(machine)
    assert (report.changed, report.failed, warnings(report)) == (True, [], [])
    assert predicted.restart_needed == report.restart_needed == []
    rows = report.restored["adopt"].lines()[diffs.WORK]
    assert rows == predicted.restored["adopt"].lines()[diffs.WORK] and len(rows) == 3
    assert (all_cpus(machine), machine.engines) == (before, {ID: "0-7"})
    assert not machine.exists(os.path.dirname(DROP_IN)) and not machine.exists(previous.PATH)


JUDGED_WHOLE = {
    "has opened nothing": (DOCKER, {"witness": "allowed", "pids": [], "cpus": ""}),
    "another process has a device": (SERVICE, {"pids": [100]}),
}


@pytest.mark.parametrize(("group", "values"), JUDGED_WHOLE.values(), ids=JUDGED_WHOLE)
def test_processes_without_devices_are_adopted_with_their_group(machine, group, values):
    container(machine)
    machine.process(100, SERVICE, ("4-7",))
    machine.process(110, SERVICE)
    for changed, state in ((True, "adopted"), (False, "inside")):
        adoption = Adoption(machine, PLAN, [user(machine, group, 1, **values)])
        assert (adoption.changed, [*states(adoption).values()]) == (changed, [state])
        adoption.run()
        assert machine.cpus(200 if group == DOCKER else 110) == "4-7"


def test_work_that_has_other_cpus_afterwards_is_forgotten(machine, monkeypatch):
    found, run = container(machine), machine.run

    def bind_itself(argv, *rest):
        result = run(argv, *rest)
        if argv[:2] == ["docker", "update"]:
            machine.confine(DOCKER, "0-7")
            machine.set_affinity(200, {6})
        return result

    monkeypatch.setattr(machine, "run", bind_itself)
    adopted = adopt(machine, found())
    assert states(adopted) == {"llm": "failed"} and not machine.exists(previous.PATH)
    assert "it was given CPUs 4-7, and its control group grants 0-7" in adopted.targets[0].sentence


UNIT = "/etc/systemd/system/outside.service"
SITE = UNIT + ".d/90-site.conf"
OWN_CPUS = [
    ({UNIT: "CPUAffinity=0-1"}, ""),
    ({UNIT: "CPUAffinity=numa"}, ""),
    ({SITE: "CPUAffinity=0-1"}, ""),
    ({SITE: "CPUAffinity=\nCPUAffinity=0-1"}, SITE + " says CPUAffinity=0-1"),
    ({SITE: "CPUAffinity=\nCPUAffinity=4-5"}, ""),
    ({UNIT: "ExecStart=/bin/taskset -c 0-1 vllm"}, "by taskset on CPUs 0-1"),
    ({UNIT: "ExecStart=numactl -m 1 --physcpubind=2 vllm"}, "by numactl on CPUs 2"),
    ({UNIT: "ExecStart=taskset --cpu-list 4-5 vllm -c 0"}, ""),
]


@pytest.mark.parametrize("files, warning", OWN_CPUS)
def test_an_affinity_outside_the_pool_does_not_stop_next_start(machine, monkeypatch, files, warning):
    found = service(machine)
    machine.lay({path: "[Service]\n%s\n" % line for path, line in files.items()})
    for _run in range(2):
        adopting, _predicted, _changed = bind_again(machine, monkeypatch, PLAN, found)
        assert machine.read(DROP_IN).endswith(WRITTEN)
        assert len(adopting.warnings) == bool(warning) and warning in "".join(adopting.warnings)
        assert drop_in(machine) == {"cpus": "4-7"}
    assert not adopting.changed
    assert not unbind(machine).failed and not machine.exists(DROP_IN)


def test_a_drop_in_that_was_removed_or_edited_is_written_again(machine):
    found = service(machine)
    adopt(machine, found())
    written = machine.read(DROP_IN)
    for text in (None, written.replace("4-7", "0-7")):
        machine.lay({DROP_IN: text})
        adopting = Adoption(machine, PLAN, found())
        assert adopting.lines()[diffs.WORK] == ["~ outside.service: CPUs 4-7 at its next start"]
        adopting.run()
        assert machine.read(DROP_IN) == written and machine.cpus(100) == "4-7"
        adopting.undo()
        assert machine.read(DROP_IN) == (text.rstrip("\n") if text else None), "and back"
        adopt(machine, found())
    machine.put(DROP_IN, "[Service]\nAllowedCPUs=0-3\n")
    assert not Adoption(machine, PLAN, found()).changed, "somebody else's file"
    os.unlink(machine.path(DROP_IN))
    machine.do_daemon_reload([])
    report = unbind(machine)
    assert (machine.cpus(100), warnings(report), report.failed) == ("0-7", [], []), "also without its drop-in"


def test_the_command_explains_adopted_work(machine):
    adopt(machine, everything(machine)())
    machine.put(plan_file.PATH, json.dumps(dict(PLAN, schema=1)))
    ways = {100: "by " + DROP_IN, 200: "by docker update", 300: "by the affinity of its threads"}
    for pid, way in ways.items():
        told = dict(explaining.of_process(record_of(machine, private=False), pid))
        cpus = "0-1" if pid == 300 else "4-7"
        assert told["adopted"] == "CPUs %s %s; an unbind gives back what it had" % (cpus, way) and "slice" not in told


@pytest.mark.parametrize("pools", [("2-3", "5-6"), ("0-3", "3-7")], ids=["other pools", "pools that grow"])
def test_adopted_work_follows_a_plan_and_keeps_its_first_state(machine, pools):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found())
    adopted = all_cpus(machine)
    second = adopt(machine, found(), plan_of(*pools))
    assert set(states(second).values()) == {"adopted"}
    assert [machine.cpus(tid) for tid in (300, 100, 200, 102, 201)] == [*pools, pools[1], "5", "6"]
    assert (machine.engines, drop_in(machine)) == ({ID: pools[1]}, {"cpus": pools[1]})
    assert not adopt(machine, found(), plan_of(*pools)).changed
    second.undo()
    assert all_cpus(machine) == adopted
    adopt(machine, found(), plan_of(*pools))
    assert not unbind(machine).failed and all_cpus(machine) == before


@pytest.mark.parametrize("npus, v1", [((1,), False), ((0, 1), False), ((1,), True)], ids=["held one", "and one that left the plan", "v1"])
def test_a_service_that_holds_no_npu_now_follows_a_new_plan(machine, npus, v1):
    if v1:
        os.unlink(machine.path(CGROUPS + "/cgroup.controllers"))
    machine.put(CGROUPS + "/systemd" + SERVICE + "/cgroup.procs", "100\n")
    service(machine, None, "6")
    before = all_cpus(machine)
    adopt(machine, [user(machine, SERVICE, *npus)])
    other = {"npus": [dict(PLAN["npus"][1], pool="6-7")]}
    assert not Adoption(machine, PLAN, []).changed
    assert Adoption(machine, other, []).targets[0].sentence.startswith("outside.service (NPU 1) runs on CPUs")
    moved = adopt(machine, [], other)
    assert (states(moved), machine.cpus(100), machine.cpus(101)) == ({"outside.service": "adopted"}, "6-7", "6")
    assert drop_in(machine) == {"cpus": "6-7"}
    assert not adopt(machine, [], other).changed
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_a_service_that_starts_others_now_holds_nothing(machine):
    adopt(machine, service(machine)())
    machine.put(SITE, "[Service]\nKillMode=process\n")
    assert states(adopt(machine, [], plan_of("0-1", "6-7"))) == {}
    assert machine.cpus(100) == "4-7" and not unbind(machine).failed and machine.cpus(100) == "0-7"


FITTED = {"environment": {"openmp": True, "task_queue": True, "allocator": True}}
OPENMP = {"OMP_NUM_THREADS": "4", "OMP_PROC_BIND": "false"}
KEPT = [
    "outside.service: /etc/systemd/system/outside.service.d/10-own.conf sets OMP_NUM_THREADS=2, which stays; "
    "npu_affinity_environment would set 4. [NPU_VARIABLE_KEPT]"
]


def variables(machine, found, wanted, plan=PLAN):
    """Adopt with a setting; return whether anything changed, its lines, and the variables of the drop-in."""
    adoption = adopt(machine, found, plan, wanted=wanted)
    return adoption.changed, adoption.lines()[diffs.WORK], services.drop_in_variables(machine, "outside.service")


def test_an_adopted_service_gets_variables_that_fit_its_pool(machine):
    found = service(machine, "4-7")
    assert variables(machine, found(), FITTED) == (False, [], {}), "they alone adopt nothing"
    machine.process(100, SERVICE)
    before = "OMP_NUM_THREADS=4 OMP_PROC_BIND=false TASK_QUEUE_ENABLE=1"
    line = "~ outside.service (NPU 1): CPUs 0-7 -> 4-7, variables at its next start none -> " + before
    assert variables(machine, found(), FITTED) == (True, [line], {**OPENMP, "TASK_QUEUE_ENABLE": "1"})
    why = "# 4 CPUs of the pool for 1 process; a process would start 4 threads (OpenMP specification)."
    assert "\n%s\nEnvironment=OMP_NUM_THREADS=4\n" % why in machine.read(DROP_IN)
    assert machine.cpus(100) == "4-7" and variables(machine, found(), FITTED)[0] is False
    line = f"~ outside.service (NPU 1): variables at its next start {before} -> OMP_NUM_THREADS=4 OMP_PROC_BIND=false"
    assert variables(machine, found(), {"environment": {"openmp": True}}) == (True, [line], OPENMP)
    assert variables(machine, found(), {})[::2] == (True, {})
    assert variables(machine, found(), {})[0] is False
    assert not unbind(machine).failed and not machine.exists(DROP_IN)


def test_a_variable_of_another_file_stays(machine):
    found, other = service(machine), UNIT + ".d/10-own.conf"
    machine.put(other, "[Service]\nEnvironment=OMP_NUM_THREADS=2\n")
    for wanted, said in ((FITTED, True), ({}, False)):
        assert Adoption(machine, PLAN, found(), (), wanted).remarks == KEPT * said
    assert variables(machine, found(), FITTED)[2] == {"OMP_PROC_BIND": "false", "TASK_QUEUE_ENABLE": "1"}
    adopting = Adoption(machine, PLAN, found(), (), FITTED)
    assert adopting.remarks == KEPT and not adopting.changed, "until the file is gone"
    os.unlink(machine.path(other))
    assert variables(machine, found(), FITTED)[2] == {**OPENMP, "TASK_QUEUE_ENABLE": "1"}


def test_a_stopped_service_gets_the_new_plan_at_its_next_start(machine):
    variables(machine, everything(machine)(), FITTED)
    machine.running.discard("outside.service")
    machine.states["outside.service"] = ""
    other = plan_of("0-1", "6-7")
    line = "~ outside.service: CPUs 6-7 at its next start"
    assert variables(machine, [], FITTED, other) == (True, [line], {**OPENMP, "OMP_NUM_THREADS": "2", "TASK_QUEUE_ENABLE": "1"})
    assert drop_in(machine) == {"cpus": "6-7"}
    machine.calls.clear()
    assert not Adoption(machine, other, [], {}, FITTED).changed
    assert len([call for call in machine.calls if "ControlGroup" in call]) == 1, "one call for all services that are up to date"


NODE, IDLE_SESSION = CGROUPS + DOCKER + "/kubelet.slice", "/user.slice/user-1.slice/docker-%s.scope" % ID
MANAGER = "/user.slice/user-0.slice/user@0.service"
SLICE = "/etc/systemd/system/system.slice.d/10-site.conf"
LEFT_ALONE = {
    "pod": (SERVICE, {}, {"kind": "pod"}, "kubelet"),
    "idle": (SERVICE, {}, {"witness": "allowed", "npus": [{"kind": "npu", "id": 0}, {"kind": "npu", "id": 1}]}, "may open several devices"),
    "idle, in a session": (IDLE_SESSION, {}, {"kind": "container", "witness": "allowed", "processes": []}, "it has no process"),
    "unplanned": (SERVICE, {}, {"unassigned": ["davinci0"]}, "it also holds /dev/davinci0, which the plan does not have"),
    "no cpusets": (SERVICE, {SLICE: "[Slice]\nDisableControllers=cpu cpuset\n"}, {}, SLICE + " says DisableControllers=cpu cpuset"),
    "node": (DOCKER, {NODE + "/kubelet-kubepods.slice/cgroup.procs": "", NODE + "/cgroup.procs": ""}, {}, "pods run in it"),
    "namespace": (SESSION, {}, {"group": "/../other"}, "its control group lies outside the root"),
    "denied": (SERVICE, {CGROUPS + "/system.slice/cpuset.cpus.effective": "0-3"}, {}, "grants CPUs 0-3 only; add {unit: outside.service, "),
    "a set of its own": (PODMAN, {CGROUPS + PODMAN + "/cpuset.cpus.effective": "2-5"}, {}, "given CPUs 2-5 when it was created"),
}


@pytest.mark.parametrize(("group", "files", "values", "wrong"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_work_that_is_only_reported(machine, group, files, values, wrong):
    machine.engines = {ID: "2-5" if group == PODMAN else ""}
    machine.lay(files)
    machine.process(100, group)
    before = machine.cpus(100)
    found = adopt(machine, [dict(user(machine, group, 1), **values)])
    assert list(states(found).values()) == ["refused"]
    assert wrong in found.targets[0].sentence and "outside its pool" in found.targets[0].sentence
    assert machine.cpus(100) == before and not machine.exists(previous.PATH) and not any("update" in call for call in machine.calls)
    assert not machine.exists(DROP_IN)


IN_SLICE = "/npu.slice/npu-1.slice/worker.service"
IN_THIS_BIND = [(SERVICE, {"system.slice": {0, 1, 2, 3}}, "refused"), (IN_SLICE, {"npu-1.slice": {4, 5, 6, 7}}, "inside")]


@pytest.mark.parametrize(("group", "sets", "state"), IN_THIS_BIND, ids=["narrows", "gives the pool"])
def test_a_slice_counts_with_the_set_that_this_bind_gives_it(machine, group, sets, state):
    machine.process(100, group)
    assert list(states(Adoption(machine, PLAN, [user(machine, group, 1, kind="service")], sets)).values()) == [state]


TRANSIENT = {"/run/systemd/transient/run-1.service": "[Service]\n"}
BY_PROCESSES = {
    "session": (MANAGER, {"kind": "session"}, "0-7"),
    "rootless": (MANAGER, {"kind": "container", "engine": "podman", "container": ID}, "0-7"),
    "transient": ("/system.slice/run-1.service", {"kind": "service"}, "4-7"),
    "umlaut": ("/system.slice/\u00fc.service", {"kind": "service"}, "4-7"),
    "blank": ("/system.slice/a b.service", {"kind": "service"}, "4-7"),
}


@pytest.mark.parametrize(("group", "values", "of_others"), BY_PROCESSES.values(), ids=BY_PROCESSES)
def test_what_gets_no_drop_in_is_adopted_by_its_processes(machine, group, values, of_others):
    """Of a user's manager, those alone that hold NPUs."""
    machine.put("/run/systemd/transient/run-1.service", "[Service]\n")
    for pid in (300, 310):
        machine.process(pid, group)
    assert set(states(adopt(machine, [user(machine, group, 1, pids=[300], **values)])).values()) == {"adopted"}
    assert all_cpus(machine) == {300: "4-7", 310: of_others}
    assert not machine.exists(os.path.dirname(services.drop_in(os.path.basename(group))))
    assert not unbind(machine).failed and all_cpus(machine) == {300: "0-7", 310: "0-7"}


@pytest.mark.parametrize("own", ["", "0-7"])
def test_a_container_whose_restart_widened_it_is_not_updated(machine, own):
    machine.writes_down = bool(own)
    found = container(machine, PODMAN, own, threads=(None, "6"))
    before = all_cpus(machine)
    adopt(machine, found())
    assert machine.cpus(200) == "4-7"
    machine.confine(PODMAN, "0-7")
    machine.calls.clear()
    assert not unbind(machine).failed
    assert (all_cpus(machine), machine.engines) == (before, {ID: own})
    assert any("update" in call for call in machine.calls) == bool(own), "unless its engine wrote down its set"


def test_processes_of_a_session_get_the_pools_of_their_own_npus(machine, monkeypatch):
    owners = {"davinci0": Device("npu", 0, ""), "davinci1": Device("npu", 1, "")}
    monkeypatch.setattr(finding, "owners", lambda host, npus: owners)
    for pid in (300, 310):
        machine.process(pid, SESSION)
    before, found = all_cpus(machine), user(machine, SESSION, 0, 1)
    for process, device in zip(found["processes"], owners):
        process["devices"] = [device]
    adopted = adopt(machine, [found])
    assert all_cpus(machine) == {300: "0-1", 310: "4-7"}
    assert [target.title for target in adopted.targets] == ["session-1.scope (NPU 0)", "session-1.scope (NPU 1)"]
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_unbind_leaves_what_somebody_else_has_set_since(machine):
    adopt(machine, everything(machine)())
    machine.engines[ID] = "1-3"
    machine.confine(DOCKER, "1-3")
    machine.run(["systemctl", "set-property", "--runtime", "outside.service", "AllowedCPUs=2-3"])
    machine.set_affinity(302, {7})
    report = unbind(machine)
    said = [text for text in warnings(report) if "by someone else since it was adopted" in text]
    assert len(said) == 3 and any(text.startswith("thread 302 of process 300 of session-1.scope (NPU 0) was given other") for text in said)
    assert [machine.cpus(tid) for tid in (100, 200, 300, 301, 302)] == ["2-3", "1-3", "0-7", "2", "7"]
    assert not report.failed and not machine.exists(DROP_IN)


def test_threads_that_start_during_a_pass_are_confined_too(machine, monkeypatch):
    machine.process(300, SESSION)
    late = iter([301, 302])

    def set_affinity(tid, cpus):
        machine.set_affinity(tid, cpus)
        for new in late:
            machine.groups[new], machine.asked[new] = (300, SESSION), None
            machine.show(new)
            break

    monkeypatch.setattr(interrupts.os, "sched_setaffinity", set_affinity)
    adopt(machine, [user(machine, SESSION, 0)])
    assert [machine.cpus(tid) for tid in (300, 301, 302)] == ["0-1"] * 3


WITHOUT_SETS = {
    "cgroup v1": {SYSTEMD % 252: ""},
    "an old systemd": {SYSTEMD % 243: "", CGROUPS + "/cgroup.controllers": "cpuset cpu"},
    "no cpuset controller": {SYSTEMD % 252: "", CGROUPS + "/cgroup.controllers": "cpu io memory pids"},
}


@pytest.mark.parametrize("files", WITHOUT_SETS.values(), ids=WITHOUT_SETS)
def test_where_systemd_cannot_set_cpus_services_get_masks(machine, files):
    procs = CGROUPS + "/systemd" + SERVICE + "/cgroup.procs"
    machine.lay({SYSTEMD % 252: None, CGROUPS + "/cgroup.controllers": None})
    machine.lay({**files, procs: "100\n"})
    found = service(machine, None, "6")
    assert states(adopt(machine, found())) == {"outside.service": "adopted"}
    assert all_cpus(machine) == {100: "4-7", 101: "6"} and not any(call.startswith("set-property") for call in machine.calls)
    assert machine.read(DROP_IN).endswith("CPUAffinity=\nCPUAffinity=4-7")
    off = switched_off(machine)
    assert all_cpus(machine) == {100: "0-7", 101: "6"} and not machine.exists(DROP_IN)
    off.undo()
    machine.process(400, SERVICE, ("4-7", "6"))
    machine.put(procs, "400\n")
    machine.put("/proc/100/stat", "")
    off = switched_off(machine)
    assert (machine.cpus(400), machine.cpus(401)) == ("0-7", "6"), "it was restarted"
    off.undo()
    assert (machine.cpus(400), machine.cpus(401)) == ("4-7", "6")
    assert not unbind(machine).failed and (machine.cpus(400), machine.cpus(401)) == ("0-7", "6")


def without_npu_1(machine):
    """Work as it is found with a plan that has NPU 0 only: the devices of others are nobody's."""
    others = [user(machine, group, devices=["davinci1"]) for group in (DOCKER, SERVICE)]
    return [*others, user(machine, SESSION, 0, pids=[300])]


def bind_again(machine, monkeypatch, plan, found):
    """Apply a plan as a bind does: look, and in the transaction look again and run."""
    monkeypatch.setattr(choosing, "users", lambda host, npus: found())
    adopting = FEATURE.step(machine, {"plan": plan, "expected": [], "live": {"adopt": {"mode": "now"}}}, Choices())
    adopting.look(check=False)
    predicted, changed = adopting.lines(), adopting.changed
    adopting.run()
    adopting.finish()
    return adopting, predicted, changed


LOST = {"npus": PLAN["npus"][:1], "lost": PLAN["npus"][1:]}
PLANS_WITHOUT = {"left out": {"npus": LOST["npus"]}, "released": {**LOST, "lost": [{**PLAN["npus"][1], "pool": ""}]}}


@pytest.mark.parametrize("plan", PLANS_WITHOUT.values(), ids=PLANS_WITHOUT)
def test_work_whose_npus_left_the_plan_gets_its_cpus_back(machine, monkeypatch, plan):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found())
    adopted, record = all_cpus(machine), machine.read(previous.PATH)
    adopting, predicted, changed = bind_again(machine, monkeypatch, plan, lambda: without_npu_1(machine))
    assert all_cpus(machine) == {tid: cpus if tid < 300 else adopted[tid] for tid, cpus in before.items()}
    assert machine.engines == {ID: "0-7"} and not adopting.warnings and not machine.exists(DROP_IN)
    assert changed and any("outside.service: CPUs 4-7 -> all" in line for lines in predicted.values() for line in lines)
    assert list(previous.recorded(machine)[SECTION]) == ["300:1:boot"]
    adopting.undo()
    assert (all_cpus(machine), machine.read(previous.PATH), drop_in(machine)) == (adopted, record, {"cpus": "4-7"})
    for expected in (True, False):
        again, _predicted, changed = bind_again(machine, monkeypatch, plan, lambda: without_npu_1(machine))
        assert changed == again.changed == expected
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_work_of_a_lost_card_keeps_its_reserved_pool(machine, monkeypatch):
    assert [npu["pool"] for npu in with_lost({**LOST, "lost": [{**PLAN["npus"][1], "id": 0}]})] == ["0-1"], "its number is reused"
    adopt(machine, everything(machine)())
    adopted = all_cpus(machine)
    adopting, _predicted, changed = bind_again(machine, monkeypatch, LOST, lambda: without_npu_1(machine))
    assert not changed and all_cpus(machine) == adopted and not adopting.changed


@pytest.mark.parametrize("plan", [PLAN, LOST], ids=["planned", "one lost"])
def test_processes_with_several_npus_get_the_union_of_pools(machine, plan):
    service(machine)
    assert states(adopt(machine, [user(machine, SERVICE, 0, 1)], plan)) == {"outside.service": "adopted"}
    assert machine.cpus(100) == "0-1,4-7"


def test_a_service_that_moved_to_a_planned_npu_keeps_to_the_plan(machine, monkeypatch):
    adopt(machine, everything(machine)())
    moved = [user(machine, SERVICE, 0)]
    bind_again(machine, monkeypatch, PLANS_WITHOUT["left out"], lambda: moved)
    assert drop_in(machine) == {"cpus": machine.cpus(100)} == {"cpus": "0-1"}


ENTRY = {"original": "", "given": ["cpus=0-1"], "npus": [["npu", 0]], "group": "/a", "title": "a"}
GOOD = {
    "a.service": {**ENTRY, "folders": ["/etc/systemd/system/a.service.d"], "given": ["OMP_NUM_THREADS=2 cpus=0-1"]},
    "docker:" + ID: {**ENTRY, "original": "cpus= mems="},
    "7:1:b": {**ENTRY, "original": "7=0-7", "given": ["cpus="], "npus": [], "rank": 1},
}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("a.service", {"given": ["cpus=x"]}),
        ("a.service", {"given": "cpus=0"}),
        ("a.service", {"folders": ["../etc"]}),
        ("a.service", {"npus": [["npu", "0"]]}),
        ("a.service", {"foreign": {"mode": "0644"}}),
        ("../a.service", {}),
        ("a.slice", {}),
        ("rm:" + ID, {}),
        ("docker:--help", {}),
        ("docker:" + ID, {"original": 3}),
        ("docker:" + ID, {"given": ["LD_PRELOAD=/x"]}),
        ("7:1:b", {"original": "/x=0"}),
        ("7:1:b", {"npus": [["npu"]]}),
        ("7:1:b", {"group": "7"}),
        ("self:1:b", {}),
        ("7:1:../b", {}),
    ],
)
def test_a_record_of_another_shape_or_name_is_refused(name, values):
    check(GOOD)
    good = GOOD.get(name, ENTRY)
    with pytest.raises(ValueError):
        check({**GOOD, name: {**good, **values}})


def bind(*plan, **wanted):
    return lambda machine: adopt(machine, machine.found(), *plan, **wanted)


first, other_pools, other_settings = bind(), bind(plan_of("0-1", "5-6")), bind(wanted={"move_memory": True, **FITTED})


def refused_pools(machine):
    adoption = Adoption(machine, plan_of("2-3", "6-7"), machine.found())
    try:
        adoption.run()
    except (CommandError, OSError, ValueError):
        adoption.undo()


KILLED, REFUSED = Killed(), CommandError("refused")
CHANGES = [((), first, KILLED), ((first,), other_pools, KILLED), ((first,), other_settings, KILLED), ((first,), unbind, KILLED)]
ENDINGS = [(version, *change) for version in ("v1", "v2", "podman that writes nothing down") for change in CHANGES]


@pytest.mark.parametrize(("version", "earlier", "change", "error"), [*ENDINGS, ("v2", (first,), refused_pools, REFUSED)])
@pytest.mark.parametrize("later", [None, other_pools], ids=["unbind", "bind"])
def test_a_change_that_is_killed_or_refused_at_any_step_is_ours(tmp_path, monkeypatch, version, earlier, change, error, later):
    """What the old plan gave and what the new one gives are recognised by the next bind and by unbind."""

    def bound(number):
        machine = working(tmp_path / str(number), monkeypatch, number % 2 == 0, version == "v1")
        machine.writes_down = version in ("v1", "v2")
        machine.found = everything(machine, DOCKER if machine.writes_down else PODMAN)
        before.update(all_cpus(machine))
        for way in earlier:
            way(machine)
        return machine

    before = {}
    for last, machine in Steps(monkeypatch).endings(bound, error, change, least=2):
        if later:
            later(machine)
            assert (machine.cpus(100), machine.cpus(200)) == ("5-6", "5-6"), last
        report = unbind(machine)
        assert (report.failed, warnings(report), all_cpus(machine)) == ([], [], before), last
        assert not machine.exists(previous.PATH) and not machine.exists(DROP_IN), last


def test_a_refusing_engine_costs_no_container_its_cpus(machine):
    """An engine refuses the change and its undoing; the container still has what the plan before gave it."""
    found = container(machine)
    adopt(machine, found())
    for refuses, state in ((True, "failed"), (False, "adopted")):
        machine.refuses = refuses
        adopted = adopt(machine, found(), plan_of("0-1", "4-5"))
        assert states(adopted) == {"llm": state} and ("Cannot update container: busy" in (adopted.targets[0].sentence or "")) == refuses
    assert machine.cpus(200) == "4-5"
    machine.refuses = True
    adopt(machine, found(), plan_of("0-1", "6-7"))
    machine.refuses = False
    report = unbind(machine)
    assert (report.failed, warnings(report), machine.cpus(200)) == ([], [], "0-7")


OTHER = "f" * 64


def second(machine):
    """Another container with NPU 1, as its user is found."""
    machine.engines[OTHER] = ""
    return dict(user(machine, DOCKER, 1), group=DOCKER.replace(ID, OTHER), container=OTHER, name="second")


def test_an_engine_is_queried_once_and_may_print_warnings(machine):
    found = container(machine)()
    Adoption(machine, PLAN, [*found, second(machine)])
    assert len([call for call in machine.calls if "inspect" in call]) == 1
    assert states(adopt(machine, found)) == {"llm": "adopted"}


def test_a_silent_engine_costs_one_time_limit_and_is_asked_later(machine):
    adopt(machine, container(machine)())
    adopt(machine, [second(machine)])
    machine.calls.clear()
    machine.silent = True
    assert unbind(machine).failed and len([call for call in machine.calls if call.startswith("docker")]) == 1
    left = adopt(machine, [], PLANS_WITHOUT["left out"])
    assert machine.cpus(200) == "4-7" and "did not answer within 30 s" in left.warnings[0]
    machine.silent = False
    adopt(machine, [], PLANS_WITHOUT["left out"])
    assert machine.cpus(200) == "0-7" and not machine.exists(previous.PATH)


STORED = {"/var/lib/docker/containers/%s/config.v2.json" % ID: "{}"}
GONE = {
    "removed, and its engine, too": (True, {}, []),
    "stopped, in the store of an engine that knows others": (True, STORED, ["another daemon"]),
    "running, and the engine talks to another daemon": (False, {}, ["another daemon"]),
}


@pytest.mark.parametrize("ended, files, failed", GONE.values(), ids=GONE)
def test_a_container_is_gone_if_its_group_and_its_store_say_so(machine, ended, files, failed):
    adopt(machine, container(machine)())
    machine.engines.clear()
    machine.lay(files)
    if ended:
        machine.end(DOCKER)
    machine.silent = not failed
    machine.process(320, SESSION)
    adopt(machine, [user(machine, SESSION, 0, pids=[320])])
    assert ("docker:" + ID in previous.recorded(machine)[SECTION]) == bool(failed)
    report = unbind(machine)
    assert [part for part in failed if part not in " ".join(report.failed)] == [] and bool(report.failed) == bool(failed)


def test_children_of_adopted_processes_get_their_cpus_back(machine):
    machine.process(300, SESSION)
    adopt(machine, [user(machine, SESSION, 1)])
    machine.process(400, "/elsewhere.slice/daemon.scope", ("4-7",))
    machine.put("/proc/400/stat", "400 (worker) S 300 " + " ".join(["0"] * 17 + ["1"]))
    machine.process(410, SESSION, ("4-7", "5"))
    machine.process(420, "/elsewhere.slice/other.scope", ("4-7",))
    machine.process(430, "/elsewhere.slice/other.scope", ("4-6",))
    off = switched_off(machine)
    assert [machine.cpus(tid) for tid in (300, 400, 410, 411, 420, 430)] == ["0-7", "0-7", "0-7", "5", "4-7", "4-6"]
    off.undo()
    assert [machine.cpus(tid) for tid in (300, 400, 410)] == ["4-7"] * 3
    assert any("processes 420 (worker) have the CPUs that adopted work was given" in text for text in warnings(unbind(machine)))


def test_a_number_that_another_process_has_now_is_not_touched(machine):
    machine.process(300, SESSION)
    found = user(machine, SESSION, 1)
    machine.process(300, SESSION, start=9)
    adopt(machine, [found])
    assert machine.cpus(300) == "0-7" and not machine.exists(previous.PATH)
    adopt(machine, [dict(found, processes=[dict(found["processes"][0], start=9)])])
    assert machine.cpus(300) == "4-7"
    machine.process(300, SESSION, ("3",), start=10)
    report = unbind(machine)
    assert (machine.cpus(300), report.failed, warnings(report)) == ("3", [], [])


def test_masks_that_systemd_handed_down_are_widened_and_restored(machine):
    machine.put("/etc/systemd/system.conf", "[Manager]\nCPUAffinity=0-5\n")
    machine.process(100, SERVICE, ("0-5", "5"))
    machine.process(300, SESSION, ("0-5", "4"))
    before = all_cpus(machine)
    for _run in range(2):
        found = adopt(machine, [user(machine, SERVICE, 1), user(machine, SESSION, 1)])
        assert all_cpus(machine) == {100: "4-7", 101: "5", 300: "4-7", 301: "4"}
    assert not found.changed and not unbind(machine).failed and all_cpus(machine) == before


def test_a_file_of_somebody_else_in_our_place_is_restored(machine):
    found, path = service(machine), DROP_IN
    machine.put(path, "[Service]\nNice=5\n")
    adopt(machine, found())
    assert drop_in(machine) == {"cpus": "4-7"}
    adopt(machine, found(), plan_of("0-1", "4-5")).undo()
    assert drop_in(machine) == {"cpus": "4-7"}
    assert not unbind(machine).failed and machine.read(path) == "[Service]\nNice=5"


def test_groups_that_are_nested_deeply_blind_nobody(tmp_path, monkeypatch):
    """They are as deep as functions may call each other, which are fewer calls here than 1000: a kernel's path takes its time."""
    machine, levels = working(tmp_path, monkeypatch, True), 250
    found = service(machine)
    deep = CGROUPS + SERVICE + "/a" * levels
    os.makedirs(machine.root + deep)
    for level in range(levels + 1):
        with open(machine.root + deep[: len(deep) - 2 * level] + "/cgroup.procs", "a"):
            pass
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + levels - 10)
        assert states(adopt(machine, found())) == {"outside.service": "adopted"}
        assert machine.exists(deep + "/cgroup.procs") and not unbind(machine).failed
    finally:
        sys.setrecursionlimit(limit)


UNREADABLE = [("/proc/300/stat", "/proc/300/stat cannot be read (Input/output error)"), ("/proc/300/task/300/status", "of process 300")]


@pytest.mark.parametrize("wrong, said", UNREADABLE)
def test_what_cannot_be_read_while_it_is_given_back_is_not_done(machine, monkeypatch, wrong, said):
    machine.process(300, SESSION)
    adopt(machine, [user(machine, SESSION, 1)])
    content = type(machine).content

    def failing(host, path):
        if path == wrong:
            raise Unreadable("%s cannot be read (Input/output error): remove or repair it" % path)
        return content(host, path)

    with monkeypatch.context() as patch:
        patch.setattr(type(machine), "content", failing)
        report = unbind(machine)
    assert said in " ".join(report.failed) and machine.exists(previous.PATH)
    assert not unbind(machine).failed and machine.cpus(300) == "0-7"


NAMED = {"live": {"slices": {"services": [{"name": "outside.service", "settings": {"Slice": "npu-0.slice", "CPUAffinity": "0-7"}}]}}}
NAMED["expected"] = [{"unit": "npu-0.slice", "cpus": "0-1", "mems": ""}]


def test_a_service_named_for_another_npu_loses_its_drop_in(machine):
    found = service(machine)
    adopt(machine, found())
    predicted = Adoption(machine, PLAN, found(), state=NAMED)
    assert "npu_affinity_services gives it CPUs 0-1 at its next start; restart it" in predicted.targets[0].sentence
    assert predicted.lines()[diffs.WORK] == ["~ outside.service: CPUs 4-7 -> all"]
    predicted.run()
    assert not machine.exists(DROP_IN) and not machine.exists(previous.PATH)
    machine.put("/etc/systemd/system/npu-0.slice", "[Slice]\nAllowedCPUs=0-1\n")
    text = "# Managed by npu.affinity: changes are overwritten.\n[Service]\nSlice=npu-0.slice\nCPUAffinity=\nCPUAffinity=0-7\n"
    machine.put(UNIT + ".d/50-npu-affinity.conf", text)
    assert states(adopt(machine, found())) == {"outside.service": "refused"}
    assert not machine.exists(DROP_IN)


CPUS = st.sets(st.integers(0, 7), min_size=1).map(compress)
THREADS = st.lists(st.none() | CPUS, min_size=1, max_size=3)
WORK = st.fixed_dictionaries(dict.fromkeys((SERVICE, DOCKER, SESSION), THREADS))
PLANS = st.lists(st.tuples(CPUS, CPUS), min_size=1, max_size=3)


@settings(max_examples=9, deadline=None)
@given(work=WORK, pools=PLANS, keeps=st.booleans(), around=CPUS, own=st.just("") | CPUS)
def test_any_work_is_inside_its_pool_or_as_it_was(work, pools, keeps, around, own):
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as monkeypatch:
        machine = working(root, monkeypatch, keeps)
        machine.engines = {ID: own}
        machine.confine("/system.slice", around)
        for pid, (group, threads) in zip((100, 200, 300), work.items()):
            machine.process(pid, group, threads)
        if own:
            machine.confine(DOCKER, own)
        before = all_cpus(machine)
        for pair in pools:
            now = all_cpus(machine)
            found = [user(machine, SERVICE, 0), user(machine, DOCKER, 1), user(machine, SESSION, 0, 1)]
            adopted = adopt(machine, found, plan_of(*pair))
            after = all_cpus(machine)
            for target in adopted.targets:
                tids = [tid for tid, (pid, _group) in machine.groups.items() if pid in target.pids(machine)]
                if target.state in ("refused", "failed"):
                    assert {tid: after[tid] for tid in tids} == {tid: now[tid] for tid in tids}
                else:
                    assert all(set(expand(after[tid])) <= target.wanted for tid in tids)
            found = [user(machine, SERVICE, 0), user(machine, DOCKER, 1), user(machine, SESSION, 0, 1)]
            assert not adopt(machine, found, plan_of(*pair)).work.adopted
        report = unbind(machine)
        assert not report.failed and not warnings(report)
        assert all_cpus(machine) == before and not machine.exists(previous.PATH)
