# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running work gets the CPUs of its NPUs, and what it had before, on modelled kernels that keep or forget what threads asked for."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._command import explaining
from ansible_collections.npu.affinity.plugins.module_utils._command.known import known
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import services, step
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.places import SECTION
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.record import CONTAINER, check, kind_of
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._host.host import CommandError, Host, Unreadable
from ansible_collections.npu.affinity.plugins.module_utils._kernel import interrupts
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device, with_lost
from ansible_collections.npu.affinity.plugins.module_utils._state import plan_file, previous
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._users import finding
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Killed, Steps
from tests.fakes.work import (
    Adoption,
    CGROUPS,
    DOCKER,
    ID,
    PLAN,
    PODMAN,
    SERVICE,
    SESSION,
    SYSTEMD,
    adopt,
    all_cpus,
    container,
    everything,
    plan_of,
    switched_off,
    user,
    warnings,
    working,
)


@pytest.fixture(params=[True, False], ids=["keeps", "forgets"])
def machine(request, tmp_path, monkeypatch):
    return working(tmp_path, monkeypatch, request.param)


def states(adoption):
    return {target.user["name"]: target.state for target in adoption.targets}


def test_each_kind_of_work_is_adopted_once_and_restored(machine):
    found = everything(machine)
    before = all_cpus(machine)
    assert set(states(adopt(machine, found())).values()) == {"adopted"}
    assert [machine.cpus(tid) for tid in (100, 101, 102, 103)] == ["4-7", "4-7", "5", "5" if machine.keeps else "4-7"]
    assert [machine.cpus(tid) for tid in (200, 201, 300, 301, 302, 310)] == ["4-7", "6", "0-1", "0-1", "0-1", "0-7"]
    assert machine.engines == {ID: "4-7"}
    assert machine.read(services.drop_in("outside.service")).endswith(
        "[Service]\nAllowedCPUs=\nAllowedCPUs=4-7\nCPUAffinity=\nCPUAffinity=0-7"
    )
    assert not machine.exists("/run/systemd/system.control")
    assert "restart" not in " ".join(machine.calls)
    machine.calls.clear()
    record = machine.read(previous.PATH)
    again = adopt(machine, found())
    assert (again.changed, set(states(again).values()), machine.calls) == (False, {"inside"}, [])
    assert machine.read(previous.PATH) == record
    predicted, report = unbind(machine, check=True), unbind(machine)
    assert (report.changed, report.failed, warnings(report)) == (True, [], [])
    assert predicted.restart_needed == report.restart_needed == []
    rows = report.releases["adopt"].lines()[diffs.WORK]
    assert rows == predicted.releases["adopt"].lines()[diffs.WORK] and len(rows) == 3
    assert (all_cpus(machine), machine.engines) == (before, {ID: "0-7"})
    assert not machine.exists(os.path.dirname(services.drop_in("outside.service"))) and not machine.exists(previous.PATH)


def test_a_container_that_has_opened_nothing_is_adopted_once(machine):
    container(machine)

    def idle():
        return user(machine, DOCKER, 1, witness="allowed", pids=[], cpus="")

    assert states(adopt(machine, [idle()])) == {"llm": "adopted"}
    assert machine.cpus(200) == "4-7"
    again = Adoption(machine, PLAN, [idle()], {})
    assert (again.changed, states(again), compress(again.targets[0].before)) == (False, {"llm": "inside"}, "4-7")


def test_processes_without_devices_are_judged_with_their_service(machine):
    machine.process(100, SERVICE, ("4-7",))
    machine.process(110, SERVICE)
    assert states(adopt(machine, [user(machine, SERVICE, 1, pids=[100])])) == {"outside.service": "adopted"}
    assert machine.cpus(110) == "4-7"
    assert not Adoption(machine, PLAN, [user(machine, SERVICE, 1, pids=[100])], {}).changed


def test_a_group_that_grants_more_than_it_was_given_is_reported(machine, monkeypatch):
    found, run = container(machine), machine.run

    def bind_itself(argv, *rest):
        result = run(argv, *rest)
        if argv[:2] == ["docker", "update"]:
            machine.confine(DOCKER, "0-7")
            machine.set_affinity(200, {6})
        return result

    monkeypatch.setattr(machine, "run", bind_itself)
    adopted = adopt(machine, found())
    assert states(adopted) == {"llm": "failed"}
    assert "it was given CPUs 4-7, and its control group grants 0-7" in adopted.targets[0].sentence
    assert not machine.exists(previous.PATH)


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
WRITTEN = "[Service]\nAllowedCPUs=\nAllowedCPUs=4-7\nCPUAffinity=\nCPUAffinity=0-7"


@pytest.mark.parametrize("files, warning", OWN_CPUS)
def test_an_affinity_outside_the_pool_does_not_stop_next_start(machine, monkeypatch, files, warning):
    machine.process(100, SERVICE)
    for path, line in files.items():
        machine.put(path, "[Service]\n%s\n" % line)
    for _run in range(2):
        adopting, _predicted, _changed = bind_again(machine, monkeypatch, PLAN, lambda host: [user(host, SERVICE, 1)])
        assert machine.read(services.drop_in("outside.service")).endswith(WRITTEN)
        assert len(adopting.warnings) == bool(warning) and warning in "".join(adopting.warnings)
        assert services.said(machine, "outside.service") == {"cpus": "4-7"}
    assert not adopting.changed
    assert not unbind(machine).failed and not machine.exists(services.drop_in("outside.service"))


def test_a_thread_that_has_left_keeps_its_cpus_alone(machine):
    machine.process(300, SESSION, (None, None, None))
    adopt(machine, [user(machine, SESSION, 1)])
    machine.set_affinity(302, {0})
    report = unbind(machine)
    assert all_cpus(machine) == {300: "0-7", 301: "0-7", 302: "0"}
    title = "thread 302 of process 300 of session-1.scope (NPU 1) was given other CPUs than 4-7 by someone else"
    assert len(warnings(report)) == 1 and warnings(report)[0].startswith(title)


def test_a_drop_in_that_was_removed_or_edited_is_written_again(machine):
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    path = services.drop_in("outside.service")
    written = machine.read(path)
    assert not Adoption(machine, PLAN, [user(machine, SERVICE, 1)], {}).changed
    for text in (None, written.replace("4-7", "0-7")):
        machine.put(path, text) if text else os.unlink(machine.path(path))
        adopting = Adoption(machine, PLAN, [user(machine, SERVICE, 1)], {})
        assert adopting.lines()[diffs.WORK] == ["~ outside.service: CPUs 4-7 at its next start"]
        adopting.run()
        assert machine.read(path) == written and machine.cpus(100) == "4-7"
        adopting.undo()
        assert machine.read(path) == (text.rstrip("\n") if text else None), "and back"
        adopt(machine, [user(machine, SERVICE, 1)])
    machine.put(path, "[Service]\nAllowedCPUs=0-3\n")
    assert not Adoption(machine, PLAN, [user(machine, SERVICE, 1)], {}).changed, "somebody else's file"


def test_a_service_without_its_drop_in_gets_its_cpus_back(machine):
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    os.unlink(machine.path(services.drop_in("outside.service")))
    machine.do_daemon_reload([])
    report = unbind(machine)
    assert (machine.cpus(100), warnings(report), report.failed) == ("0-7", [], [])


def test_a_container_of_a_service_that_fails_is_not_recorded(machine, monkeypatch):
    machine.process(100, SERVICE)
    monkeypatch.setattr(machine, "confine", lambda group, cpus: None)
    adopt(machine, [user(machine, SERVICE, 1, container=ID, engine="podman", kind="container")])
    assert not machine.exists(services.drop_in("outside.service")) and not machine.exists(previous.PATH)


def test_the_command_explains_adopted_work(machine):
    adopt(machine, everything(machine)())
    machine.put(plan_file.PATH, json.dumps(dict(PLAN, schema=1)))
    ways = {100: "by " + services.drop_in("outside.service"), 200: "by docker update", 300: "by the affinity of its threads"}
    for pid, way in ways.items():
        told = dict(explaining.of_process(known(machine, private=False), pid))
        cpus = "0-1" if pid == 300 else "4-7"
        assert told["adopted"] == "CPUs %s %s; an unbind gives back what it had" % (cpus, way) and "slice" not in told


def test_undone_runs_leave_what_was_there_before_them(machine):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found()).undo()
    assert (all_cpus(machine), machine.engines) == (before, {ID: "0-7"})
    assert not machine.exists(services.drop_in("outside.service"))
    adopt(machine, found())
    adopted, record = all_cpus(machine), machine.read(previous.PATH)
    off = switched_off(machine)
    assert machine.cpus(100) == "0-7"
    off.undo()
    assert (all_cpus(machine), machine.engines, machine.read(previous.PATH)) == (adopted, {ID: "4-7"}, record)
    assert services.said(machine, "outside.service") == {"cpus": "4-7"}


@pytest.mark.parametrize("pools", [("2-3", "5-6"), ("0-3", "3-7")], ids=["other pools", "pools that grow"])
def test_adopted_work_follows_a_plan_and_keeps_its_first_state(machine, pools):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found())
    adopted = all_cpus(machine)
    second = adopt(machine, found(), plan_of(*pools))
    assert set(states(second).values()) == {"adopted"}
    assert (machine.cpus(300), machine.cpus(100), machine.cpus(200)) == (*pools, pools[1])
    assert (machine.cpus(102), machine.cpus(201), machine.engines) == ("5", "6", {ID: pools[1]})
    assert services.said(machine, "outside.service") == {"cpus": pools[1]}
    assert not adopt(machine, found(), plan_of(*pools)).changed
    second.undo()
    assert all_cpus(machine) == adopted
    adopt(machine, found(), plan_of(*pools))
    assert not unbind(machine).failed
    assert all_cpus(machine) == before


IDLE = [
    pytest.param((1,), [], id="held one NPU"),
    pytest.param((0, 1), [], id="held one that left the plan, too"),
    pytest.param((1,), [CGROUPS + "/cgroup.controllers"], id="cgroup v1"),
]


@pytest.mark.parametrize("npus, removed", IDLE)
def test_a_service_that_holds_no_npu_now_follows_a_new_plan(machine, npus, removed):
    for path in removed:
        os.unlink(machine.path(path))
    machine.put(CGROUPS + "/systemd" + SERVICE + "/cgroup.procs", "100\n")
    machine.process(100, SERVICE, (None, "6"))
    before = all_cpus(machine)
    adopt(machine, [user(machine, SERVICE, *npus)])
    other = {"npus": [dict(PLAN["npus"][1], pool="6-7")]}
    assert not Adoption(machine, PLAN, [], {}).changed
    predicted = Adoption(machine, other, [], {})
    assert predicted.targets[0].sentence.startswith("outside.service (NPU 1) runs on CPUs")
    moved = adopt(machine, [], other)
    assert (states(moved), machine.cpus(100), machine.cpus(101)) == ({"outside.service": "adopted"}, "6-7", "6")
    assert services.said(machine, "outside.service") == {"cpus": "6-7"}
    assert not adopt(machine, [], other).changed
    assert not unbind(machine).failed
    assert all_cpus(machine) == before


def test_a_service_that_starts_others_now_holds_nothing(machine):
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    machine.put(UNIT + ".d/90-site.conf", "[Service]\nKillMode=process\n")
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
    return adoption.changed, adoption.lines()[diffs.WORK], services.variables_said(machine, "outside.service")


def test_an_adopted_service_gets_variables_that_fit_its_pool(machine):
    machine.process(100, SERVICE, ("4-7",))
    assert variables(machine, [user(machine, SERVICE, 1)], FITTED) == (False, [], {}), "they alone adopt nothing"
    machine.process(100, SERVICE)
    found = [user(machine, SERVICE, 1)]
    before = "OMP_NUM_THREADS=4 OMP_PROC_BIND=false TASK_QUEUE_ENABLE=1"
    line = "~ outside.service (NPU 1): CPUs 0-7 -> 4-7, variables at its next start none -> " + before
    assert variables(machine, found, FITTED) == (True, [line], {**OPENMP, "TASK_QUEUE_ENABLE": "1"})
    why = "# 4 CPUs of the pool for 1 process; a process would start 4 threads (OpenMP specification)."
    assert "\n%s\nEnvironment=OMP_NUM_THREADS=4\n" % why in machine.read(services.drop_in("outside.service"))
    assert machine.cpus(100) == "4-7"

    found = [user(machine, SERVICE, 1)]
    assert variables(machine, found, FITTED)[0] is False
    line = f"~ outside.service (NPU 1): variables at its next start {before} -> OMP_NUM_THREADS=4 OMP_PROC_BIND=false"
    assert variables(machine, found, {"environment": {"openmp": True}}) == (True, [line], OPENMP)
    assert variables(machine, found, {})[::2] == (True, {})
    assert variables(machine, found, {})[0] is False
    assert not unbind(machine).failed
    assert not machine.exists(services.drop_in("outside.service"))


def test_a_variable_of_another_file_stays(machine):
    machine.process(100, SERVICE)
    machine.put("/etc/systemd/system/outside.service.d/10-own.conf", "[Service]\nEnvironment=OMP_NUM_THREADS=2\n")
    found = [user(machine, SERVICE, 1)]
    for wanted, said in ((FITTED, True), ({}, False)):
        adopting = Adoption(machine, PLAN, [user(machine, SERVICE, 1)], (), wanted)
        assert adopting.remarks == KEPT * said
    assert variables(machine, found, FITTED)[2] == {"OMP_PROC_BIND": "false", "TASK_QUEUE_ENABLE": "1"}
    adopting = Adoption(machine, PLAN, [user(machine, SERVICE, 1)], (), FITTED)
    assert adopting.remarks == KEPT and not adopting.changed, "until the file is gone"
    os.unlink(machine.path("/etc/systemd/system/outside.service.d/10-own.conf"))
    assert variables(machine, [user(machine, SERVICE, 1)], FITTED)[2] == {**OPENMP, "TASK_QUEUE_ENABLE": "1"}


def test_a_stopped_service_gets_the_new_plan_at_its_next_start(machine):
    variables(machine, everything(machine)(), FITTED)
    machine.running.discard("outside.service")
    machine.states["outside.service"] = ""
    other = plan_of("0-1", "6-7")
    line = "~ outside.service: CPUs 6-7 at its next start"
    assert variables(machine, [], FITTED, other) == (True, [line], {**OPENMP, "OMP_NUM_THREADS": "2", "TASK_QUEUE_ENABLE": "1"})
    assert services.said(machine, "outside.service") == {"cpus": "6-7"}
    machine.calls.clear()
    assert not Adoption(machine, other, [], {}, FITTED).changed
    assert len([call for call in machine.calls if "ControlGroup" in call]) == 1, "one call for all services that are up to date"


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"kind": "pod"}, "kubelet"),
        ({"witness": "allowed", "npus": [{"kind": "npu", "id": 0}, {"kind": "npu", "id": 1}]}, "may open several devices"),
        ({"unassigned": ["davinci0"]}, "it also holds /dev/davinci0, which the plan does not have"),
    ],
)
def test_work_that_is_only_reported(machine, values, wrong):
    machine.process(100, SERVICE)
    found = adopt(machine, [user(machine, SERVICE, 1, **values)])
    assert states(found) == {"outside.service": "refused"}
    assert wrong in found.targets[0].sentence and "outside its pool" in found.targets[0].sentence
    assert machine.cpus(100) == "0-7" and not machine.exists(previous.PATH)


@pytest.mark.parametrize("file", ["/dev/vdavinci116", "/dev/davinci117"], ids=["on the host", "in a container"])
def test_work_on_a_hard_vnpu_gets_the_cpus_of_its_npu(machine, file):
    machine.process(100, SERVICE)
    os.makedirs(machine.path("/proc/100/fd"))
    os.symlink(file, machine.path("/proc/100/fd/40"))
    found = adopt(machine, finding.users(Host(machine.root), PLAN["npus"]))
    assert states(found) == {"outside.service": "adopted"}
    assert machine.cpus(100) == "4-7"


def test_a_slice_that_withholds_cpusets_is_named_first(machine):
    path = "/etc/systemd/system/system.slice.d/10-site.conf"
    machine.put(path, "[Slice]\nDisableControllers=cpu cpuset\n")
    machine.process(100, SERVICE)
    found = adopt(machine, [user(machine, SERVICE, 1)])
    assert states(found) == {"outside.service": "refused"} and path + " says DisableControllers=cpu cpuset" in found.targets[0].sentence
    assert not machine.exists(services.drop_in("outside.service"))


def test_a_parent_that_denies_the_pool_is_named_with_a_remedy(machine):
    machine.confine("/system.slice", "0-3")
    machine.process(100, SERVICE)
    found = adopt(machine, [user(machine, SERVICE, 1), *container(machine)()])
    assert set(states(found).values()) == {"refused"}
    sentences = [target.sentence for target in found.targets]
    assert "grants CPUs 0-3 only; add {unit: outside.service, npus: [1]} to npu_affinity_services, bind" in sentences[0]
    assert "--cgroup-parent=npu-1.slice" in sentences[1]
    assert (machine.cpus(100), machine.engines) == ("0-3", {ID: ""})


@pytest.mark.parametrize(
    ("group", "way"),
    [
        ("/system.slice/outside.service", "npus: [1]} to npu_affinity_services, bind and restart it"),
        ("/user.slice/user-0.slice/user@0.service", "a rootless container cannot start in such a slice"),
    ],
    ids=["Quadlet", "rootless"],
)
def test_a_container_without_system_scope_gets_no_parent_hint(machine, group, way):
    machine.confine(os.path.dirname(group), "0-3")
    machine.process(200, group)
    found = adopt(machine, [user(machine, group, 1, kind="container", engine="podman", container=ID)])
    assert way in found.targets[0].sentence and "--cgroup-parent" not in found.targets[0].sentence


@pytest.mark.parametrize(
    ("group", "sets", "state"),
    [
        (SERVICE, {"system.slice": {0, 1, 2, 3}}, "refused"),
        ("/npu.slice/npu-1.slice/worker.service", {"npu-1.slice": {4, 5, 6, 7}}, "inside"),
    ],
    ids=["narrows", "gives the pool"],
)
def test_a_slice_counts_with_the_set_that_this_bind_gives_it(machine, group, sets, state):
    machine.process(100, group)
    assert list(states(Adoption(machine, PLAN, [user(machine, group, 1, kind="service")], sets)).values()) == [state]


@pytest.mark.parametrize(
    ("group", "values"),
    [
        ("/user.slice/user-0.slice/user@0.service", {"kind": "session"}),
        ("/user.slice/user-0.slice/user@0.service", {"kind": "container", "engine": "podman", "container": ID}),
    ],
)
def test_of_a_users_manager_only_what_holds_npus_is_confined(machine, group, values):
    machine.process(300, group)
    machine.process(310, group)
    assert set(states(adopt(machine, [user(machine, group, 1, pids=[300], **values)])).values()) == {"adopted"}
    assert (machine.cpus(300), machine.cpus(310)) == ("4-7", "0-7")
    assert not machine.exists(services.drop_in("user@0.service"))


def test_a_transient_service_is_confined_and_leaves_no_drop_in(machine):
    machine.put("/run/systemd/transient/run-1.service", "[Service]\n")
    group = "/system.slice/run-1.service"
    machine.process(300, group)
    machine.process(310, group)
    adopt(machine, [user(machine, group, 1, pids=[300], kind="service")])
    assert (machine.cpus(300), machine.cpus(310)) == ("4-7", "4-7")
    assert not machine.exists(services.drop_in("run-1.service"))
    assert not unbind(machine).failed
    assert (machine.cpus(300), machine.cpus(310)) == ("0-7", "0-7")


def test_what_a_killed_run_gave_a_service_at_once_is_no_override(machine):
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    machine.run(["systemctl", "set-property", "--runtime", "outside.service", "AllowedCPUs=4-7"])
    assert states(adopt(machine, [user(machine, SERVICE, 1)], plan_of("0-1", "4-6"))) == {"outside.service": "adopted"}
    assert machine.cpus(100) == "4-6" and not machine.exists("/run/systemd/system.control")
    machine.run(["systemctl", "set-property", "--runtime", "outside.service", "AllowedCPUs=0-7"])
    assert not unbind(machine).failed
    assert machine.cpus(100) == "0-7" and not machine.exists("/run/systemd/system.control")


def test_a_container_is_restored_if_its_engine_skips_subgroups(machine):
    machine.writes_down = False
    found = container(machine, PODMAN, threads=(None, "6"))
    before = all_cpus(machine)
    adopt(machine, found())
    assert (machine.cpus(200), machine.engines) == ("4-7", {ID: ""})
    off = switched_off(machine)
    assert all_cpus(machine) == before
    off.undo()
    assert machine.cpus(200) == "4-7"
    machine.confine(PODMAN, "0-7")  # as a restart does
    machine.calls.clear()
    assert not unbind(machine).failed
    assert all_cpus(machine) == before and not any("update" in call for call in machine.calls)


def test_a_failing_engine_keeps_the_record_of_the_first_adoption(machine):
    found = container(machine)
    adopt(machine, found())
    machine.deaf = True
    assert states(adopt(machine, found(), plan_of("0-1", "4-5"))) == {"llm": "failed"}
    machine.deaf = False
    report = unbind(machine)
    assert not report.failed and not warnings(report) and machine.cpus(200) == "0-7"


def test_a_container_with_a_set_of_its_own_is_left_alone(machine):
    found = container(machine, own="2-5")
    machine.confine(DOCKER, "2-5")
    assert "given CPUs 2-5 when it was created" in adopt(machine, found()).targets[0].sentence
    assert machine.cpus(200) == "2-5"


def test_a_container_that_requested_all_cpus_gets_its_set_back(machine):
    adopt(machine, container(machine, PODMAN, own="0-7")())
    assert machine.cpus(200) == "4-7"
    assert not unbind(machine).failed
    assert (machine.cpus(200), machine.engines) == ("0-7", {ID: "0-7"})


def test_an_ineffective_engine_is_reported_and_forgotten(machine):
    machine.deaf = True
    found = adopt(machine, container(machine)())
    assert states(found) == {"llm": "failed"}
    assert "it was given CPUs 4-7, and runs on 0-7" in found.targets[0].sentence
    assert not machine.exists(previous.PATH)


def test_processes_of_a_session_get_the_pools_of_their_own_npus(machine, monkeypatch):
    owners = {"davinci0": Device("npu", 0, ""), "davinci1": Device("npu", 1, "")}
    monkeypatch.setattr(finding, "owners", lambda host, npus: owners)
    machine.process(300, SESSION)
    machine.process(310, SESSION)
    found = user(machine, SESSION, 0, 1)
    for process, device in zip(found["processes"], owners):
        process["devices"] = [device]
    adopted = adopt(machine, [found])
    assert (machine.cpus(300), machine.cpus(310)) == ("0-1", "4-7")
    assert [target.title for target in adopted.targets] == ["session-1.scope (NPU 0)", "session-1.scope (NPU 1)"]
    assert not unbind(machine).failed
    assert (machine.cpus(300), machine.cpus(310)) == ("0-7", "0-7")


def test_unbind_leaves_what_somebody_else_has_set_since(machine):
    found = everything(machine)
    adopt(machine, found())
    machine.engines[ID] = "1-3"
    machine.confine(DOCKER, "1-3")
    machine.run(["systemctl", "set-property", "--runtime", "outside.service", "AllowedCPUs=2-3"])
    machine.set_affinity(300, {7})
    report = unbind(machine)
    assert len([text for text in warnings(report) if "by someone else since it was adopted" in text]) == 3
    assert (machine.cpus(100), machine.cpus(200), machine.cpus(300)) == ("2-3", "1-3", "7")
    assert not report.failed and not machine.exists(services.drop_in("outside.service"))


def test_what_has_ended_needs_nothing(machine):
    adopt(machine, everything(machine)())
    machine.engines.clear()
    machine.end(DOCKER)
    machine.process(300, SESSION, ("3",), start=2)
    report = unbind(machine)
    assert not report.failed and not warnings(report)
    assert machine.cpus(300) == "3"


def containers(machine):
    return [key for key in previous.recorded(machine)[SECTION] if kind_of(key) == CONTAINER]


def test_containers_that_were_removed_are_forgotten(machine):
    adopt(machine, everything(machine)())
    machine.engines.clear()
    machine.end(DOCKER)
    machine.process(320, SESSION)
    adopt(machine, [user(machine, SESSION, 0, pids=[320])])
    assert not containers(machine)


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


@pytest.mark.parametrize(
    "files",
    [
        {SYSTEMD % 252: ""},
        {SYSTEMD % 243: "", CGROUPS + "/cgroup.controllers": "cpuset cpu"},
        {SYSTEMD % 252: "", CGROUPS + "/cgroup.controllers": "cpu io memory pids"},
    ],
    ids=["cgroup v1", "an old systemd", "no cpuset controller"],
)
def test_where_systemd_cannot_set_cpus_services_get_masks(machine, files):
    for path in (SYSTEMD % 252, CGROUPS + "/cgroup.controllers"):
        os.unlink(machine.path(path))
    for path, text in {**files, CGROUPS + "/systemd" + SERVICE + "/cgroup.procs": "100\n"}.items():
        machine.put(path, text)
    machine.process(100, SERVICE, (None, "6"))
    before = all_cpus(machine)
    found = adopt(machine, [user(machine, SERVICE, 1)])
    assert states(found) == {"outside.service": "adopted"}, [target.sentence for target in found.targets]
    assert (machine.cpus(100), machine.cpus(101)) == ("4-7", "6")
    assert machine.read(services.drop_in("outside.service")).endswith("CPUAffinity=\nCPUAffinity=4-7")
    assert not any(call.startswith("set-property") for call in machine.calls)
    assert not unbind(machine).failed
    assert all_cpus(machine) == before and not machine.exists(services.drop_in("outside.service"))


def test_on_cgroup_v1_a_service_that_was_restarted_is_widened(machine):
    os.unlink(machine.path(CGROUPS + "/cgroup.controllers"))
    procs = CGROUPS + "/systemd" + SERVICE + "/cgroup.procs"
    machine.put(procs, "100\n")
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    machine.process(400, SERVICE, ("4-7", "6"))
    machine.put(procs, "400\n")
    machine.put("/proc/100/stat", "")
    off = switched_off(machine)
    assert (machine.cpus(400), machine.cpus(401)) == ("0-7", "6")
    off.undo()
    assert (machine.cpus(400), machine.cpus(401)) == ("4-7", "6")
    assert not unbind(machine).failed
    assert (machine.cpus(400), machine.cpus(401)) == ("0-7", "6")


def without_npu_1(machine):
    """Work as it is found with a plan that has NPU 0 only: the devices of others are nobody's."""
    return [
        user(machine, DOCKER, devices=["davinci1"]),
        user(machine, SERVICE, devices=["davinci1"]),
        user(machine, SESSION, 0, pids=[300]),
    ]


def bind_again(machine, monkeypatch, plan, found):
    """Apply a plan as a bind does: look, and in the transaction look again and run."""
    monkeypatch.setattr(step, "users", lambda host, npus: found(host))
    adopting = FEATURE.step(machine, {"plan": plan, "expected": [], "live": {"adopt": {"mode": "now"}}}, Choices())
    adopting.look(check=False)
    predicted, changed = adopting.lines(), adopting.changed
    adopting.run()
    adopting.finish()
    return adopting, predicted, changed


PLANS_WITHOUT = {"left out": {"npus": PLAN["npus"][:1]}, "released": {"npus": PLAN["npus"][:1], "lost": [{**PLAN["npus"][1], "pool": ""}]}}


@pytest.mark.parametrize("plan", PLANS_WITHOUT.values(), ids=PLANS_WITHOUT)
def test_work_whose_npus_left_the_plan_gets_its_cpus_back(machine, monkeypatch, plan):
    found = everything(machine)
    before = all_cpus(machine)
    adopt(machine, found())
    adopted, record = all_cpus(machine), machine.read(previous.PATH)
    adopting, predicted, changed = bind_again(machine, monkeypatch, plan, without_npu_1)
    assert {tid: cpus for tid, cpus in all_cpus(machine).items() if tid < 300} == {tid: before[tid] for tid in before if tid < 300}
    assert machine.cpus(300) == "0-1" and machine.engines == {ID: "0-7"} and not adopting.warnings
    assert not machine.exists(services.drop_in("outside.service"))
    assert changed and any("outside.service: CPUs 4-7 -> all" in line for lines in predicted.values() for line in lines)
    assert list(previous.recorded(machine)[SECTION]) == ["300:1:boot"]
    adopting.undo()
    assert all_cpus(machine) == adopted and services.said(machine, "outside.service") == {"cpus": "4-7"}
    assert machine.read(previous.PATH) == record
    bind_again(machine, monkeypatch, plan, without_npu_1)
    again, _predicted, changed = bind_again(machine, monkeypatch, plan, without_npu_1)
    assert not changed and not again.changed
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_work_of_a_lost_card_keeps_its_reserved_pool(machine, monkeypatch):
    found = everything(machine)
    adopt(machine, found())
    adopted = all_cpus(machine)
    lost = {"npus": PLAN["npus"][:1], "lost": PLAN["npus"][1:]}
    adopting, _predicted, changed = bind_again(machine, monkeypatch, lost, without_npu_1)
    assert not changed and all_cpus(machine) == adopted and not adopting.changed


@pytest.mark.parametrize("plan", [PLAN, {"npus": PLAN["npus"][:1], "lost": PLAN["npus"][1:]}], ids=["planned", "one lost"])
def test_processes_with_several_npus_get_the_union_of_pools(machine, plan):
    machine.process(100, SERVICE)
    assert states(adopt(machine, [user(machine, SERVICE, 0, 1)], plan)) == {"outside.service": "adopted"}
    assert machine.cpus(100) == "0-1,4-7"


def test_a_lost_npu_whose_number_is_reused_reserves_nothing():
    renumbered = {"npus": PLAN["npus"][:1], "lost": [{**PLAN["npus"][1], "id": 0}]}
    assert [npu["pool"] for npu in with_lost(renumbered)] == ["0-1"]


def test_a_service_that_moved_to_a_planned_npu_keeps_to_the_plan(machine, monkeypatch):
    found = everything(machine)
    adopt(machine, found())
    moved = [user(machine, SERVICE, 0)]
    bind_again(machine, monkeypatch, PLANS_WITHOUT["left out"], lambda host: moved)
    assert services.said(machine, "outside.service") == {"cpus": machine.cpus(100)} == {"cpus": "0-1"}


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


def first(machine):
    adopt(machine, machine.found())


def other_settings(machine):
    adopt(machine, machine.found(), wanted={"move_memory": True, **FITTED})


def other_pools(machine):
    adopt(machine, machine.found(), plan_of("0-1", "5-6"))


@pytest.mark.parametrize("version", ["v1", "v2", "podman that writes nothing down"])
@pytest.mark.parametrize(("earlier", "change"), [((), first), ((first,), other_pools), ((first,), other_settings), ((first,), unbind)])
@pytest.mark.parametrize("later", [None, other_pools], ids=["unbind", "bind"])
def test_a_change_that_is_killed_at_any_step_is_ours(tmp_path, monkeypatch, version, earlier, change, later):
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
    for last, machine in Steps(monkeypatch).endings(bound, Killed(), change, least=2):
        if later:
            later(machine)
            assert (machine.cpus(100), machine.cpus(200)) == ("5-6", "5-6"), last
        report = unbind(machine)
        assert (report.failed, warnings(report), all_cpus(machine)) == ([], [], before), last
        assert not machine.exists(previous.PATH) and not machine.exists(services.drop_in("outside.service")), last


@pytest.mark.parametrize("later", [None, other_pools], ids=["unbind", "bind"])
def test_a_change_that_is_refused_at_any_step_is_ours(tmp_path, monkeypatch, later):
    def bound(number):
        machine = working(tmp_path / str(number), monkeypatch, number % 2 == 0)
        machine.found = everything(machine)
        before.update(all_cpus(machine))
        adopt(machine, machine.found())
        return machine

    def change(machine):
        adoption = Adoption(machine, plan_of("2-3", "6-7"), machine.found(), {})
        try:
            adoption.run()
        except (CommandError, OSError, ValueError):
            adoption.undo()

    before = {}
    for last, machine in Steps(monkeypatch).endings(bound, CommandError("refused"), change):
        if later:
            later(machine)
            assert (machine.cpus(100), machine.cpus(200)) == ("5-6", "5-6"), last
        report = unbind(machine)
        assert (report.failed, warnings(report), all_cpus(machine)) == ([], [], before), last


def test_a_refusing_engine_costs_no_container_its_cpus(machine):
    """An engine refuses the change and its undoing; the container still has what the plan before gave it."""
    found = container(machine)
    adopt(machine, found())
    machine.refuses = True
    refused = adopt(machine, found(), plan_of("0-1", "4-5"))
    assert states(refused) == {"llm": "failed"} and "Cannot update container: busy" in refused.targets[0].sentence
    machine.refuses = False
    assert states(adopt(machine, found(), plan_of("0-1", "4-5"))) == {"llm": "adopted"} and machine.cpus(200) == "4-5"
    machine.refuses = True
    adopt(machine, found(), plan_of("0-1", "6-7"))
    machine.refuses = False
    report = unbind(machine)
    assert (report.failed, warnings(report), machine.cpus(200)) == ([], [], "0-7")


def test_an_engine_is_queried_once_and_may_print_warnings(machine):
    other = "f" * 64
    found = container(machine)()
    second = dict(user(machine, DOCKER, 1), group=DOCKER.replace(ID, other), container=other, name="second")
    machine.engines[other] = "0-7"
    Adoption(machine, PLAN, [*found, second], {})
    assert len([call for call in machine.calls if "inspect" in call]) == 1
    assert states(adopt(machine, found)) == {"llm": "adopted"}


def test_a_silent_engine_costs_one_time_limit(machine):
    adopt(machine, container(machine)())
    other = "f" * 64
    machine.engines[other] = ""
    adopt(machine, [dict(user(machine, DOCKER, 1), group="/system.slice/docker-%s.scope" % other, container=other)])
    machine.calls.clear()
    machine.silent = True
    report = unbind(machine)
    assert report.failed and len([call for call in machine.calls if call.startswith("docker")]) == 1
    machine.silent = False
    assert not unbind(machine).failed and machine.cpus(200) == "0-7"


def test_a_container_of_a_silent_engine_is_given_back_later(machine):
    found = container(machine)
    adopt(machine, found())
    machine.silent = True
    left = adopt(machine, [], PLANS_WITHOUT["left out"])
    assert machine.cpus(200) == "4-7" and "did not answer within 30 s" in left.warnings[0]
    machine.silent = False
    adopt(machine, [], PLANS_WITHOUT["left out"])
    assert machine.cpus(200) == "0-7" and not machine.exists(previous.PATH)


GONE = {
    "removed, and its engine, too": (True, {}, []),
    "stopped, in the store of an engine that knows others": (
        True,
        {"/var/lib/docker/containers/%s/config.v2.json" % ID: "{}"},
        ["another daemon"],
    ),
    "running, and the engine talks to another daemon": (False, {}, ["another daemon"]),
}


@pytest.mark.parametrize("ended, files, failed", GONE.values(), ids=GONE)
def test_a_container_is_gone_if_its_group_and_its_store_say_so(machine, ended, files, failed):
    adopt(machine, container(machine)())
    machine.engines.clear()
    for path, text in files.items():
        machine.put(path, text)
    if ended:
        machine.end(DOCKER)
    machine.silent = not failed
    machine.process(320, SESSION)
    adopt(machine, [user(machine, SESSION, 0, pids=[320])])
    assert bool(containers(machine)) == bool(failed)
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


def test_masks_that_systemd_handed_down_are_widened_and_restored(machine):
    machine.put("/etc/systemd/system.conf", "[Manager]\nCPUAffinity=0-5\n")
    machine.process(100, SERVICE, ("0-5", "5"))
    machine.process(300, SESSION, ("0-5", "4"))
    before = all_cpus(machine)
    for _run in range(2):
        found = adopt(machine, [user(machine, SERVICE, 1), user(machine, SESSION, 1)])
        assert [machine.cpus(tid) for tid in (100, 101, 300, 301)] == ["4-7", "5", "4-7", "4"]
    assert not found.changed
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_a_file_of_somebody_else_in_our_place_is_restored(machine):
    machine.process(100, SERVICE)
    path = services.drop_in("outside.service")
    machine.put(path, "[Service]\nNice=5\n")
    adopt(machine, [user(machine, SERVICE, 1)])
    assert services.said(machine, "outside.service") == {"cpus": "4-7"}
    adopt(machine, [user(machine, SERVICE, 1)], plan_of("0-1", "4-5")).undo()
    assert services.said(machine, "outside.service") == {"cpus": "4-7"}
    assert not unbind(machine).failed and machine.read(path) == "[Service]\nNice=5"


def test_a_group_with_pods_is_left_to_the_kubelet(machine):
    found = container(machine)
    machine.put(CGROUPS + DOCKER + "/kubelet.slice/kubelet-kubepods.slice/cgroup.procs", "")
    machine.put(CGROUPS + DOCKER + "/kubelet.slice/cgroup.procs", "")
    refused = adopt(machine, found())
    assert states(refused) == {"llm": "refused"} and "pods run in it" in refused.targets[0].sentence
    assert machine.cpus(200) == "0-7" and not any("update" in call for call in machine.calls)


def test_groups_that_are_nested_deeply_blind_nobody(machine):
    machine.process(100, SERVICE)
    deep = CGROUPS + SERVICE + "/a" * 1100
    os.makedirs(machine.root + CGROUPS + SERVICE, exist_ok=True)
    here = os.getcwd()
    try:
        os.chdir(machine.root + CGROUPS + SERVICE)
        for _level in range(1100):
            os.mkdir("a")
            os.chdir("a")
            with open("cgroup.procs", "w") as file:
                file.write("")
        assert states(adopt(machine, [user(machine, SERVICE, 1)])) == {"outside.service": "adopted"}
        assert machine.exists(deep + "/cgroup.procs") and not unbind(machine).failed
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-r", machine.root + CGROUPS + SERVICE], check=True)  # rmtree of Python 3.7 recurses


def test_a_group_of_another_namespace_is_only_reported(machine):
    machine.process(300, SESSION)
    found = adopt(machine, [dict(user(machine, SESSION, 1), group="/../other")])
    assert "its control group lies outside the root" in found.targets[0].sentence and not machine.exists(previous.PATH)


@pytest.mark.parametrize("name", ["\u00fc.service", "a b.service"])
def test_a_group_that_no_unit_can_be_is_adopted_by_its_processes(machine, name):
    group = "/system.slice/" + name
    machine.process(100, group)
    assert list(states(adopt(machine, [user(machine, group, 1, kind="service")])).values()) == ["adopted"]
    assert machine.cpus(100) == "4-7" and not machine.names("/etc/systemd/system", name + ".d")
    assert not unbind(machine).failed and machine.cpus(100) == "0-7"


def test_what_cannot_be_read_while_it_is_given_back_is_not_done(machine, monkeypatch):
    machine.process(300, SESSION)
    adopt(machine, [user(machine, SESSION, 1)])
    content = type(machine).content

    def failing(wrong):
        def fail(host, path):
            if path == wrong:
                raise Unreadable("%s cannot be read (Input/output error): remove or repair it" % path)
            return content(host, path)

        return fail

    stat = "/proc/300/stat"
    for path, said in ((stat, stat + " cannot be read (Input/output error)"), ("/proc/300/task/300/status", "of process 300")):
        with monkeypatch.context() as patch:
            patch.setattr(type(machine), "content", failing(path))
            report = unbind(machine)
        assert said in " ".join(report.failed) and machine.exists(previous.PATH)
    assert not unbind(machine).failed and machine.cpus(300) == "0-7"


NAMED = {"live": {"slices": {"services": [{"name": "outside.service", "settings": {"Slice": "npu-0.slice", "CPUAffinity": "0-7"}}]}}}
NAMED["expected"] = [{"unit": "npu-0.slice", "cpus": "0-1", "mems": ""}]


def test_a_service_named_for_another_npu_loses_its_drop_in(machine):
    machine.process(100, SERVICE)
    adopt(machine, [user(machine, SERVICE, 1)])
    predicted = Adoption(machine, PLAN, [user(machine, SERVICE, 1)], {}, state=NAMED)
    assert "npu_affinity_services gives it CPUs 0-1 at its next start; restart it" in predicted.targets[0].sentence
    assert predicted.lines()[diffs.WORK] == ["~ outside.service: CPUs 4-7 -> all"]
    predicted.run()
    assert not machine.exists(services.drop_in("outside.service")) and not machine.exists(previous.PATH)
    machine.put("/etc/systemd/system/npu-0.slice", "[Slice]\nAllowedCPUs=0-1\n")
    text = "# Managed by npu.affinity: changes are overwritten.\n[Service]\nSlice=npu-0.slice\nCPUAffinity=\nCPUAffinity=0-7\n"
    machine.put(UNIT + ".d/50-npu-affinity.conf", text)
    later = adopt(machine, [user(machine, SERVICE, 1)])
    assert states(later) == {"outside.service": "refused"} and not machine.exists(services.drop_in("outside.service"))
