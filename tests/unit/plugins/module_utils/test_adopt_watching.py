# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adoption in the transaction of a bind, and by the service that watches for work that starts later. The ranks of one service or container
are placed process by process."""

import ctypes
import json
import mmap
import os
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._drift.placement import Judge
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import choosing, record, services, watching
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import FEATURE, SETTINGS
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.watching import Watcher
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._kernel import memory
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH as PLAN_PATH
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import PATH as LOCK
from ansible_collections.npu.affinity.plugins.module_utils._state.step import Check
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import Undone, apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from ansible_collections.npu.affinity.plugins.module_utils._users import finding, pools
from tests.fakes.machine import snapshot
from tests.fakes.systemd import live_request
from tests.fakes.work import DOCKER, DROP_IN, ID, PLAN, SERVICE, SESSION, all_cpus, container, everything, user, working

LIMIT, MIB = 4, 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return working(tmp_path, monkeypatch)


@pytest.fixture
def found(monkeypatch):
    """``function`` returns the users of the moment."""
    found = types.SimpleNamespace(function=list)

    def users(_host, _npus, among=None):
        return [user for user in found.function() if among is None or {process["pid"] for process in user["processes"]} & set(among)]

    monkeypatch.setattr(choosing, "users", users)
    monkeypatch.setattr(watching, "users", users)
    return found


def bind(machine, check=False, steps=()):
    state = {"plan": PLAN, "expected": [{"unit": "npu-0.slice", "cpus": "0-3", "mems": "0"}], "live": {}}
    adopted = choosing.of_state(machine, {}, state)
    report = apply(machine, live_request("0-3"), check, after=[adopted, *steps])
    return adopted, report


def test_a_rebind_changes_nothing_adopted_and_unbind_restores_it(machine, found):
    found.function = everything(machine)
    machine.put("/run/systemd/x", "")
    before, cpus = snapshot(machine.root), all_cpus(machine)
    predicted, _report = bind(machine, check=True)
    assert snapshot(machine.root) == before
    adopted, _report = bind(machine)
    assert adopted.changed and not adopted.warnings
    assert adopted.result() == predicted.result() and adopted.lines() == predicted.lines()
    assert adopted.lines()["running work"][0] == "~ container llm (NPU 1): CPUs 0-7 -> 4-7"
    machine.calls.clear()
    again, report = bind(machine)
    assert not again.changed and not report.changed
    assert not any(call.startswith(("set-property", "daemon-reload", "docker update")) for call in machine.calls)
    assert not unbind(machine).failed and all_cpus(machine) == cpus
    assert not [path for path, _text in snapshot(machine.root).items() ^ before.items() if "/proc/" not in path]


def both(machine):
    """Start a service and a container with NPU 1; return their users as they are found."""
    machine.process(100, SERVICE)
    found = container(machine)
    return lambda: [user(machine, SERVICE, 1), *found()]


def refuse_sets(machine):
    """Make systemd refuse sets for units that run; return what it did before."""
    run = machine.run

    def refuse(argv, *rest):
        if argv[1] == "set-property":
            raise ValueError("Access denied")
        return run(argv, *rest)

    machine.run, machine.reapplies = refuse, False
    return run


def test_a_service_that_cannot_be_widened_keeps_no_container(machine, found):
    found.function = both(machine)
    bind(machine)
    run = refuse_sets(machine)
    assert "outside.service: Access denied" in unbind(machine).failed
    assert (machine.cpus(100), machine.cpus(200)) == ("4-7", "0-7")
    machine.run = run
    assert not unbind(machine).failed and machine.cpus(100) == "0-7"


def test_a_bind_that_fails_after_adopting_gives_everything_back(machine, found, monkeypatch):
    def fails(_check):
        raise ValueError("no")

    monkeypatch.setattr(Check, "run", fails)
    found.function = everything(machine)
    before = all_cpus(machine)
    with pytest.raises(Undone, match="All files and CPUs of running work were restored"):
        bind(machine, steps=[Check(list)])
    assert all_cpus(machine) == before and not machine.exists(previous.PATH)


def test_below_another_root_a_container_is_left_to_its_engine(machine, found):
    there = container(machine)()
    found.function = lambda: there
    adopted = choosing.of_state(Host(machine.root), {}, {"plan": PLAN, "expected": [], "live": {}})
    adopted.look(check=False)
    adopted.run()
    said = "container llm (NPU 1) runs on CPUs 0-7, outside its pool 4-7: its engine does not run below %s" % machine.root
    assert (adopted.changed, machine.calls, adopted.warnings) == (False, [], [said])


def watching_with(machine, plan=PLAN, rebind_limit=LIMIT, move_memory=False):
    wanted = {"about": "", "rebind_limit": rebind_limit, "move_memory": move_memory, "pods": False, "environment": {}}
    machine.put(PLAN_PATH, json.dumps(plan))
    machine.put(SETTINGS, json.dumps(wanted))
    return Watcher(machine)


@pytest.fixture
def watcher(machine):
    assert not Watcher(machine).look(), "without settings there is nothing to watch"
    return watching_with(machine)


def test_work_started_later_is_adopted_and_idling_takes_no_lock(machine, found, watcher, monkeypatch):
    held, changing = [], watching.changing
    monkeypatch.setattr(watching, "changing", lambda host, program: held.append(program) or changing(host, program))
    assert watcher.look() and held == []
    found.function = container(machine)
    for _look in range(2):
        assert watcher.look() and held == ["npu_affinity watch"]
        assert machine.cpus(200) == "4-7" and not machine.exists(LOCK)


def test_what_is_changed_back_each_time_is_left_alone(machine, found, watcher, capsys):
    found.function = container(machine)
    for _time in range(LIMIT):
        watcher.look()
        assert machine.cpus(200) == "4-7"
        machine.engines[ID] = "0-7"
        machine.confine(DOCKER, "0-7")
    capsys.readouterr()
    for _time in range(3):
        watcher.look()
        assert machine.cpus(200) == "0-7"
    said = capsys.readouterr().out
    assert said.count("it was given these CPUs 4 times within an hour, did not keep them, and is left alone") == 1
    assert "likely a program that runs 'docker update --cpuset-cpus'" in said


def updates(machine):
    return len([call for call in machine.calls if call.startswith("docker update --cpuset-cpus 4-7")])


@pytest.mark.parametrize(("limit", "tries", "times"), [(LIMIT, LIMIT, 1), (0, LIMIT + 3, 0)], ids=["a limit", "no limit"])
def test_work_that_cannot_be_adopted_is_left_alone_at_the_limit(machine, found, capsys, limit, tries, times):
    machine.deaf, found.function = True, container(machine)
    watcher = watching_with(machine, rebind_limit=limit)
    for _time in range(LIMIT + 3):
        watcher.look()
    assert updates(machine) == tries
    left = "adopting it failed 4 times within an hour, and it is not tried again; the last time: it was given CPUs 4-7, and runs"
    assert capsys.readouterr().out.count(left) == times


def test_a_service_that_fails_leaves_nothing_of_others_undone(machine, found, watcher, capsys):
    found.function = both(machine)
    refuse_sets(machine)
    machine.confine(SERVICE, "0-7")
    for _time in range(LIMIT + 3):
        assert watcher.look()
        assert (machine.cpus(100), machine.cpus(200)) == ("0-7", "4-7")
        assert not machine.exists(DROP_IN) and list(previous.recorded(machine)["adopt"]) == ["docker:" + ID]
    assert updates(machine) == 1
    assert capsys.readouterr().out.count("outside its pool 4-7: Access denied") == 1


def test_a_run_that_fails_as_a_whole_is_no_try(machine, found, watcher, monkeypatch):
    def fails(_host):
        raise ValueError("no reload")

    found.function = both(machine)
    with monkeypatch.context() as broken:
        broken.setattr(services, "reload", fails)
        for _time in range(LIMIT + 3):
            watcher.look()
            assert machine.cpus(200) == "0-7"
    watcher.look()
    assert (machine.cpus(100), machine.cpus(200)) == ("4-7", "4-7")


@pytest.mark.parametrize(("pid", "group"), [(200, DOCKER), (100, SERVICE)], ids=["container", "service"])
def test_work_without_a_set_is_adopted_after_each_restart(machine, found, watcher, pid, group):
    machine.put("/run/systemd/transient/outside.service", "[Service]\n")
    machine.engines, machine.writes_down = {ID: ""}, False
    found.function = lambda: [user(machine, group, 1)]
    for start in range(LIMIT + 3):
        machine.process(pid, group, start=start)
        machine.confine(DOCKER, "0-7")
        watcher.look()
        assert machine.cpus(pid) == "4-7", start


@pytest.mark.parametrize("move", [False, True])
def test_memory_of_work_that_starts_later_moves_on_request(machine, found, move):
    plan = {"npus": [dict(npu, memory_nodes="1") for npu in PLAN["npus"]]}
    machine.put("/sys/devices/system/node/has_memory", "0-1")
    machine.put("/sys/fs/cgroup" + DOCKER + "/memory.numa_stat", "anon N0=0 N1=0\nfile N0=0 N1=0\n")
    found.function = container(machine)
    state = {"plan": plan, "live": {"adopt": {"mode": "now", "move_memory": move}}, "expected": []}
    assert FEATURE.step(machine, state, Choices()).work.scope.wanted["move_memory"] is move, "at a bind, too"
    watching_with(machine, plan, move_memory=move).look()
    assert (machine.cpus(200), machine.mems(DOCKER)) == ("4-7", "1" if move else "0-1")


def test_self_widening_processes_are_left_alone_despite_new_ones(machine, found, watcher):
    machine.process(300, SESSION)
    for number in range(LIMIT + 3):
        pids = [300, *range(310, 310 + number)]
        machine.process(pids[-1], SESSION)
        found.function = lambda pids=pids: [user(machine, SESSION, 0, pids=pids)]
        machine.set_affinity(300, set(range(8)))
        watcher.look()
        assert machine.cpus(300) == ("0-1" if number < LIMIT else "0-7")


def test_a_session_is_adopted_at_an_open_and_a_service_soon(machine, found, watcher):
    found.function = everything(machine)
    before = all_cpus(machine)
    assert not watcher.born({300: {300}}) and all_cpus(machine) == before, "the name of a thread is no open device"
    assert not watcher.born({300: None})
    assert set(all_cpus(machine)[300].split(",")) <= {"0-1"}
    assert watcher.born({100: None}) and machine.cpus(100) == "4-7"
    assert not machine.exists(DROP_IN), "it may open more devices"
    assert watcher.look() and machine.exists(DROP_IN) and not watcher.born({100: None})
    assert not unbind(machine).failed and all_cpus(machine) == before


def test_work_that_opens_one_device_after_the_other_is_no_fight(machine, found, watcher):
    machine.process(100, SERVICE)
    for numbers in [[0], [0, 1]] * 3:
        found.function = lambda numbers=numbers: [user(machine, SERVICE, *numbers)]
        watcher.look()
    assert machine.cpus(100) == "0-1,4-7"


def ranks_of(machine, group=SERVICE):
    """Two ranks, their parent, which holds no device, and a process that holds both."""
    machine.engines = {ID: ""}
    for pid in (100, 200, 300, 400):
        machine.process(pid, group)
    machine.put("/proc/cmdline", "")
    devices = {200: ["davinci1"], 300: ["davinci0"], 400: ["davinci0", "davinci1"]}

    def found():
        one = user(machine, group, 0, 1, pids=sorted(devices))
        for process in one["processes"]:
            process["devices"] = devices[process["pid"]]
        return one

    return found


@pytest.fixture(params=[(SERVICE, True, False), (SERVICE, False, False), (SERVICE, False, True), (DOCKER, True, False)])
def placed(request, tmp_path, monkeypatch):
    group, keeps, v1 = request.param
    machine = working(tmp_path, monkeypatch, keeps, v1)
    found = ranks_of(machine, group)
    monkeypatch.setattr(watching, "users", lambda _host, _npus, among=None: [found()])
    return machine, watching_with(machine), found


AT_HOME = {100: "0-1,4-7", 200: "4-7", 300: "0-1", 400: "0-1,4-7"}


def test_each_rank_gets_its_pool_and_the_rest_the_union(placed):
    machine, watcher, _found = placed
    before = all_cpus(machine)
    watcher.look()
    assert all_cpus(machine) == AT_HOME
    machine.calls.clear()
    watcher.look()
    assert not any("set-property" in call or "update" in call for call in machine.calls) and all_cpus(machine) == AT_HOME
    assert not unbind(machine).failed
    assert all_cpus(machine) == before and "adopt" not in previous.recorded(machine)


def test_a_rank_is_placed_at_its_open_before_its_service(placed):
    machine, watcher, _found = placed
    assert watcher.born({200: None}) and (machine.cpus(200), machine.cpus(100)) == ("4-7", "0-7")
    assert set(record.entries(machine)) >= {"200:1:boot", "300:1:boot"}
    watcher.look()
    assert all_cpus(machine) == AT_HOME


def test_a_rank_on_the_union_of_its_service_is_outside(placed):
    machine, watcher, found = placed
    watcher.look()
    machine.set_affinity(200, {0, 1, 4, 5, 6, 7})
    (away,) = Judge.of(machine, PLAN, [], {"adopt": {"mode": "always"}}).placement([found()]).outside
    assert (away["title"], away["cpus"], away["pool"]) == ("rank 1 of %s (pid 200, NPU 1)" % pools.title_of(found()), "0-1,4-7", "4-7")
    assert not Judge.of(machine, PLAN, [], {}).placement([found()]).outside, "a slice alone gives all of them the union"


RANKS = [
    ("4-7", 98, "rank 1 of outside.service: NPU 1, 4 CPUs, 98 % local pages"),
    ("4", None, "rank 1 of outside.service: NPU 1, 1 CPU, local pages not known"),
    ("0-7", 0, "rank 1 of outside.service: NPU 1, CPUs 0-7, pool 4-7, 0 % local pages"),
]


@pytest.mark.parametrize(("cpus", "local", "line"), RANKS)
def test_a_rank_is_described_in_a_line(machine, monkeypatch, cpus, local, line):
    found = ranks_of(machine)()
    found["processes"][0]["cpus"] = cpus
    monkeypatch.setattr(finding, "sampled", lambda _host, _pid: {} if local is None else {1: local, 0: 100 - local})
    npus = [dict(npu, numa=number) for number, npu in enumerate(PLAN["npus"])]
    found["ranks"] = finding.described_ranks(machine, npus, found, [])
    assert [(rank["rank"], rank["pid"]) for rank in found["ranks"]] == [(0, 300), (1, 200)]
    assert pools.rank_titles(found, PLAN)[1] == line


NO_CALL = "The pages of process 300 are not known: not on %s." % os.uname().machine


@pytest.mark.parametrize(("live", "reasons"), [(False, []), (True, [NO_CALL])])
def test_an_unreadable_process_has_unknown_pages_and_a_reason(machine, monkeypatch, live, reasons):
    machine.put("/proc/300/maps", "")
    monkeypatch.setattr(type(machine), "live", live, raising=False)
    monkeypatch.setattr(memory, "_SYSCALLS", {})
    problems = []
    found = finding.described_ranks(machine, [dict(npu, numa=0) for npu in PLAN["npus"]], ranks_of(machine)(), problems)
    assert ([rank["local"] for rank in found], problems) == ([None, None], reasons)


def test_a_sample_counts_present_pages_and_is_bounded(monkeypatch):
    pages = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        before = memory.sampled(Host(), os.getpid())
    except ValueError as error:
        pytest.skip(str(error))
    for place in range(0, 64 * MIB, 4096):
        pages[place] = 1
    after = memory.sampled(Host(), os.getpid())
    assert 20 <= sum(after.values()) - sum(before.values()) <= 40, "32 pages of 2 MiB each"
    assert ctypes.addressof(ctypes.c_char.from_buffer(pages)) and max(after) < 1024
    monkeypatch.setattr(memory, "MOST", 16)
    assert 0 < sum(memory.sampled(Host(), os.getpid()).values()) <= 16
    assert memory.sampled(Host(), (1 << 22) + 1) == {}, "it has ended"
