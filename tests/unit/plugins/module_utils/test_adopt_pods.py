# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that hold NPUs get the CPUs of these on request, by their runtime, and nothing writes to the kubelet's groups."""

import json
import os
import time

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._drift.placement import Judge
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt import engines as own, watching, work
from ansible_collections.npu.affinity.plugins.module_utils._features.adopt.engines import Engines
from ansible_collections.npu.affinity.plugins.module_utils._host.grpc import NOT_FOUND, StatusError, decoded, encoded
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.plan_file import PATH
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.work import Adoption, CGROUPS, ID, PLAN, SERVICE, adopt, all_cpus, plan_of, user, warnings, working

POD = "/kubepods.slice/kubepods-pod7.slice/cri-containerd-%s.scope" % ID
STATE = "/var/lib/kubelet/cpu_manager_state"
CONFIG = "/var/lib/kubelet/config.yaml"
BUNDLE = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json" % ID
PODS = {"pods": True}
NOTES = {"sandbox-namespace": "ml", "sandbox-name": "llm-0", "container-name": "worker"}
DEVICES = [{"path": "/dev/davinci1", "type": "c", "major": 235, "minor": 1}]
NRI = "0000: 00000003 00000000 00000000 0001 03 21547 /run/nri/nri.sock"


class Runtime:
    """Containerd with one container; ``loses`` the NPU of one that it updates while it runs."""

    def __init__(self, machine, state=1):
        self.machine, self.state, self.loses, self.access = machine, state, False, ("c 235:1 rwm",)
        self.cpu = {}
        group = {"cgroupsPath": "kubepods-pod7.slice:cri-containerd:" + ID, "devices": DEVICES, "resources": {"cpu": self.cpu}}
        self.spec = {"annotations": {"io.kubernetes.cri." + name: value for name, value in NOTES.items()}, "linux": group}

    def call(self, path, method, message, seconds):
        fields = decoded(message)
        self.machine.calls.append(method.rpartition("/")[2])
        if fields[1] != [ID.encode()]:
            raise StatusError("not found", NOT_FOUND)
        if method.endswith("ContainerStatus"):
            info = json.dumps({"runtimeSpec": self.spec})
            return encoded({1: encoded({1: ID, 3: self.state}), 2: encoded({1: "info", 2: info})})
        sets = decoded(fields[2][0])
        self.update({kind: sets[number][0].decode() for kind, number in (("cpus", 6), ("mems", 7)) if number in sets})
        return b""

    def update(self, sets):
        self.machine.interrupt()
        assert set(expand(sets["cpus"])) <= self.machine.online, "a container does not start with CPUs that are not there"
        self.cpu.update(sets)
        if self.state == 1:
            self.machine.confine(POD, sets["cpus"])
            if "mems" in sets:
                self.machine.confine_memory(POD, sets["mems"])
            self.access = () if self.loses else self.access


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A node whose kubelet assigns no CPUs, with the socket of containerd."""
    machine = working(tmp_path, monkeypatch)
    machine.lay({STATE: json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1}), "/run/containerd/containerd.sock": ""})
    machine.put(CGROUPS + "/kubepods.slice/kubepods-pod7.slice/cpuset.cpus.effective", "0-7")
    machine.runtime = Runtime(machine)
    monkeypatch.setattr(own, "call", machine.runtime.call)
    monkeypatch.setattr(work, "device_access", lambda _host, _pid: machine.runtime.access)
    return machine


def pod(machine, *numbers, **values):
    return user(machine, POD, *numbers, **{"kind": "pod", "engine": "containerd", "name": "ml/llm-0/worker", **values})


def states(adoption):
    return [(target.method, target.state) for target in adoption.targets]


def test_a_pod_is_adopted_once_and_gets_an_explicit_set_back(machine):
    machine.process(200, POD, (None, "6"))
    assert states(adopt(machine, [pod(machine, 1)], wanted=PODS)) == [("container", "adopted")]
    assert (machine.cpus(200), machine.cpus(201), machine.runtime.cpu) == ("4-7", "6", {"cpus": "4-7"})
    assert "UpdateContainerResources" in machine.calls
    assert not Adoption(machine, PLAN, [pod(machine, 1)], {}, PODS).changed
    adopt(machine, [pod(machine, 1)], plan_of("0-5", "6-7"), wanted=PODS)
    assert machine.runtime.cpu == {"cpus": "6-7"}
    machine.process(100, SERVICE)
    for wanted, cpus in (({}, "0-7"), (PODS, "4-7")):
        adopt(machine, [pod(machine, 1), user(machine, SERVICE, 1)], wanted=wanted)
        assert (machine.cpus(100), machine.cpus(200)) == ("4-7", cpus), "pods only where they are asked for"
    report = unbind(machine)
    assert (report.failed, warnings(report), machine.runtime.cpu, machine.cpus(200)) == ([], [], {"cpus": "0-7"}, "0-7")
    assert not machine.exists(previous.PATH)
    assert states(adopt(machine, [pod(machine, 1)], wanted=PODS)) == [("container", "adopted")], "an explicit full set is no set"


def test_ended_containers_cost_one_call_each(machine):
    engines, others = Engines(machine), ["%064x" % number for number in range(5)]
    engines.expect(("cri", other) for other in others)
    assert [engines.sets_of("cri", other, "/gone") for other in others] == [None] * 5
    assert machine.calls.count("ContainerStatus") == 5


STATIC = {"policyName": "static", "defaultCpuSet": "0-7", "checksum": 1}
GPU = {"devices": ["nvidia0"], "npus": [{"kind": "npu", "id": 1}]}
OWN_SET = CGROUPS + POD + "/cpuset.cpus.effective"
REFUSED = {
    "not asked for": ({}, {}, {}, "the kubelet places pods; adopt them with npu_affinity_adopt_pods: true"),
    "a static kubelet": ({STATE: json.dumps(STATIC)}, {}, PODS, "the kubelet assigns CPUs to pods (CPU manager policy static)"),
    "static at its next start": ({CONFIG: "cpuManagerPolicy: static\n"}, {}, PODS, "CPU manager policy static"),
    "an unknown kubelet": ({STATE: None}, {}, PODS, "policy of this node's kubelet is not known"),
    "a plugin of NRI": ({"/proc/net/unix": "Num\n%s\n" % NRI}, {}, PODS, "one is connected to /run/nri/nri.sock"),
    "an installed plugin of NRI": ({"/opt/nri/plugins/10-balloons": ""}, {}, PODS, "/opt/nri/plugins has 10-balloons"),
    "a set that others gave": ({OWN_SET: "0-1"}, {}, PODS, "change them with 'crictl update'"),
    "a GPU by NVIDIA's hook": ({BUNDLE: json.dumps({"linux": {"devices": []}})}, GPU, PODS, "NVIDIA's hook gave it /dev/nvidia0"),
}


@pytest.mark.parametrize(("files", "values", "wanted", "why"), REFUSED.values(), ids=REFUSED)
def test_pods_that_are_left_alone(machine, files, values, wanted, why):
    machine.lay(files)
    machine.process(200, POD)
    machine.runtime.cpu.update({"cpus": files[OWN_SET]} if OWN_SET in files else {})
    before = machine.cpus(200), dict(machine.runtime.cpu)
    found = adopt(machine, [pod(machine, 1, **values)], wanted=wanted)
    assert states(found) == [("container", "refused")] and why in found.targets[0].sentence
    assert (machine.cpus(200), machine.runtime.cpu) == before


ALLOWED = {"/run/systemd/transient/%s.d/50-DeviceAllow.conf" % os.path.basename(POD): "[Scope]\nDeviceAllow=/dev/davinci1 rwm\n"}
ATTEMPTED = {
    "a socket without plugins": ({"/proc/net/unix": "Num\n%s\n" % NRI.replace(" 03 ", " 01 ")}, "davinci1", False),
    "a device that it loses": ({}, "davinci1", True),
    "a GPU by CDI": ({BUNDLE: json.dumps({"linux": {"devices": [{"path": "/dev/nvidia0", "major": 195}]}})}, "nvidia0", False),
    "devices that systemd allows, by another program": (ALLOWED, "davinci1", True),
}


@pytest.mark.parametrize(("files", "device", "loses"), ATTEMPTED.values(), ids=ATTEMPTED)
def test_a_pod_is_adopted_unless_it_loses_a_device_by_that(machine, files, device, loses):
    machine.lay(files)
    machine.runtime.loses, fails = loses, loses and not files
    machine.process(200, POD)
    found = adopt(machine, [pod(machine, 1, devices=[device])], wanted=PODS)
    assert states(found) == [("container", "failed" if fails else "adopted")]
    assert ("changed which devices it may open" in found.targets[0].sentence) == fails
    cpus = "0-7" if fails else "4-7"
    assert (machine.runtime.cpu, machine.cpus(200), machine.exists(previous.PATH)) == ({"cpus": cpus}, cpus, not fails)


@pytest.mark.parametrize(("policy", "sets"), [("None", {"cpus": "4-7", "mems": "1"}), ("Static", {"cpus": "4-7"})])
def test_memory_belongs_to_a_static_memory_manager(machine, policy, sets):
    machine.free(150)
    machine.put(CONFIG, "memoryManagerPolicy: %s\n" % policy)
    machine.put(CGROUPS + "/kubepods.slice/kubepods-pod7.slice/cpuset.mems.effective", "0-1")
    machine.process(200, POD)
    machine.allocate(200, N1=50)
    machine.put(CGROUPS + POD + "/memory.numa_stat", "anon N0=0 N1=1\nfile N0=0 N1=0\n")
    plan = {"npus": [dict(npu, mems="1", memory_nodes="1") for npu in PLAN["npus"]]}
    adopt(machine, [pod(machine, 1)], plan, wanted=dict(PODS, move_memory=True))
    assert machine.runtime.cpu == sets


def test_processes_in_a_pod_get_the_cpus_of_their_own_npus(machine):
    for pid in (200, 210, 220):
        machine.process(pid, POD)
    before, found = all_cpus(machine), pod(machine, 0, 1, pids=[200, 210])
    found["processes"][0]["devices"], found["processes"][1]["devices"] = ["davinci0"], ["davinci1"]
    adopted = adopt(machine, [found], plan_of("0-1", "2-3"), wanted=PODS)
    assert states(adopted) == [("container", "adopted"), ("threads", "adopted"), ("threads", "adopted")]
    assert all_cpus(machine) == {200: "0-1", 210: "2-3", 220: "0-3"}
    unbind(machine)
    assert all_cpus(machine) == before


@pytest.mark.parametrize("static", [False, True])
def test_verify_judges_pods_where_they_are_adopted(machine, static):
    machine.lay({STATE: json.dumps(STATIC)} if static else {})
    machine.process(200, POD)
    found = Judge.of(machine, PLAN, [], {"adopt": PODS}).placement([pod(machine, 1)])
    assert ([away["cpus"] for away in found.outside], bool(found.pods)) == ([] if static else ["0-7"], static)


STARTING = {
    "created": ({}, 0, "4-7"),
    "runs already": ({}, 1, None),
    "its start is under way": ({BUNDLE: json.dumps({"ociVersion": "1.0.2"})}, 0, "4-7"),
    "a group that does not grant them": ({CGROUPS + "/kubepods.slice/kubepods-pod7.slice/cpuset.cpus.effective": "0-3"}, 0, None),
    "a static kubelet": ({STATE: json.dumps(STATIC)}, 0, None),
}


@pytest.mark.parametrize(("files", "state", "cpus"), STARTING.values(), ids=STARTING)
def test_a_container_gets_its_cpus_before_it_starts(machine, capsys, files, state, cpus):
    machine.lay({PATH: json.dumps(dict(PLAN, schema=1)), **files})
    machine.runtime.state = state
    watching.Watcher(machine).prepare(ID)
    assert (machine.runtime.cpu.get("cpus"), machine.exists(previous.PATH)) == (cpus, bool(cpus))
    said = "~ container ml/llm-0/worker (NPU 1): CPUs 0-7 -> 4-7\n"
    assert capsys.readouterr().out == (said if cpus and BUNDLE not in files else "")
    if cpus:
        machine.runtime.state = 1
        machine.process(200, POD)
        machine.confine(POD, "0-7" if BUNDLE in files else cpus)
        adopt(machine, [pod(machine, 1)], wanted=PODS)
        assert machine.cpus(200) == "4-7"
        unbind(machine)
        assert (machine.cpus(200), machine.runtime.cpu) == ("0-7", {"cpus": "0-7"})


EVENTS = """2026-11-28 19:30:00.1 +0000 UTC k8s.io /containers/create {"id":"%s","image":"infer"}
2026-11-28 19:30:00.2 +0000 UTC k8s.io /containers/create {"id":"../../etc"}
2026-11-28 19:30:00.3 +0000 UTC k8s.io /containers/create {"id":
2026-11-28 19:30:00.4 +0000 UTC k8s.io /tasks/start {"container_id":"%s","pid":7}
""" % (ID, ID)


def test_events_of_containerd_announce_containers(tmp_path, monkeypatch):
    program = tmp_path / "ctr"
    program.write_text("#!/bin/sh\ncat <<'E'\n%sE\n[ \"$5\" = events ] && exec sleep 60\n" % EVENTS)
    program.chmod(0o755)
    monkeypatch.setattr(Host, "find_program", lambda _host, _name, _folders: str(program))
    monkeypatch.setattr(Host, "exists", lambda _host, _path: True)
    announcements, found, until = watching.Announcements(Host()), [], time.monotonic() + 10
    announcements.start()
    while not found and time.monotonic() < until:
        found += announcements.read()
        time.sleep(0.01)
    announcements.stop()
    assert (found, announcements.descriptor) == ([ID], -1)
