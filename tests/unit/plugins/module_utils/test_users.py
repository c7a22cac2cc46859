# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses an NPU: open device files and what engines allow, by cgroup."""

import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.module_utils._users import devices
from ansible_collections.npu.affinity.plugins.module_utils._users.finding import by_process, is_whole, users
from ansible_collections.npu.affinity.plugins.module_utils._users.groups import Group, classified, path_of, holders
from ansible_collections.npu.affinity.plugins.module_utils._users.pools import lines, placement, sentence
from tests.fakes.workers import LiveHost

ID = "d0c" + "a" * 61
OTHER = "e1d" + "b" * 61
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7_1.slice"
DOCKER_SCOPE = "/system.slice/docker-%s.scope" % ID
NPU_SCOPE = "/npu.slice/npu-0.slice/docker-%s.scope" % ID
NERDCTL_SCOPE = "/system.slice/nerdctl-%s.scope" % ID
USER = "/user.slice/user-1.slice/user@1.service"
DOCKER_FILE = "/var/lib/docker/containers/%s/config.v2.json" % ID
PODMAN_FILE = "/var/lib/containers/storage/overlay-containers/containers.json"
PODMAN_SCOPE = "/machine.slice/libpod-%s.scope" % ID
CRI = "cri-containerd-%s.scope" % ID
CONTAINER, SERVICE = "container", "/system.slice/vllm.service"
SCOPE = "/run/systemd/transient/docker-%s.scope" % ID
DOCKER_PROCS = "/sys/fs/cgroup/docker/%s/cgroup.procs" % ID
GROUPS = [
    (DOCKER_SCOPE, Group(DOCKER_SCOPE, CONTAINER, "docker-%s.scope" % ID, "docker", ID)),
    (DOCKER_SCOPE + "/init.scope", Group(DOCKER_SCOPE, CONTAINER, "docker-%s.scope" % ID, "docker", ID)),
    (NPU_SCOPE, Group(NPU_SCOPE, CONTAINER, "docker-%s.scope" % ID, "docker", ID)),
    ("/docker/" + ID, Group("/docker/" + ID, CONTAINER, None, "docker", ID)),
    (PODMAN_SCOPE + "/container", Group(PODMAN_SCOPE, CONTAINER, "libpod-%s.scope" % ID, "podman", ID)),
    ("/machine.slice/libpod-conmon-%s.scope" % ID, None),
    ("/system.slice/vllm.service/libpod-payload-" + ID, Group("/system.slice/vllm.service", CONTAINER, "vllm.service", "podman", ID)),
    (NERDCTL_SCOPE, Group(NERDCTL_SCOPE, CONTAINER, "nerdctl-%s.scope" % ID, "containerd", ID)),
    (POD + "/" + CRI, Group(POD + "/" + CRI, "pod", CRI, "containerd", ID)),
    (POD + "/crio-%s.scope" % ID, Group(POD + "/crio-%s.scope" % ID, "pod", "crio-%s.scope" % ID, "crio", ID)),
    (POD + "/crio-conmon-%s.scope" % ID, None),
    ("/kubepods/burstable/pod7-1/" + ID, Group("/kubepods/burstable/pod7-1/" + ID, "pod", None, "", ID)),
    ("/docker/%s/kubelet/kubepods/pod7/%s" % (OTHER, ID), Group("/docker/%s/kubelet/kubepods/pod7/%s" % (OTHER, ID), "pod", None, "", ID)),
    ("/system.slice/vllm.service/worker", Group("/system.slice/vllm.service", "service", "vllm.service")),
    ("/user.slice/user-0.slice/session-3.scope", Group("/user.slice/user-0.slice/session-3.scope", "session", "session-3.scope")),
    (USER + "/a.slice/b.service", Group(USER, "session", "user@1.service")),
    ("/system.slice/run-r1.scope", Group("/system.slice/run-r1.scope", "other", "run-r1.scope")),
    ("/", Group("/", "other")),
    ("/moby/free-name", Group("/moby/free-name", "other")),
    ("/own.slice/" + CRI, Group("/own.slice/" + CRI, "pod", CRI, "containerd", ID)),
    ("/k8s.io/" + ID, Group("/k8s.io/" + ID, "pod", None, "", ID)),
    ("/a-kubepods.slice/a-kubepods-pod7.slice/x.scope", Group("/a-kubepods.slice/a-kubepods-pod7.slice/x.scope", "pod", "x.scope")),
    ("/system.slice/kubepods-exporter.service", Group("/system.slice/kubepods-exporter.service", "service", "kubepods-exporter.service")),
]  # fmt: skip


@pytest.mark.parametrize("path, group", GROUPS, ids=[path[:40] for path, _group in GROUPS])
def test_the_path_of_a_cgroup_says_what_it_belongs_to(path, group):
    assert classified(path) == group


CGROUP_FILES = [
    ("0::/a.slice/b.service\n", "/a.slice/b.service"),
    ("12:cpuset:/docker/x\n1:name=systemd:/system.slice/b.service\n0::/system.slice/b.service", "/system.slice/b.service"),
    ("12:cpuset:/docker/x\n", None),
    (None, None),
]


@pytest.mark.parametrize("text, path", CGROUP_FILES)
def test_the_cgroup_of_a_process_is_that_of_systemd(text, path):
    assert path_of(text) == path


def run(tree, pid, comm, group, *targets, cpus=("0-7",), start=None):
    folder = "/proc/%d" % pid
    tree.write({folder + "/comm": comm, folder + "/cgroup": "0::" + group, folder + "/fd": None})
    if start is not None:
        tree.write({folder + "/stat": "%d (a) (b) S %s %d 0 0" % (pid, " ".join(map(str, range(4, 22))), start)})
    for number, target in enumerate(targets):
        os.symlink(target, "%s%s/fd/%d" % (tree.root, folder, number))
    for number, allowed in enumerate(cpus):
        status = "Name:\t%s\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed_list:\t0" % (comm, allowed)
        tree.write({"%s/task/%d/status" % (folder, pid + number): status})


NPUS = [{"kind": "npu", "id": 4, "phy_id": 0, "pci": "0000:c1:00.0"}, {"kind": "npu", "id": 5, "phy_id": 1, "pci": "0000:01:00.0"}]


def test_a_user_has_processes_devices_and_cpus_of_all_threads(tree):
    run(tree, 30, "python3", SERVICE, "/dev/davinci1", "/dev/null", cpus=("0-3", "8-9"), start=777)
    run(tree, 20, "serve", SERVICE + "/w", "/dev/davinci0", "/dev/davinci1")
    run(tree, 10, "helper", SERVICE)
    tree.write({"/sys/fs/cgroup/system.slice/cpuset.cpus.effective": "0-9", "/sys/fs/cgroup/system.slice/cpuset.mems.effective": "0-1"})
    processes = [
        {"pid": 20, "start": 0, "command": "serve", "devices": ["davinci0", "davinci1"], "cpus": "0-7"},
        {"pid": 30, "start": 777, "command": "python3", "devices": ["davinci1"], "cpus": "0-3,8-9"},
    ]
    of_group = {"group": SERVICE, "kind": "service", "unit": "vllm.service", "engine": "", "container": None, "name": "vllm.service"}
    held = {"devices": ["davinci0", "davinci1"], "npus": [{"kind": "npu", "id": 4}, {"kind": "npu", "id": 5}], "witness": "open"}
    assert users(tree.host, NPUS) == [{**of_group, **held, "processes": processes, "cpus": "0-9", "mems": "0-1"}]


OF_UNKNOWN = [{**npu, "phy_id": None, "device": {"number": None, "file": None, "known_by": "unknown"}} for npu in NPUS]
HELD = {
    "a hard vNPU": (NPUS, "/dev/vdavinci117", [5], None),
    "a hard vNPU as its container sees it": (NPUS, "/dev/davinci103", [4], None),
    "one of another NPU": (NPUS, "/dev/davinci132", [], ["davinci132"]),
    "a device of an NPU that the plan lacks": (NPUS, "/dev/davinci2", [], ["davinci2"]),
    "a device where no number is known": (OF_UNKNOWN, "/dev/davinci0", [], ["davinci0"]),
    "a device, and nothing is known of NPUs": ([], "/dev/davinci0", [], None),
}


@pytest.mark.parametrize("npus, file, ids, unassigned", HELD.values(), ids=HELD)
def test_a_device_belongs_to_its_npu_or_to_none(tree, npus, file, ids, unassigned):
    run(tree, 30, "python3", SERVICE, file)
    (user,) = users(tree.host, npus)
    assert ([npu["id"] for npu in user["npus"]], user.get("unassigned")) == (ids, unassigned)
    found = placement([user], {"npus": [{**npu, "pool": "0-7", "slice": "npu-%d.slice" % npu["id"]} for npu in NPUS]})
    said = "vllm.service (pid 30) holds %s: no NPU of the plan is known to have this device" % file
    assert [text.startswith(said) for text in found.remarks()] == ([True] if unassigned else [])
    assert (found.inside, found.outside) == (len(ids), [])


@pytest.mark.parametrize("comm", ["nvidia-persiste", "nv-hostengine", "dcgm-exporter", "npu-exporter", "npu-smi"])
def test_programs_that_only_watch_accelerators_do_no_work(tree, comm):
    run(tree, 1, comm, "/system.slice/monitor.service", "/dev/davinci0", "/dev/davinci1")
    run(tree, 2, comm, USER, "/dev/davinci0", "/dev/davinci1")
    run(tree, 3, "python3", USER, "/dev/davinci1")
    (user,) = users(tree.host, NPUS, {1: [Device.of(NPUS[0])]})
    assert (user["devices"], [process["pid"] for process in user["processes"]]) == (["davinci1"], [3])
    assert [len(user["processes"]) for user in users(tree.host, monitors=True)] == [1, 2]


def test_a_container_that_only_monitors_npus_does_no_work(tree):
    of_docker(tree, {"Devices": [{"PathOnHost": "/dev/davinci0"}]})
    for pid, comm, witnesses in ((7, "npu-exporter", []), (8, "python3", ["allowed"])):
        run(tree, pid, comm, "/docker/" + ID)
        tree.write({DOCKER_PROCS: "7\n" if pid == 7 else "7\n8\n"})
        assert [user["witness"] for user in users(tree.host, NPUS)] == witnesses


def test_a_service_has_its_memory_by_node_and_a_session_has_not(tree):
    stat = "anon N0=3145728 N1=0\nfile N0=1048576 N1=5242880\n"
    tree.write({"/sys/fs/cgroup%s/memory.numa_stat" % group: stat for group in ("/system.slice/a.service", USER)})
    run(tree, 1, "a", "/system.slice/a.service", "/dev/davinci0")
    run(tree, 2, "b", USER, "/dev/davinci0")
    assert [user.get("memory_mib") for user in users(tree.host, NPUS)] == [{"0": 4, "1": 5}, None]


def test_devices_of_npus_that_were_not_asked_for_are_unassigned(tree):
    run(tree, 1, "a", "/system.slice/a.service", "/dev/davinci0", "/dev/davinci1")
    run(tree, 2, "b", USER, "/dev/davinci0")
    run(tree, 3, "c", USER, "/dev/davinci1")
    whole, session = users(tree.host, NPUS[1:])
    assert (whole["npus"], whole["unassigned"]) == ([{"kind": "npu", "id": 5}], ["davinci0"])
    parts = list(by_process(tree.host, NPUS[1:], session))
    assert [(part["npus"], part["unassigned"]) for part in parts] == [([], ["davinci0"]), ([{"kind": "npu", "id": 5}], [])]
    assert not any("unassigned" in user for user in [*users(tree.host, NPUS), *users(tree.host)])


def test_management_devices_and_similar_names_are_no_use(tree):
    run(tree, 1, "npu-exporter", "/system.slice/a.service", "/dev/davinci_manager", "/dev/davinci0x", "/tmp/dev/davinci0")
    lines = ["DeviceAllow=/dev/char/%s:%s rwm\n" % (number, number) for number in ("9" * 9, "9" * 40)]
    tree.write({SCOPE: "[Scope]\n", SCOPE + ".d/50-DeviceAllow.conf": "".join(lines), "/proc/1\u00b2/fd": None})
    assert users(tree.host, NPUS) == []


def test_the_numbers_of_devices_are_those_of_the_driver(tree):
    tree.write({"/proc/interrupts": " CPU0\n 60: 0 MSI 60 Edge trs-mbox-1-0\n 61: 0 MSI 61 Edge trs-mbox-0-0\n"})
    tree.write({"/sys/bus/pci/devices/0000:c1:00.0/msi_irqs/60": "", "/sys/bus/pci/devices/0000:01:00.0/msi_irqs/61": ""})
    run(tree, 1, "a", "/system.slice/a.service", "/dev/davinci1")
    assert users(tree.host, NPUS)[0]["npus"] == [{"kind": "npu", "id": 4}]


SMI = "#!/bin/sh\necho 'pid, gpu_bus_id'\necho '%s, 00000000:17:00.0'\n"
LISTED = [(1, ["nvidia3"], 0), (2, ["nvidia3", "nvidia4"], 1), (None, ["nvidia3", "nvidia4"], 1)]


@pytest.mark.parametrize(("listed", "gpus", "doubt"), LISTED, ids=["listed on one", "not listed", "no nvidia-smi"])
def test_of_several_open_gpus_nvidia_smi_tells_the_one_in_use(tree, listed, gpus, doubt):
    npus = [{"kind": "gpu", "id": number, "pci": "0000:%d:00.0" % (17 + number)} for number in (0, 1)]
    information = "/proc/driver/nvidia/gpus/%s/information"
    tree.write({information % npu["pci"]: "Model: x\nDevice Minor: \t %d\n" % (3 + npu["id"]) for npu in npus})
    if listed:
        tree.write({"/usr/bin/nvidia-smi": SMI % listed})
        os.chmod(tree.host.path("/usr/bin/nvidia-smi"), 0o755)
    run(tree, 1, "a", "/system.slice/a.service", "/dev/nvidia3", "/dev/nvidia4", "/dev/nvidiactl")
    problems = []
    (user,) = users(tree.host, npus, problems=problems)
    assert (user["devices"], user["npus"]) == (gpus, [{"kind": "gpu", "id": int(name[-1]) - 3} for name in gpus])
    assert ["has 2 GPUs open, and nvidia-smi lists it on none" in text for text in problems] == [True] * doubt


def test_what_npu_smi_alone_lists_is_known_by_that(tree):
    run(tree, 7, "python3", "/user.slice/user-0.slice/session-3.scope")
    (user,) = users(tree.host, NPUS, {7: [Device.of(NPUS[1])], 4000: [Device.of(NPUS[0])]})
    assert (user["witness"], user["name"], user["devices"], user["npus"]) == ("tool", "python3", [], [{"kind": "npu", "id": 5}])


NAMES = {
    "docker": (DOCKER_FILE, {"Name": "/vllm-1", "Config": {"Env": ["TOKEN=x"]}}, DOCKER_SCOPE, "vllm-1"),
    "docker, not readable": (DOCKER_FILE, [], DOCKER_SCOPE, "d0caaaaaaaaa"),
    "docker, hostile": (DOCKER_FILE, {"Name": "/a\x1b[2J"}, DOCKER_SCOPE, "d0caaaaaaaaa"),
    "podman": (PODMAN_FILE, [{"id": OTHER}, {"id": ID, "names": ["serve"]}], PODMAN_SCOPE, "serve"),
    "podman, no name": (PODMAN_FILE, [{"id": ID, "names": None}, 3], PODMAN_SCOPE, "d0caaaaaaaaa"),
}


@pytest.mark.parametrize("path, document, group, name", NAMES.values(), ids=NAMES)
def test_a_container_is_called_as_in_the_files_of_its_engine(tree, path, document, group, name):
    tree.write({path: json.dumps(document)})
    run(tree, 1, "a", group, "/dev/davinci0")
    assert users(tree.host)[0]["name"] == name


def test_a_container_with_an_unopened_device_may_use_it(tree):
    group, others = "/npu.slice/npu-0.slice/" + os.path.basename(SCOPE), ("libpod-%s.scope" % OTHER, "run-r1.scope")
    tree.write({SCOPE: "[Scope]\nSlice=npu-0.slice\n", **{"/run/systemd/transient/" + other: "[Scope]\n" for other in others}})
    tree.write({SCOPE + ".d/50-DeviceAllow.conf": "[Scope]\nDeviceAllow=\nDeviceAllow=/dev/davinci1 rwm\n"})
    run(tree, 4, "sleep", group)
    grants = {"cgroup.procs": "4\n", "cpuset.cpus.effective": "4-7", "cpuset.mems.effective": "1"}
    tree.write({"/sys/fs/cgroup%s/%s" % (group, name): text for name, text in grants.items()})
    (user,) = users(tree.host, NPUS)
    expected = {"witness": "allowed", "group": group, "npus": [{"kind": "npu", "id": 5}], "processes": [], "cpus": "4-7", "mems": "1"}
    assert {key: user[key] for key in expected} == expected
    run(tree, 5, "a", group, "/dev/davinci0")
    assert [user["witness"] for user in users(tree.host, NPUS)] == ["open"]


NODE = {"path": "/dev/davinci0", "type": "c", "major": 235, "minor": 0}
EVERYTHING = [{"allow": False, "access": "rwm"}, {"allow": True, "access": "rwm"}]
HOOK = {"prestart": [{"path": "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-hook"}]}
ASKS = {"process": {"env": ["TOKEN=x", "ASCEND_VISIBLE_DEVICES=1"]}}
OF_PODS = {
    "a device": ({"linux": {"devices": [NODE, {"path": "/dev/davinci_manager", "major": 235, "minor": 64}, 3]}}, ["davinci0"]),
    "Ascend's runtime": ({"linux": {}, "hooks": HOOK, **ASKS}, ["davinci1"]),
    "another runtime": ({"linux": {}, "hooks": {}, **ASKS}, None),
    "privileged": ({"linux": {"devices": [NODE], "resources": {"devices": EVERYTHING}}}, None),
    "hostile": ({"linux": {"devices": {"path": 3}, "resources": []}, "process": [], "hooks": 3}, None),
}


@pytest.mark.parametrize("group", ["kubepods-pod7.slice:cri-containerd:" + ID, "/kubepods/pod7/" + ID], ids=["systemd", "cgroupfs"])
@pytest.mark.parametrize("spec, names", OF_PODS.values(), ids=OF_PODS)
def test_a_specification_of_its_runtime_gives_a_pod_devices(tree, group, spec, names):
    notes = {"sandbox-namespace": "ml", "sandbox-name": "llm-0", "container-name": "worker"}
    document = dict(spec, annotations={"io.kubernetes.cri." + name: value for name, value in notes.items()})
    document["linux"] = dict(document["linux"], cgroupsPath=group)
    tree.write({"/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json" % ID: json.dumps(document)})
    place = "/kubepods.slice/kubepods-pod7.slice/" + CRI if ":" in group else group
    expected = [("allowed", "pod", place, "ml/llm-0/worker", names)] if names else []
    found = users(tree.host, NPUS)
    assert [(user["witness"], user["kind"], user["group"], user["name"], user["devices"]) for user in found] == expected


def test_an_unreadable_process_is_a_problem_and_no_failure(tree):
    run(tree, 7, "a", "/system.slice/a.service", "/dev/davinci0", cpus=("everywhere",))
    topology = gather(tree.host)
    assert topology["users"] == [] and any("everywhere" in problem for problem in topology["problems"])


DEVICES = [{"PathOnHost": "/dev/davinci0"}, {"PathOnHost": "/dev/davinci_manager"}, 3]
ASKED_FOR = [
    ({"Devices": DEVICES}, [], ["davinci0"]),
    ({"Runtime": "ascend"}, ["TOKEN=x", "ASCEND_VISIBLE_DEVICES=0"], ["davinci0"]),
    ({"Runtime": "ascend"}, ["ASCEND_VISIBLE_DEVICES=0-1,1"], ["davinci0", "davinci1"]),
    ({"Runtime": "ascend"}, ["ASCEND_VISIBLE_DEVICES=Ascend910-1,Ascend910-0"], ["davinci0", "davinci1"]),
    ({"Runtime": "ascend"}, ["ASCEND_VISIBLE_DEVICES=void"], None),
    ({"Runtime": "ascend"}, ["ASCEND_VISIBLE_DEVICES=0-65535"], None),
    ({"Runtime": "ascend"}, ["ASCEND_VISIBLE_DEVICES=all", 3], None),
    ({"Runtime": "ascend"}, "ASCEND_VISIBLE_DEVICES=0", None),
    ({"Runtime": "runc"}, ["ASCEND_VISIBLE_DEVICES=0"], None),
    ({"Runtime": "io.containerd.runc.v2"}, ["ASCEND_VISIBLE_DEVICES=0"], None),
    ({"Runtime": None}, ["ASCEND_VISIBLE_DEVICES=0"], None),
]


def of_docker(tree, settings):
    """Write the group and the settings of a container of docker without systemd."""
    tree.write({DOCKER_PROCS: "", "/sys/fs/cgroup/docker/buildkit/cgroup.procs": ""})
    tree.write({"/var/lib/docker/containers/%s/hostconfig.json" % ID: json.dumps({"Devices": None, **settings})})


@pytest.mark.parametrize("settings, environment, names", ASKED_FOR)
def test_docker_and_its_runtime_allow_devices(tree, settings, environment, names):
    of_docker(tree, settings)
    tree.write({DOCKER_FILE: json.dumps({"Name": "/llm", "Config": {"Env": environment}})})
    found = [(user["witness"], user["group"], user["name"], user["devices"], user["engine"]) for user in users(tree.host, NPUS)]
    assert found == ([("allowed", "/docker/" + ID, "llm", names, "docker")] if names else [])


def test_a_device_file_is_known_by_number_under_any_name(tmp_path):
    (tmp_path / "proc/1/fd").mkdir(parents=True)
    (tmp_path / "hostdev").mkdir()
    (tmp_path / "hostdev/davinci7").symlink_to("/dev/full")
    (tmp_path / "hostdev/davinci8").write_text("no device")
    opened = ["/dev/full", "/dev/npu-affinity-not-there", "/etc/passwd", "/dev/zero"]
    for number, target in enumerate([*opened, *(str(tmp_path / "hostdev" / name) for name in ("davinci7", "davinci8"))], 3):
        (tmp_path / "proc/1/fd" / str(number)).symlink_to(target)
    assert devices.opened(LiveHost(str(tmp_path)), 1, {os.stat("/dev/full").st_rdev: "davinci3"}) == {"3": "davinci3", "7": "davinci3"}


def test_holders_of_a_device_are_said_with_their_processes(tree):
    run(tree, 4711, "python3", DOCKER_SCOPE, "/dev/null", "/dev/davinci5")
    run(tree, 9, "trainer", "/user.slice")
    found = users(tree.host, listed={9: ()})
    assert holders(found, ["davinci50", "davinci"]) == ""
    assert holders(found, ["davinci5"], [9]) == "container d0caaaaaaaaa (process 4711 python3), process 9 trainer"
    for number in range(1, 8):
        run(tree, number, "worker", "/system.slice/a%d.service" % number, "/dev/davinci0")
    text = holders(users(tree.host), ["davinci0"])
    assert text.count("service") == 3 and text.endswith(" and 4 more")


PLAN = {"npus": [{"kind": "npu", "id": 0, "pool": "0-3"}, {"kind": "npu", "id": 1, "pool": "4-7"}, {"kind": "gpu", "id": 0, "pool": "8-9"}]}
PLAN["lost"] = [{"kind": "npu", "id": 5, "pool": "10-11"}]
N0, N1, G0, N5, N9 = ({"kind": kind, "id": number} for kind, number in (("npu", 0), ("npu", 1), ("gpu", 0), ("npu", 5), ("npu", 9)))


def user(npus, *cpus, **other):
    processes = [{"pid": 10 + number, "start": 1, "command": "w", "devices": [], "cpus": text} for number, text in enumerate(cpus)]
    fixed = {"group": "/a/v.service", "kind": "service", "unit": "v.service", "engine": "", "container": None, "name": "v.service"}
    return {**fixed, "devices": [], "npus": npus, "processes": processes, "cpus": "", "mems": "", "witness": "open", **other}


INSIDE, OUTSIDE, UNJUDGED = (1, 0, 0), (0, 1, 0), (0, 0, 0)
PLACES = {
    "in its pool": (user([N0], "1-2"), INSIDE),
    "one process of two outside": (user([N0], "1-2", "3-4"), OUTSIDE),
    "two NPUs have both pools": (user([N0, N1], "0-3", "4-7"), INSIDE),
    "a GPU is no NPU of that number": (user([G0], "0-3"), OUTSIDE),
    "an NPU that has no CPUs by the plan": (user([N0, N9], "0-63"), UNJUDGED),
    "an NPU besides that was not asked for": (user([N0], "0-63", unassigned=["davinci9"]), UNJUDGED),
    "a lost NPU besides": (user([N0, N5], "0-3,10"), INSIDE),
    "a lost NPU alone": (user([N5], "0-63"), UNJUDGED),
    "no NPU is known": (user([], "0-63"), UNJUDGED),
    "its processes ended": (user([N0], ""), UNJUDGED),
    "only allowed": (user([N0], witness="allowed"), UNJUDGED),
    "a pod": (user([N0], "8-9", kind="pod", container=ID, name="serve"), (0, 0, 1)),
    "a pod in its pool": (user([N0], "1", kind="pod"), INSIDE),
}


@pytest.mark.parametrize("found, counts", PLACES.values(), ids=PLACES)
def test_a_user_is_inside_if_threads_stay_on_its_npus_pools(found, counts):
    result = placement([found], PLAN)
    assert (result.inside, len(result.outside), len(result.pods)) == counts


def test_what_runs_outside_is_said_with_where_it_would_run():
    container = user([N0, G0], "0-31", engine="docker", container=ID, kind="container", name="serve")
    found = placement([user([N0, N1], "0-3", "8"), container, user([N1], "5")], PLAN)
    assert sentence(found.outside) == (
        "3 accelerator processes run outside their pool: v.service (pid 10, 11, NPU 0-1) on CPUs 0-3,8, pool 0-7, "
        "container serve (pid 10, NPU 0, GPU 0) on CPUs 0-31, pool 0-3,8-9"
    )
    assert lines(found) == [
        "v.service (pid 10, 11, NPU 0-1): runs on CPUs 0-3,8, pool 0-7",
        "container serve (pid 10, NPU 0, GPU 0): runs on CPUs 0-31, pool 0-3,8-9",
        "1 more inside their pools",
    ]
    used = placement([user([N0], "9", memory_mib={"0": 3072, "12": 512})], PLAN)
    assert lines(used) == ["v.service (pid 10, NPU 0): runs on CPUs 9, pool 0-3, memory 3.0 GiB on node 0 and 0.5 GiB on node 12"]
    assert sentence([]) == "" and lines(placement([], PLAN)) == []


ADOPT = "bind with npu_affinity_adopt: now"
SESSION = {"kind": "session", "unit": "session-3.scope"}
OF_DOCKER = {"engine": "docker", "container": ID, "name": "serve", "kind": "container", "unit": "docker-%s.scope" % ID}
OF_PODMAN = {"engine": "podman", "container": ID, "kind": "container"}  # Quadlet starts it as a part of its service
OF_NERDCTL = {"engine": "containerd", "container": ID, "kind": "container", "unit": "nerdctl-%s.scope" % ID}
IN_SERVICE = "add {unit: v.service, npus: [%s]} to npu_affinity_services, bind and restart it"
AGAIN = "start it again with --cgroup-parent=%s-0.slice"
BY_COMMAND, BY_LAUNCH = "start it again: npu-affinity run npu-1 -- COMMAND", "start it again in npu-1.slice (filter npu.affinity.launch)"
ROOTLESS = " (a rootless container cannot start in such a slice)"
WORKLOAD = "add {name: NAME, npus: [0, 1]} to npu_affinity_workloads, bind, and start it again in the slice of this workload"
NEXT = [
    # a user, its next step, and that where the group around it does not grant these CPUs
    (user([N0], "9", **OF_DOCKER), "docker update --cpuset-cpus 0-3 serve", AGAIN % "npu"),
    (user([N1, G0], "0"), ADOPT + ", or " + IN_SERVICE % "1, gpu-0", IN_SERVICE % "1, gpu-0"),
    (user([N1], "0", **SESSION), ADOPT + ", or " + BY_COMMAND, BY_COMMAND),
    (user([N0], "9", **OF_PODMAN), ADOPT + ", or " + IN_SERVICE % "0", IN_SERVICE % "0"),
    (user([N0], "9", **OF_PODMAN, group=USER, unit="user@1.service"), ADOPT + ROOTLESS, "run it as root" + ROOTLESS),
    (user([G0], "0", **OF_NERDCTL), ADOPT + ", or " + AGAIN % "gpu", AGAIN % "gpu"),
    (user([N1], "0", kind="other", unit=None, group="/default/serve"), ADOPT + ", or " + BY_LAUNCH, BY_LAUNCH),
    (user([N0, N1], "9", **OF_DOCKER), "docker update --cpuset-cpus 0-7 serve", WORKLOAD),
    (user([N0, N1], "9", **SESSION), ADOPT + ", or " + WORKLOAD, WORKLOAD),
    (user([N1], "0", **SESSION, witness="tool"), BY_COMMAND, BY_COMMAND),  # npu-smi alone lists it
]


@pytest.mark.parametrize("found, step, elsewhere", NEXT)
def test_the_next_step_is_that_of_whoever_started_it(found, step, elsewhere):
    (away,) = placement([found], PLAN).outside
    command = step if step.startswith("docker update ") else ""
    assert (away["next"], away["command"]) == (step, command), "only what can be pasted is a command"
    (away,) = placement([{**found, "around": "3,10-12"}], PLAN).outside
    assert (away["next"], away["command"]) == (elsewhere + " (the group around it grants CPUs 3,10-12 only)", "")
    assert placement([{**found, "around": "0-12"}], PLAN).outside == placement([found], PLAN).outside


def test_workers_that_bind_themselves_need_the_host_to_bind():
    (away,) = placement([user([N1], "0", **SESSION)], PLAN, host_binds=False).outside
    assert away["next"] == "bind with npu_affinity_bound_by: host and npu_affinity_adopt: now, or " + BY_COMMAND


AROUND = [
    ("a.service", "/system.slice", "0-1", "0-1"),
    ("a.service", "/system.slice", "0-7", None),
    ("a.scope", "/system.slice/a.scope", "0-1", "0-1"),
]


@pytest.mark.parametrize("unit, group, grants, around", AROUND)
def test_a_user_tells_what_can_be_given_to_it(tree, unit, group, grants, around):
    tree.write({"/sys/devices/system/cpu/online": "0-7", "/sys/fs/cgroup%s/cpuset.cpus.effective" % group: grants})
    run(tree, 1, "a", "/system.slice/" + unit, "/dev/davinci0")
    (found,) = users(tree.host, NPUS)
    assert found.get("around") == around


def test_a_pod_outside_the_pool_is_the_kubelets_unless_adopted():
    pod = user([N0], "8-9", kind="pod", container=ID, name="serve")
    (remark,) = placement([pod], PLAN).remarks()
    assert remark.startswith("container serve (pid 10, NPU 0) runs on CPUs 8-9, pool 0-3: the kubelet places pods")
    found = placement([pod], PLAN, pods=True)
    adopt = "bind with npu_affinity_adopt: now and npu_affinity_adopt_pods: true"
    assert [(away["cpus"], away["pool"], away["next"]) for away in found.outside] == [("8-9", "0-3", adopt)]
    assert found.remarks() == []


LAUNCHERS = {
    "cron": ({"/proc/50/comm": "cron"}, True),
    "jupyterhub": ({"/proc/50/comm": "jupyterhub"}, True),
    "a unit whose processes outlive it": ({"/usr/lib/systemd/system/any.service": "[Service]\nKillMode=process\n"}, True),
    "two users": ({"/proc/50/status": "Uid:\t0\t0\t0\t0\n", "/proc/60/status": "Uid:\t1000\t0\t0\t0\n"}, True),
    "an API server and its worker": ({"/proc/50/comm": "vllm"}, False),
}


@pytest.mark.parametrize("files, shared", LAUNCHERS.values(), ids=LAUNCHERS)
def test_services_that_start_work_of_others_are_not_whole(files, shared, tree):
    run(tree, 60, "python3", "/system.slice/any.service", "/dev/davinci0")
    tree.write({"/sys/fs/cgroup/system.slice/any.service/cgroup.procs": "50\n60\n", "/proc/50/comm": "any", **files})
    (found,) = users(tree.host)
    expected = ("session", "python3", False) if shared else ("service", "any.service", True)
    assert (found["kind"], found["name"], is_whole(found)) == expected
