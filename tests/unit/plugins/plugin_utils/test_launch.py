# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and texts to paste: each is read back by whoever reads it in the end, or by the nearest thing to it."""

from __future__ import annotations

import collections
import configparser
import copy
import fnmatch
import http.server
import json
import os
import re
import shlex
import shutil
import socketserver
import subprocess
import threading

import celpy
import kubernetes_validate
import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding, slices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.recipes import FORMS, launch
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.fakes.two_npus import PLAN, TOPOLOGY

ENTRY = PLAN["npus"][0]
GPU = {"id": 3, "pci": "0000:03:00.0", "pool": "8-15", "irq": "", "mems": "0", "slice": "gpu-3.slice"}
GPUS = {"name": "pair", "npus": [2, 3], "pool": "0-15", "mems": "0", "slice": "gpu-pair.slice"}
PAIR = workloads(PLAN, [{"name": "pair", "npus": [0, 1]}], TOPOLOGY)[0]
ALL_IN_ONE = {"name": "tp2", "npus": [{"id": 0, "phy_id": 4}, {"id": 1, "phy_id": 5}], "cpus": "0-31", "mems": "0,1", "slice": "npu.slice"}
NO_SLICE = {"name": "free", "npus": [{"id": 0, "phy_id": 4}], "cpus": "4-7", "mems": "0"}
ENGINES = ("docker", "podman", "nerdctl")
COMMANDS = (*ENGINES, "ctr", "taskset", "numactl", "systemd_run")
HARD_WORDS = ["echo", "a b", "it's", '"quoted"', "$HOME", "100%", "back\\slash", "#1", ";x", "*", "two\nlines", "$(date)", ""]


def changed(topology=None, **parts):
    return {**copy.deepcopy(topology or TOPOLOGY), **parts}


V1 = changed(machine={"cgroup": "v1", "systemd": 249})
OLD = changed(machine={"cgroup": "v1", "systemd": 239})
X86 = changed(machine={"cgroup": "v2", "systemd": 252, "architecture": "x86_64"})
WITH_STATIC_KUBELET = changed(kubelet={"policy": "static", "exclusive": {}})
SMT = changed(cpus={"online": "0-31", "siblings": [f"{cpu},{cpu + 8}" for cpu in (*range(8), *range(16, 24))]})


def words(entry, form, **options):
    return shlex.split(launch(entry, form, notes=False, **options))


def loaded(entry, form, **options):
    return yaml.safe_load(launch(entry, form, **options))


def limits(entry, **options):
    return loaded(entry, "kubernetes", **options)["spec"]["containers"][0]["resources"]["limits"]


class Repeated(collections.OrderedDict):
    """Keeps every value of a key that a unit file repeats."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


def unit(entry, form, **options):
    """Return a unit file as {section: {key: values}}."""
    reader = configparser.RawConfigParser(strict=False, dict_type=Repeated, delimiters=("=",), comment_prefixes=("#",))
    reader.optionxform = str
    reader.read_string(launch(entry, form, **options))
    return {section: {key: value.split("\n") for key, value in reader[section].items()} for section in reader.sections()}


def test_the_entry_is_one_of_a_real_plan():
    assert (ENTRY["pool"], ENTRY["irq"], ENTRY["mems"], ENTRY["slice"]) == ("16-31", "16-17", "1", "npu-0.slice")


PLACEMENT = [
    ("a plan's entry", ENTRY, {}, ["--cgroup-parent=npu-0.slice", "--cpuset-cpus=16-31", "--cpuset-mems=1"]),
    ("a workload", PAIR, {}, ["--name=pair", "--cgroup-parent=npu-pair.slice", "--cpuset-cpus=0-31", "--cpuset-mems=0-1"]),
    ("no slice", NO_SLICE, {}, ["--name=free", "--cpuset-cpus=4-7", "--cpuset-mems=0"]),
    ("no memory nodes", {**ENTRY, "memory_nodes": ""}, {}, ["--cgroup-parent=npu-0.slice", "--cpuset-cpus=16-31"]),
    ("CPUs in published order", {"pool": "28-31,16-17", "mems": "1"}, {}, ["--cpuset-cpus=16-17,28-31", "--cpuset-mems=1"]),
    ("a host without slices", ENTRY, {"topology": V1}, ["--cpuset-cpus=16-31", "--cpuset-mems=1"]),
    ("a host of a static kubelet", ENTRY, {"topology": WITH_STATIC_KUBELET}, ["--cpuset-cpus=16-31", "--cpuset-mems=1"]),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("entry, options, flags", [row[1:] for row in PLACEMENT], ids=[row[0] for row in PLACEMENT])
def test_engines_place_a_container(engine, entry, options, flags):
    written = words(entry, engine, devices=False, image="vllm", **options)
    assert written[:2] == [engine, "run"]
    assert written[2:] == [*flags, "vllm"]


def registered(*numbers, known_by="unknown"):
    """Return the topology with these device numbers."""
    devices = [{"number": number, "file": None if number is None else f"/dev/davinci{number}", "known_by": known_by} for number in numbers]
    return changed(
        npus=[{**npu, "phy_id": device["number"], "device": device} for npu, device in zip(TOPOLOGY["npus"], devices, strict=True)]
    )


ASSUMED, UNKNOWN = registered(0, 1), registered(None, None)
ASCEND_MOUNTS = [
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64/",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
]
COMMON_NODES = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
DEVICES = [
    ("a number that only the names of all files tell", ENTRY, {"topology": ASSUMED}, ["/dev/davinci0"]),
    ("physical id of a plan's entry", ENTRY, {}, ["/dev/davinci4"]),
    ("physical ids of the topology", ENTRY, {"topology": TOPOLOGY}, ["/dev/davinci4"]),
    ("physical id of the entry", {**ENTRY, "phy_id": 6}, {}, ["/dev/davinci6"]),
    ("physical ids of a workload", PAIR, {"topology": TOPOLOGY}, ["/dev/davinci4", "/dev/davinci5"]),
    ("nodes of the user", {"cpus": "0-4", "devices": ["/dev/davinci2"]}, {"topology": TOPOLOGY}, ["/dev/davinci2"]),
]


@pytest.mark.parametrize("entry, options, nodes", [row[1:] for row in DEVICES], ids=[row[0] for row in DEVICES])
def test_containers_get_their_npus_and_the_driver(entry, options, nodes):
    for engine in ENGINES:
        written = words(entry, engine, **options)
        assert [word[9:] for word in written if word.startswith("--device=")] == nodes + COMMON_NODES
        assert [word[9:] for word in written if word.startswith("--volume=")] == [f"{path}:{path}" for path in ASCEND_MOUNTS]
    (service,) = loaded(entry, "compose", **options)["services"].values()
    assert service["devices"] == [f"{node}:{node}" for node in nodes + COMMON_NODES]
    assert service["volumes"] == [f"{path}:{path}" for path in ASCEND_MOUNTS]
    container = unit(entry, "quadlet", **options)["Container"]
    assert container["AddDevice"] == nodes + COMMON_NODES
    assert container["Volume"] == [f"{path}:{path}" for path in ASCEND_MOUNTS]


NODE = {"node": "node1", "memory": "64Gi"}
BLIND = changed(npus=[{**npu, "affinity": None, "numa": None} for npu in TOPOLOGY["npus"]])
BEST_EFFORT = changed(kubelet={"policy": "static", "topology_policy": "best-effort", "exclusive": {}, "warnings": []})
GUESSED = "# Device files count up from 0 like logic ids, and nothing else tells their numbers (0): check them on the host."
NO_HOLDER, COMMAS, MINDCLUSTER = "memory is not bound", "splits --mount and --env at commas", "MindCluster's has none for NPU 0, 1."
SAID = [
    (ENTRY, "docker", {"topology": ASSUMED}, GUESSED, True),
    (ENTRY, "docker", {"topology": TOPOLOGY}, "Device files", False),
    (ENTRY, "docker", {"npu_smi": "/usr/local/sbin/npu-smi"}, " --volume=/usr/local/sbin/npu-smi:/usr/local/sbin/npu-smi ", True),
    (ENTRY, "taskset", {}, "numactl does", True),
    (ENTRY, "docker", {"topology": ASSUMED, "devices": False}, "Device files", False),
    (GPU, "docker", {}, "enable_cpu_binding", False),
    (ENTRY, "kubelet", {}, "enable_cpu_binding", False),
    (ENTRY, "slurm", {"topology": TOPOLOGY}, "enable_cpu_binding", False),
    (ENTRY, "compose", {}, NO_HOLDER, False),
    (PAIR, "compose", {"topology": TOPOLOGY}, NO_HOLDER, False),
    (ALL_IN_ONE, "compose", {}, NO_HOLDER, True),
    (NO_SLICE, "compose", {}, NO_HOLDER, True),
    (ENTRY, "compose", {"topology": V1}, NO_HOLDER, True),
    (ENTRY, "systemd", {"name": "vllm"}, "systemctl edit vllm.service", True),
    (ENTRY, "ctr", {"containerd_version": "2.4.0"}, COMMAS, True),
    (ENTRY, "ctr", {"containerd_version": "2.4.1"}, "commas", False),
    (ENTRY, "kubernetes", {}, "must have 16-17 in reservedSystemCPUs", True),
    (ENTRY, "kubernetes", {"topology": SMT}, "must have 16-17,24-25 in", True),
    (ENTRY, "kubernetes", {"topology": BEST_EFFORT}, "With MindCluster's device plugin", True),
    (PAIR, "dra", {"topology": TOPOLOGY, **NODE}, "give plan", True),
    (ENTRY, "balloons", {"topology": TOPOLOGY, **NODE}, "give plan", True),
    (ENTRY, "balloons", {"topology": TOPOLOGY, "plan": PLAN, **NODE}, "moves the interrupts of all NPUs to CPUs 0-1,16-17", True),
    (ENTRY, "balloons", {"topology": TOPOLOGY, "plan": PLAN, **NODE}, "set npu_affinity_irq_enabled: false", True),
    (ENTRY, "balloons", {"topology": TOPOLOGY, "plan": PLAN, **NODE}, "14 CPUs close to its NPU, not the set of the plan", True),
    (ENTRY, "balloons", {"topology": TOPOLOGY, "plan": PLAN, **NODE}, "MindCluster's has none", False),
    (ENTRY, "balloons", {"topology": BLIND, **NODE}, MINDCLUSTER, True),
]


@pytest.mark.parametrize("entry, form, options, words, is_said", SAID)
def test_texts_say_what_holds_for_this_host_and_no_more(entry, form, options, words, is_said):
    assert (words in launch(entry, form, **options)) is is_said


IN_FORCE = changed(applied={"npus": [ENTRY]})
COMMAND, ARCHIVE = "/usr/local/bin/npu-affinity", "/usr/local/lib/npu-affinity/npu_affinity.zip"
HOST_CODE = [
    ("a plan in force", {"topology": IN_FORCE}, [COMMAND, ARCHIVE]),
    ("no devices", {"topology": IN_FORCE, "devices": False}, [COMMAND, ARCHIVE]),
    ("another folder", {"topology": IN_FORCE, "library": "/opt/bind"}, ["/opt/bind/npu-affinity", "/opt/bind/npu_affinity.zip"]),
    ("no plan in force", {"topology": TOPOLOGY}, []),
    ("a host that is not known", {}, []),
]


@pytest.mark.parametrize("options, paths", [row[1:] for row in HOST_CODE], ids=[row[0] for row in HOST_CODE])
def test_containers_get_what_npu_affinity_exec_needs(options, paths):
    mounts = [f"{path}:{path}:ro" for path in [*paths, "/etc/npu-affinity/plan.json"]] if paths else []
    for engine in ENGINES:
        assert [word[9:] for word in words(ENTRY, engine, **options) if re.match(r"--volume=.*:ro\Z", word)] == mounts
    (service,) = loaded(ENTRY, "compose", **options)["services"].values()
    assert [volume for volume in service.get("volumes", []) if volume.endswith(":ro")] == mounts


def test_the_ascend_runtime_takes_variables_in_place_of_devices():
    options = {"topology": TOPOLOGY, "ascend_runtime": True, "vnpu": "vir04"}
    wanted = {
        "ASCEND_VISIBLE_DEVICES": "4,5",
        "ASCEND_RUNTIME_OPTIONS": "",
        "ASCEND_VNPU_SPECS": "vir04",
        "ASCEND_RT_VISIBLE_DEVICES": "0,1",
    }
    for engine in ("docker", "nerdctl"):
        written = words(PAIR, engine, **options)
        assert [word[6:] for word in written if word.startswith("--env=")] == [f"{name}={value}" for name, value in wanted.items()]
        assert not any(word.startswith(("--device", "--volume")) for word in written)
    service = loaded(PAIR, "compose", **options)["services"]["pair"]
    assert service["environment"] == wanted
    assert not {"devices", "volumes"} & set(service)


BY_NODE = {"cpus": "16-31", "devices": ["/dev/davinci5", "/dev/davinci4"]}
CUDA = ["CUDA_DEVICE_ORDER=PCI_BUS_ID"]
ON_HOST = [
    ("logic id of a plan's entry", PAIR["processes"][1], {}, ["ASCEND_RT_VISIBLE_DEVICES=1"]),
    ("the user's order", {"cpus": "0-31", "npus": [1, 0]}, {}, ["ASCEND_RT_VISIBLE_DEVICES=1,0"]),
    ("device nodes, of which the topology knows the logic ids", BY_NODE, {"topology": TOPOLOGY}, ["ASCEND_RT_VISIBLE_DEVICES=1,0"]),
    ("device nodes alone", BY_NODE, {}, []),
    ("GPUs", GPUS, {}, [*CUDA, "CUDA_VISIBLE_DEVICES=2,3"]),
    ("no device", {"cpus": "0-3"}, {}, []),
    ("switched off", ENTRY, {"visible_devices": False}, []),
]


@pytest.mark.parametrize("entry, options, variables", [row[1:] for row in ON_HOST], ids=[row[0] for row in ON_HOST])
def test_host_programs_see_their_devices_by_host_ids(entry, options, variables):
    for form in ("taskset", "numactl", "systemd_run"):
        text = launch(entry, form, command=["printenv"], **options)
        (program,) = (line for line in text.splitlines() if not line.startswith("#"))
        assert program.endswith(shlex.join([*(["env", *variables] if variables else []), "printenv"]))
        assert ("only topology tells" in text) == (entry is BY_NODE and not variables)
    assert unit(entry, "systemd", **options)["Service"].get("Environment", []) == variables


IN_CONTAINER = [
    ("counted from 0", {**PAIR["processes"][1]}, {}, ["ASCEND_RT_VISIBLE_DEVICES=0"]),
    ("as many as it gets", PAIR, {"topology": TOPOLOGY}, ["ASCEND_RT_VISIBLE_DEVICES=0,1"]),
    ("device nodes", BY_NODE, {}, ["ASCEND_RT_VISIBLE_DEVICES=0,1"]),
    ("GPUs", GPUS, {}, [*CUDA, "CUDA_VISIBLE_DEVICES=0,1"]),
    ("switched off", PAIR, {"visible_devices": False}, []),
]


@pytest.mark.parametrize("entry, options, variables", [row[1:] for row in IN_CONTAINER], ids=[row[0] for row in IN_CONTAINER])
def test_containers_count_their_devices_from_zero(entry, options, variables):
    for engine, release in [*((engine, {}) for engine in ENGINES), ("ctr", {"containerd_version": "2.0"})]:
        assert [word[6:] for word in words(entry, engine, **options, **release) if word.startswith("--env=")] == variables
    (service,) = loaded(entry, "compose", **options)["services"].values()
    assert [f"{name}={value}" for name, value in service.get("environment", {}).items()] == variables
    assert unit(entry, "quadlet", **options)["Container"].get("Environment", []) == variables


def test_a_privileged_container_sees_the_devices_of_the_host():
    for entry, variable in ((PAIR["processes"][1], "ASCEND_RT_VISIBLE_DEVICES=1"), (GPU, "CUDA_VISIBLE_DEVICES=3")):
        assert f"--env={variable}" in words(entry, "docker", arguments=["--privileged"])


def test_no_variable_for_a_container_whose_user_sets_the_devices():
    assert not any(word.startswith("--env=") for word in words(ENTRY, "docker", devices=False))


GPU_FLAGS = [
    ("docker", ["--gpus=device=3"], ['--gpus="device=2,3"']),
    ("nerdctl", ["--gpus=device=3"], ['--gpus="device=2,3"']),
    ("podman", ["--device=nvidia.com/gpu=3"], ["--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=3"]),
    ("ctr", ["--gpus=3"], ["--gpus=2", "--gpus=3"]),
]


@pytest.mark.parametrize("engine, one, two", GPU_FLAGS)
def test_containers_get_their_gpus(engine, one, two):
    for entry, flags in ((GPU, one), (GPUS, two)):
        assert [word for word in words(entry, engine) if "gpu" in word and word.startswith("--") and "slice" not in word] == flags
        assert not any("davinci" in word or "Ascend" in word for word in words(entry, engine))
    assert unit(GPUS, "quadlet")["Container"]["AddDevice"] == ["nvidia.com/gpu=2", "nvidia.com/gpu=3"]
    (request,) = loaded(GPUS, "compose")["services"]["pair"]["deploy"]["resources"]["reservations"]["devices"]
    assert request == {"driver": "nvidia", "device_ids": ["2", "3"], "capabilities": ["gpu"]}
    assert loaded(GPUS, "kubernetes")["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("form", COMMANDS)
def test_commands_arrive_word_by_word_through_a_shell(form):
    text = launch(ENTRY, form, command=HARD_WORDS)
    program = words(ENTRY, form)[0]
    printed = subprocess.run(["bash", "-c", f"{program}() {{ printf '%s\\0' \"$@\"; }}\n{text}"], capture_output=True, check=False)
    assert printed.stdout.decode().split("\0")[:-1][-len(HARD_WORDS) :] == HARD_WORDS
    assert not text.endswith("\n"), "pasting it would run it"


@pytest.mark.parametrize("form", sorted(set(FORMS) - {"slurm"}))
def test_comments_do_not_disturb_who_splits_words(form):
    text = launch(ENTRY, form)
    assert text.startswith("# ")
    assert "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")) == launch(ENTRY, form, notes=False)
    if form in COMMANDS:
        assert shlex.split(text)[-len(words(ENTRY, form)) :] == words(ENTRY, form)


@pytest.mark.parametrize("form", ENGINES)
def test_a_command_is_split_as_a_shell_does_or_taken_as_a_list(form):
    written = words(ENTRY, form, image="img", command="serve 'a b' --port 80", arguments="--detach -e X=1", name="one")
    assert written[-5:] == ["img", "serve", "a b", "--port", "80"]
    assert written[-8:-5] == ["--detach", "-e", "X=1"]
    assert "--name=one" in written
    assert words(ENTRY, form, command=["serve", 80])[-2:] == ["serve", "80"]


def test_what_was_not_given_is_nothing_that_anyone_accepts():
    assert words(ENTRY, "docker")[-1] == "IMAGE"
    assert words(ENTRY, "taskset")[-1] == "COMMAND"
    assert limits(ENTRY)["memory"] == "MEMORY"


def test_a_single_cpu_stays_text_in_yaml():
    assert loaded({"cpus": "7", "id": 0, "phy_id": 0}, "compose")["services"]["npu-0"]["cpuset"] == "7"
    assert loaded({"cpus": "7", "name": "a"}, "kubelet")["reservedSystemCPUs"] == "7"


def test_compose():
    document = loaded(ENTRY, "compose", image="vllm:$TAG", command=["serve", "$MODEL"], name="infer", devices=False)
    assert document == {
        "services": {"infer": {"image": "vllm:$$TAG", "cgroup_parent": "npu-0.slice", "cpuset": "16-31", "command": ["serve", "$$MODEL"]}}
    }


def test_quadlet():
    found = unit(PAIR, "quadlet", image="vllm:100%", devices=False, arguments=["--annotation=a b"], command=["serve", "it's", "$X"])
    assert found == {
        "Container": {
            "Image": ["vllm:100%%"],
            "ContainerName": ["pair"],
            "PodmanArgs": ['--cpuset-cpus=0-31 --cpuset-mems=0-1 "--annotation=a b"'],
            "Exec": ['serve "it\'s" $$X'],
        },
        "Service": {"Slice": ["npu-pair.slice"], "CPUAffinity": ["", "0-31"]},
    }
    assert unit(NO_SLICE, "quadlet")["Service"] == {"CPUAffinity": ["", "4-7"]}


def test_quadlet_keeps_words_together():
    """Unit files quote much as a shell does, and double what systemd would replace; only a newline is written otherwise."""
    (line,) = unit(PAIR, "quadlet", devices=False, command=HARD_WORDS)["Container"]["Exec"]
    read = [word.replace("%%", "%").replace("$$", "$").replace("\\n", "\n") for word in shlex.split(line)]
    assert read == HARD_WORDS


def test_quadlet_is_accepted_by_its_generator(tmp_path):
    generator = shutil.which("quadlet", path="/usr/libexec/podman:/usr/lib/podman:/usr/lib/systemd/system-generators")
    if generator is None:
        pytest.skip("podman's quadlet is not installed")
    (tmp_path / "pair.container").write_text(launch(PAIR, "quadlet", image="vllm", command=HARD_WORDS[:-1]))
    result = subprocess.run(
        [generator, "-dryrun"], env={**os.environ, "QUADLET_UNIT_DIRS": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Slice=npu-pair.slice" in result.stdout
    assert "--cpuset-cpus=0-31" in result.stdout


SERVICES = [
    ("its own slice", ENTRY, None, {"Slice": ["npu-0.slice"]}),
    (
        "a workload's slice",
        PAIR,
        changed(cpus={"online": "0-31", "offline": "32-35"}),
        {"Slice": ["npu-pair.slice"], "CPUAffinity": ["", "0-35"]},
    ),
    (
        "a part of npu.slice",
        ALL_IN_ONE,
        None,
        {"Slice": ["npu.slice"], "AllowedCPUs": ["", "0-31"], "AllowedMemoryNodes": ["", "0-1"]},
    ),
    ("no slice", NO_SLICE, None, {"AllowedCPUs": ["", "4-7"], "AllowedMemoryNodes": ["", "0"]}),
    ("no memory nodes", {"cpus": "4-7"}, None, {"AllowedCPUs": ["", "4-7"]}),
    ("cgroup v1", ENTRY, V1, {"CPUAffinity": ["", "16-31"], "NUMAPolicy": ["bind"], "NUMAMask": ["", "1"]}),
    (
        "cgroup v1, other nodes allowed",
        {**ENTRY, "memory_nodes": "0-1"},
        V1,
        {"CPUAffinity": ["", "16-31"], "NUMAPolicy": ["preferred"], "NUMAMask": ["", "1"]},
    ),
    ("old systemd", ENTRY, OLD, {"CPUAffinity": ["", "16-31"]}),
    (
        "static kubelet",
        ENTRY,
        WITH_STATIC_KUBELET,
        {"AllowedCPUs": ["", "16-31"], "AllowedMemoryNodes": ["", "1"], "CPUAffinity": ["", "0-31"]},
    ),
]


@pytest.mark.parametrize("entry, topology, settings", [row[1:] for row in SERVICES], ids=[row[0] for row in SERVICES])
def test_a_drop_in_says_what_the_host_obeys(tmp_path, entry, topology, settings):
    assert unit(entry, "systemd", topology=topology, visible_devices=False) == {"Service": settings}
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (tmp_path / "x.service.d").mkdir()
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/true\n")
    (tmp_path / "x.service.d" / "cpus.conf").write_text(launch(entry, "systemd", topology=topology))
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "x.service")]
    said = subprocess.run(verify, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}, capture_output=True, text=True, check=False)
    assert "cpus.conf" not in said.stderr


@pytest.mark.parametrize("topology", [TOPOLOGY, V1, OLD], ids=["cgroup v2", "cgroup v1", "old systemd"])
@pytest.mark.parametrize("npus", [[0], [0, 1]], ids=["one NPU", "two NPUs"])
def test_a_drop_in_is_that_of_role_slices(topology, npus):
    made = plan(topology, strategy="even_split")
    (service,) = binding.binding(topology, made, Named([{"unit": "vllm.service", "npus": npus}]))["services"]
    entry = made["npus"][0] if npus == [0] else ALL_IN_ONE
    assert launch(entry, "systemd", topology=topology, notes=False) == slices.service_text(service["settings"], service["environment"])
    assert "\nCPUAffinity=\n" in slices.drop_in_text(service) and ("CPUAffinity=0-31\n" in slices.drop_in_text(service)) == (
        topology is TOPOLOGY or npus == [0, 1]
    )


def test_systemd_run():
    own = words(ENTRY, "systemd_run", command="serve --x", visible_devices=False)
    assert shlex.join(own) == "systemd-run --scope --slice=npu-0.slice -- serve --x"
    assert shlex.join(words(ALL_IN_ONE, "systemd_run", visible_devices=False)) == (
        "systemd-run --scope --slice=npu.slice --unit=tp2.scope --property=AllowedCPUs=0-31 --property=AllowedMemoryNodes=0-1 -- COMMAND"
    )


@pytest.mark.parametrize("program", ["taskset", "numactl"])
def test_a_program_runs_here_on_the_cpus_asked_for(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    cpus = compress(sorted(os.sched_getaffinity(0))[-1:])
    text = launch({"cpus": cpus}, program, command=["grep", "Cpus_allowed_list", "/proc/self/status"])
    assert subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout.split()[-1] == cpus


NUMACTL = [
    # memory_nodes of the plan's entry, or None where an older plan has none, and the arguments that say so
    (None, ["--membind=1"]),
    ("1", ["--membind=1"]),
    ("0-1", ["--preferred=1"]),
    ("", []),
]


@pytest.mark.parametrize("allowed, arguments", NUMACTL)
def test_numactl_binds_memory_only_if_no_other_node_is_allowed(allowed, arguments):
    entry = {key: value for key, value in {**ENTRY, "memory_nodes": allowed}.items() if value is not None}
    written = words(entry, "numactl", command="run", visible_devices=False)
    assert written == ["numactl", "--physcpubind=16-31", *arguments, "--", "run"]
    assert ("--cpuset-mems=1" in words(entry, "docker", image="vllm")) == (arguments == ["--membind=1"])


IN_SLICE = ["--runc-systemd-cgroup", "--cgroup=npu-0.slice:ctr:infer"]
SETS = ["--cpuset-cpus=16-31", "--cpuset-mems=1"]
CTR = [
    ("before 2.0 the slice holds the sets", {}, IN_SLICE),
    ("from 2.0 on there are flags", {"containerd_version": "2.0"}, [*IN_SLICE, *SETS]),
    ("a host without slices", {"containerd_version": "2.1.3", "topology": V1}, SETS),
]


@pytest.mark.parametrize("options, flags", [row[1:] for row in CTR], ids=[row[0] for row in CTR])
def test_ctr_places_a_container(options, flags):
    written = words(ENTRY, "ctr", name="infer", image="img", command="serve", devices=False, arguments="--detach", **options)
    assert written == ["ctr", "run", *flags, "--detach", "img", "infer", "serve"]


def test_ctr_mounts_the_driver():
    written = words(ENTRY, "ctr")
    assert [word for word in written if word.startswith("--device=")] == [f"--device={node}" for node in ("/dev/davinci4", *COMMON_NODES)]
    assert [word for word in written if word.startswith("--mount=")] == [
        f"--mount=type=bind,src={path},dst={path},options=rbind:rw" for path in ASCEND_MOUNTS
    ]
    assert written[-2:] == ["IMAGE", "npu-0"]


def test_a_pod_asks_for_as_many_cpus_as_interrupts_leave():
    """Of 8 cores with two threads, interrupts on 16 and 17 take two cores: 12 CPUs are left."""
    pod = loaded(ENTRY, "kubernetes", name="infer", image="vllm", memory="64Gi", command=["run", "$(X)"])
    assert pod["metadata"]["name"] == "infer"
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["run", "$$(X)"]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "14", "memory": "64Gi", "RESOURCE": "1"}
    on_cores = {"cpu": "12", "memory": "MEMORY", "huawei.com/Ascend910B3": "1"}
    assert limits(ENTRY, topology=SMT, resource="huawei.com/Ascend910B3") == on_cores
    assert limits(ENTRY, devices=False) == {"cpu": "14", "memory": "MEMORY"}


def test_the_kubelet_keeps_pods_off():
    configuration = loaded(PAIR, "kubelet", topology=TOPOLOGY)
    assert configuration["cpuManagerPolicy"] == "static"
    assert configuration["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    assert (configuration["reservedSystemCPUs"], configuration["topologyManagerPolicy"]) == ("0-31", "restricted")
    assert loaded(ENTRY, "kubelet")["topologyManagerPolicy"] == "single-numa-node"
    assert loaded({**ENTRY, "memory_nodes": "0-1"}, "kubelet")["topologyManagerPolicy"] == "single-numa-node", "CPUs are on one node"
    assert loaded({**ENTRY, "pool": "16-18"}, "kubelet", topology=SMT)["reservedSystemCPUs"] == "16-18,24-26"
    text = launch(ENTRY, "kubelet")
    assert text.index("drain") < text.index("stop kubelet") < text.index("cpu_manager_state") < text.index("uncordon")


def slurm_lines(entry, topology, **options):
    return launch(entry, "slurm", topology=topology, notes=False, **options).splitlines()


def test_slurm_has_a_line_for_each_npu():
    assert slurm_lines(PAIR, TOPOLOGY) == ["Name=npu File=/dev/davinci4 Cores=16-31", "Name=npu File=/dev/davinci5 Cores=0-15"]
    assert slurm_lines(ENTRY, TOPOLOGY, name="node1") == ["NodeName=node1 Name=npu File=/dev/davinci4 Cores=16-31"]


PART = {**ENTRY, "pool": "16-20,24-26"}
SPREAD = {**ENTRY, "pool": "12-19"}
CORES = [
    ("whole NUMA nodes", PART, TOPOLOGY, "24.11", "16-31"),
    ("every node that the pool touches", SPREAD, TOPOLOGY, "26.05", "0-31"),
    ("cores of two threads", PART, SMT, "23.02.1", "8-15"),
    ("the cores of the pool", PART, TOPOLOGY, "22.05", "16-20,24-26"),
    ("the whole cores of the pool", PART, SMT, "22.05", "8-10"),
    ("a kernel without NUMA", {**ENTRY, "mems": "", "memory_nodes": ""}, changed(numa=[]), "24.11", "0-31"),
]


@pytest.mark.parametrize("entry, topology, version, cores", [case[1:] for case in CORES], ids=[case[0] for case in CORES])
def test_slurm_gets_whole_numa_nodes_as_it_drains_smaller_ones(entry, topology, version, cores):
    assert slurm_lines(entry, topology, slurm_version=version) == [f"Name=npu File=/dev/davinci4 Cores={cores}"]


def test_slurm_shows_a_matching_node_line_and_names_shared_cpus():
    """Cores 0-7 are CPUs 0-7 with 8-15, cores 8-15 are CPUs 16-23 with 24-31."""
    text = launch(PART, "slurm", topology=SMT, name="node1")
    assert (
        "SlurmdParameters=numa_node_as_socket and NodeName=node1 CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 Gres=npu:2; " in text
    )
    assert "whole NUMA nodes only: NPU 4 with CPUs 21-23,27-31 besides its own" in text
    assert "CpuSpecList=16-19 " in text, "two threads of each of the cores 8 and 9, in Slurm's order of CPUs"
    old = launch(PART, "slurm", topology=SMT, slurm_version="22.05")
    assert "CPUs 19-20 are left out" in old and "numa_node_as_socket" not in old


def test_slurm_numbers_cores_by_numa_node_unlike_the_kernel():
    interleaved = changed(numa=[{"id": 0, "cpus": compress(range(0, 32, 2))}, {"id": 1, "cpus": compress(range(1, 32, 2))}])
    assert slurm_lines({**ENTRY, "pool": compress(range(1, 32, 2))}, interleaved) == ["Name=npu File=/dev/davinci4 Cores=16-31"]


UNEVEN = changed(numa=[{"id": 0, "cpus": "0-7"}, {"id": 1, "cpus": "8-31"}])
MIXED = changed(npus=[{**npu, "family": family} for npu, family in zip(TOPOLOGY["npus"], ("310p", "a2"), strict=True)])
SOME_THREADS = changed(cpus={"online": "0-31", "siblings": ["0,8"]})

TORCH_NPU = [
    ("one NPU, without its interrupts", {**ENTRY, "pool": "16-23", "irq": "16-17"}, {}, "0", "2,npu0:18-23"),
    ("two, in the order in which they are visible", PAIR, {"visible_devices": False}, None, "2,npu0:18-31,npu1:2-15"),
    ("a pool with a gap", {**ENTRY, "pool": "0-5,12-19", "irq": ""}, {"torch_npu_version": "26.1.0"}, "0", "2,npu0:0-5,npu0:12-19"),
    ("a single CPU", {**ENTRY, "pool": "16-17,19", "irq": "16-17"}, {}, "0", "2,npu0:19-19"),
]


@pytest.mark.parametrize("entry, options, visible, conf", [case[1:] for case in TORCH_NPU], ids=[case[0] for case in TORCH_NPU])
def test_torch_npu_is_given_the_cpus_of_the_plan(entry, options, visible, conf):
    written = dict(line.split("=", 1) for line in launch(entry, "torch_npu", notes=False, **options).splitlines())
    assert written == {**({"ASCEND_RT_VISIBLE_DEVICES": visible} if visible else {}), "CPU_AFFINITY_CONF": conf}


WITH_A_POD = changed(kubelet={"policy": "static", "exclusive": {"p/c": "20-21"}})
SLICED = {"binding": "global_slice"}
REFUSALS = [
    ("an old torch_npu", {**ENTRY, "pool": "0-5,12-19", "irq": ""}, "torch_npu", {}, "2 ranges, of which torch_npu before 26.1.0"),
    ("torch_npu without NPUs", {"cpus": "0-3"}, "torch_npu", {}, "names no NPU, and torch_npu binds to NPUs"),
    ("torch_npu with interrupts only", {**ENTRY, "pool": "16-17", "irq": "16-17"}, "torch_npu", {}, "nothing of CPUs 16-17 is left"),
    ("a device file that nothing tells", {**ENTRY, "phy_id": None}, "docker", {}, "tells the device file of NPU 0; give topology"),
    ("the same of a workload", {**NO_SLICE, "npus": [0]}, "compose", {}, "tells the device file of NPU 0; give topology"),
    ("nor the topology", ENTRY, "podman", {"topology": UNKNOWN}, "the device file of NPU 0 is not known: no tool, no file in sysfs"),
    ("for the runtime", ENTRY, "docker", {"topology": UNKNOWN, "ascend_runtime": True}, "'npu-smi info -t phyid-remap -p <N>' tells"),
    ("for Slurm", PAIR, "slurm", {"topology": UNKNOWN}, "the device file of NPU 0 is not known"),
    ("ctr without a slice", NO_SLICE, "ctr", {}, "ctr of containerd 1.7 has no flags for CPU sets, and no slice holds CPUs 4-7 for"),
    ("ctr in the slice of all", ALL_IN_ONE, "ctr", {}, "no slice holds CPUs 0-31 for this workload alone; use nerdctl, or containerd 2.0"),
    ("ctr on cgroup v1", ENTRY, "ctr", {"topology": V1}, "no slice holds CPUs 16-31"),
    ("an unknown form", ENTRY, "dcoker", {}, "form: expected one of balloons, compose, ctr, docker, "),
    ("an unknown option", ENTRY, "docker", {"imgae": "x"}, "form docker has no option imgae; it has arguments, ascend_runtime, command, "),
    (
        "an option of another form",
        ENTRY,
        "taskset",
        {"image": "x"},
        "taskset has no option image; it has command, engine, environment, name, notes, visible_devices",
    ),
    ("a whole plan", PLAN, "docker", {}, "this is a whole plan; take one of its npus"),
    ("a list", PLAN["npus"], "docker", {}, "expected an entry of npu_affinity_plan.npus or a workload; got list"),
    ("no CPUs", {**ENTRY, "pool": ""}, "docker", {}, "NPU 0 has no CPUs: its pool is empty"),
    ("a bad cpulist", {**ENTRY, "pool": "0-3,N"}, "docker", {}, "pool of NPU 0: 'N' in '0-3,N'"),
    ("a bad slice", {**ENTRY, "slice": "npu0"}, "docker", {}, 'NPU 0 cannot be launched so: .* named as "xxx.slice"'),
    ("a slice that is a path", {**ENTRY, "slice": "a/b.slice"}, "podman", {}, "invalid slice name: a/b.slice"),
    ("CPUs that do not exist", {**ENTRY, "pool": "30-33"}, "numactl", {"topology": TOPOLOGY}, "requested 30-33, available: 0-31"),
    ("memory that does not exist", {**ENTRY, "memory_nodes": "1-2"}, "docker", {"topology": TOPOLOGY}, r"NUMA nodes \[2\], but"),
    ("an NPU that is gone", {**ENTRY, "id": 7}, "docker", {"topology": TOPOLOGY}, "NPU 7 at 0000:81:00.0 is not in the topology"),
    ("an NPU that moved", {**ENTRY, "pci": "0000:82:00.0"}, "docker", {"topology": TOPOLOGY}, "NPU 0 at 0000:82:00.0 is not in"),
    ("not a topology", ENTRY, "docker", {"topology": PLAN["npus"]}, "topology: expected the fact npu_affinity_topology"),
    ("no NPU for devices", {"cpus": "0-3"}, "docker", {}, "names no NPU or GPU, so its devices are unknown; give npus, or devices=false"),
    ("no NPU for a pod", {"cpus": "0-3", "name": "a"}, "kubernetes", {}, "names no NPU or GPU, so their number is unknown"),
    ("npus that are none", {"cpus": "0-3", "npus": ["a"]}, "docker", {}, "npus: expected logic ids such as"),
    ("a device that is none", {"cpus": "0-3", "devices": ["/dev/null"]}, "docker", {}, "devices: '/dev/null' is not the node of an NPU"),
    ("a bad name", ENTRY, "docker", {"name": "a b"}, "name: 'a b' is not a name"),
    ("a bad name for a pod", ENTRY, "kubernetes", {"name": "Infer"}, "'Infer' cannot be a pod's name"),
    ("a text of two lines", ENTRY, "quadlet", {"image": "x\nExecStart=y"}, "image: expected a text of one line"),
    ("an open quote", ENTRY, "docker", {"command": "echo 'a"}, "cannot be split into words"),
    ("a command that is none", ENTRY, "docker", {"command": 5}, "command: expected a list of words"),
    ("a word that is none", ENTRY, "docker", {"command": ["a", None]}, "command: expected words; got None"),
    ("a flag that is text", ENTRY, "docker", {"devices": "false"}, "devices: expected true or false; got 'false'"),
    ("a vNPU without its runtime", ENTRY, "docker", {"vnpu": "vir04"}, "only the Ascend Docker Runtime splits an NPU into vir04"),
    ("the Ascend runtime for a GPU", GPU, "docker", {"ascend_runtime": True}, "ascend_runtime: GPU 3 is no NPU"),
    ("the Ascend runtime for podman", ENTRY, "podman", {"ascend_runtime": True}, "form podman has no option ascend_runtime"),
    ("quadlet on cgroup v1", ENTRY, "quadlet", {"topology": V1}, "Quadlet needs cgroup v2"),
    ("quadlet with a parent", ENTRY, "quadlet", {"arguments": ["--cgroup-parent=x.slice"]}, "leave --cgroup-parent out"),
    ("a scope on cgroup v1", ENTRY, "systemd_run", {"topology": V1}, "use numactl or taskset"),
    ("Slurm without a topology", ENTRY, "slurm", {}, "Slurm counts whole cores, and CPUs are all that a plan has; give topology"),
    ("Slurm without NPUs", {"cpus": "0-3"}, "slurm", {"topology": TOPOLOGY}, "names no NPU, and gres.conf has a line for each"),
    ("an old Slurm without whole cores", {**ENTRY, "pool": "16-17"}, "slurm", {"topology": SMT, "slurm_version": "22.05"}, "no whole core"),
    ("Slurm with uneven nodes", ENTRY, "slurm", {"topology": UNEVEN}, "NUMA nodes with 8 and 24 cores, and a node of Slurm has one Cores"),
    ("Slurm with uneven cores", ENTRY, "slurm", {"topology": SOME_THREADS}, "the host has NUMA nodes with 15 and 16 cores"),
    ("unknown caches", ENTRY, "slurm", {"topology": TOPOLOGY, "slurm_sockets": "l3"}, "L3 caches of the host are not known for all"),
    ("unknown sockets", ENTRY, "slurm", {"topology": TOPOLOGY, "slurm_sockets": "l2"}, "slurm_sockets: expected numa or l3; got"),
    ("a number as release of Slurm", ENTRY, "slurm", {"topology": TOPOLOGY, "slurm_version": 24.1}, "a release such as '24.11', as text"),
    ("a pod with interrupts only", {**ENTRY, "pool": "16-17"}, "kubernetes", {}, "nothing of its CPUs 16-17 is left"),
    ("CPUs that a pod has", ENTRY, "docker", {"topology": WITH_A_POD}, "the kubelet has given CPUs 20-21 to container p/c exclusively"),
    (
        "too few for in-process binding",
        {**ENTRY, "pool": "0-39"},
        "docker",
        {**SLICED, "total_npus": 16},
        "total_allowed=40, .*Need at least 80 CPUs in cpuset. Turn enable_cpu_binding off",
    ),
    ("too few for its NPUs", {**ENTRY, "pool": "16-24"}, "docker", {**SLICED, "topology": TOPOLOGY}, "total_npus=2, min_per_npu=4"),
    ("in-process binding among how many", ENTRY, "docker", {"binding": "global_slice"}, "total_npus: .* give it, or give topology"),
    ("a number that is none", ENTRY, "docker", {**SLICED, "total_npus": "two"}, "total_npus: expected the number"),
    (
        "unknown engine",
        ENTRY,
        "docker",
        {"engine": "vLLM"},
        "engine: expected one of dynamo, mindie, .*, vllm_ascend; got 'vLLM'",
    ),
    ("an engine that is to bind", ALL_IN_ONE, "docker", {"engine": "vllm_ascend", "binding": "topo_affinity"}, "leave one of the two out"),
    ("a text as environment", ENTRY, "docker", {"environment": "yes"}, "environment: expected true, or a dictionary with openmp, task"),
    ("variables as environment", ENTRY, "docker", {"environment": {"OMP_NUM_THREADS": 1}}, "environment: expected true, or a dictionary"),
    ("an engine for a host's file", ENTRY, "kubelet", {"engine": "vllm"}, "form kubelet has no option engine"),
    (
        "in-process binding on x86_64",
        ALL_IN_ONE,
        "docker",
        {"binding": "topo_affinity", "topology": X86},
        "workload tp2 cannot bind itself by topo_affinity: .* on Arm only, and this host is x86_64; leave binding out",
    ),
    ("by slices on x86_64", ALL_IN_ONE, "systemd", {"binding": "global_slice", "topology": X86}, "cannot bind itself by global_slice"),
    ("in-process binding of a GPU", GPU, "docker", {"binding": "topo_affinity", "total_npus": 1}, "GPU 3 cannot bind itself .* NPUs only"),
    ("dra of a static kubelet", ENTRY, "dra", {"topology": WITH_STATIC_KUBELET}, "and the driver must be alone in giving CPUs"),
    ("balloons of a static kubelet", ENTRY, "balloons", {"topology": WITH_STATIC_KUBELET}, "and the balloons policy must be alone"),
    ("a plan without topology", ENTRY, "dra", {"plan": PLAN}, "give topology along with plan"),
    ("a part of a plan", ENTRY, "dra", {"plan": PLAN["npus"]}, "plan: expected the fact npu_affinity_plan, with npus; got list"),
    ("balloons without NPUs", {"cpus": "0-3", "name": "a"}, "balloons", {}, "names no NPU, and balloons lie close to NPUs; give npus"),
    ("an option of balloons", ENTRY, "balloons", {"devices": False}, "form balloons has no option devices"),
    ("balloons without interrupts", {**ENTRY, "irq": ""}, "balloons", {"topology": TOPOLOGY}, "the policy needs reserved CPUs"),
    ("dra without CPUs", {**ENTRY, "pool": "16-17"}, "dra", {"topology": TOPOLOGY}, "CPUs 16-17 is left next to interrupts on 16-17"),
    ("two families", PAIR, "kubernetes", {"topology": MIXED}, "offered as huawei.com/Ascend310P, huawei.com/Ascend910; name the one"),
    ("an unknown binding", ENTRY, "docker", {"binding": "host"}, "binding: expected one of global_slice, topo_affinity, cluster"),
]


@pytest.mark.parametrize("entry, form, options, sentence", [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_cannot_work_is_refused(entry, form, options, sentence):
    before = copy.deepcopy((entry, options))
    with pytest.raises(ValueError, match=sentence):
        launch(entry, form, **options)
    assert (entry, options) == before


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_keeps_what_it_is_given(form):
    given = copy.deepcopy((PAIR, TOPOLOGY))
    assert launch(given[0], form, topology=given[1]) == launch(PAIR, form, topology=TOPOLOGY)
    assert given == (PAIR, TOPOLOGY)


IN_PROCESS = [
    ("the host binds", ENTRY, "docker", {}, "set enable_cpu_binding to false in additional_config, and do not set OMP_PROC_BIND=true"),
    ("the workload binds itself", ALL_IN_ONE, "docker", {"binding": "global_slice", "total_npus": 2}, "leave enable_cpu_binding on"),
    ("by affinity", ALL_IN_ONE, "docker", {"binding": "topo_affinity", "total_npus": 2}, "depends on the affinity of all listed NPUs"),
    ("pods float", ENTRY, "podman", {"topology": changed(kubelet={"policy": "none"})}, "pods float over all CPUs and run on 16-31 as well"),
    ("static kubelet", ENTRY, "compose", {"topology": WITH_STATIC_KUBELET}, "let its reservedSystemCPUs cover 16-31"),
]


@pytest.mark.parametrize("entry, form, options, sentence", [row[1:] for row in IN_PROCESS], ids=[row[0] for row in IN_PROCESS])
def test_what_to_switch_off_stands_above(entry, form, options, sentence):
    assert sentence in launch(entry, form, **options)
    assert sentence not in launch(entry, form, notes=False, **options)


@pytest.mark.parametrize("form", sorted(form for form in FORMS if "engine" in FORMS[form].options))
def test_every_form_that_starts_a_program_disables_its_binding(form):
    off = "SGLANG_SET_CPU_AFFINITY"
    plain, told = (launch(ENTRY, form, **options) for options in ({}, {"engine": "sglang"}))
    assert off not in plain
    assert re.search(off + r"(?:=|: '|\n +value: ')0\b", told)
    assert "# SGLang: leave --numa-node out." in told
    assert "enable_cpu_binding" not in told
    assert launch({**PAIR, "engine": "sglang"}, form) == launch(PAIR, form, engine="sglang")


@pytest.mark.parametrize(
    "engine, sentence",
    [
        ("vllm", "# vLLM: leave --numa-bind, --numa-bind-nodes and --numa-bind-cpus out."),
        ("vllm_ascend", "# vLLM-Ascend: add --additional-config '{\"enable_cpu_binding\": false}', and leave --numa-bind out."),
        ("verl", "# verl: with rollouts by vLLM-Ascend add +actor_rollout_ref."),
        ("mindie", None),
    ],
)
def test_what_an_argument_switches_off_is_said(engine, sentence):
    said = [line for line in launch(ENTRY, "taskset", engine=engine).splitlines() if line.startswith("# ") and "memory" not in line]
    assert [line.startswith(sentence) for line in said] == [True] if sentence else said == []


VLLM_SERVE = ["vllm", "serve", "m"]
PAIR_OF_GPUS = {**GPUS, "processes": [{**GPU, "id": 2, "pool": "0-7"}, {**GPU, "mems": "1"}]}
NUMA = [
    ("one GPU", GPU, "vllm", ["--numa-bind", "--numa-bind-nodes", "0", "--numa-bind-cpus", "8-15"]),
    ("two GPUs", PAIR_OF_GPUS, "vllm", ["--numa-bind", "--numa-bind-nodes", "0", "1", "--numa-bind-cpus", "0-7", "8-15"]),
    ("an unknown node", {**GPU, "mems": ""}, "vllm", []),
    ("two nodes", {**GPU, "mems": "0-1"}, "vllm", []),
    ("pools of others are not known", GPUS, "vllm", []),
    ("an NPU", ENTRY, "vllm", []),
    ("another engine", GPU, "sglang", []),
]


@pytest.mark.parametrize("entry, engine, added", [row[1:] for row in NUMA], ids=[row[0] for row in NUMA])
def test_vllm_on_gpus_takes_the_plan_by_its_arguments(entry, engine, added):
    written = words(entry, "docker", command=VLLM_SERVE, engine=engine, image="i")
    assert written[written.index("i") + 1 :] == VLLM_SERVE + added
    assert (f"# vLLM: add {' '.join(added)}. It then" in launch(entry, "docker", engine=engine)) is bool(added)


FITTED = changed(allocator="/usr/lib64/libjemalloc.so.2")
ALL_VARIABLES = {"OMP_NUM_THREADS": "16", "OMP_PROC_BIND": "false", "TASK_QUEUE_ENABLE": "1", "LD_PRELOAD": "/usr/lib64/libjemalloc.so.2"}
IN_IMAGE = "# LD_PRELOAD is not set: an image has its own libraries."
IN_TOPOLOGY = "# LD_PRELOAD is not set: topology names no jemalloc or tcmalloc on the host."
FITTING = [
    ("a program", "taskset", ENTRY, {"environment": True, "topology": FITTED}, ALL_VARIABLES, None),
    ("a unit", "systemd", ENTRY, {"environment": True, "topology": FITTED}, ALL_VARIABLES, None),
    ("without an allocator", "taskset", ENTRY, {"environment": {"allocator": True}}, {}, IN_TOPOLOGY),
    ("a container", "docker", ENTRY, {"environment": {"openmp": True, "allocator": True}}, {"OMP_NUM_THREADS": "16"}, IN_IMAGE),
    ("two processes", "docker", PAIR, {"environment": {"openmp": True}}, {"OMP_NUM_THREADS": "16"}, None),
    ("a GPU", "taskset", GPU, {"environment": {"task_queue": True}}, {}, None),
    ("nothing", "taskset", ENTRY, {"environment": {"openmp": False}}, {}, None),
]


@pytest.mark.parametrize("form, entry, options, expected, note", [row[1:] for row in FITTING], ids=[row[0] for row in FITTING])
def test_variables_fit_a_program_to_its_cpus(form, entry, options, expected, note):
    text = launch(entry, form, **options)
    found = dict(re.findall(r"\b(OMP_NUM_THREADS|OMP_PROC_BIND|TASK_QUEUE_ENABLE|LD_PRELOAD)=(\S+)", text.split("\n# vLLM-Ascend")[-1]))
    assert expected.items() <= found.items() and set(found) - {"OMP_PROC_BIND"} == set(expected) - {"OMP_PROC_BIND"}
    assert all(f"# {name}: " in text for name in expected)
    assert (note is None) == ("LD_PRELOAD is not set" not in text) and (note or "") in text


class Engine(http.server.BaseHTTPRequestHandler):
    """The part of Docker's API that starts a container, and keeps what it was asked to create."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, document=None):
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        headers = {"Api-Version": "1.41", "OSType": "linux", "Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.answer(200)

    def do_GET(self):
        self.answer(200, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/containers/create" in self.path:
            self.server.created.append((self.path, json.loads(body)))
            self.answer(201, {"Id": "0" * 64, "Warnings": []})
        else:
            self.answer(204)

    def address_string(self):
        return "local"

    def log_message(self, *arguments):
        pass


@pytest.fixture
def created(tmp_path):
    """Return what the real docker client asks to create for a command."""
    if shutil.which("docker") is None:
        pytest.skip("the docker client is not installed")
    path = tmp_path / "docker.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), Engine) as server:
        server.created = []
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def run(entry, **options):
            text = launch(entry, "docker", image="vllm", arguments=["--detach", "--pull=never"], **options)
            environment = {**os.environ, "DOCKER_HOST": f"unix://{path}", "DOCKER_CONFIG": str(tmp_path)}
            done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            (found,) = server.created
            return found

        yield run
        server.shutdown()


def test_the_docker_client_understands_an_npu(created):
    url, asked = created(PAIR, topology=TOPOLOGY, command=HARD_WORDS)
    assert url.endswith("name=pair")
    assert (asked["Image"], asked["Cmd"]) == ("vllm", HARD_WORDS)
    host = asked["HostConfig"]
    assert (host["CgroupParent"], host["CpusetCpus"], host["CpusetMems"]) == ("npu-pair.slice", "0-31", "0-1")
    assert [device["PathOnHost"] for device in host["Devices"]] == ["/dev/davinci4", "/dev/davinci5", *COMMON_NODES]
    assert sorted(host["Binds"]) == sorted(f"{path}:{path}" for path in ASCEND_MOUNTS)


def test_the_docker_client_understands_gpus(created):
    (request,) = created(GPUS)[1]["HostConfig"]["DeviceRequests"]
    assert request["DeviceIDs"] == ["2", "3"]


def test_every_workload_of_a_plan_launches_on_its_own_cpus():
    """The story: plan a host, launch each of its NPUs, and no two containers share a CPU."""
    taken = []
    for entry in PLAN["npus"]:
        (flag,) = [word for word in words(entry, "docker", topology=TOPOLOGY) if word.startswith("--cpuset-cpus=")]
        taken += expand(flag.partition("=")[2])
    assert sorted(taken) == expand(PLAN["cpus"])


ROOMY = changed(  # two NPUs of one NUMA node, two threads a core, and a node that no NPU has
    cpus={"online": "0-47", "siblings": [f"{cpu},{cpu + 24}" for cpu in range(24)]},
    numa=[{"id": 0, "cpus": "0-11,24-35", "memory_mib": 1024}, {"id": 1, "cpus": "12-23,36-47", "memory_mib": 1024}],
    npus=[{**npu, "numa": 0, "affinity": "0-11,24-35"} for npu in TOPOLOGY["npus"]],
)


def objects(entry, form, **options):
    documents = list(yaml.safe_load_all(launch(entry, form, **options)))
    for document in documents if form == "dra" else ():
        kubernetes_validate.validate(document, "1.37", strict=True)
    names = [document["metadata"]["name"] for document in documents]
    found = {name if name.endswith("-npus") else document["kind"]: document for name, document in zip(names, documents, strict=True)}
    assert found["Pod"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node1"}
    return found


def claimed(claim, online, reserved):
    """Return the CPUs of each request as dra-driver-cpu takes them, after its own checks (``ValidateOpaqueCPUSet``)."""
    devices, found = claim["spec"]["devices"], {}
    for config in devices["config"]:
        (request,) = config["requests"]
        assert (
            request not in found and config["opaque"]["driver"] == "dra.cpu" and config["opaque"]["parameters"]["apiVersion"] == "v1alpha1"
        )
        found[request] = set(expand(config["opaque"]["parameters"]["cpuConfig"]["cpuset"]))
        assert found[request] <= online - reserved
    sizes = {request["name"]: int(request["exactly"]["capacity"]["requests"]["dra.cpu/cpu"]) for request in devices["requests"]}
    assert sizes == {request: len(cpus) for request, cpus in found.items()}
    assert sum(sizes.values()) == len(set().union(*found.values()))
    return found


@pytest.mark.parametrize("topology", [TOPOLOGY, SMT, ROOMY], ids=["two nodes", "two threads a core", "one node"])
def test_a_claim_has_the_plans_cpus_for_the_dra_cpu_driver(topology):
    made = plan(topology, strategy="even_split", housekeeping=1)
    found = objects(made["npus"][0], "dra", topology=topology, plan=made, **NODE)
    text = launch(made["npus"][0], "dra", topology=topology, plan=made, **NODE)
    reserved = set(expand(text.split("--reserved-cpus=")[1].split(".\n")[0]))
    assert all(set(expand(cpus)) <= reserved for cpus in (made["housekeeping"], *(entry["irq"] for entry in made["npus"])))
    cpus = set(expand(made["npus"][0]["pool"])) - reserved
    assert list(claimed(found["ResourceClaim"], set(expand(topology["cpus"]["online"])), reserved).values()) == [cpus]
    resources = found["Pod"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["cpu"] == resources["limits"]["cpu"] == str(len(cpus))
    assert resources["requests"].keys() == {"cpu", "memory"} and resources["claims"] == [{"name": "cpus"}, {"name": "npus"}]
    name = found["ResourceClaim"]["metadata"]["name"]
    wanted = [{"name": "cpus", "resourceClaimName": name}, {"name": "npus", "resourceClaimName": f"{name}-npus"}]
    assert found["Pod"]["spec"]["resourceClaims"] == wanted


def test_a_claim_has_a_request_for_each_npu_with_its_own_cpus():
    found = claimed(objects(PAIR, "dra", topology=TOPOLOGY, plan=PLAN, **NODE)["ResourceClaim"], set(range(32)), set())
    assert {name: compress(cpus) for name, cpus in found.items()} == {"npu-0": "18-31", "npu-1": "2-15"}
    shared = claimed(objects({**ALL_IN_ONE, "name": "tp2"}, "dra", **NODE)["ResourceClaim"], set(range(32)), set())
    assert {name: compress(cpus) for name, cpus in shared.items()} == {"cpus": "0-31"}


def chosen(request, devices, attribute):
    """Evaluate an expression of a request over the devices that Ascend's driver publishes, ``{physicId: result}``."""
    environment, exactly = celpy.Environment(), request["exactly"]
    expression = exactly["selectors"][0]["cel"]["expression"] if attribute is None else exactly[attribute][0]["expression"]
    program = environment.program(environment.compile(expression))
    published = {number: {"attributes": {"npu.huawei.com": {"physicId": number}}} for number in devices}
    return {number: program.evaluate({"device": celpy.json_to_cel(device)}) for number, device in published.items()}


def test_the_claim_on_npus_names_their_device_files():
    lost = changed(
        npus=[
            {**npu, "device": {"number": 5 + npu["id"], "file": f"/dev/davinci{5 + npu['id']}", "known_by": "interrupts"}}
            for npu in TOPOLOGY["npus"]
        ]
    )
    for entry, numbers in ((PLAN["npus"][1], {6}), (PAIR, {5, 6})):
        text = launch(entry, "dra", topology=lost, plan=PLAN, **NODE)
        claim = objects(entry, "dra", topology=lost, plan=PLAN, **NODE)["npu-1-npus" if len(numbers) == 1 else "pair-npus"]
        (request,) = claim["spec"]["devices"]["requests"]
        assert {number for number, taken in chosen(request, range(8), None).items() if taken} == numbers
        assert request["exactly"]["count"] == len(numbers)
        assert "Ascend 950 alone, and this workload has a2: for the device plugin, pass resource." in text
    a5 = changed(npus=[{**npu, "family": "a5"} for npu in TOPOLOGY["npus"]])
    assert "950 alone" not in launch(ENTRY, "dra", topology=a5, **NODE)


def test_one_claim_has_npus_and_cpus_of_one_numa_node():
    found = objects(ENTRY, "dra", topology=TOPOLOGY, one_claim=True, **NODE)
    devices = found["ResourceClaim"]["spec"]["devices"]
    nodes = {npu["phy_id"]: npu["numa"] for npu in TOPOLOGY["npus"]}
    derived = chosen(devices["requests"][0], nodes, "derivedAttributes")
    assert derived == nodes and len(set(nodes.values())) > 1
    constraint = {"requests": ["npus", "cpus"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    assert devices["constraints"] == [constraint] and "config" not in devices
    name = found["ResourceClaim"]["metadata"]["name"]
    assert found["Pod"]["spec"]["resourceClaims"] == [{"name": "devices", "resourceClaimName": name}]
    for topology, sentence in (
        (BLIND, "the NUMA node of an NPU of this host is not known"),
        (None, "has no NPU whose device file is known"),
    ):
        with pytest.raises(ValueError, match=sentence):
            launch(ENTRY, "dra", topology=topology, one_claim=True, **NODE)


def balloons(policy, interrupts):
    """Return the CPUs that the policy keeps from pods, the interrupts that it moves there, and its type of balloons for NPUs.

    As nri-plugins does it: only interrupts that ``controllableInterrupts`` names are looked at, all others would go to every CPU, and a
    pattern is matched as a whole with what /proc/interrupts shows after the counters.
    """
    spec = policy["spec"]
    reserved, close = spec["balloonTypes"]
    cpus = set(expand(spec["reservedResources"]["cpu"].removeprefix("cpuset:")))
    assert (reserved["name"], reserved["minCPUs"]) == ("reserved", len(cpus)), "without minCPUs the balloon takes none of them"
    looked_at = {name for name in interrupts for pattern in spec.get("controllableInterrupts", ["*"]) if fnmatch.fnmatch(name, pattern)}
    moved = {name for name in looked_at for pattern in reserved.get("irqClaim", ()) if fnmatch.fnmatch(name, pattern)}
    assert moved == looked_at or "irqClaim" not in reserved, "what is not claimed would lose its affinity"
    return compress(cpus), moved, close


OF_NPUS = {"ITS-MSI 98304 Edge sq_send_trigger_irq", "ITS-PCI-MSIX-0000:81:00.0 2 Edge cq_update_irq"}
INTERRUPTS = {*OF_NPUS, "ITS-MSI 524288 Edge eth0-TxRx-0", "ITS-MSI 98303 Edge trs-mbox-0-0"}


@pytest.mark.parametrize(
    "topology, reserved, cpus",
    [(TOPOLOGY, "0-1,16-17", "14"), (SMT, "0-1,8-9,16-17,24-25", "12"), (ROOMY, "0-1,6-7,24-25,30-31", "8")],
    ids=["two nodes", "two threads a core", "one node"],
)
def test_balloons_lie_close_to_the_npu_that_the_pod_gets(topology, reserved, cpus):
    made = plan(topology, strategy="even_split")
    found = objects(made["npus"][0], "balloons", topology=topology, plan=made, **NODE)
    policy, pod = found["BalloonsPolicy"], found["Pod"]
    assert balloons(policy, INTERRUPTS) == (
        reserved,
        OF_NPUS,
        {
            "name": "npu",
            "preferNewBalloons": True,
            "preferSpreadingPods": True,
            "preferCloseToDevices": ["podresourceapi:huawei.com/Ascend910"],
        },
    )
    assert policy["spec"]["agent"] == {"podResourceAPI": True}
    assert policy["metadata"] == {"name": "node.node1", "namespace": "kube-system"}
    assert pod["metadata"]["annotations"] == {"balloon.balloons.resource-policy.nri.io/pod": "npu"}
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": cpus, "memory": "64Gi", "huawei.com/Ascend910": "1"}


def test_a_nodes_policy_is_short_and_the_same_for_all_its_npus():
    texts = {
        launch(entry, "balloons", topology=TOPOLOGY, plan=PLAN, notes=False, **NODE).split("---")[0] for entry in (*PLAN["npus"], PAIR)
    }
    (text,) = texts
    assert len(text.splitlines()) <= 25


def test_balloons_of_npus_without_interrupts_claim_none():
    host = changed(npus=[{**npu, "family": "a5"} for npu in TOPOLOGY["npus"]])
    made = plan(host, strategy="even_split", housekeeping=1)
    policy = objects(made["npus"][0], "balloons", topology=host, plan=made, **NODE)["BalloonsPolicy"]
    reserved, moved, close = balloons(policy, INTERRUPTS)
    assert (reserved, moved, close["preferCloseToDevices"]) == ("0,16", set(), ["podresourceapi:huawei.com/npu"])
    assert "controllableInterrupts" not in policy["spec"] and "irqClaim" not in policy["spec"]["balloonTypes"][0]
    assert "npu_affinity_irq_enabled" not in launch(made["npus"][0], "balloons", topology=host, plan=made, **NODE)


RESOURCES = [
    ("910", "huawei.com/Ascend910"),
    ("a2", "huawei.com/Ascend910"),
    ("a3", "huawei.com/Ascend910"),
    ("a5", "huawei.com/npu"),
    ("310p", "huawei.com/Ascend310P"),
    ("310", "huawei.com/Ascend310"),
]


@pytest.mark.parametrize("family, name", RESOURCES)
def test_pods_request_npus_by_the_mindcluster_name_of_the_family(family, name):
    host = changed(npus=[{**npu, "family": family} for npu in TOPOLOGY["npus"]])
    for form, options in (("dra", {"resource": name}), ("balloons", {})):
        found = objects(ENTRY, form, topology=host, **options, **NODE)
        assert found["Pod"]["spec"]["containers"][0]["resources"]["limits"][name] == "1"
    assert found["BalloonsPolicy"]["spec"]["balloonTypes"][1]["preferCloseToDevices"] == [f"podresourceapi:{name}"]
    by_node = {"name": "a", "cpus": "16-31", "devices": ["/dev/davinci4"]}
    for entry in (ENTRY, by_node):
        assert loaded(entry, "kubernetes", topology=host)["spec"]["containers"][0]["resources"]["limits"][name] == "1"


@pytest.mark.parametrize("form", ["kubernetes", "balloons"])
def test_an_unknown_resource_is_written_as_an_invalid_name(form):
    text = launch(ENTRY, form)
    assert "RESOURCE: '1'" in text and "Give topology, or resource" in text and "Ascend910" not in text
    told = launch(ENTRY, form, resource="huawei.com/Ascend910B3")
    assert "huawei.com/Ascend910B3: '1'" in told and "Give topology" not in told


@pytest.mark.parametrize(
    "version, options, gates, unsure",
    [
        (None, ["full-pcpus-only", "strict-cpu-reservation"], None, True),
        ("1.30.2", ["full-pcpus-only"], None, False),
        ("1.32.0", ["full-pcpus-only", "strict-cpu-reservation"], {"CPUManagerPolicyAlphaOptions": True}, False),
        ("1.35.1", ["full-pcpus-only", "strict-cpu-reservation"], None, False),
    ],
)
def test_a_kubelet_is_told_what_its_version_knows(version, options, gates, unsure):
    topology = changed(kubelet={"policy": "none", "version": version})
    found = loaded(ENTRY, "kubelet", topology=topology)
    assert (list(found["cpuManagerPolicyOptions"]), found.get("featureGates")) == (options, gates)
    assert ("came with Kubernetes 1.32" in launch(ENTRY, "kubelet", topology=topology)) == unsure


@pytest.mark.parametrize(
    "caches, pool, cores",
    [
        (["0-3", "4-7", "8-11", "12-15", "16-19", "20-23", "24-27", "28-31"], "20-27", "20-27"),
        (["0-3", "4-7", "8-11", "12-15", "16-19", "20-23", "24-27", "28-31"], "18-23", "16-23"),
        (["0-7", "8-15", "16,18,20,22,24,26,28,30", "17,19,21,23,25,27,29,31"], "17,19,21", "24-31"),  # cores count cache by cache
    ],
)
def test_l3_caches_are_sockets_of_slurm(caches, pool, cores):
    topology = changed(cpus={**TOPOLOGY["cpus"], "caches": caches})
    text = launch({**ENTRY, "pool": pool}, "slurm", topology=topology, slurm_sockets="l3")
    assert f"Cores={cores}\n" in text
    assert f"SlurmdParameters=l3cache_as_socket and NodeName=NODE CPUs=32 Sockets={len(caches)} CoresPerSocket={32 // len(caches)} " in text
    assert ("Slurm takes whole L3 caches only" in text) == (pool != "20-27")
