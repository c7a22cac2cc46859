# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``npu-affinity exec``: which device a rank gets, and what a program that it executes has of mask, memory policy and environment."""

import ctypes
import json
import os
import platform
import re
import signal
import struct
import subprocess
import sys

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._command import exec as program
from ansible_collections.npu.affinity.plugins.module_utils import _ranks
from ansible_collections.npu.affinity.plugins.module_utils._ranks import index_of, visible
from ansible_collections.npu.affinity.plugins.module_utils._state import plan_file

CPUS = sorted(os.sched_getaffinity(0))
UUIDS = ("GPU-aa11", "GPU-aa22", "GPU-bb33")


def npu(number, phy_id, **more):
    cpu = str(CPUS[number % len(CPUS)])
    pci = f"0000:{number:02x}:00.0"
    entry = {"kind": "npu", "id": number, "phy_id": phy_id, "pci": pci, "pool": cpu, "slice": f"npu-{number}.slice"}
    return {**entry, "mems": "0", "memory_nodes": "0", **more}


def gpu(number, pci):
    return {**npu(number, None), "kind": "gpu", "pci": pci, "slice": f"gpu-{number}.slice"}


NPUS = [npu(0, 0), npu(1, 2), npu(2, 4), npu(3, 6)]
GPUS = [gpu(0, "0000:01:00.0"), gpu(1, "0000:41:00.0"), gpu(2, "0000:81:00.0")]


@pytest.fixture
def host(tree):
    def make(npus=(), files=(), gpus=(), options=None, functions=None):
        """A tree with device files and a plan. ``gpus`` are (minor, PCI function, UUID) as the driver tells them."""
        tree.write({f"/dev/{name}": "" for name in ["null", *files, *(f"nvidia{minor}" for minor, _pci, _uuid in gpus)]})
        information = "Model: \t\t NVIDIA H200\nGPU UUID: \t %s\nDevice Minor: \t %s"
        tree.write({f"/proc/driver/nvidia/gpus/{pci}/information": information % (uuid, minor) for minor, pci, uuid in gpus})
        tree.write({f"/sys/bus/pci/devices/{pci}": None for pci in functions or ()})
        plan = {"schema": 1, "npus": list(npus), **({"options": options} if options else {})}
        tree.write({"/etc/npu-affinity/plan.json": json.dumps(plan)})
        return tree.root

    return make


def in_child(root, *words, before=None, **environment):
    """Run the command in a process of its own, as a launcher does, and return its status and what it wrote."""
    code = f"import sys; from {program.__name__} import main; raise SystemExit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--root", root, *words]
    base = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    done = subprocess.run(command, env={**base, **environment}, capture_output=True, text=True, check=False, preexec_fn=before)
    return done.returncode, done.stdout, done.stderr


RANKS = [
    # environment, command, index of the device and what tells it
    ({}, "serve", None),
    ({"PMI_RANK": "3", "RANK": "11", "PMIX_RANK": "3"}, "serve", None),
    ({"LOCAL_RANK": "2"}, "serve", (2, "LOCAL_RANK=2")),
    ({"LOCAL_RANK": "-1", "SLURM_LOCALID": "5"}, "serve", (5, "SLURM_LOCALID=5")),
    ({"LOCAL_RANK": "2", "SLURM_LOCALID": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "serve", (2, "LOCAL_RANK=2")),
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, "serve", (1, "OMPI_COMM_WORLD_LOCAL_RANK=1")),
    ({"MPI_LOCALRANKID": "3", "PMI_RANK": "11"}, "serve", (3, "MPI_LOCALRANKID=3")),
    ({"SLURM_LOCALID": "4"}, "serve --local_rank 1", (4, "SLURM_LOCALID=4")),
    ({}, "python3 train.py --local_rank=1", (1, "--local_rank 1")),
    ({}, "python3 train.py --local-rank 1", (1, "--local-rank 1")),
    ({}, "/opt/bin/mindie_llm_backend --local_rank 0 --npu_device_id 6", (6, "--npu_device_id 6")),
    ({}, "mindieservice_backend_connector 2 8 5 x", (5, "argument 3 of mindieservice_backend_connector")),
    ({}, "xllm --model m --devices=npu:7", (7, "--devices npu:7")),
    ({}, "xllm --devices=npu:0,npu:1", None),
    ({}, "/x/spawn_worker 127.0.0.1:9000 1 9 16 3 1 128", (3, "argument 5 of /x/spawn_worker")),
    ({}, "serve --local_rank", None),
]


@pytest.mark.parametrize(("environment", "command", "expected"), RANKS)
def test_a_rank_comes_from_its_launcher(environment, command, expected):
    assert index_of(environment, command.split()) == expected


OF_CANN = {None: [0, 1, 2], "0,2": [0, 2], "1, 2,0": [1], "1,9,2": [1], "1,-1,2": [1], "": [], "x": [], "1;2": [1], "2,": [2]}
OF_CUDA = {None: [0, 1, 2], "2,0": [2, 0], "1,7,2": [1], "": [], "-1": [], "NoDevFiles": [], "GPU-bb,0": [2, 0], "GPU-aa22": [1]}
OF_CUDA.update({"GPU-aa,2": [], "MIG-GPU-aa22/1/0": [1], "MIG-77": [2], "MIG-78": []})


@pytest.mark.parametrize(
    ("kind", "variable", "text", "ids"),
    [("npu", "ASCEND_RT_VISIBLE_DEVICES", *row) for row in OF_CANN.items()]
    + [("gpu", "CUDA_VISIBLE_DEVICES", *row) for row in OF_CUDA.items()],
)
def test_cann_and_cuda_stop_reading_at_what_they_do_not_know(monkeypatch, tmp_path, kind, variable, text, ids):
    text_of_smi = "GPU 0: NVIDIA H200 (UUID: GPU-aa11)\nGPU 2: NVIDIA H200 (UUID: GPU-bb33)\n  MIG 1g.18gb     Device  0: (UUID: MIG-77)\n"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<E\n{text_of_smi}E\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    devices = [_ranks.Accelerator(str(number), None, uuid=uuid if kind == "gpu" else None) for number, uuid in enumerate(UUIDS)]
    assert visible(kind, devices, {} if text is None else {variable: text}) == [devices[number] for number in ids]


def test_gpus_of_different_models_need_an_order():
    devices = [_ranks.Accelerator("", None, model=model) for model in ("A", "B")]
    assert visible("gpu", devices, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == devices
    with pytest.raises(ValueError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        visible("gpu", devices, {"CUDA_VISIBLE_DEVICES": "1"})


BUS = ("0000:00:00.0", "0000:01:00.0", "0000:02:00.0")
UNKNOWN = [npu(0, None), npu(1, None)]
AGAIN = "NPU 2 (0000:02:00.0) is on the PCI bus again, and the numbers"
DROPPED = "NPU 3 (0000:03:00.0) dropped off the PCI bus, and the numbers"
THERE = {
    # story: planned NPUs, lost ones, numbers of device files, functions of the bus, the planned NPU of each file or why it is unknown
    "host": (NPUS, [], (0, 2, 4, 6), None, [0, 1, 2, 3]),
    "container": (NPUS, [], (2, 6), None, [1, 3]),
    "not planned": (NPUS, [], (0, 2, 3, 6), None, [0, 1, None, 3]),
    "vNPUs": (NPUS, [], (116, 133, 164), None, [None, 1, 2]),
    "dropped off": (NPUS, [], (0, 4, 6), ("0000:00:00.0", "0000:02:00.0", "0000:03:00.0"), [0, 2, 3]),
    "the last dropped off": (NPUS, [], (0, 2, 4), BUS, [0, 1, 2]),
    "dropped off, with a file": (NPUS, [], (0, 2, 4, 6), BUS, DROPPED),
    "unknown numbers": (UNKNOWN, [], (4, 5), None, [0, 1]),
    "unknown in container": (UNKNOWN, [], (5,), None, [None]),
    "none": (NPUS, [], (), None, []),
    "lost": (NPUS[:2], NPUS[3:], (0, 2), BUS, [0, 1]),
    "lost, and its file remains": (NPUS[:2], NPUS[3:], (0, 2, 6), BUS, [0, 1]),
    "back": (NPUS[:2], NPUS[2:3], (0, 2, 4), BUS, [0, 1, 2]),
    "back, its number taken": (NPUS[:2], [{**NPUS[2], "phy_id": 2}], (0, 2, 4), BUS, AGAIN),
}


@pytest.mark.parametrize(("npus", "lost", "files", "functions", "expected"), THERE.values(), ids=THERE)
def test_npus_are_known_by_device_number_whatever_comes_and_goes(host, npus, lost, files, functions, expected):
    root = host(npus, [f"davinci{number}" for number in files] + ["davinci_manager"], functions=functions)
    if isinstance(expected, list):
        assert [one.entry and one.entry["id"] for one in _ranks.accessible(root, "npu", npus, lost)] == expected
    else:
        with pytest.raises(ValueError, match=re.escape(expected)):
            _ranks.accessible(root, "npu", npus, lost)


def test_device_files_that_cannot_be_opened_do_not_count(host, monkeypatch):
    root = host(NPUS, ("davinci0", "davinci2"))
    monkeypatch.setattr(os, "access", lambda path, mode: not path.endswith("davinci0"))
    assert [one.file for one in _ranks.accessible(root, "npu", NPUS)] == ["/dev/davinci2"]


def test_gpus_are_in_the_order_of_their_functions_not_of_minors(host):
    root = host(GPUS, gpus=[(2, "0000:01:00.0", UUIDS[0]), (0, "0000:81:00.0", UUIDS[2])])
    devices = _ranks.accessible(root, "gpu", GPUS)
    assert [(one.file, one.entry["id"], one.uuid) for one in devices] == [("/dev/nvidia2", 0, "GPU-aa11"), ("/dev/nvidia0", 2, "GPU-bb33")]


PAIR = [npu(0, 0), {**npu(1, 1), "pci": "0000:00:00.0"}]
NAMES = [([*NPUS, gpu(3, "0000:99:00.0")], name, [NPUS[3]]) for name in ("3", "npu3", "NPU-3", "npu-3.slice", "0000:03:00.0", "03:00.0")]


@pytest.mark.parametrize(("npus", "name", "expected"), [*NAMES, (PAIR, "00:00.0", PAIR)])
def test_a_device_has_several_names_and_a_function_all_chips(npus, name, expected):
    assert _ranks.matching(npus, name) == expected


LISTED = {"ASCEND_RT_VISIBLE_DEVICES": "1,2"}
FILES = ["davinci0", "davinci2", "davinci4", "davinci6"]
OPENMP_SET = {"OMP_NUM_THREADS": "1", "OMP_PLACES": "cores"}
DECISIONS = [
    (["--print"], {"LOCAL_RANK": "3"}, "NPU 3 (0000:03:00.0) by LOCAL_RANK=3: CPUs "),
    (["--print"], {**LISTED, "LOCAL_RANK": "1"}, "NPU 2 (0000:02:00.0) by LOCAL_RANK=1"),
    (["--print"], {"ASCEND_RT_VISIBLE_DEVICES": "2", "LOCAL_RANK": "1"}, "NPU 2 (0000:02:00.0) by the only visible NPU"),
    (["--device", "1", "--print"], {"LOCAL_RANK": "3"}, "NPU 1 (0000:01:00.0) by --device 1"),
    (["--device=0000:02:00.0", "--print"], LISTED, "NPU 2 (0000:02:00.0) by --device 0000:02:00.0"),
    (["--role", "acl", "--device", "0", "--print"], {}, "(acl)"),
    (["--device", "0", "--print"], OPENMP_SET, "memory policy preferred-many:0, ASCEND_RT_VISIBLE_DEVICES=0\n"),
]
REFUSALS = [
    ([], {"PMI_RANK": "1"}, "it is not known which of 4 visible NPUs this process uses"),
    ([], {"LOCAL_RANK": "4"}, "LOCAL_RANK=4 has no device: this process sees 4 NPUs"),
    ([], {"LOCAL_RANK": "a"}, "LOCAL_RANK=a is not the number of a rank or device"),
    ([], {"ASCEND_RT_VISIBLE_DEVICES": "2,1", "LOCAL_RANK": "0"}, "ASCEND_RT_VISIBLE_DEVICES=2,1 is not in ascending order"),
    ([], {"ASCEND_RT_VISIBLE_DEVICES": "", "LOCAL_RANK": "0"}, "this process sees no NPU of the plan"),
    (["--device", "0"], LISTED, "ASCEND_RT_VISIBLE_DEVICES=1,2 does not show NPU 0"),
    (["--device", "9"], {}, "--device 9 is none of this host's devices, which are NPU 0 (0000:00:00.0), "),
    (["--device", "0", "--role", "kv"], {}, "NPU 0 (0000:00:00.0) has no CPUs of role kv; it has pool"),
    (["--devise", "0"], {}, "--devise is not an option of exec"),
    (["--device"], {}, "--device is not an option of exec, or lacks its value"),
    (["--device", "elsewhere"], {}, "of which none is among CPUs 60000 of NPU 4"),
]


@pytest.mark.parametrize(("words", "environment", "sentence"), DECISIONS + REFUSALS)
def test_a_decision_and_a_refusal_are_one_line_each(host, words, environment, sentence):
    root = host([npu(0, 0, acl=str(CPUS[-1])), *NPUS[1:], {**npu(4, 8), "pool": "60000", "slice": "elsewhere.slice"}], FILES)
    code, out, err = in_child(root, *words, "--", "/bin/echo", "started", **environment)
    printed, silent = (out, err) if "--print" in words else (err, out)
    assert (code, silent, printed.count("\n")) == (0 if "--print" in words else 125, "", 1)
    assert printed.startswith("npu-affinity: ") is (code == 125) and sentence in printed


NO_PLANS = [
    (None, "plan.json does not exist: bind this host, or mount the file into the container"),
    ("{", "is not valid JSON"),
    ('{"npus": [], "lost": [{"id": 0}]}', "entry 0 of lost of "),
    ('{"npus": [{"id": 0, "pool": "0-x", "slice": "npu-0.slice"}]}', "pool of NPU 0 (no PCI function): '0-x' in '0-x' is not a CPU number"),
    ('{"schema": 2, "npus": []}', "was written by a newer version of npu.affinity: it has schema 2, "),
]


@pytest.mark.parametrize(("text", "sentence"), NO_PLANS)
def test_plans_that_cannot_be_read_are_refused(tree, text, sentence):
    tree.write({} if text is None else {"/etc/npu-affinity/plan.json": text})
    code, _out, err = in_child(tree.root, "--device", "0", "--", "/bin/true")
    assert code == 125 and sentence in err


def test_a_refused_command_can_run_unbound(host):
    root = host(NPUS, FILES)
    code, out, err = in_child(root, "--or-run", "--", "/bin/sh", "-c", "taskset -pc $$ | sed 's/.*: //'; env | grep -c OMP_")
    assert err.startswith("npu-affinity: it is not known which") and err.endswith("; the command is started unbound\n")
    assert plan_file.expand(out.split()[0]) == CPUS and (code, out.split()[1]) == (1, "0")


def placed(root, *words, **more):
    """Start a program, and return the lines that it reads about itself: mask, policy, variables, ignored signals."""
    script = "grep -o 'Cpus_allowed_list.*' /proc/self/status; grep SigIgn /proc/self/status; head -n 1 /proc/self/numa_maps |"
    script += "grep -oE '(default|bind|prefer)[^f]*'; env | grep -E '^(OMP_|ASCEND|CUDA|LC_)' | sort"
    code, out, err = in_child(root, *words, "--", "/bin/sh", "-c", script, **more)
    return code, [line.strip() for line in out.splitlines()], err


POLICIES = {
    "preferred": ({}, None, "prefer (many):0"),
    "wide": ({"memory_nodes": "0-1"}, {"memory": "wide"}, "prefer (many):0"),
    "strict": ({}, {"memory": "strict"}, "bind:0"),
    "none": ({"memory_nodes": ""}, {"memory": "none"}, "default"),
}


@pytest.mark.parametrize(("entry", "options", "policy"), POLICIES.values(), ids=POLICIES)
def test_a_program_starts_on_the_cpus_and_memory_of_its_device(host, entry, options, policy):
    if tuple(int(part) for part in platform.release().split(".")[:2]) < program.FIRST_WITH_MANY:
        policy = policy.replace(" (many)", "")
    root = host([npu(0, 0), npu(1, 2, **entry)], FILES[:2], options=options)
    code, lines, err = placed(root, before=lambda: os.sched_setaffinity(0, CPUS[:1]), LOCAL_RANK="1")
    assert (code, err) == (0, "")
    assert not int(lines.pop(1).partition(":")[2], 16) & 1 << signal.SIGPIPE - 1, "Python ignores it; programs do not expect that"
    assert lines == [f"Cpus_allowed_list:\t{CPUS[1 % len(CPUS)]}", policy, "OMP_NUM_THREADS=1", "OMP_PROC_BIND=false"]


def test_what_binds_programs_itself_is_off_unless_it_was_set(host):
    root = host([npu(0, 0)], FILES[:1])
    out = in_child(root, "--", "env", BIND_CPU="1", OMP_PLACES="cores")[1].splitlines()
    assert {"BIND_CPU=1", "OMP_PLACES=cores", "SGLANG_AUTO_NUMA_BIND=0", "TLLM_NUMA_AWARE_WORKER_AFFINITY=0"} <= set(out)
    assert not any(line.startswith("OMP_PROC_BIND=") for line in out)


def test_a_pool_of_the_whole_cpuset_follows_it(host):
    root = host([npu(0, 0, pool=f"{CPUS[0]}-{CPUS[-1]},60000")], FILES[:1])
    _code, lines, err = placed(root, before=lambda: os.sched_setaffinity(0, CPUS[:1]))
    assert plan_file.expand(lines[0].split()[-1]) == CPUS
    assert "CPUs 60000 of NPU 0 (0000:00:00.0) are offline or not in the cpuset of this process" in err


def test_a_gpu_rank_gets_the_order_of_its_index(host):
    root = host(GPUS, gpus=[(1, "0000:01:00.0", UUIDS[0]), (0, "0000:41:00.0", UUIDS[1])])
    _code, lines, _err = placed(root, OMPI_COMM_WORLD_LOCAL_RANK="1", OMP_NUM_THREADS="7")
    assert lines[0].endswith(f"\t{CPUS[1 % len(CPUS)]}")
    assert lines[3:] == ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "OMP_NUM_THREADS=7", "OMP_PROC_BIND=false"]


def test_a_host_of_both_kinds_wants_one_named(host):
    root = host([*NPUS, *GPUS], FILES, gpus=[(0, "0000:01:00.0", UUIDS[0])])
    assert "this process sees NPUs and GPUs" in in_child(root, "--print", LOCAL_RANK="0")[2]
    assert in_child(root, "--print", CUDA_VISIBLE_DEVICES="0")[1].startswith("GPU 0 (0000:01:00.0) by the only visible GPU")


def deny_set_mempolicy():
    """What the default profile of docker does without CAP_SYS_NICE: seccomp answers EPERM."""
    number = program._SYSCALLS[platform.machine()]
    rules = (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, struct.pack("HP", len(rules), ctypes.addressof(filters)), 0, 0) == 0, os.strerror(ctypes.get_errno())


def test_a_denied_memory_policy_leaves_the_cpus_and_warns(host):
    root = host([npu(0, 0)], FILES[:1])
    code, lines, err = placed(root, before=deny_set_mempolicy)
    assert code == 0 and lines[0].endswith(f"\t{CPUS[0]}") and lines[2] == "default"
    assert err == "npu-affinity: no memory policy for nodes 0 (a seccomp profile denies set_mempolicy): memory follows the CPUs\n"


def test_nodes_that_the_process_may_not_use_are_named(host):
    root = host([npu(0, 0, mems="900-901", memory_nodes="900-901")], FILES[:1])
    assert "no memory policy for nodes 900-901 (this process may use none of them)" in placed(root)[2]


def test_a_command_that_cannot_start_ends_as_with_env(host):
    root = host([npu(0, 0)], FILES[:1])
    assert [in_child(root, "--", name)[0] for name in ("/nonexistent", "/etc/passwd")] == [127, 126]


def test_exec_imports_nothing_that_takes_long(tmp_path):
    (tmp_path / "lib.zip").write_bytes(runtime.archive())
    code = f"import sys; sys.path.insert(0, '{tmp_path}/lib.zip'); from npu_affinity._command import exec; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not {"argparse", "typing", "ctypes", "subprocess", "dataclasses", "npu_affinity._host.host"} & set(done.stdout.split())


def test_exec_reads_the_plan_that_a_bind_writes():
    assert "/" + program.PLAN == plan_file.PATH
    assert set(program.ROLES) | {"mems", "memory_nodes"} == set(plan_file.SETS)
    assert re.findall(r"--[a-z-]+", program.USAGE.partition("\n")[0]) == ["--device", "--role", "--print", "--or-run"]
