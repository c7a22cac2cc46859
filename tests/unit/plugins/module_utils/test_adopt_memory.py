# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory nodes of adopted work: narrowed on request where its memory fits, and given back."""

import functools
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import services
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes import work
from tests.fakes.work import CGROUPS, DOCKER, DROP_IN, ID, MIGRATEPAGES, NUMA_MAPS, PLAN, SERVICE, SESSION
from tests.fakes.work import switched_off, user, warnings, working

NODES = "/sys/devices/system/node"
HOME = {"npus": [dict(npu, memory_nodes=str(npu["id"])) for npu in PLAN["npus"]]}
MIB = 1 << 20
MOVE = {"move_memory": True}


def with_memory(machine):
    """Half of the memory of a service, a container and a session lies on node 0; node 1 has room for 150 MiB."""
    machine.free(150)
    machine.engines = {ID: ""}
    for pid, group in ((100, SERVICE), (200, DOCKER), (300, SESSION)):
        machine.process(pid, group)
        holds(machine, group, 50)
        machine.allocate(pid, N0=50, N1=50)
    return machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return with_memory(working(tmp_path, monkeypatch))


def holds(machine, group, mib):
    machine.put(CGROUPS + group + "/memory.numa_stat", "anon N0=%d N1=%d\nfile N0=0 N1=0\n" % (mib * MIB, mib * MIB))


def adopt(machine, plan=None, move=True, groups=(SERVICE, DOCKER, SESSION)):
    pids = {SERVICE: [100], DOCKER: [200], SESSION: [300]}
    return work.adopt(machine, [user(machine, group, 1, pids=pids[group]) for group in groups], plan or HOME, (), {"move_memory": move})


def mems(machine):
    return machine.mems(SERVICE), machine.mems(DOCKER), machine.mems(SESSION)


def remarks(adoption):
    return [target.remark for target in adoption.targets if target.remark]


def placed(machine):
    return [machine.pages(pid) for pid in (100, 200, 300)]


@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
@pytest.mark.parametrize("keeps", [False, True], ids=["5.10", "6.12"])
def test_memory_moves_on_request_and_everything_is_given_back(tmp_path, monkeypatch, keeps, moves):
    machine = with_memory(working(tmp_path, monkeypatch, keeps))
    machine.moves = moves
    adopted = adopt(machine)
    assert placed(machine) == [{1: 100}] * 3
    assert machine.migrations == ["migratepages %d 0 1" % pid for pid in ([300] if moves else [100, 200, 300])]
    assert mems(machine) == ("1", "1", "0-1") and not remarks(adopted)
    assert machine.read(DROP_IN).count("AllowedMemoryNodes=\nAllowedMemoryNodes=1\n")
    assert [(row["mems_before"], row["mems_after"]) for row in (target.row() for target in adopted.targets)] == [("0-1", "1")] * 3
    record = machine.read(previous.PATH)
    machine.calls.clear()
    again = adopt(machine)
    assert not again.changed and not machine.migrations
    assert not [call for call in machine.calls if "update" in call or call.startswith("set-property")]
    assert machine.read(previous.PATH) == record
    report = unbind(machine)
    assert (report.failed, warnings(report), mems(machine)) == ([], [], ("0-1", "0-1", "0-1"))
    assert not machine.exists(DROP_IN) and not machine.exists(previous.PATH)


def test_without_a_request_memory_stays(machine):
    adopted = adopt(machine, move=False)
    assert mems(machine) == ("0-1",) * 3 and not remarks(adopted) and placed(machine) == [{0: 50, 1: 50}] * 3
    given = [text for entry in previous.recorded(machine)["adopt"].values() for text in entry["given"]]
    assert "mems" not in " ".join(given) and not any("--cpuset-mems" in call for call in machine.calls)
    assert adopt(machine).changed and mems(machine) == ("1", "1", "0-1"), "asked for later"
    assert placed(machine) == [{1: 100}] * 3 and not adopt(machine).changed
    machine.allocate(300, N0=50)
    assert not adopt(machine).changed and not adopt(machine, move=False).changed, "what it allocates later is its own affair"


def test_undone_runs_leave_the_memory_nodes_of_before(machine):
    for cpus, said in (("0-7", None), ("4-7", {"cpus": "4-7"})):
        adopt(machine).undo()
        assert (mems(machine), machine.cpus(100), services.drop_in_sets(machine, "outside.service")) == (("0-1",) * 3, cpus, said)
        adopt(machine, move=False)
    adopt(machine)
    off = switched_off(machine)
    assert mems(machine) == ("0-1",) * 3
    off.undo()
    assert mems(machine) == ("1", "1", "0-1") and machine.engine_mems == "1"


def test_what_does_not_fit_beside_the_first_keeps_its_nodes(machine):
    holds(machine, SERVICE, 100)
    holds(machine, DOCKER, 60)
    adopted = adopt(machine)
    assert mems(machine)[:2] == ("1", "0-1") and machine.cpus(200) == "4-7" and machine.pages(200) == {0: 50, 1: 50}
    assert remarks(adopted) == [
        "container llm (NPU 1) keeps memory nodes 0-1, and does not get those of its devices, 1: 0.1 GiB lies on others, there is room for "
        "0.0 GiB, and the kernel would kill its processes"
    ]
    machine.put(NODES + "/node1/meminfo", "Node 1 MemFree: %d kB\n" % (50 << 10))
    assert len(remarks(adopt(machine))) == 1, "each time"


UNIT = "/etc/systemd/system/outside.service"
COMM = "/proc/100/task/100/comm"
SERVICE_STAT, HELD_STAT = CGROUPS + SERVICE + "/memory.numa_stat", NUMA_MAPS % 100
KEPT = {
    "own": ({CGROUPS + SERVICE + "/cpuset.mems.effective": "0"}, "it was given its own when it was started"),
    "around": ({CGROUPS + "/system.slice/cpuset.mems.effective": "0"}, "the group around it grants 0 only"),
    "policy": ({UNIT: "[Service]\nNUMAPolicy=bind\nNUMAMask=0\n"}, "the memory policy in " + UNIT),
    "numactl": ({UNIT: "[Service]\nExecStart=/usr/bin/numactl --membind=0 vllm\n"}, "the memory policy in " + UNIT),
    "unknown room": ({NODES + "/node1/meminfo": None}, " GiB lies on others, and the room there is not known"),
    "no count": ({SERVICE_STAT: None, HELD_STAT: "7 default N0=51200"}, "0.2 GiB lies on others, there is room for 0.1 GiB"),
    "a link of KV caches": ({COMM: "ascend-wk-0"}, "thread 100 (ascend-wk-0) of process 100 transfers KV caches"),
    "another link": ({COMM: "AccWrk:1"}, "thread 100 (AccWrk:1) of process 100 transfers KV caches"),
    "no count at all": ({SERVICE_STAT: None, HELD_STAT: None}, "/proc/100/numa_maps does not exist"),
}


@pytest.mark.parametrize(("files", "why"), KEPT.values(), ids=KEPT)
def test_work_that_cannot_have_the_nodes_is_reported(machine, files, why):
    machine.lay(files)
    (remark,) = remarks(adopt(machine, groups=[SERVICE]))
    assert why in remark and not machine.migrations
    assert machine.cpus(100) == "4-7" and services.drop_in_sets(machine, "outside.service") == {"cpus": "4-7"}


def test_where_systemd_sets_no_memory_nodes_pages_move(machine):
    machine.lay({CGROUPS + "/cgroup.controllers": None, CGROUPS + "/systemd" + SERVICE + "/cgroup.procs": "100\n"})
    adopted = adopt(machine, groups=[SERVICE])
    assert not remarks(adopted) and machine.cpus(100) == "4-7" and machine.pages(100) == {1: 100}
    assert services.drop_in_sets(machine, "outside.service") == {"cpus": "4-7"}
    assert not adopt(machine, groups=[SERVICE]).changed and len(machine.migrations) == 1
    assert not warnings(unbind(machine)) and machine.pages(100) == {1: 100}


def test_without_the_tool_memory_stays(machine, monkeypatch):
    monkeypatch.setenv("PATH", "")
    os.unlink(machine.path(MIGRATEPAGES))
    found = remarks(adopt(machine))
    assert len(found) == 3 and all("install numactl on this host" in text for text in found)
    assert placed(machine) == [{0: 50, 1: 50}] * 3 and mems(machine) == ("0-1",) * 3
    with_memory(machine)
    assert adopt(machine).changed and placed(machine) == [{1: 100}] * 3, "once it is installed"


def test_processes_of_a_session_share_the_room(machine):
    machine.process(310, SESSION)
    for pid in (300, 310):
        machine.allocate(pid, N0=100)
    adopted = work.adopt(machine, [user(machine, SESSION, 1, pids=[pid]) for pid in (300, 310)], HOME, (), MOVE)
    assert [machine.pages(pid) for pid in (300, 310)] == [{1: 100}, {0: 100}]
    assert "there is room for 0.0 GiB" in remarks(adopted)[0]
    machine.allocate(310, N0=50)
    machine.space = {1: 20}
    (remark,) = remarks(work.adopt(machine, [user(machine, SESSION, 1, pids=[310])], HOME, (), MOVE))
    assert remark.startswith("process 310 (worker) of NPU 1: 30 MiB stay on node 0: it is pinned, by the NPU driver for instance, or")
    assert not work.adopt(machine, [user(machine, SESSION, 1, pids=[310])], HOME, (), MOVE).changed


def ending(machine, group, nodes):
    type(machine).confine_memory(machine, group, nodes)
    machine.put(CGROUPS + DOCKER + "/cgroup.procs", "")


NOT_GRANTED = {
    "not granted": (lambda *_arguments: None, {}, "it was given memory nodes 1, and its control group grants 0-1"),
    "it ends": (ending, {"pids": [], "witness": "allowed", "cpus": ""}, "it ended while its memory was moved to nodes 1"),
}


@pytest.mark.parametrize(("confine", "values", "said"), NOT_GRANTED.values(), ids=NOT_GRANTED)
def test_nodes_that_a_container_does_not_get_are_taken_back(machine, monkeypatch, confine, values, said):
    monkeypatch.setattr(machine, "confine_memory", functools.partial(confine, machine))
    adopted = work.adopt(machine, [user(machine, DOCKER, 1, **values)], HOME, (), MOVE)
    assert said in adopted.targets[0].sentence and machine.engine_mems == "0-1"
    assert machine.cpus(200) == "0-7" and not machine.exists(previous.PATH)


def test_another_plan_moves_nothing_without_a_request(machine):
    adopt(machine)
    assert not adopt(machine, move=False).changed
    other = {"npus": [dict(npu, memory_nodes="0") for npu in PLAN["npus"]]}
    assert adopt(machine, other, move=False).changed
    assert mems(machine)[:2] == ("0-1", "0-1")
    assert not adopt(machine, other, move=False).changed
    assert not unbind(machine).failed and services.drop_in_sets(machine, "outside.service") is None


def test_a_service_that_does_not_run_starts_on_the_new_nodes(machine):
    adopt(machine, groups=[SERVICE])
    machine.running.discard("outside.service")
    machine.states["outside.service"] = ""
    work.adopt(machine, [], {"npus": [dict(npu, memory_nodes="0", pool="6-7") for npu in PLAN["npus"]]})
    assert services.drop_in_sets(machine, "outside.service") == {"cpus": "6-7", "mems": "0"}
    assert previous.recorded(machine)["adopt"]["outside.service"]["given"] == ["cpus=6-7 mems=0"]


def test_nodes_that_somebody_else_has_set_since_stay(machine):
    adopt(machine)
    machine.engine_mems = "0"
    machine.confine_memory(DOCKER, "0")
    report = unbind(machine)
    assert warnings(report) == ["llm was given other memory nodes than 1 by someone else since it was adopted, and keeps them"]
    assert (mems(machine), machine.cpus(200)) == (("0-1", "0", "0-1"), "0-7")
