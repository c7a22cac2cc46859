# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import copy

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.slices import drop_in_text
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._entries import members, shown
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from ansible_collections.npu.affinity.plugins.module_utils._base.table import plan_table

TOPOLOGY = {
    "machine": {"architecture": "aarch64", "systemd": 249, "cgroup": "v2"},
    "kubelet": None,
    "cpus": {"online": "0-190", "offline": "191"},
    "numa": [{"id": 0, "cpus": "0-23"}, {"id": 6, "cpus": "144-167", "memory_mib": 131072}],
    "npus": [{"id": 0, "name": "910B3", "pci": "0000:c1:00.0", "numa": 6}, {"id": 1, "name": "910B3", "pci": "0000:01:00.0", "numa": None}],
    "problems": [],
}
PLAN = {
    "strategy": "topo_affinity", "requested": "auto", "reason": "npu-smi reports the affinity of every NPU.",
    "cpus": "0-191", "housekeeping": "", "lost": [], "repaired": [], "violations": [], "warnings": ["NPU 1 has no NUMA node."],
    "npus": [
        {"id": 0, "pci": "0000:c1:00.0", "pool": "144-167", "irq": "144-145", "main": "146-165", "acl": "166", "release": "167",
         "mems": "6", "memory_nodes": "6", "slice": "npu-0.slice"},
        {"id": 1, "pci": "0000:01:00.0", "pool": "0-23", "irq": "0-1", "main": "2-21", "acl": "22", "release": "23",
         "mems": "0", "memory_nodes": "0", "slice": "npu-1.slice"},
    ],
    "quality": {"disjoint": True, "whole_cores": True, "local": 0.5, "own_node": 0.25, "balance": 0, "smallest": 24,
                "idle": "24-143,168-191"},
}  # fmt: skip
ONE = {"unit": "vllm@0.service", "npus": [0]}
BOTH = {"unit": "big.service", "npus": [1, 0]}


def changed(original, **parts):
    result = copy.deepcopy(original)
    result.update(parts)
    return result


def on(**machine):
    return changed(TOPOLOGY, machine={**TOPOLOGY["machine"], **machine})


def test_cgroup_v2_gets_a_slice_per_npu_below_one_for_all():
    result = binding(TOPOLOGY, PLAN, Work())
    held = [("npu.slice", "0-23,144-167", "0,6"), ("npu-0.slice", "144-167", "6"), ("npu-1.slice", "0-23", "0")]
    assert [(unit["name"], unit["cpus"], unit["mems"]) for unit in result["parents"] + result["slices"]] == held
    assert result["expected"] == [{"unit": name, "cpus": cpus, "mems": mems} for name, cpus, mems in held]
    assert (result["enabled"], result["started"]) == (["npu.slice"], ["npu.slice", "npu-0.slice", "npu-1.slice"])


X86 = on(architecture="x86_64")
ONLY_GPUS = changed(TOPOLOGY, npus=[{**npu, "kind": "gpu"} for npu in TOPOLOGY["npus"]])
REPAIRED = {**PLAN, "repaired": ["NPUs 0 and 1 share CPUs."]}
APPLIED = {"npus": [{"id": 0}, {"id": 0, "kind": "gpu"}]}
# The host, its plan, what binds, and which words the summary has, or lacks.
IN_PROCESS = [
    ("Arm", TOPOLOGY, PLAN, "host", "enable_cpu_binding=false", True),
    ("x86_64", X86, PLAN, "host", "enable_cpu_binding", False),
    ("GPUs", ONLY_GPUS, PLAN, "host", "enable_cpu_binding", False),
    ("workers on Arm", TOPOLOGY, PLAN, "workers", "vLLM-Ascend divides its CPUs by topo_affinity", True),
    ("workers on x86_64", X86, REPAIRED, "workers", "Arm only, and this host is x86_64", True),
    ("workers on GPUs", ONLY_GPUS, PLAN, "workers", "NPUs only, and this host has GPUs", True),
]


@pytest.mark.parametrize("topology, plan, bound_by, words, present", [row[1:] for row in IN_PROCESS], ids=[row[0] for row in IN_PROCESS])
def test_in_process_binding_is_named_where_workers_do_it(topology, plan, bound_by, words, present):
    assert (words in binding(topology, plan, Work(bound_by=bound_by))["summary"]) == present


def driver(version):
    return changed(TOPOLOGY, driver={"version": version})


def inside(kind):
    return on(inside={"kind": kind, "why": "PID 1 is python3, not systemd"})


def silent(applied=APPLIED, **tools):
    return changed(TOPOLOGY, silent=tools, applied=applied)


OLD_DRIVER = "the Ascend driver is 25.3.rc1, and 25.5 or newer is required"
NO_DRIVER = "the version of the Ascend driver is not known, and 25.5 or newer is required"
NO_PROGRAM = "This host has no program systemctl, which the udev rule 90-npu-affinity.rules runs when a driver loads, and a bind "
# What is asked of which host, and what its refusals say.
REFUSED_HOSTS = [
    (refusals.driver_refusals, (driver("25.5.1"),), []),
    (refusals.driver_refusals, (driver("25.3.rc1"),), [OLD_DRIVER]),
    (refusals.driver_refusals, (driver(None),), [NO_DRIVER]),
    (refusals.driver_refusals, ({"npus": [{"kind": "gpu"}], "driver": {"version": None}},), []),
    (refusals.place_refusals, (inside("container"),), ["This is a container: PID 1 is python3, not systemd. "]),
    (refusals.place_refusals, (inside("chroot"),), ["This is a chroot: PID 1 is python3, not systemd. "]),
    (refusals.place_refusals, (inside("virtual machine"),), []),
    (refusals.place_refusals, (on(inside=None),), []),
    (refusals.silence_refusals, (silent(npu="It hangs."), False), ["answer of npu-smi, "]),
    (refusals.silence_refusals, (silent(npu="It hangs.", gpu="It hangs."), False), ["answer of npu-smi, ", "answer of nvidia-smi, "]),
    (refusals.silence_refusals, (silent({"npus": [{"id": 0}]}, gpu="It hangs."), False), []),
    (refusals.silence_refusals, (silent(npu="It hangs."), True), []),
    (refusals.silence_refusals, (silent(None, npu="It hangs."), False), []),
    (refusals.silence_refusals, (silent(), False), []),
    (refusals.program_refusals, ({"programs": {"python3": "/usr/bin/python3", "systemctl": None}},), [NO_PROGRAM]),
]


@pytest.mark.parametrize("function, host, words", REFUSED_HOSTS)
def test_hosts_that_a_bind_would_harm_are_refused(function, host, words):
    sentences = function(*host)
    assert [part in sentence for part, sentence in zip(words, sentences, strict=True)] == [True] * len(words)


UNCONFINED, OF_BOTH = {"CPUAffinity": "0-191"}, {"AllowedCPUs": "0-23,144-167", "AllowedMemoryNodes": "0,6"}
SETTINGS = [
    ("v2, one NPU", TOPOLOGY, ONE, "host", {"Slice": "npu-0.slice", **UNCONFINED}),
    ("v2, two NPUs", TOPOLOGY, BOTH, "host", {"Slice": "npu.slice", **OF_BOTH, **UNCONFINED}),
    ("v2, workers", TOPOLOGY, ONE, "workers", {"Slice": "npu.slice", **UNCONFINED}),
    ("v1", on(cgroup="v1", systemd=249), ONE, "host", {"CPUAffinity": "144-167", "NUMAPolicy": "bind", "NUMAMask": "6"}),
    ("hybrid", on(cgroup="hybrid", systemd=249), BOTH, "host", {"CPUAffinity": "0-23,144-167", "NUMAPolicy": "bind", "NUMAMask": "0,6"}),
    ("old systemd", on(cgroup="v1", systemd=239), ONE, "host", {"CPUAffinity": "144-167"}),
    ("v2 without cpusets", on(cpusets=False), ONE, "host", {"CPUAffinity": "144-167", "NUMAPolicy": "bind", "NUMAMask": "6"}),
    ("v2 but systemd 243", on(systemd=243), ONE, "host", {"CPUAffinity": "144-167", "NUMAPolicy": "bind", "NUMAMask": "6"}),
]


OF_NODES = [
    # the service, memory_nodes of NPU 0 and NPU 1, and how memory is bound without slices, and with them
    ("strict", ONE, ("6", "0"), {"NUMAPolicy": "bind", "NUMAMask": "6"}, "6"),
    ("wide", ONE, ("6-7", "0-1"), {"NUMAPolicy": "preferred", "NUMAMask": "6"}, "6-7"),
    ("wide, preferred takes one node only", BOTH, ("6-7", "0-1"), {}, "0-1,6-7"),
    ("none", ONE, ("", ""), {}, ""),
]


@pytest.mark.parametrize("service, allowed, policy, nodes", [row[1:] for row in OF_NODES], ids=[row[0] for row in OF_NODES])
def test_memory_is_bound_to_the_nodes_that_are_allowed(service, allowed, policy, nodes):
    entries = [{**entry, "memory_nodes": nodes} for entry, nodes in zip(PLAN["npus"], allowed, strict=True)]
    plan = {**PLAN, "npus": entries}
    settings = binding(on(cgroup="v1", systemd=249), plan, Work([service]))["services"][0]["settings"]
    assert {key: value for key, value in settings.items() if key != "CPUAffinity"} == policy
    workload = {"name": "a", "npus": service["npus"]}
    slices = {unit["name"]: unit["mems"] for unit in binding(TOPOLOGY, plan, Work(workloads=[workload]))["slices"]}
    assert slices == {"npu-0.slice": allowed[0], "npu-1.slice": allowed[1], "npu-a.slice": nodes}


@pytest.mark.parametrize("topology, service, bound_by, settings", [row[1:] for row in SETTINGS], ids=[row[0] for row in SETTINGS])
def test_what_a_service_gets(topology, service, bound_by, settings):
    (drop_in,) = binding(topology, PLAN, Work([service], bound_by=bound_by))["services"]
    assert (drop_in["name"], drop_in["settings"]) == (service["unit"], settings)


NPUS = "ASCEND_RT_VISIBLE_DEVICES"
GPUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
WITH_GPU = {**PLAN, "npus": [PLAN["npus"][0], {**PLAN["npus"][1], "kind": "gpu", "slice": "gpu-1.slice"}]}
ORDER = "vllm@0.service has the CPUs of GPU 1, and /etc/a.conf sets CUDA_DEVICE_ORDER=FASTEST_FIRST instead of PCI_BUS_ID. It is left so"


def elsewhere(name, value, wins=False):
    return {name: {"value": value, "file": "/etc/a.conf", "wins": wins}}


# What other files of the service set, the plan, NPUs of the service, what its drop-in says, and the remark.
SET_ELSEWHERE = [
    ("nothing", {}, PLAN, [0], {NPUS: "0"}, None),
    ("nothing, two NPUs", {}, PLAN, [1, 0], {NPUS: "0,1"}, None),
    ("nothing, a GPU", {}, WITH_GPU, [1], GPUS, None),
    ("nothing, an NPU and a GPU", {}, WITH_GPU, [0, 1], {NPUS: "0", **GPUS}, None),
    ("the same", elsewhere(NPUS, "0"), PLAN, [0], {}, None),
    ("a part", elsewhere(NPUS, "1"), PLAN, [0, 1], {}, None),
    ("other ids", elsewhere(NPUS, "0,3"), PLAN, [0], {}, f"/etc/a.conf sets {NPUS}=0,3 instead of 0. It is left so"),
    ("no ids", elsewhere(NPUS, "%E"), PLAN, [0], {}, f"{NPUS}=%E instead of 0"),
    ("other ids that win anyway", elsewhere(NPUS, "3", wins=True), PLAN, [0], {NPUS: "0"}, f"{NPUS}=3 instead of 0"),
    ("those of GPUs on a host with NPUs", elsewhere("CUDA_VISIBLE_DEVICES", "3"), PLAN, [0], {NPUS: "0"}, None),
    ("the order alone", elsewhere("CUDA_DEVICE_ORDER", "FASTEST_FIRST"), WITH_GPU, [1], {}, ORDER),
    ("the same order alone", elsewhere("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), WITH_GPU, [1], GPUS, None),
]


@pytest.mark.parametrize("others, plan, npus, says, remark", [row[1:] for row in SET_ELSEWHERE], ids=[row[0] for row in SET_ELSEWHERE])
def test_what_a_service_is_told_of_its_devices(others, plan, npus, says, remark):
    topology, services = changed(TOPOLOGY, unit_environment={"vllm@0.service": others}), [{"unit": "vllm@0.service", "npus": npus}]
    (service,) = binding(topology, plan, Work(services))["services"]
    assert service["environment"] == says
    sentences = remarks(topology, plan, Work(services))
    assert (sentences == []) if remark is None else remark in sentences[0]
    (service,) = binding(topology, plan, Work(services, environment={"visible_devices": False}))["services"]
    assert (service["environment"], service["devices"]) == ({}, {})
    assert remarks(topology, plan, Work(services, environment={"visible_devices": False})) == []
    static = changed(topology, kubelet={"policy": "static"})
    assert binding(static, plan, Work(services))["services"] == []
    assert not any(service["unit"] in remark for service in services for remark in remarks(static, plan, Work(services)))


OFF = "SGLANG_SET_CPU_AFFINITY"
SGLANG = {"SGLANG_AUTO_NUMA_BIND": "0", OFF: "0"}
AGAINST = f"/etc/a.conf sets {OFF}=1, which overrides the drop-in of vllm@0.service with {OFF}=0: SGLang then binds itself."
# The engine, what other files of the service set, which program binds, variables and comment of the drop-in, and the remark.
BINDERS = [
    ("none", None, {}, "host", {}, "", None),
    ("none, on by another file", None, elsewhere(OFF, "1"), "host", {}, "", f"/etc/a.conf sets {OFF}=1: SGLang then binds itself on the"),
    ("none, off by another file", None, elsewhere(OFF, "0"), "host", {}, "", None),
    ("by a variable", "sglang", {}, "host", SGLANG, " SGLang: leave --numa-node out.", None),
    ("by the default of a variable", "mindie", {}, "host", {"BIND_CPU": "0"}, "", None),
    ("by an argument", "vllm", {}, "host", {}, " vLLM: leave --numa-bind", None),
    ("by both", "vllm_ascend", {}, "host", {"OMP_PROC_BIND": "false"}, " vLLM-Ascend: add --additional-config '{\"enable_cpu_bin", None),
    ("which is meant to bind", "vllm_ascend", {}, "workers", {"OMP_PROC_BIND": "false"}, "", None),
    ("on by an earlier file", "sglang", elsewhere(OFF, "1"), "host", SGLANG, " SGLang", None),
    ("on by a file that wins", "sglang", elsewhere(OFF, "1", wins=True), "host", SGLANG, " SGLang", AGAINST),
    ("off by a file that wins", "sglang", elsewhere(OFF, "0", wins=True), "host", SGLANG, " SGLang", None),
]


@pytest.mark.parametrize("engine, others, bound_by, says, comment, remark", [row[1:] for row in BINDERS], ids=[row[0] for row in BINDERS])
def test_the_engine_of_a_service_is_told_not_to_bind_itself(engine, others, bound_by, says, comment, remark):
    topology = changed(TOPOLOGY, unit_environment={"vllm@0.service": others})
    entry = {"npus": [0], **({"engine": engine} if engine else {})}
    ways = [([{"unit": "vllm@0.service", **entry}], []), ([], [{"name": "a", "units": ["vllm@0.service"], **entry}])]
    for services, groups in ways:
        (service,) = binding(topology, PLAN, Work(services, groups, bound_by=bound_by))["services"]
        assert service["switches"] == says
        assert service["environment"] == {NPUS: "0", **says}
        assert service["description"].startswith("CPUs and memory of NPU 0." + comment)
        assert service["description"] == "CPUs and memory of NPU 0." or comment
        sentences = remarks(topology, PLAN, Work(services, groups))
        assert (sentences == []) if remark is None else sentences[0].startswith(remark)
    drop_in = drop_in_text(service)
    lines = [f"Environment={name}={value}" for name, value in {NPUS: "0", **says}.items()]
    assert [line for line in drop_in.splitlines() if line.startswith("Environment=")] == lines


PAIR = {"name": "llm-a", "npus": [1, 0], "units": ["llm.service"]}


def test_a_workload_has_one_slice_with_the_union_of_its_npus():
    result = binding(TOPOLOGY, PLAN, Work(workloads=[PAIR]))
    assert [(unit["name"], unit["cpus"], unit["mems"]) for unit in result["slices"]][-1] == ("npu-llm_a.slice", "0-23,144-167", "0,6")
    assert result["parents"][0]["wants"] == ["npu-0.slice", "npu-1.slice", "npu-llm_a.slice"]
    (service,) = result["services"]
    assert (service["name"], service["description"], service["needs"]) == ("llm.service", "CPUs and memory of NPU 0, 1.", None)
    assert (service["settings"], service["switches"]) == ({"Slice": "npu-llm_a.slice", **UNCONFINED}, {})
    assert service["environment"] == service["devices"] == {NPUS: "0,1"}
    (old,) = binding(on(cgroup="v1", systemd=249), PLAN, Work(workloads=[PAIR]))["services"]
    assert old["settings"] == {"CPUAffinity": "0-23,144-167", "NUMAPolicy": "bind", "NUMAMask": "0,6"}
    (workload,) = workloads(PLAN, [PAIR], TOPOLOGY)
    assert workload["cpus_per_node"] == {"0": 24, "6": 24}
    assert [(process["id"], process["pool"]) for process in workload["processes"]] == [(0, "144-167"), (1, "0-23")]


NAMES = [
    ("a logic id", 0, ["npu-0.slice"]),
    ("as text", "1", ["npu-1.slice"]),
    ("a slice", "npu-5", ["npu-5.slice"]),
    ("a slice with its suffix", "npu-1.slice", ["npu-1.slice"]),
    ("a GPU with the number of an NPU", "gpu-1", ["gpu-1.slice"]),
    ("a slice that the plan does not have", "npu-3", []),
    ("a PCI address", "0000:C1:00.0", ["npu-0.slice"]),
    ("without the domain", "01:00.0", ["npu-1.slice", "npu-5.slice"]),
    ("a chip", {"pci": "0000:01:00.0", "chip": 1}, ["npu-5.slice"]),
    ("a physical id", {"phy_id": 7}, ["npu-5.slice"]),
    ("a physical id that nothing tells", {"phy_id": 1}, []),
    ("the number of a slice, not the present logic id", 5, ["npu-5.slice"]),
    ("a present logic id that is the number of no slice", 2, []),
    ("a lost NPU", 9, ["npu-9.slice"]),
    ("an NPU of another host", "0000:f1:00.0", []),
]
CHIP = {**PLAN["npus"][1], "id": 2, "chip": 1, "phy_id": 7, "slice": "npu-5.slice"}
NAMED = {
    **PLAN,
    "npus": [*PLAN["npus"], CHIP, {**PLAN["npus"][1], "kind": "gpu", "id": 1, "pci": "0000:02:00.0", "slice": "gpu-1.slice"}],
    "lost": [{**PLAN["npus"][0], "id": 9, "pci": "0000:e1:00.0", "slice": "npu-9.slice"}],
}


@pytest.mark.parametrize("name, slices", [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_what_a_name_of_an_npu_stands_for(name, slices):
    assert [entry["slice"] for entry in members(NAMED, [name])[0]] == slices


def test_services_of_one_npu_are_a_remark():
    (sentence,) = remarks(TOPOLOGY, PLAN, Work([ONE, BOTH]))
    assert sentence == "vllm@0.service and big.service all use NPU 0, and share its CPUs."


LOST = {**PLAN, "npus": [{**PLAN["npus"][1], "id": 0}], "lost": [{**PLAN["npus"][0], "kind": "npu"}]}


@pytest.mark.parametrize("topology", [TOPOLOGY, on(cgroup="v1")], ids=["v2", "v1"])
def test_a_service_of_a_lost_npu_keeps_its_drop_in(topology):
    services, pair = [ONE, {"unit": "b.service", "npus": [1]}], {**PAIR, "share": True}
    made, before = (binding(topology, plan, Work(services, [pair]))["services"] for plan in (LOST, PLAN))
    assert [service["settings"] for service in made] == [service["settings"] for service in before]
    ids = [service["environment"]["ASCEND_RT_VISIBLE_DEVICES"] for service in made]
    assert ids == ["-1", "0", "0"], "the ids of now, and none in place of one that is lost: 0 is another's"
    (sentence, _pair) = remarks(topology, LOST, Work(services, [pair]))
    assert sentence.startswith("vllm@0.service has the CPUs of npu-0.slice, although NPU 0 (PCI 0000:c1:00.0) cannot be found")


def test_service_of_a_lost_npu_without_pool_has_no_own_limit():
    gone = {**LOST["lost"][0], **dict.fromkeys(("pool", "irq", "main", "acl", "release", "mems", "memory_nodes"), "")}
    result = binding(TOPOLOGY, {**LOST, "lost": [gone]}, Work([ONE, BOTH]))
    shared = {"Slice": "npu.slice", "AllowedCPUs": "0-23", "AllowedMemoryNodes": "0", **UNCONFINED}
    assert [service["settings"] for service in result["services"]] == [{"Slice": "npu-0.slice", **UNCONFINED}, shared]
    assert [unit["name"] for unit in result["slices"]] == ["npu-1.slice"]
    (service,) = binding(on(cgroup="v1"), {**LOST, "lost": [gone]}, Work([ONE, BOTH]))["services"]
    assert service["name"] == "big.service"


KEPT, PART = {**PLAN, "housekeeping": "24-25"}, {**PLAN, "options": {"npus": [0, 1]}}
ALL, EACH = {"npu.slice": "0-23,144-167"}, {"npu-0.slice": "144-167", "npu-1.slice": "0-23"}
WORKERS_BIND, CONFINED = {"bound_by": "workers"}, dict.fromkeys(("system.slice", "user.slice", "init.scope"), "24-25")
NONE = {"parents": {}, "slices": {}, "housekeeping": {}}
OF_GPU = {**PLAN["npus"][1], "slice": "gpu-0.slice", "irq": "", "acl": "", "release": "", "main": "0-23"}
BOTH_KINDS = {**PLAN, "npus": [PLAN["npus"][0], OF_GPU]}
LESS = {**PLAN, "npus": PLAN["npus"][:1], "lost": PLAN["npus"][1:]}
RESERVED = "reservedSystemCPUs cover the IRQ CPUs 0-1,144-145 and the housekeeping CPUs 24-25."
# The host, its plan, what is named, the method, units with their CPUs, and what the summary says.
UNITS = [
    ("workers share one slice", TOPOLOGY, PLAN, WORKERS_BIND, "slices", {"parents": ALL, "slices": {}}, "workers bind themselves"),
    ("workers of some NPUs take all", TOPOLOGY, PART, WORKERS_BIND, "slices", {"parents": {"npu.slice": "0-191"}}, ""),
    ("which the host does not", TOPOLOGY, PART, {}, "slices", {"parents": ALL}, ""),
    ("housekeeping confines the system", TOPOLOGY, KEPT, {}, "slices", {"housekeeping": CONFINED}, ""),
    ("the slice of a lost NPU stays", TOPOLOGY, LESS, {}, "slices", {"parents": ALL, "slices": EACH}, ""),
    ("a static kubelet keeps its CPUs", changed(TOPOLOGY, kubelet={"policy": "static"}), KEPT, {}, "none", {"slices": {}}, RESERVED),
    ("a hybrid host", on(cgroup="hybrid"), KEPT, {"services": [ONE]}, "services", NONE, "cgroup hybrid, systemd 249"),
    ("what v1 ignores is not written", on(cgroup="v1"), KEPT, {"services": [ONE]}, "services", NONE, "ignores AllowedCPUs="),
    ("GPUs have slices of their own", TOPOLOGY, BOTH_KINDS, {}, "slices", {"parents": {"npu.slice": "144-167", "gpu.slice": "0-23"}}, ""),
]


@pytest.mark.parametrize("topology, plan, work, method, units, words", [row[1:] for row in UNITS], ids=[row[0] for row in UNITS])
def test_units_of_a_host(topology, plan, work, method, units, words):
    result = binding(topology, plan, Work(**work))
    assert {part: {unit["name"]: unit["cpus"] for unit in result[part]} for part in units} == units
    assert result["method"] == method and words in result["summary"]
    assert bool(result["expected"]) == (method == "slices")
    wanted = sorted(name for unit in result["parents"] for name in unit["wants"])
    assert wanted == sorted(unit["name"] for unit in result["slices"])


OLD, STATIC = {"machine": {"cgroup": "v1", "systemd": 243}}, {"kubelet": {"policy": "static"}}
NONE_POLICY = {"kubelet": {"policy": "none", "config_dir": "/etc/kubernetes/kubelet.conf.d", "warnings": []}}
SERVICE, TOGETHER = {"unit": "a.service", "npus": [0]}, {"name": "pair", "npus": [0, 1]}
WITHOUT_NPUS = {**host([0, 0], family="gpu"), "irqbalance": {}}
OFF, KUBELET = "npu_affinity_slices_enabled is false", ("this host", "the kubelet's CPU manager is static, and services get no drop-ins")
WITHOUT_SLICES = [
    # what the host has, settings, and for each sentence the variable, what it does not reach and why
    (OLD, {"housekeeping": 1}, [("housekeeping", "system.slice, user.slice, init.scope", "systemd cannot confine them on this host")]),
    (OLD, {"workloads": [TOGETHER]}, [("workloads", "pair", "this host binds services only")]),
    (OLD, {"workloads": [{**TOGETHER, "units": ["a.service"]}], "services": []}, []),
    (OLD, {"services": [SERVICE]}, []),
    (STATIC, {"services": [SERVICE]}, [("services", "a.service", "the kubelet's CPU manager is static")]),
    (STATIC, {"workloads": [TOGETHER]}, [("workloads", "pair", "the kubelet's CPU manager is static")]),
    (STATIC, {"housekeeping": 1}, []),
    (STATIC, {"services": [SERVICE], "environment": {"openmp": True}}, [("services", "a.service", "is static"), ("environment", *KUBELET)]),
    (STATIC, {"services": [SERVICE], "slices_enabled": False}, [("services", "a.service", OFF)]),
    ({}, {"services": [SERVICE], "slices_enabled": False, "threads_enabled": True}, []),
    ({}, {"workloads": [TOGETHER], "slices_enabled": False, "threads_enabled": True}, [("workloads", "pair", OFF)]),
    ({}, {"workloads": [{**TOGETHER, "roles": {"irq": 2}}], "slices_enabled": False}, []),
    ({}, {"housekeeping": 1, "slices_enabled": False}, [("housekeeping", "system.slice, user.slice, init.scope", OFF)]),
    ({}, {"environment": {"openmp": True}, "slices_enabled": False}, [("environment", "this host", OFF)]),
    ({}, {"environment": {"openmp": True}, "slices_enabled": False, "adopt": "now"}, []),
    ({}, {"kubelet_enabled": True}, [("kubelet_enabled", "this host", "it has no kubelet")]),
    (WITHOUT_NPUS, {"device_share_enabled": True}, [("device_share_enabled", "this host", "it has no NPU")]),
    (WITHOUT_NPUS, {"irq_enabled": True, "irqbalance": "stop"}, [("irqbalance", "this host", "no interrupt has CPUs of its own")]),
    (NONE_POLICY, {"services": [SERVICE], "kubelet_enabled": True, "kubelet_restart": True}, [("services", "a.service", "is static")]),
    (NONE_POLICY, {"services": [SERVICE]}, []),
    ({}, {"housekeeping": 1, "workloads": [TOGETHER]}, []),
]


@pytest.mark.parametrize("facts, settings, expected", WITHOUT_SLICES)
def test_a_setting_without_effect_on_the_host_is_reported(facts, settings, expected):
    topology = {**host([0, 0]), "machine": {"cgroup": "v2", "systemd": 255}, **facts}
    state = state_of(topology, **settings)
    remarks_made = [text for text in [*state["remarks"], *state["notes"].get("irq", ())] if "has no effect" in text]
    assert state["refusals"] == [] and len(remarks_made) == len(expected)
    for text, (name, what, why) in zip(remarks_made, expected, strict=True):
        assert text.startswith(f"npu_affinity_{name} has no effect on {what}: ") and why in text and text.endswith("[NPU_NO_EFFECT]")
    assert (state["summary"] == f"Workloads get no slices, because {OFF}.") is (settings.get("slices_enabled") is False)


def state_of(topology, **settings):
    given = {f"npu_affinity_{name}": value for name, value in {"irq_enabled": False, **settings}.items()}
    return desired_state(topology, of_features(given))


FOLLOWING = [
    # what the host has, the code of a refusal, the CPUs of the system and what it has besides
    ({}, "", "0,8", "1-7,9-15"),
    ({"isolated": "4-5"}, "", "0,8", "1-3,6-7,9-15"),
    (OLD, "NPU_CANNOT_FOLLOW", "", ""),
    (STATIC, "NPU_CANNOT_FOLLOW", "", ""),
    (WITHOUT_NPUS, "", "", ""),
]


@pytest.mark.parametrize("facts, code, floor, most", FOLLOWING)
def test_housekeeping_that_follows_has_a_floor_and_a_watcher(facts, code, floor, most):
    topology = {**host([0, 1], nodes=2, cores=8), "machine": {"cgroup": "v2", "systemd": 255}, **facts}
    topology["cpus"] = {**topology["cpus"], "isolated": facts.get("isolated", "")}
    if facts is WITHOUT_NPUS:
        topology["npus"] = []
    fixed, state = (state_of(topology, strategy="auto", housekeeping=value) for value in (1, "follow"))
    assert list(state["codes"]) == ([code] if code else []), state["refusals"]
    confined = [entry for entry in state["expected"] if entry["unit"] in CONFINED]
    assert [(entry["cpus"], entry["more"]) for entry in confined] == [(floor, most)] * (3 if most else 0)
    new = {entry["path"].rpartition("/")[2]: entry["content"] for entry in state["files"] if entry not in fixed["files"]}
    settings, watcher = new.pop("housekeeping.json", ""), new.pop("npu-affinity-watch.service", "")
    assert f'"floor": "{floor}"' in settings and f'"most": "{most}"' in settings if most else not settings
    assert "ExecStopPost=/usr/bin/python3 -m npu_affinity watch --end\n" in watcher if most else not watcher
    assert set(new) <= {"plan.json"} and ("npu-affinity-watch.service" in state["started"]) == bool(most)


def test_the_watcher_is_one_file_of_all_features():
    topology = {**host([0, 1], nodes=2, cores=8), "machine": {"cgroup": "v2", "systemd": 255}}
    state = state_of(topology, housekeeping="follow", adopt="always", threads_enabled=True)
    paths = [entry["path"] for entry in state["files"]]
    assert len(paths) == len(set(paths)) and state["started"].count("npu-affinity-watch.service") == 1


@pytest.mark.parametrize("npus, refused", [([0, 0], 1), ([], 0)])
def test_a_host_to_be_left_alone_needs_no_program(npus, refused):
    topology = {**host(npus), "machine": {"cgroup": "v2", "systemd": 255}, "programs": {"systemctl": None, "python3": "/usr/bin/python3"}}
    state = state_of(topology)
    assert len(state["codes"].get("NPU_PROGRAM_MISSING", [])) == len(state["refusals"]) == refused


NO_NAMES = ["npu0", {"id": 3}, {"pci": "x"}, {"phy_id": "a"}, {"phy_id": True}, -1, None, "0000:c1:00"]
VIOLATED = {**PLAN, "violations": ["NPU 0 and NPU 1 share CPUs 0-3."]}
A, A_SHARED, B = {"name": "a", "npus": [0, 1]}, {"name": "a", "npus": [0, 1], "share": True}, {"name": "b", "npus": [1]}
A_ALONE = {"name": "a", "npus": [0]}
NOT_WORKERS = "this plan is not what the workers will do, because the published rule was repaired: NPUs 0 and 1 share CPUs."
# The plan, its services and workloads, which program binds, and the sentence of the refusal.
REFUSALS = [
    (PLAN, [{"unit": "vllm", "npus": [0]}], [], "host", "'vllm' is not the name of a systemd service, such as vllm@0.service."),
    (PLAN, [{"unit": "../x.service", "npus": [0]}], [], "host", "'../x.service' is not the name of a systemd service"),
    (PLAN, [{**ONE, "npus": []}], [], "host", "npu_affinity_services: vllm@0.service names no NPU or GPU."),
    (PLAN, [{**ONE, "npus": [0, 8]}], [], "host", "vllm@0.service wants NPU 8, but the plan of this host has NPU 0, 1."),
    (PLAN, [ONE, ONE], [], "host", "vllm@0.service is named more than once in npu_affinity_services, _workloads and _vnpus; name it once."),
    (VIOLATED, [], [], "host", "NPU 0 and NPU 1 share CPUs 0-3."),
    (REPAIRED, [], [], "workers", NOT_WORKERS),
    (PLAN, [], [{**A, "name": "7"}], "host", "npu_affinity_workloads: '7' is not a name"),
    (PLAN, [], [{**A, "name": "a/b"}], "host", "npu_affinity_workloads: 'a/b' is not a name"),
    (PLAN, [], [{**A, "npus": []}], "host", "npu_affinity_workloads: a names no NPU or GPU."),
    (PLAN, [], [{**A, "npus": [0, 9]}], "host", "npu_affinity_workloads: a wants NPU 9, but the plan of this host has NPU 0, 1."),
    (PLAN, [], [{**A, "units": ["x"]}], "host", "'x' is not the name of a systemd service"),
    (PLAN, [], [PAIR, {**PAIR, "units": []}], "host", "npu_affinity_workloads: llm-a is named more than once."),
    (PLAN, [], [A, {**B, "npus": ["0000:01:00.0"]}], "host", "workload a and workload b both have NPU 1"),
    (PLAN, [], [A_SHARED, B], "host", "workload a and workload b both have NPU 1"),
    (PLAN, [ONE], [A], "host", "workload a and vllm@0.service both have NPU 0"),
    (PLAN, [BOTH], [{**A_ALONE, "share": "false"}], "host", "workload a and big.service both have NPU 0"),
    (PLAN, [], [{**A_ALONE, "name": "llm-a"}, {**B, "name": "llm_a"}], "host", "llm-a and llm_a would have one slice"),
    (PLAN, [], [{**A_ALONE, "share": "perhaps"}], "host", "a: share: expected true or false; got 'perhaps'"),
    *((NAMED, [{**ONE, "npus": [name]}], [], "host", f"vllm@0.service: {shown(name)} names no NPU or GPU: ") for name in NO_NAMES),
]


@pytest.mark.parametrize("plan, services, groups, bound_by, sentence", REFUSALS, ids=[row[-1][:60] for row in REFUSALS])
def test_what_is_refused(plan, services, groups, bound_by, sentence):
    sentences = refusals.plan_refusals(TOPOLOGY, plan, Work(services, groups, bound_by=bound_by))
    assert sentence in sentences[0]
    with pytest.raises(ValueError):
        binding(TOPOLOGY, plan, Work(services, groups, bound_by=bound_by))


OF_B = {"unit": "b.service", "npus": [1]}
SHARED = [([A_SHARED, {**B, "share": "yes"}], []), ([{**A_ALONE, "share": True}], [ONE, OF_B]), ([A_ALONE, B], [])]


@pytest.mark.parametrize("groups, services", SHARED)
def test_workloads_share_cpus_on_purpose(groups, services):
    assert refusals.plan_refusals(TOPOLOGY, PLAN, Work(services, groups)) == []


def test_host_without_npus_is_refused_only_if_something_failed():
    nothing = changed(PLAN, npus=[])
    assert refusals.plan_refusals(TOPOLOGY, nothing, Work()) == []
    assert binding(TOPOLOGY, nothing, Work())["method"] == "none"
    (sentence,) = refusals.plan_refusals(changed(TOPOLOGY, problems=["npu-smi info failed: -8005."]), nothing, Work())
    assert sentence == "No NPU of this host can be planned: npu-smi info failed: -8005."


def test_the_table_says_who_gets_what_and_why():
    assert plan_table(PLAN, TOPOLOGY, summary="By slices.") == [
        "NPU  name   PCI           NUMA  pool     IRQ      main     ACL  release  memory  slice",
        "0    910B3  0000:c1:00.0  6     144-167  144-145  146-165  166  167      6       npu-0.slice",
        "1    910B3  0000:01:00.0  ?     0-23     0-1      2-21     22   23       0       npu-1.slice",
        "strategy   topo_affinity, auto was requested. npu-smi reports the",
        "           affinity of every NPU.",
        "CPUs       0-191 divided, idle 24-143,168-191",
        "quality    pools disjoint, cores whole, 50% of the CPUs local to their",
        "           NPU, 25% on its own NUMA node, each pool 24 CPUs",
        "memory     node 6 (128 GiB) for NPU 0, node 0 (size not known) for NPU 1",
        "warning    NPU 1 has no NUMA node.",
        "bound      By slices.",
    ]


def test_a_role_for_kv_caches_has_a_column_where_a_plan_has_it():
    with_kv = changed(PLAN, npus=[{**PLAN["npus"][0], "main": "146-163", "kv": "164-165"}, PLAN["npus"][1]])
    heading, first, second = plan_table(with_kv, TOPOLOGY)[:3]
    assert heading.split()[6:9] == ["main", "KV", "ACL"] and "KV" not in plan_table(PLAN, TOPOLOGY)[0]
    assert (first.split()[6:9], second.split()[6:9]) == (["146-163", "164-165", "166"], ["2-21", "-", "22"])
    assert plan_table(changed(PLAN, npus=[]), changed(TOPOLOGY, npus=[]))[0] == "no accelerator"


# What the setting names, where only the session's PATH leads to a tool, and what units of the host get.
NAMED_TOOLS = [("", None, None), ("", "/opt/npu-smi", "/opt/npu-smi"), ("/srv/npu-smi", "/opt/npu-smi", "/srv/npu-smi")]


@pytest.mark.parametrize("setting, path, expected", NAMED_TOOLS)
def test_units_name_a_tool_that_they_would_not_find(setting, path, expected):
    driver = {"version": "25.5.1", "npu_smi": "25.5.1"} | ({"path": path} if path else {})
    topology = {**host([0, 0]), "machine": {"cgroup": "v2", "systemd": 255}, "driver": driver}
    state = state_of(topology, device_share_enabled=True, npu_smi=setting)
    assert state.get("npu_smi") == expected
    assert state["live"]["device_share"]["npu_smi"] == (expected or "")
