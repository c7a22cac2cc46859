# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers that bind themselves by the program of released vLLM-Ascend packages, which does so on Arm: what verify says of each."""

import json

import pytest

from tests.compare import packages
from tests.lab.conftest import plan_of, said, success
from tests.lab.kernel import allowed_of_threads, main_process, numbers
from tests.lab.shapes import DUO

ROLES = {"python3": "main", "acl_thread": "acl", "release_thread": "release"}
"""The role of each thread of a worker, by its name."""
BINDS, OUTSIDE = "[NPU_WORKER_BINDS_ITSELF]", "outside its pool"
OFF = """ --additional-config '{"enable_cpu_binding": false}'"""
# Has the threads and the device of a worker, and the command line of a server. The program is as released, and so is all that it runs.
WORKER = """import logging, os, sys, threading, time, types
device = open("/dev/davinci" + os.environ["NPU"])

def sleep_as(name):
    with open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as file:
        file.write(name)
    time.sleep(86400)

for name in ("acl_thread", "release_thread"):
    threading.Thread(target=sleep_as, args=(name,), daemon=True).start()
if "enable_cpu_binding" not in sys.argv[-1]:
    while not os.path.exists("/run/go"):
        time.sleep(0.3)
    import re
    kinds = types.SimpleNamespace(A2="a2", A3="a3", _310P="310p", A5="a5")
    modules = {
        "regex": vars(re),
        "vllm": {},
        "vllm.logger": {"logger": logging.getLogger("vllm")},
        "vllm_ascend": {},
        "vllm_ascend.utils": {"AscendDeviceType": kinds, "get_ascend_device_type": lambda: "a2"},
    }
    for name, values in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    sys.path.insert(0, "/opt")
    try:
        import cpu_binding
        cpu_binding.bind_cpus(int(os.environ["RANK"]))
        ended = "bound"
    except Exception as error:
        ended = repr(error)
    with open("/run/%s-ended" % os.environ["NAME"], "w") as file:
        file.write(ended)
time.sleep(86400)
"""
UNIT = """[Service]
Slice={slice}
Environment=NPU={npu} RANK={rank} NAME={name}
ExecStart=/usr/bin/python3 /opt/vllm serve model{words}
"""


def run_workers(machine, workers):
    """Run workers, ``{name: {slice, npu, rank, words}}``, and return how those that bind themselves ended, by their names."""
    machine.run("rm -f /run/go /run/*-ended")
    for name, values in workers.items():
        machine.write(f"/etc/systemd/system/{name}.service", UNIT.format(name=name, **values))
    machine.run(f"systemctl daemon-reload && systemctl restart {' '.join(workers)}")
    machine.run("until [ $(cat /proc/[0-9]*/task/*/comm 2>/dev/null | grep -c ^release_thread) = %d ]; do sleep 0.3; done" % len(workers))
    described = json.loads(machine.run("cat /simulator/machine.json"))
    described["processes"] = [
        {"card": values["npu"], "chip": 0, "pid": main_process(machine, name), "comm": "python3", "memory_mib": 100}
        for name, values in workers.items()
    ]
    machine.write("/simulator/machine.json", json.dumps(described))
    binding = [name for name, values in workers.items() if not values["words"]]
    waits = "".join(f"until [ -s /run/{name}-ended ]; do sleep 0.3; done; cat /run/{name}-ended; echo; " for name in binding)
    return dict(zip(binding, machine.run(f"touch /run/go; {waits}").splitlines(), strict=True))


def published(npu):
    """The CPUs of threads by the rule of the program: two are for interrupts, and the last ones for the other two threads."""
    cpus = sorted(numbers(npu["pool"]))
    return {"python3": [set(cpus[2:-2])], "acl_thread": [{cpus[-2]}], "release_thread": [{cpus[-1]}]}


def of_role(npu):
    return {name: {npu[role]} for name, role in ROLES.items()}


def cpus_of(machine, name):
    return allowed_of_threads(machine, main_process(machine, name))


@pytest.mark.architecture
@pytest.mark.suites()
@pytest.mark.parametrize("version", ["0.18.0", "0.23.0"])
def test_workers_that_bind_themselves(lab, claims, version):
    """Small machine with workers by a released cpu_binding.py: off and on in a slice, bound by workers, and two workloads of one rank"""
    try:
        program = packages.files("vllm-ascend", version, ["vllm_ascend/cpu_binding.py"]) / "cpu_binding.py"
    except packages.CONNECTION_FAILED as error:
        pytest.skip(f"no index has vllm-ascend {version}: {error}")
    machine = lab.bound(DUO).machine
    machine.run("ln -sf /usr/local/Ascend/driver/tools/npu-smi /usr/local/bin/npu-smi")
    machine.write("/opt/cpu_binding.py", program.read_text())
    machine.write("/opt/vllm", WORKER)
    npu = plan_of(machine)["npus"][0]
    worker = {"slice": npu["slice"], "npu": npu["id"], "rank": 0, "words": OFF}
    run_workers(machine, {"worker": worker})
    claims.equal("CPUs of a worker in a slice, its binding off", cpus_of(machine, "worker"), dict.fromkeys(ROLES, {npu["pool"]}))
    verified = lab.play(machine, "verify")
    claims.equal("exit status of verify", success(verified), (0, ""))
    claims.true("it has nothing to say of the worker", BINDS not in verified.output, verified.output)

    ended = run_workers(machine, {"worker": {**worker, "words": ""}})
    found = cpus_of(machine, "worker")
    claims.equal("how its binding in the slice ended", ended, {"worker": "bound"})
    claims.equal("CPUs of the worker, its binding on", {name: list(map(numbers, cpus)) for name, cpus in found.items()}, published(npu))
    verified = lab.play(machine, "verify")
    claims.true("verify says that it binds itself", BINDS in verified.output, verified.output)
    claims.equal("exit status of verify", success(verified), (0, ""))

    machine.run("systemctl stop worker")
    options = {"npu_affinity_bound_by": "workers", "npu_affinity_engine_version": version}
    claims.equal("exit status of bind for workers", success(lab.play(machine, "bind", **options)), (0, ""))
    npus = plan_of(machine)["npus"]
    workers = {f"rank{npu['id']}": {"slice": "npu.slice", "npu": npu["id"], "rank": npu["id"], "words": ""} for npu in npus}
    claims.equal("how the bindings of two ranks ended", run_workers(machine, workers), dict.fromkeys(workers, "bound"))
    for name, npu in zip(workers, npus, strict=True):
        claims.equal(f"CPUs of {name} by role", cpus_of(machine, name), of_role(npu))
    verified = lab.play(machine, "verify", **options)
    claims.equal("exit status of verify", success(verified), (0, ""))
    claims.true("no work is outside its pool", OUTSIDE not in said(verified), verified.output)

    alike = {name: {**values, "rank": 0} for name, values in workers.items()}
    claims.equal("how those of two workloads ended", run_workers(machine, alike), dict.fromkeys(workers, "bound"))
    for name in workers:
        claims.equal(f"CPUs of {name} as the first rank of its workload", cpus_of(machine, name), of_role(npus[0]))
    verified = lab.play(machine, "verify", **options)
    claims.true("verify says which is outside its pool", f"{OUTSIDE}: rank{npus[1]['id']}.service" in said(verified), verified.output)
