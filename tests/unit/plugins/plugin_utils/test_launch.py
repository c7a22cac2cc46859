# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and texts to paste: each is read back by whoever reads it in the end, or by the nearest thing to it."""

import collections
import copy
import fnmatch
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import celpy
import kubernetes_validate
import pytest
import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding, slices
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.workloads import workloads
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.forms import FORMS, launch
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


def registered(*numbers):
    """Return the topology with these device numbers."""
    devices = [{"number": number, "file": None if number is None else f"/dev/davinci{number}", "known_by": "unknown"} for number in numbers]
    return changed(
        npus=[{**npu, "phy_id": device["number"], "device": device} for npu, device in zip(TOPOLOGY["npus"], devices, strict=True)]
    )


ASSUMED, UNKNOWN, KNOWN = registered(0, 1), registered(None, None), {"topology": TOPOLOGY}
IN_FORCE, FITTED = changed(applied={"npus": [ENTRY]}), changed(allocator="/usr/lib64/libjemalloc.so.2")
NONE_POLICY = changed(kubelet={"policy": "none"})
BEST_EFFORT = changed(kubelet={"policy": "static", "topology_policy": "best-effort", "exclusive": {}, "warnings": []})
NODE, BARE, NAMED = {"node": "node1", "memory": "64Gi"}, {"devices": False}, {"name": "infer", "image": "img"}
ONE_CLAIM = {"one_claim": True, **NODE}
WITH_PLAN = {**KNOWN, "plan": PLAN, **NODE}
BLIND = changed(npus=[{**npu, "affinity": None, "numa": None} for npu in TOPOLOGY["npus"]])
A5 = changed(npus=[{**npu, "family": "a5"} for npu in TOPOLOGY["npus"]])
RUNTIME = {**KNOWN, "ascend_runtime": True, "vnpu": "vir04"}
SECOND, UNSEEN, SERVE = PAIR["processes"][1], {"visible_devices": False}, {"image": "vllm:$TAG", "command": ["serve", "$MODEL"], **BARE}
PART, SPREAD, GAP = {**ENTRY, "pool": "16-20,24-26"}, {**ENTRY, "pool": "12-19"}, {**ENTRY, "pool": "0-5,12-19", "irq": ""}
INTERLEAVED = changed(numa=[{"id": 0, "cpus": compress(range(0, 32, 2))}, {"id": 1, "cpus": compress(range(1, 32, 2))}])
BY_NODE = {"cpus": "16-31", "devices": ["/dev/davinci5", "/dev/davinci4"]}
ONE_CPU = {"cpus": "7", "id": 0, "phy_id": 0}
PAIR_OF_GPUS = {**GPUS, "processes": [{**GPU, "id": 2, "pool": "0-7"}, {**GPU, "mems": "1"}]}
VLLM = {"engine": "vllm", "command": ["vllm", "serve", "m"], "image": "i"}
PUBLISHED = changed(cpus={"online": "0-31", "offline": "32-35"})
IN_EIGHTS = ["0-3", "4-7", "8-11", "12-15", "16-19", "20-23", "24-27", "28-31"]
IN_FOURTHS = ["0-7", "8-15", "16,18,20,22,24,26,28,30", "17,19,21,23,25,27,29,31"]


def by_cache(caches):
    return {"topology": changed(cpus={**TOPOLOGY["cpus"], "caches": caches}), "slurm_sockets": "l3"}


def kubelet(version):
    return {"topology": changed(kubelet={"policy": "none", "version": version})}


# The forms, what is special, an entry or a workload, and options. launches.txt has the text of the first case of a form, and what others
# lack of it and have besides: here without comments,
TEXTS = [
    ("docker podman nerdctl ctr compose quadlet kubernetes kubelet systemd taskset", "an entry of a plan", ENTRY, {}),
    ("podman compose quadlet", "a workload", PAIR, KNOWN),
    ("docker", "no slice", NO_SLICE, BARE),
    ("docker compose", "no memory nodes", {**ENTRY, "memory_nodes": ""}, BARE),
    ("docker", "CPUs out of order", {"pool": "28-31,16-17", "mems": "1"}, BARE),
    ("docker", "a host without slices", ENTRY, {"topology": V1, **BARE}),
    ("docker", "a host of a static kubelet", ENTRY, {"topology": WITH_STATIC_KUBELET, **BARE}),
    ("docker compose quadlet", "what the user gave", ENTRY, {**SERVE, "name": "infer"}),
    ("docker nerdctl", "lists as texts", ENTRY, {**NAMED, "command": "serve 'a b' --port 80", "arguments": "-d -e X=1", "name": "a"}),
    ("docker", "a number as a word", ENTRY, {"command": ["serve", 80], **BARE}),
    ("docker", "the id in the entry", {**ENTRY, "phy_id": 6}, {}),
    ("docker", "the id in the topology", ENTRY, KNOWN),
    ("docker", "device files of the user", {"cpus": "0-4", "devices": ["/dev/davinci2"]}, KNOWN),
    ("docker quadlet", "two device files", BY_NODE, {}),
    ("docker", "another npu-smi", ENTRY, {"npu_smi": "/usr/local/sbin/npu-smi"}),
    ("ctr compose", "a plan in force", ENTRY, {"topology": IN_FORCE}),
    ("docker", "a plan in force, no devices", ENTRY, {"topology": IN_FORCE, **BARE}),
    ("docker", "a plan in force, another library", ENTRY, {"topology": IN_FORCE, **BARE, "library": "/opt/bind"}),
    ("docker compose", "the Ascend runtime", PAIR, RUNTIME),
    ("docker podman nerdctl compose quadlet kubernetes", "GPUs", GPUS, {}),
    ("ctr", "GPUs", GPUS, {"containerd_version": "2.0"}),
    ("docker", "one GPU", GPU, {}),
    ("docker quadlet", "counted from 0", SECOND, {}),
    ("docker", "visible devices switched off", PAIR, UNSEEN),
    ("docker", "privileged", SECOND, {"arguments": ["--privileged"], **BARE}),
    ("docker", "privileged with devices", SECOND, {"arguments": ["--privileged"]}),
    ("docker", "a privileged GPU", GPU, {"arguments": ["--privileged"]}),
    ("compose kubelet", "a single CPU", ONE_CPU, {}),
    ("quadlet", "arguments", PAIR, {"image": "vllm:100%", **BARE, "arguments": ["--annotation=a b"], "command": ["serve", "it's", "$X"]}),
    ("quadlet", "no slice", NO_SLICE, {}),
    ("ctr", "before containerd 2.0", ENTRY, {**NAMED, "command": "serve", **BARE, "arguments": "--detach"}),
    ("ctr", "containerd 2.0", ENTRY, {"name": "infer", **BARE, "containerd_version": "2.0"}),
    ("ctr", "a host without slices", ENTRY, {"name": "infer", **BARE, "containerd_version": "2.1.3", "topology": V1}),
    ("taskset numactl systemd_run systemd", "one NPU", SECOND, {}),
    ("taskset systemd", "the order of the user", {"cpus": "0-31", "npus": [1, 0]}, {}),
    ("taskset numactl systemd_run systemd", "device files by their logic ids", BY_NODE, KNOWN),
    ("taskset systemd", "GPUs", GPUS, {}),
    ("taskset systemd", "no device", {"cpus": "0-3"}, {}),
    ("taskset systemd", "no variable", ENTRY, UNSEEN),
    ("systemd_run systemd", "a workload", PAIR, {"topology": PUBLISHED, **UNSEEN}),
    ("systemd_run systemd", "a part of npu.slice", ALL_IN_ONE, UNSEEN),
    ("systemd", "no slice", NO_SLICE, UNSEEN),
    ("systemd", "no memory nodes", {"cpus": "4-7"}, UNSEEN),
    ("systemd", "cgroup v1", ENTRY, {"topology": V1, **UNSEEN}),
    ("systemd numactl", "other nodes allowed", {**ENTRY, "memory_nodes": "0-1"}, {"topology": V1, **UNSEEN}),
    ("systemd", "old systemd", ENTRY, {"topology": OLD, **UNSEEN}),
    ("systemd", "static kubelet", ENTRY, {"topology": WITH_STATIC_KUBELET, **UNSEEN}),
    ("numactl", "a plan of old", {key: value for key, value in ENTRY.items() if key != "memory_nodes"}, {"command": "run"}),
    ("numactl", "memory is left alone", {**ENTRY, "memory_nodes": ""}, {"command": "run"}),
    ("kubernetes", "what the user gave", ENTRY, {"name": "infer", "image": "vllm", "memory": "64Gi", "command": ["run", "$(X)"]}),
    ("kubernetes", "cores of two threads", ENTRY, {"topology": SMT, "resource": "huawei.com/Ascend910B3"}),
    ("kubernetes", "no devices", ENTRY, BARE),
    ("kubelet", "a workload", PAIR, KNOWN),
    ("kubelet", "other nodes allowed", {**ENTRY, "memory_nodes": "0-1"}, {}),
    ("kubelet", "a core in part", {**ENTRY, "pool": "16-18"}, {"topology": SMT}),
    ("slurm", "a workload", PAIR, KNOWN),
    ("slurm", "a name", ENTRY, {**KNOWN, "name": "node1"}),
    ("slurm", "whole NUMA nodes", PART, {**KNOWN, "slurm_version": "24.11"}),
    ("slurm", "every node that the pool touches", SPREAD, {**KNOWN, "slurm_version": "26.05"}),
    ("slurm", "cores of two threads", PART, {"topology": SMT, "slurm_version": "23.02.1"}),
    ("slurm", "the cores of the pool", PART, {**KNOWN, "slurm_version": "22.05"}),
    ("slurm", "a kernel without NUMA", {**ENTRY, "mems": "", "memory_nodes": ""}, {"topology": changed(numa=[])}),
    ("slurm", "nodes of every other CPU", {**ENTRY, "pool": compress(range(1, 32, 2))}, {"topology": INTERLEAVED}),
    ("torch_npu", "one NPU", {**ENTRY, "pool": "16-23", "irq": "16-17"}, {}),
    ("torch_npu", "two NPUs", PAIR, UNSEEN),
    ("torch_npu", "a pool with a gap", GAP, {"torch_npu_version": "26.1.0"}),
    ("torch_npu", "a single CPU", {**ENTRY, "pool": "16-17,19", "irq": "16-17"}, {}),
    ("docker", "numactl in vLLM on a GPU", GPU, VLLM),
    ("docker", "numactl in vLLM on two GPUs", PAIR_OF_GPUS, VLLM),
    ("docker", "vLLM on an unknown node", {**GPU, "mems": ""}, VLLM),
    ("docker", "vLLM on two nodes", {**GPU, "mems": "0-1"}, VLLM),
    ("docker", "vLLM whose pools are not known", GPUS, VLLM),
    ("docker", "vLLM on an NPU", ENTRY, {**VLLM, **BARE}),
    ("docker", "another engine on a GPU", GPU, {**VLLM, "engine": "sglang"}),
]
# and here with comments, which say what holds for this host and no more.
EXPLAINED = [
    ("taskset systemd kubernetes kubelet", "an entry of a plan", ENTRY, {}),
    ("docker slurm", "a known host", ENTRY, KNOWN),
    ("docker", "guessed device files", ENTRY, {"topology": ASSUMED}),
    ("docker", "no devices", ENTRY, {"topology": ASSUMED, **BARE}),
    ("docker", "pods float", ENTRY, {"topology": NONE_POLICY, **BARE}),
    ("docker", "a GPU", GPU, {}),
    ("docker", "it binds itself", ALL_IN_ONE, {"binding": "global_slice", "total_npus": 2, **BARE}),
    ("docker", "it binds itself by affinity", ALL_IN_ONE, {"binding": "topo_affinity", "total_npus": 2, **BARE}),
    ("taskset", "device files alone", BY_NODE, {}),
    ("taskset", "vLLM", ENTRY, {"engine": "vllm"}),
    ("taskset", "vLLM-Ascend", ENTRY, {"engine": "vllm_ascend"}),
    ("taskset", "verl", ENTRY, {"engine": "verl"}),
    ("taskset", "MindIE", ENTRY, {"engine": "mindie"}),
    ("docker", "vLLM on a GPU", GPU, {"engine": "vllm"}),
    ("docker", "vLLM on a GPU with its command", GPU, VLLM),
    ("taskset systemd", "fitted", ENTRY, {"environment": True, "topology": FITTED}),
    ("taskset", "no allocator", ENTRY, {"environment": {"allocator": True}}),
    ("docker", "fitted", ENTRY, {"environment": {"openmp": True, "allocator": True}, **BARE}),
    ("docker", "two fitted processes", PAIR, {"environment": {"openmp": True}, **BARE}),
    ("taskset", "a GPU has no task queue", GPU, {"environment": {"task_queue": True}}),
    ("taskset", "nothing is to fit", ENTRY, {"environment": {"openmp": False}}),
    ("compose", "a workload", PAIR, {**KNOWN, **BARE}),
    ("compose", "a slice of others", ALL_IN_ONE, BARE),
    ("compose", "no slice", NO_SLICE, BARE),
    ("compose", "a host without slices", ENTRY, {"topology": V1, **BARE}),
    ("compose", "a static kubelet", ENTRY, {"topology": WITH_STATIC_KUBELET, **BARE}),
    ("systemd", "a name", ENTRY, {"name": "vllm"}),
    ("ctr", "containerd 2.4.0", ENTRY, {"containerd_version": "2.4.0", **BARE}),
    ("ctr", "containerd 2.4.1", ENTRY, {"containerd_version": "2.4.1", **BARE}),
    ("kubernetes", "cores of two threads", ENTRY, {"topology": SMT}),
    ("kubernetes", "best effort", ENTRY, {"topology": BEST_EFFORT}),
    ("kubernetes", "a resource", ENTRY, {"resource": "huawei.com/Ascend910B3"}),
    ("kubelet", "an unknown version", ENTRY, kubelet(None)),
    ("kubelet", "Kubernetes 1.30", ENTRY, kubelet("1.30.2")),
    ("kubelet", "Kubernetes 1.32", ENTRY, kubelet("1.32.0")),
    ("kubelet", "Kubernetes 1.35", ENTRY, kubelet("1.35.1")),
    ("slurm", "shared cores of two threads", PART, {"topology": SMT, "name": "node1"}),
    ("slurm", "cores in part are left out", PART, {"topology": SMT, "slurm_version": "22.05"}),
    ("slurm", "L3 caches", {**ENTRY, "pool": "20-27"}, by_cache(IN_EIGHTS)),
    ("slurm", "L3 caches in part", {**ENTRY, "pool": "18-23"}, by_cache(IN_EIGHTS)),
    ("slurm", "cores count cache by cache", {**ENTRY, "pool": "17,19,21"}, by_cache(IN_FOURTHS)),
]
CASES = {
    f"{form}: {what}{', explained' if notes else ''}": (form, entry, {**options, "notes": notes})
    for notes, rows in ((False, TEXTS), (True, EXPLAINED))
    for forms, what, entry, options in rows
    for form in forms.split()
}
FIRST = {form: next(case for case in CASES.values() if case[0] == form) for form, _entry, _options in CASES.values()}
FILE = (pathlib.Path(__file__).parent / "launches.txt").read_text()
EXPECTED = {name: rest or whole for name, rest, whole in re.findall(r"^== (.+?)(?: \| (.*))?\n((?:(?!== ).*\n)*)", FILE, re.MULTILINE)}


def parts(text):
    """Return the comments of a text, and the lines of a file or the words of a command."""
    comments, lines = [], []
    for line in map(str.strip, text.splitlines()):
        (comments if line.startswith("#") else lines).append(line)
    return collections.Counter([*comments, *(lines[0].split() if len(lines) == 1 else lines)])


def shown(form, entry, options):
    """Return the text of the first case of a form, and of others how they differ from it."""
    text, first = (launch(case[1], form, **case[2]).rstrip("\n") + "\n" for case in ((form, entry, options), FIRST[form]))
    if (entry, options) == FIRST[form][1:]:
        return text
    lacks, has = parts(first) - parts(text), parts(text) - parts(first)
    return "  ".join([*(f"-{part}" for part in lacks.elements()), *(f"+{part}" for part in has.elements())]) or "the same"


@pytest.mark.parametrize("name", CASES)
def test_the_whole_text(name):
    before = copy.deepcopy(CASES[name])
    assert shown(*CASES[name]) == EXPECTED[name]
    assert CASES[name] == before


def test_every_whole_text_is_that_of_a_case():
    assert list(EXPECTED) == list(CASES)


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


@pytest.mark.parametrize("form, service", [("compose", "services/npu-0"), ("kubernetes", "spec/containers/0")])
def test_commands_arrive_word_by_word_through_yaml(form, service):
    document = yaml.safe_load(launch(ENTRY, form, command=HARD_WORDS))
    for key in service.split("/"):
        document = document[int(key) if key.isdigit() else key]
    assert [word.replace("$$", "$") for word in document["command"]] == HARD_WORDS


def test_quadlet_keeps_words_together():
    """Unit files quote much as a shell does, and double what systemd would replace; only a newline is written otherwise."""
    (line,) = re.findall(r"^Exec=(.*)", launch(PAIR, "quadlet", devices=False, command=HARD_WORDS), re.MULTILINE)
    read = [word.replace("%%", "%").replace("$$", "$").replace("\\n", "\n") for word in shlex.split(line)]
    assert read == HARD_WORDS


def test_quadlet_is_accepted_by_its_generator(tmp_path):
    generator = shutil.which("quadlet", path="/usr/libexec/podman:/usr/lib/podman:/usr/lib/systemd/system-generators")
    if generator is None:
        pytest.skip("podman's quadlet is not installed")
    (tmp_path / "pair.container").write_text(launch(PAIR, "quadlet", image="vllm", command=HARD_WORDS[:-1]))
    environment = {**os.environ, "QUADLET_UNIT_DIRS": str(tmp_path)}
    result = subprocess.run([generator, "-dryrun"], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Slice=npu-pair.slice" in result.stdout and "--cpuset-cpus=0-31" in result.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("case", [case for case in CASES.values() if case[0] == "systemd"])
def test_systemd_accepts_a_drop_in(tmp_path, case):
    form, entry, options = case
    (tmp_path / "x.service.d").mkdir()
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/true\n")
    (tmp_path / "x.service.d" / "cpus.conf").write_text(launch(entry, form, **options))
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "x.service")]
    result = subprocess.run(verify, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}, capture_output=True, text=True, check=False)
    assert "cpus.conf" not in result.stderr


@pytest.mark.parametrize("topology", [TOPOLOGY, V1, OLD], ids=["cgroup v2", "cgroup v1", "old systemd"])
@pytest.mark.parametrize("npus", [[0], [0, 1]], ids=["one NPU", "two NPUs"])
def test_a_drop_in_is_that_of_role_slices(topology, npus):
    made = plan(topology, strategy="even_split")
    (service,) = binding.binding(topology, made, Work([{"unit": "vllm.service", "npus": npus}]))["services"]
    entry = made["npus"][0] if npus == [0] else ALL_IN_ONE
    assert launch(entry, "systemd", topology=topology, notes=False) == slices.service_text(service["settings"], service["environment"])
    text, all_cpus = slices.drop_in_text(service), topology is TOPOLOGY or npus == [0, 1]
    assert "\nCPUAffinity=\n" in text and ("CPUAffinity=0-31\n" in text) == all_cpus


@pytest.mark.parametrize("program", ["taskset", "numactl"])
def test_a_program_runs_here_on_the_cpus_asked_for(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    cpus = compress(sorted(os.sched_getaffinity(0))[-1:])
    text = launch({"cpus": cpus}, program, command=["grep", "Cpus_allowed_list", "/proc/self/status"])
    assert subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout.split()[-1] == cpus


UNEVEN = changed(numa=[{"id": 0, "cpus": "0-7"}, {"id": 1, "cpus": "8-31"}])
MIXED = changed(npus=[{**npu, "family": family} for npu, family in zip(TOPOLOGY["npus"], ("310p", "a2"), strict=True)])
SOME_THREADS = changed(cpus={"online": "0-31", "siblings": ["0,8"]})
WITH_A_POD = changed(kubelet={"policy": "static", "exclusive": {"p/c": "20-21"}})
SLICED, ON_X86 = {"binding": "global_slice"}, {"binding": "topo_affinity", "topology": X86}
REFUSALS = [
    ("an old torch_npu", GAP, "torch_npu", {}, "2 ranges, of which torch_npu before 26.1.0"),
    ("torch_npu without NPUs", {"cpus": "0-3"}, "torch_npu", {}, "names no NPU, and torch_npu binds to NPUs"),
    ("torch_npu on a GPU", GPU, "torch_npu", {}, "names no NPU, and torch_npu binds to NPUs"),
    ("torch_npu with too many NPUs", {**NO_SLICE, "npus": [{"id": 0}] * 101}, "torch_npu", {}, "has 101 NPUs, and .* has room for 100"),
    ("torch_npu with interrupts only", {**ENTRY, "pool": "16-17", "irq": "16-17"}, "torch_npu", {}, "nothing of CPUs 16-17 is left"),
    ("a device file that nothing tells", {**ENTRY, "phy_id": None}, "docker", {}, "has the device file of NPU 0; give topology"),
    ("the same of a workload", {**NO_SLICE, "npus": [0]}, "compose", {}, "has the device file of NPU 0; give topology"),
    ("nor the topology", ENTRY, "podman", {"topology": UNKNOWN}, "the device file of NPU 0 is not known: no tool"),
    ("for the runtime", ENTRY, "docker", {"topology": UNKNOWN, "ascend_runtime": True}, "'npu-smi info -t phyid-remap -p <N>' shows"),
    ("for Slurm", PAIR, "slurm", {"topology": UNKNOWN}, "the device file of NPU 0 is not known"),
    ("ctr without a slice", NO_SLICE, "ctr", {}, "ctr of containerd 1.7 has no flags for CPU sets, and no slice holds CPUs 4-7 for"),
    ("ctr in the slice of all", ALL_IN_ONE, "ctr", {}, "no slice holds CPUs 0-31 for this workload alone; use nerdctl, or containerd 2.0"),
    ("ctr on cgroup v1", ENTRY, "ctr", {"topology": V1}, "no slice holds CPUs 16-31"),
    ("an unknown form", ENTRY, "dcoker", {}, "form: expected one of balloons, compose, ctr, docker, "),
    ("an unknown option", ENTRY, "docker", {"imgae": "x"}, "form docker has no option imgae; it has arguments, ascend_runtime, command, "),
    ("an option of another form", ENTRY, "taskset", {"image": "x"}, "taskset has no option image; it has command, engine, environment"),
    ("a whole plan", PLAN, "docker", {}, "this is a whole plan; take one of its npus"),
    ("a list", PLAN["npus"], "docker", {}, "expected an entry of npu_affinity_plan.npus or a workload; got list"),
    ("no CPUs", {**ENTRY, "pool": ""}, "docker", {}, "NPU 0 has no CPUs: its pool is empty"),
    ("a bad cpulist", {**ENTRY, "pool": "0-3,N"}, "docker", {}, "pool of NPU 0: 'N' in '0-3,N'"),
    ("a bad slice", {**ENTRY, "slice": "npu0"}, "docker", {}, 'NPU 0 cannot be launched so: .* named as "xxx.slice"'),
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
    ("the Ascend runtime for a GPU", GPU, "docker", {"ascend_runtime": True}, "ascend_runtime: GPU 3 is not an NPU"),
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
    ("too few for its NPUs", {**ENTRY, "pool": "16-24"}, "docker", {**SLICED, "topology": TOPOLOGY}, "total_npus=2, min_per_npu=4"),
    ("in-process binding among how many", ENTRY, "docker", {"binding": "global_slice"}, "total_npus: .* give it, or give topology"),
    ("a number that is none", ENTRY, "docker", {**SLICED, "total_npus": "two"}, "total_npus: expected the number"),
    ("unknown engine", ENTRY, "docker", {"engine": "vLLM"}, "engine: expected one of dynamo, mindie, .*, vllm_ascend; got 'vLLM'"),
    ("an engine that is to bind", ALL_IN_ONE, "docker", {"engine": "vllm_ascend", "binding": "topo_affinity"}, "leave one of the two out"),
    ("a text as environment", ENTRY, "docker", {"environment": "yes"}, "environment: expected true, or a dictionary with openmp, task"),
    ("variables as environment", ENTRY, "docker", {"environment": {"OMP_NUM_THREADS": 1}}, "environment: expected true, or a dictionary"),
    ("binding itself on x86_64", ALL_IN_ONE, "docker", ON_X86, "tp2 cannot bind itself by topo_affinity: .* host is x86_64; leave binding"),
    ("in-process binding of a GPU", GPU, "docker", {"binding": "topo_affinity", "total_npus": 1}, "GPU 3 cannot bind itself .* NPUs only"),
    ("dra of a static kubelet", ENTRY, "dra", {"topology": WITH_STATIC_KUBELET}, "and the driver must be alone in giving CPUs"),
    ("balloons of a static kubelet", ENTRY, "balloons", {"topology": WITH_STATIC_KUBELET}, "and the balloons policy must be alone"),
    ("a plan without topology", ENTRY, "dra", {"plan": PLAN}, "give topology along with plan"),
    ("a part of a plan", ENTRY, "dra", {"plan": PLAN["npus"]}, "plan: expected the fact npu_affinity_plan, with npus; got list"),
    ("balloons without NPUs", {"cpus": "0-3", "name": "a"}, "balloons", {}, "names no NPU, and balloons lie close to NPUs; give npus"),
    ("balloons without interrupts", {**ENTRY, "irq": ""}, "balloons", {"topology": TOPOLOGY}, "the policy needs reserved CPUs"),
    ("dra without CPUs", {**ENTRY, "pool": "16-17"}, "dra", {"topology": TOPOLOGY}, "CPUs 16-17 is left next to interrupts on 16-17"),
    ("one claim without nodes", ENTRY, "dra", {"topology": BLIND, **ONE_CLAIM}, "the NUMA node of an NPU of this host is not known"),
    ("one claim without files", ENTRY, "dra", ONE_CLAIM, "has no NPU whose device file is known"),
    ("two families", PAIR, "kubernetes", {"topology": MIXED}, "offered as huawei.com/Ascend310P, huawei.com/Ascend910; name the one"),
    ("an unknown binding", ENTRY, "docker", {"binding": "host"}, "binding: expected one of global_slice, topo_affinity, cluster"),
]


@pytest.mark.parametrize("entry, form, options, sentence", [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS])
def test_what_cannot_work_is_refused(entry, form, options, sentence):
    before = copy.deepcopy((entry, options))
    with pytest.raises(ValueError, match=sentence):
        launch(entry, form, **options)
    assert (entry, options) == before


@pytest.mark.parametrize("form", sorted(form for form in FORMS if "engine" in FORMS[form].options))
def test_every_form_that_starts_a_program_disables_its_binding(form):
    off = "SGLANG_SET_CPU_AFFINITY"
    plain, text = (launch(ENTRY, form, **options) for options in ({}, {"engine": "sglang"}))
    assert off not in plain and re.search(off + r"(?:=|: '|\n +value: ')0\b", text)
    assert "# SGLang: leave --numa-node out." in text and "enable_cpu_binding" not in text
    assert launch({**PAIR, "engine": "sglang"}, form) == launch(PAIR, form, engine="sglang")


ROOMY = changed(  # two NPUs of one NUMA node, two threads a core, and a node that no NPU has
    cpus={"online": "0-47", "siblings": [f"{cpu},{cpu + 24}" for cpu in range(24)]},
    numa=[{"id": 0, "cpus": "0-11,24-35", "memory_mib": 1024}, {"id": 1, "cpus": "12-23,36-47", "memory_mib": 1024}],
    npus=[{**npu, "numa": 0, "affinity": "0-11,24-35"} for npu in TOPOLOGY["npus"]],
)


def objects(entry, form, **options):
    by_name = {}
    for document in yaml.safe_load_all(launch(entry, form, **options)):
        if form == "dra":
            kubernetes_validate.validate(document, "1.37", strict=True)
        name = document["metadata"]["name"]
        by_name[name if name.endswith("-npus") else document["kind"]] = document
    assert by_name["Pod"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "node1"}
    return by_name


OF_PODS = [
    (PAIR, "dra", {**KNOWN, **NODE}, "give plan", True),
    (ENTRY, "dra", {"topology": A5, **NODE}, "950 alone", False),
    (ENTRY, "balloons", {**KNOWN, **NODE}, "give plan", True),
    (ENTRY, "balloons", WITH_PLAN, "moves the interrupts of all NPUs to CPUs 0-1,16-17", True),
    (ENTRY, "balloons", WITH_PLAN, "set npu_affinity_irq_enabled: false", True),
    (ENTRY, "balloons", WITH_PLAN, "14 CPUs close to its NPU, not the set of the plan", True),
    (ENTRY, "balloons", WITH_PLAN, "MindCluster's has none", False),
    (ENTRY, "balloons", {"topology": BLIND, **NODE}, "MindCluster's has none for NPU 0, 1.", True),
    (ENTRY, "balloons", {}, "Give topology, or resource", True),
    (ENTRY, "balloons", {"resource": "huawei.com/Ascend910B3"}, "Give topology", False),
]


@pytest.mark.parametrize("entry, form, options, words, is_said", OF_PODS)
def test_pods_with_claims_or_balloons_are_explained(entry, form, options, words, is_said):
    assert (words in launch(entry, form, **options)) is is_said


def claimed(claim, online, reserved):
    """Return the CPUs of each request as dra-driver-cpu takes them, after its own checks (``ValidateOpaqueCPUSet``)."""
    devices, sets = claim["spec"]["devices"], {}
    for config in devices["config"]:
        (request,) = config["requests"]
        driver, parameters = config["opaque"]["driver"], config["opaque"]["parameters"]
        assert request not in sets and (driver, parameters["apiVersion"]) == ("dra.cpu", "v1alpha1")
        sets[request] = set(expand(parameters["cpuConfig"]["cpuset"]))
        assert sets[request] <= online - reserved
    sizes = {request["name"]: int(request["exactly"]["capacity"]["requests"]["dra.cpu/cpu"]) for request in devices["requests"]}
    assert sizes == {request: len(cpus) for request, cpus in sets.items()}
    assert sum(sizes.values()) == len(set().union(*sets.values()))
    return sets


@pytest.mark.parametrize("topology", [TOPOLOGY, SMT, ROOMY], ids=["two nodes", "two threads a core", "one node"])
def test_a_claim_has_the_plans_cpus_for_the_dra_cpu_driver(topology):
    made = plan(topology, strategy="even_split", housekeeping=1)
    documents = objects(made["npus"][0], "dra", topology=topology, plan=made, **NODE)
    text = launch(made["npus"][0], "dra", topology=topology, plan=made, **NODE)
    reserved = set(expand(text.split("--reserved-cpus=")[1].split(".\n")[0]))
    assert all(set(expand(cpus)) <= reserved for cpus in (made["housekeeping"], *(entry["irq"] for entry in made["npus"])))
    cpus = set(expand(made["npus"][0]["pool"])) - reserved
    assert list(claimed(documents["ResourceClaim"], set(expand(topology["cpus"]["online"])), reserved).values()) == [cpus]
    resources = documents["Pod"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["cpu"] == resources["limits"]["cpu"] == str(len(cpus))
    assert resources["requests"].keys() == {"cpu", "memory"} and resources["claims"] == [{"name": "cpus"}, {"name": "npus"}]
    name = documents["ResourceClaim"]["metadata"]["name"]
    names = {"cpus": name, "npus": f"{name}-npus"}
    assert {claim["name"]: claim["resourceClaimName"] for claim in documents["Pod"]["spec"]["resourceClaims"]} == names


def test_a_claim_has_a_request_for_each_npu_with_its_own_cpus():
    shared = {"cpus": "0-31"}
    for entry, options, cpulists in ((PAIR, {**KNOWN, "plan": PLAN}, {"npu-0": "18-31", "npu-1": "2-15"}), (ALL_IN_ONE, {}, shared)):
        sets = claimed(objects(entry, "dra", **options, **NODE)["ResourceClaim"], set(range(32)), set())
        assert {name: compress(cpus) for name, cpus in sets.items()} == cpulists


def chosen(request, devices, attribute):
    """Evaluate an expression of a request over the devices that Ascend's driver publishes, ``{physicId: result}``."""
    environment, exactly = celpy.Environment(), request["exactly"]
    expression = exactly["selectors"][0]["cel"]["expression"] if attribute is None else exactly[attribute][0]["expression"]
    program = environment.program(environment.compile(expression))
    published = {number: {"attributes": {"npu.huawei.com": {"physicId": number}}} for number in devices}
    return {number: program.evaluate({"device": celpy.json_to_cel(device)}) for number, device in published.items()}


def test_the_claim_on_npus_names_their_device_files():
    lost = registered(5, 6)
    for entry, name, numbers in ((PLAN["npus"][1], "npu-1-npus", {6}), (PAIR, "pair-npus", {5, 6})):
        text = launch(entry, "dra", topology=lost, plan=PLAN, **NODE)
        (request,) = objects(entry, "dra", topology=lost, plan=PLAN, **NODE)[name]["spec"]["devices"]["requests"]
        assert {number for number, taken in chosen(request, range(8), None).items() if taken} == numbers
        assert request["exactly"]["count"] == len(numbers)
        assert "Ascend 950 alone, and this workload has a2: for the device plugin, pass resource." in text


def test_one_claim_has_npus_and_cpus_of_one_numa_node():
    documents = objects(ENTRY, "dra", topology=TOPOLOGY, **ONE_CLAIM)
    devices = documents["ResourceClaim"]["spec"]["devices"]
    nodes = {npu["phy_id"]: npu["numa"] for npu in TOPOLOGY["npus"]}
    assert chosen(devices["requests"][0], nodes, "derivedAttributes") == nodes and len(set(nodes.values())) > 1
    constraint = {"requests": ["npus", "cpus"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    assert devices["constraints"] == [constraint] and "config" not in devices
    name = documents["ResourceClaim"]["metadata"]["name"]
    assert documents["Pod"]["spec"]["resourceClaims"] == [{"name": "devices", "resourceClaimName": name}]


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
    documents = objects(made["npus"][0], "balloons", topology=topology, plan=made, **NODE)
    cpus_of_policy, moved, close = balloons(documents["BalloonsPolicy"], INTERRUPTS)
    assert (cpus_of_policy, moved, close["preferCloseToDevices"]) == (reserved, OF_NPUS, ["podresourceapi:huawei.com/Ascend910"])
    assert documents["Pod"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == cpus


def test_balloons_of_npus_without_interrupts_claim_none():
    made = plan(A5, strategy="even_split", housekeeping=1)
    policy = objects(made["npus"][0], "balloons", topology=A5, plan=made, **NODE)["BalloonsPolicy"]
    reserved, moved, close = balloons(policy, INTERRUPTS)
    assert (reserved, moved, close["preferCloseToDevices"]) == ("0,16", set(), ["podresourceapi:huawei.com/npu"])
    text = launch(made["npus"][0], "balloons", topology=A5, plan=made, **NODE)
    assert not re.search("controllableInterrupts|irqClaim|npu_affinity_irq_enabled", text)


RESOURCES = dict.fromkeys(("910", "a2", "a3"), "huawei.com/Ascend910")
RESOURCES |= {"a5": "huawei.com/npu", "310p": "huawei.com/Ascend310P", "310": "huawei.com/Ascend310"}


@pytest.mark.parametrize("family, name", RESOURCES.items())
def test_pods_request_npus_by_the_mindcluster_name_of_the_family(family, name):
    host = changed(npus=[{**npu, "family": family} for npu in TOPOLOGY["npus"]])
    for form, options in (("dra", {"resource": name}), ("balloons", {})):
        documents = objects(ENTRY, form, topology=host, **options, **NODE)
        assert documents["Pod"]["spec"]["containers"][0]["resources"]["limits"][name] == "1"
    assert documents["BalloonsPolicy"]["spec"]["balloonTypes"][1]["preferCloseToDevices"] == [f"podresourceapi:{name}"]
    by_node = {"name": "a", "cpus": "16-31", "devices": ["/dev/davinci4"]}
    for entry in (ENTRY, by_node):
        assert f"        {name}: '1'\n" in launch(entry, "kubernetes", topology=host)
