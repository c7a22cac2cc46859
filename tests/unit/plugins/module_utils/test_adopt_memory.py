# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory nodes of adopted work: narrowed on request where its memory fits, and given back."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import services
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.adopting import Adoption
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.switched_off import SwitchedOff
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.work import CGROUPS, DOCKER, ID, PLAN, SERVICE, SESSION, user, working

NODES = "/sys/devices/system/node"
HOME = {"npus": [dict(npu, memory_nodes=str(npu["id"])) for npu in PLAN["npus"]]}
MIB = 1 << 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Half of the memory of a service and a container lies on node 0; node 1 has room for 150 MiB."""
    machine = working(tmp_path, monkeypatch)
    machine.put(NODES + "/has_memory", "0-1")
    for node in (0, 1):
        machine.put("%s/node%d/meminfo" % (NODES, node), "Node %d MemFree: %d kB\n" % (node, 150 << 10))
    machine.engines = {ID: ""}
    for pid, group in ((100, SERVICE), (200, DOCKER), (300, SESSION)):
        machine.process(pid, group)
        holds(machine, group, 50)
    return machine


def holds(machine, group, mib):
    machine.put(CGROUPS + group + "/memory.numa_stat", "anon N0=%d N1=%d\nfile N0=0 N1=0\n" % (mib * MIB, mib * MIB))


def adopt(machine, plan=None, move=True, groups=(SERVICE, DOCKER, SESSION)):
    pids = {SERVICE: [100], DOCKER: [200], SESSION: [300]}
    adoption = Adoption(machine, plan or HOME, [user(machine, group, 1, pids=pids[group]) for group in groups], {}, move)
    adoption.run()
    return adoption


def mems(machine):
    return machine.mems(SERVICE), machine.mems(DOCKER), machine.mems(SESSION)


def remarks(adoption):
    return [target.remark for target in adoption.targets if target.remark]


def test_memory_moves_on_request_and_everything_is_given_back(machine):
    adopted = adopt(machine)
    assert mems(machine) == ("1", "1", "0-1") and not remarks(adopted)
    assert machine.read(services.drop_in("outside.service")).endswith("AllowedMemoryNodes=\nAllowedMemoryNodes=1")
    assert [(row["mems_before"], row["mems_after"]) for row in (target.row() for target in adopted.targets)][:2] == [("0-1", "1")] * 2
    record = machine.read(previous.PATH)
    machine.calls.clear()
    again = adopt(machine)
    assert not again.changed and not [call for call in machine.calls if "update" in call or call.startswith("set-property")]
    assert machine.read(previous.PATH) == record
    report = unbind(machine)
    assert (report.failed, report.warnings, mems(machine)) == ([], [], ("0-1", "0-1", "0-1"))
    assert not machine.exists(services.drop_in("outside.service")) and not machine.exists(previous.PATH)


def test_without_a_request_memory_stays(machine):
    adopted = adopt(machine, move=False)
    assert mems(machine) == ("0-1",) * 3 and not remarks(adopted)
    assert "mems" not in machine.read(previous.PATH) and not any("--cpuset-mems" in call for call in machine.calls)
    assert adopt(machine).changed and mems(machine) == ("1", "1", "0-1"), "asked for later"


def test_an_undone_run_leaves_the_memory_nodes_of_before(machine):
    adopt(machine).undo()
    assert mems(machine) == ("0-1",) * 3
    adopt(machine, move=False)
    adopt(machine).undo()
    assert mems(machine) == ("0-1",) * 3 and machine.cpus(100) == "4-7"
    assert services.said(machine, "outside.service") == {"cpus": "4-7"}


def test_what_does_not_fit_beside_the_first_keeps_its_nodes(machine):
    holds(machine, SERVICE, 100)
    holds(machine, DOCKER, 60)
    adopted = adopt(machine)
    assert mems(machine)[:2] == ("1", "0-1") and machine.cpus(200) == "4-7"
    assert remarks(adopted) == [
        "container llm (NPU 1) keeps memory nodes 0-1, and does not get those of its NPUs, 1: 0.1 GiB lies on others, there is room for "
        "0.0 GiB, and the kernel would kill its processes"
    ]
    machine.put(NODES + "/node1/meminfo", "Node 1 MemFree: %d kB\n" % (50 << 10))
    assert len(remarks(adopt(machine))) == 1, "each time"


UNIT = "/etc/systemd/system/outside.service"
KEPT = {
    "own": (CGROUPS + SERVICE + "/cpuset.mems.effective", "0", "it was given its own when it was started"),
    "around": (CGROUPS + "/system.slice/cpuset.mems.effective", "0", "the group around it grants 0 only"),
    "policy": (UNIT, "[Service]\nNUMAPolicy=bind\nNUMAMask=0\n", "the memory policy in " + UNIT),
    "numactl": (UNIT, "[Service]\nExecStart=/usr/bin/numactl --membind=0 vllm\n", "the memory policy in " + UNIT),
    "unknown": (CGROUPS + SERVICE + "/memory.numa_stat", "", "does not say where its memory lies"),
}


@pytest.mark.parametrize(("path", "text", "why"), KEPT.values(), ids=KEPT)
def test_work_that_cannot_have_the_nodes_is_reported(machine, path, text, why):
    machine.put(path, text)
    adopted = adopt(machine, groups=[SERVICE])
    assert len(remarks(adopted)) == 1 and why in remarks(adopted)[0]
    assert machine.cpus(100) == "4-7" and services.said(machine, "outside.service") == {"cpus": "4-7"}


def test_where_systemd_sets_no_memory_nodes_that_is_said(machine):
    os.unlink(machine.path(CGROUPS + "/cgroup.controllers"))
    machine.put(CGROUPS + "/systemd" + SERVICE + "/cgroup.procs", "100\n")
    adopted = adopt(machine, groups=[SERVICE])
    assert "systemd cannot set those of services on this host" in remarks(adopted)[0] and machine.cpus(100) == "4-7"


def test_nodes_that_the_kernel_does_not_grant_are_taken_back(machine, monkeypatch):
    monkeypatch.setattr(machine, "confine_memory", lambda group, nodes: None)
    adopted = adopt(machine, groups=[DOCKER])
    assert "it was given memory nodes 1, and its control group grants 0-1" in adopted.targets[0].sentence
    assert machine.cpus(200) == "0-7" and not machine.exists(previous.PATH)


def test_a_container_that_ends_while_moving_gets_all_nodes(machine, monkeypatch):
    confine = machine.confine_memory

    def kill(group, nodes):
        confine(group, nodes)
        machine.put(CGROUPS + DOCKER + "/cgroup.procs", "")

    monkeypatch.setattr(machine, "confine_memory", kill)
    adoption = Adoption(machine, HOME, [user(machine, DOCKER, 1, pids=[], witness="allowed", cpus="")], {}, True)
    adoption.run()
    assert "it ended while its memory was moved to nodes 1" in adoption.targets[0].sentence
    assert machine.engine_mems == "0-1" and not machine.exists(previous.PATH)


def test_another_plan_moves_nothing_without_a_request(machine):
    adopt(machine)
    assert not adopt(machine, move=False).changed
    other = {"npus": [dict(npu, memory_nodes="0") for npu in PLAN["npus"]]}
    assert adopt(machine, other, move=False).changed
    assert mems(machine)[:2] == ("0-1", "0-1")
    assert not adopt(machine, other, move=False).changed
    assert not unbind(machine).failed and services.said(machine, "outside.service") is None


def test_a_service_that_does_not_run_starts_on_the_new_nodes(machine):
    adopt(machine, groups=[SERVICE])
    machine.running.discard("outside.service")
    machine.states["outside.service"] = ""
    Adoption(machine, {"npus": [dict(npu, memory_nodes="0", pool="6-7") for npu in PLAN["npus"]]}, [], {}).run()
    assert services.said(machine, "outside.service") == {"cpus": "6-7", "mems": "0"}
    assert json.loads(machine.read(previous.PATH))["adopt"]["services"]["outside.service"]["mems"] == "0"


def test_nodes_that_somebody_else_has_set_since_stay(machine):
    adopt(machine)
    machine.engine_mems = "0"
    machine.confine_memory(DOCKER, "0")
    report = unbind(machine)
    assert report.warnings == ["llm was given other memory nodes than 1 by someone else since it was adopted, and keeps them"]
    assert (mems(machine), machine.cpus(200)) == (("0-1", "0", "0-1"), "0-7")


def test_a_transaction_that_fails_later_confines_memory_again(machine):
    adopt(machine)
    off = SwitchedOff(machine, None, False, ["adopt"])
    off.look(check=False)
    off.run()
    assert mems(machine) == ("0-1",) * 3
    off.undo()
    assert mems(machine) == ("1", "1", "0-1") and machine.engine_mems == "1"


@pytest.mark.parametrize("move", [False, True])
def test_a_bind_is_told_whether_memory_may_move(machine, move):
    state = {"plan": HOME, "live": {"adopt": {"mode": "now"}}, "expected": []}
    assert FEATURE.step(machine, state, Choices(move_memory=move)).move is move
