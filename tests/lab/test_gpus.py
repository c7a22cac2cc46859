# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers that released SGLang and vLLM start under numactl, next to stand-ins of GPUs: their CPUs, their memory, and what verify says."""

import json

import pytest

from tests.compare import packages
from tests.compare.rules.engines import VERSIONS
from tests.lab.conftest import plan_of, said, success
from tests.lab.kernel import numbers
from tests.lab.shapes import DUO

BINDS, OUTSIDE = "[NPU_WORKER_BINDS_ITSELF]", "outside its pool"
SETTINGS = {"npu_affinity_cpus": "2-5,8-11", "npu_affinity_min_cpus": 4}
"""A pool has fewer CPUs than its node."""
PROGRAMS = {"sglang": ["sglang/srt/utils/numa_utils.py"], "vllm": ["vllm/utils/numa_utils.py", "vllm/utils/numa_wrapper.sh"]}
# What sysfs says of a function of the stand-in driver, its device file, and the vendor's tools.
AS_GPU = """set -e
mkdir -p /run/gpu
echo 0x10de >/run/gpu/vendor
echo 0x2330 >/run/gpu/device
echo 0x030200 >/run/gpu/class
for name in vendor device class; do mount --bind /run/gpu/$name /sys/bus/pci/devices/{pci}/$name; done
mv /dev/davinci{number} /dev/nvidia{index}
"""
ONLY_GPUS = (
    "rm -r /usr/local/Ascend /etc/ascend_install.info /dev/davinci_manager /dev/devmm_svm /dev/hisi_hdc; chmod 755 /usr/bin/nvidia-smi"
)
NVIDIA_SMI = """#!/bin/sh
case $1 in
  --query-gpu=*memory.total) cat <<'END'
index, uuid, pci.bus_id, name, memory.total [MiB]
{rows}
END
  ;;
  --query-compute-apps=*) echo pid, gpu_bus_id ;;
  *) echo 'Invalid combination of input arguments.'; exit 2 ;;
esac
"""
# A server, which starts one worker for its GPU by the program of the engine, as released. That sees CPUs, nodes and numactl as they are,
# and of the engine and the vendor's library only what it asks. The worker opens its device and allocates memory.
SERVER = """import argparse, importlib.util, json, multiprocessing.spawn, os, re, sys, time, types
Names = types.SimpleNamespace
GPU, FUNCTIONS, RESULT = int(os.environ["GPU"]), os.environ["FUNCTIONS"].split(), "/run/" + os.environ["NAME"]

def written(**values):
    with open(RESULT + ".new", "w") as file:
        json.dump(values, file)
    os.rename(RESULT + ".new", RESULT)

def work():
    with open("/proc/self/comm", "w") as file:
        file.write(os.environ["TITLE"])
    os.open("/dev/nvidia%d" % GPU, os.O_RDONLY)
    memory = bytearray(24 << 20)
    memory[::4096] = b"x" * (24 << 8)
    lines = [line for line in open("/proc/self/numa_maps") if " anon=" in line]
    largest = max(lines, key=lambda line: int(re.search(r" anon=(\\d+)", line).group(1)))
    nodes = [int(node) for node in re.findall(r" N(\\d+)=", largest)]
    written(cpus=sorted(os.sched_getaffinity(0)), policy=largest.split()[1], nodes=nodes)
    time.sleep(86400)

def node_of(number):
    return int(open("/sys/bus/pci/devices/%s/numa_node" % FUNCTIONS[number]).read())

def switch(name):
    return Names(get=lambda: os.environ.get(name, "1") != "0")

names = ("SGLANG_AUTO_NUMA_BIND", "SGLANG_NUMA_BIND_V2")
nvml = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetHandleByIndex": lambda number: number,
    "nvmlDeviceGetMemoryAffinity": lambda number, _size, _scope: [1 << node_of(number)],
    "NVML_AFFINITY_SCOPE_NODE": 0,
    "NVMLError": OSError,
}
platform = Names(is_cuda_alike=lambda: True, get_all_device_numa_nodes=lambda: [node_of(number) for number in range(len(FUNCTIONS))])
modules = {
    "pynvml": nvml,
    "torch": {"cuda": Names(_get_nvml_device_index=lambda number: number)},
    "sglang": {},
    "sglang.srt": {},
    "sglang.srt.environ": {"envs": Names(SGLANG_CRASH_ON_NUMA_BIND_FAILURE=switch("CRASH"), **{name: switch(name) for name in names})},
    "sglang.srt.server_args": {"ServerArgs": None},
    "sglang.srt.utils": {"get_cpu_ids_by_node": None, "is_cuda": lambda: True, "is_xpu": lambda: False},
    "vllm": {"envs": Names(VLLM_WORKER_MULTIPROC_METHOD="spawn")},
    "vllm.platforms": {"current_platform": platform},
}

if __name__ == "__main__":
    for name, values in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    parser = argparse.ArgumentParser()
    parser.add_argument("--numa-node", type=int, nargs="+")
    parser.add_argument("--numa-bind", action="store_true")
    parser.add_argument("--numa-bind-nodes", type=int, nargs="+")
    parser.add_argument("--numa-bind-cpus", nargs="+")
    asked = parser.parse_known_args()[0]
    asked.get_local_gpu_index = lambda rank, _shard: rank
    asked.parallel_config = asked
    spec = importlib.util.spec_from_file_location("numa_utils", os.environ["PROGRAM"] + "/numa_utils.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    multiprocessing.set_start_method("spawn")
    try:
        with program.configure_subprocess(asked, 0 if asked.numa_bind_nodes else GPU):
            multiprocessing.Process(target=work, daemon=True).start()
    except Exception as error:
        written(error=str(error))
    time.sleep(86400)
"""
UNIT = """[Service]
Slice={slice}
Environment=GPU={gpu} NAME={name} PROGRAM=/opt/{engine} "FUNCTIONS={functions}" TITLE={title} {switch}
ExecStart=/usr/bin/python3 {command}
"""
COMMANDS = {"sglang": "/opt/sglang.launch_server --model-path m", "vllm": "/opt/vllm/vllm serve m"}
TITLES = {"sglang": "sglang::scheduler_TP0", "vllm": "VLLM::Worker"}


@pytest.fixture
def gpus(lab):
    """A bound machine whose accelerators are GPUs, and their PCI functions by index."""
    machine = lab.fresh(DUO)
    functions = {pci: function["number"] for pci, function in sorted(machine.look()["functions"].items())}
    for index, (pci, number) in enumerate(functions.items()):
        machine.run(AS_GPU.format(pci=pci, number=number, index=index))
    rows = [f"{index}, GPU-{index:08x}, 0000{pci.upper()}, NVIDIA H100 80GB HBM3, 81559 MiB" for index, pci in enumerate(functions)]
    machine.write("/usr/bin/nvidia-smi", NVIDIA_SMI.format(rows="\n".join(rows)))
    machine.run(f"{ONLY_GPUS} && chmod 755 /usr/bin/nvidia-smi")
    for engine, members in PROGRAMS.items():
        try:
            folder = packages.files(engine, VERSIONS[engine], members)
        except packages.CONNECTION_FAILED as error:
            pytest.skip(f"no index has {engine} {VERSIONS[engine]}: {error}")
        for member in members:
            name = member.rpartition("/")[2]
            machine.write(f"/opt/{engine}/{name}", (folder / name).read_text())
        machine.write(COMMANDS[engine].split()[0], SERVER)
    machine.run("chmod 755 /opt/vllm/numa_wrapper.sh")
    return machine, list(functions)


def started(machine, functions, name, engine, slice_name, words="", switch=""):
    """What the worker of a server says that it got, or how the server failed."""
    values = {"slice": slice_name, "gpu": 0, "functions": " ".join(functions), "engine": engine, "title": TITLES[engine], "switch": switch}
    machine.write(f"/etc/systemd/system/{name}.service", UNIT.format(name=name, command=f"{COMMANDS[engine]} {words}", **values))
    machine.run(f"systemctl daemon-reload && systemctl start {name}")
    return json.loads(machine.run(f"until [ -e /run/{name} ]; do sleep 0.5; done; cat /run/{name}"))


@pytest.mark.suites("bookworm", "trixie")  # an older Python cannot read vLLM
def test_workers_of_engines_on_gpus(lab, gpus, claims):
    """Small machine with stand-ins of GPUs: workers by numa_utils.py of released SGLang and vLLM, in a slice and outside"""
    machine, functions = gpus
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **SETTINGS)), (0, ""))
    gpu = plan_of(machine)["npus"][0]
    claims.equal("kind of the accelerators", {entry["kind"] for entry in plan_of(machine)["npus"]}, {"gpu"})
    node = int(machine.run(f"cat /sys/bus/pci/devices/{functions[0]}/numa_node"))
    pool, near = numbers(gpu["pool"]), numbers(machine.run(f"cat /sys/devices/system/node/node{node}/cpulist").strip())
    hard = {"policy": f"bind:{node}", "nodes": [node]}
    arguments = f"--numa-bind --numa-bind-nodes {node} --numa-bind-cpus {gpu['pool']}"
    cases = [
        # name, engine, slice, arguments, variable, what the worker gets, whether verify says that it binds itself
        ("sglang-off", "sglang", gpu["slice"], "", "SGLANG_AUTO_NUMA_BIND=0", {"cpus": sorted(pool), "nodes": [node]}, False),
        ("sglang-on", "sglang", gpu["slice"], "", "", {"cpus": sorted(pool), **hard}, True),
        ("sglang-outside", "sglang", "system.slice", "", "", {"cpus": sorted(near), **hard}, False),
        ("vllm-off", "vllm", gpu["slice"], "", "", {"cpus": sorted(pool), "nodes": [node]}, False),
        ("vllm-given", "vllm", gpu["slice"], arguments, "", {"cpus": sorted(pool), **hard}, False),
    ]
    for name, engine, slice_name, words, switch, wanted, binds in cases:
        found = started(machine, functions, name, engine, slice_name, words, switch)
        claims.equal(f"{name}: what the worker got", {key: found.get(key, found) for key in wanted}, wanted)
        verified = lab.play(machine, "verify", "-v", **SETTINGS)
        claims.true(f"{name}: verify says that it binds itself: {binds}", (BINDS in verified.output) == binds, verified.output)
        is_outside = slice_name != gpu["slice"]
        claims.true(
            f"{name}: verify says that it is outside its pool: {is_outside}", (OUTSIDE in said(verified)) == is_outside, verified.output
        )
        machine.run(f"systemctl stop {name}")
    found = started(machine, functions, "vllm-alone", "vllm", gpu["slice"], "--numa-bind")
    claims.true(
        "vllm-alone: its detection ends in an error", "could not detect the GPU-to-NUMA topology" in found.get("error", ""), str(found)
    )
