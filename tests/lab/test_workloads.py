# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Threads of running workers on the CPUs of their roles, and what a bind does to a load, in metrics of its own."""

import json
import time

import pytest

from tests.lab.conftest import changes, plan_of, success
from tests.lab.kernel import STATUS, allowed, allowed_of_threads, main_process, numbers, run_service, start
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO

NAMED = """
import os, threading, time

def name_and_sleep(name, named):
    with open('/proc/self/task/%d/comm' % threading.get_native_id(), 'w') as file:
        file.write(name)
    named.set()
    time.sleep(3600)

def start(name):
    named = threading.Event()
    threading.Thread(target=name_and_sleep, args=(name, named), daemon=True).start()
    named.wait()

start('acl_thread')
start('release_thread')
open('/run/worker', 'w').close()
while not os.path.exists('/run/one-more'):
    time.sleep(0.5)
start('acl_thread_late')
time.sleep(3600)
"""
BUSY = """
import hashlib, threading, time
{before}

def run():
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < {busy}:
            hashlib.sha256(bytes(65536)).digest()
        time.sleep({idle})

for number in range({threads}):
    threading.Thread(target=run).start()
"""
MANAGER = "/etc/systemd/system.conf.d/00-tuned.conf"
HOLDS = "import time\ndevice = open('/dev/davinci{number}', 'rb')\ntime.sleep(3600)\n"
HELD = 40
"""MiB."""
WORKER = BUSY.format(before=f"device = open('/dev/davinci0', 'rb')\nheld = b'x' * ({HELD} << 20)", busy=0.01, idle=0.07, threads=2)
NOISE = BUSY.format(before="", busy=0.05, idle=0.03, threads=3)


@pytest.mark.core
@pytest.mark.architecture
def test_threads_of_workers(lab, claims):
    """Small machine: threads of a worker that runs in a slice, and one that it starts later"""
    machine = lab.bound(DUO).machine
    npu = plan_of(machine)["npus"][0]
    worker = start(machine, "worker", npu["slice"], NAMED)
    everywhere = {name: {npu["pool"]} for name in ("python3", "acl_thread", "release_thread")}
    claims.equal("CPUs of its threads after a bind without the role", allowed_of_threads(machine, worker), everywhere)
    options = {"npu_affinity_threads_enabled": True}
    would = lab.play(machine, "bind", "--check", "--diff", **options)
    claims.equal("exit status of a bind in check mode", success(would), (0, ""))
    claims.true("it lists the threads that would move", "acl_thread" in would.output and "release_thread" in would.output, would.output)
    claims.equal("CPUs of its threads after that", allowed_of_threads(machine, worker), everywhere)
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **options)), (0, ""))
    placed = {"python3": {npu["main"]}, "acl_thread": {npu["acl"]}, "release_thread": {npu["release"]}}
    claims.equal("CPUs of its threads", allowed_of_threads(machine, worker), placed)
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **options)), (0, []))
    the_command_of_the_host(claims, machine, worker)
    machine.run("touch /run/one-more")
    deadline = time.monotonic() + PATIENCE
    while allowed_of_threads(machine, worker).get("acl_thread_late") != {npu["acl"]} and time.monotonic() < deadline:
        time.sleep(1)
    late = {**placed, "acl_thread_late": {npu["acl"]}}
    claims.equal("CPUs of its threads after it has started another one", allowed_of_threads(machine, worker), late)
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    online = machine.look()["online"]
    claims.equal("CPUs of its threads", allowed_of_threads(machine, worker), {name: {online} for name in late})


def the_command_of_the_host(claims, machine, worker):
    """Claim that ``npu-affinity`` says how the host stands, explains the worker and a CPU, and starts a command where it belongs."""
    first, second = plan_of(machine)["npus"][:2]
    status = machine.run(STATUS)
    claims.true("npu-affinity status says bound", status.startswith("bound: 2 NPUs, "), status)
    ask = "cat /proc/self/status /proc/self/cgroup; echo devices=$ASCEND_RT_VISIBLE_DEVICES; exit 7"
    told = machine.run(f"npu-affinity run {second['id']} -- sh -c '{ask}'; echo status=$?")
    claims.equal("CPUs and memory nodes of what npu-affinity run 1 starts", allowed(told), (second["main"], second["memory_nodes"]))
    claims.true("it is in a scope of its slice", f"0::/npu.slice/{second['slice']}/run-" in told, told)
    claims.true("it has its device, and its exit status comes out", f"devices={second['id']}\nstatus=7\n" in told, told)
    as_user = machine.run(f"npu-affinity run --user nobody {second['id']} -- id -un")
    claims.equal("--user nobody is", as_user.strip(), "nobody")
    why = machine.run(f"npu-affinity explain pid {worker}")
    parts = (
        f"/npu.slice/{first['slice']}/worker.service",
        f"of role acl (acl_thread) on CPUs {first['acl']}\n",
        "npu-affinity-watch.service (since",
    )
    claims.equal("explain pid of the worker lacks", [part for part in parts if part not in " ".join(why.split("\n           "))], [])
    cpu = min(numbers(first["irq"]))
    why = machine.run(f"npu-affinity explain cpu {cpu}")
    claims.true(f"explain cpu {cpu} has the interrupts of NPU 0", "of NPU 0: 1 sq_send_trigger_irq" in why, why)


def test_a_mask_that_systemd_hands_down(lab, claims):
    """Small machine whose systemd has a mask, as TuneD gives it one: a service that is named, one that is adopted, and one in a slice"""
    machine = lab.bound(DUO).machine
    npus = plan_of(machine)["npus"][:2]
    own = ",".join(str(min(numbers(npu["pool"]))) for npu in npus)
    machine.run("mkdir -p /etc/systemd/system.conf.d")
    machine.write(MANAGER, f"[Manager]\nCPUAffinity={own}\n")
    machine.run("systemctl daemon-reexec")
    for name, npu in zip(("named", "adopted"), npus, strict=True):
        run_service(machine, f"{name}.service", HOLDS.format(number=npu["id"]))
    before = {name: allowed_of_threads(machine, main_process(machine, name)) for name in ("named", "adopted")}
    keeps = tuple(map(int, machine.run("uname -r").split(".")[:2])) >= (6, 2)  # older kernels forget a mask at each change of a cpuset
    if keeps:
        claims.equal("CPUs of both services", [numbers(cpus) for found in before.values() for cpus in found["python3"]], [numbers(own)] * 2)
    options = {"npu_affinity_services": [{"unit": "named.service", "npus": [npus[0]["id"]]}], "npu_affinity_adopt": "now"}
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **options)), (0, ""))
    machine.run("systemctl restart named")
    for name, npu in zip(("named", "adopted"), npus, strict=True):
        claims.equal(f"CPUs of {name}.service", allowed_of_threads(machine, main_process(machine, name)), {"python3": {npu["pool"]}})
    status = machine.run(STATUS)
    claims.true("npu-affinity status says bound", status.startswith("bound: 2 NPUs, "), status)
    if keeps:
        worker = start(machine, "worker", npus[0]["slice"], "open('/run/worker', 'w').close()\n" + HOLDS.format(number=npus[0]["id"]))
        for words in ("status", f"explain pid {worker}"):
            told = " ".join(machine.run(f"npu-affinity {words} || true").split())
            claims.true(f"{words} names who gave it one CPU", "not placed as planned" in told and f"{MANAGER} says" in told, told)
        machine.run("systemctl stop worker")
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("CPUs of adopted.service", allowed_of_threads(machine, main_process(machine, "adopted")), before["adopted"])


@pytest.mark.core
def test_a_noisy_neighbour(lab, claims, tmp_path):
    """Small machine, never bound: a worker and a noisy neighbour, measured before a bind and after it"""
    machine = lab.fresh(DUO)
    functions = machine.look()["functions"]
    node = next(function["node"] for function in functions.values() if function["number"] == 0)
    home = machine.run(f"cat /sys/devices/system/node/node{node}/cpulist").strip()
    run_service(machine, "worker.service", WORKER)
    run_service(machine, "noise.service", NOISE, f"CPUAffinity={home}\nNice=19")
    options = {"npu_affinity_measures": str(tmp_path), "npu_affinity_measure_seconds": 5}
    claims.equal("exit status of measure", success(lab.play(machine, "measure", **options)), (0, ""))
    kept = {
        "npu_affinity_services": [{"unit": "worker.service", "npus": [0]}],
        "npu_affinity_housekeeping": "0",
        "npu_affinity_housekeeping_confine_holders": True,  # the worker runs in system.slice until it is restarted
        "npu_affinity_smt": "threads",  # with whole cores too few CPUs are left for the NPU of node 0
    }
    machine.run("systemctl kill --signal=STOP noise")  # in an emulated machine it would take the time of the bind, too
    bound = lab.play(machine, "bind", **kept)
    claims.equal("exit status of bind", success(bound), (0, ""))
    claims.true("it says what waits for a restart: worker", f"to do on {machine.shape.name}: restart worker.service" in bound.output)
    machine.run("systemctl restart worker && systemctl kill --signal=CONT noise")
    measured = lab.play(machine, "measure", **options, **kept)
    claims.equal("exit status of measure", success(measured), (0, ""))
    sides = [json.loads((tmp_path / f"duo/{label}.json").read_text()) for label in ("before", "after")]
    rows = [next(row for row in side["workloads"] if row["npus"] == [0]) for side in sides]
    claims.equal("the worker was found by", [row["processes"][0]["found_by"] for row in rows], ["an open device", "worker.service"])
    claims.equal("CPUs of its NPU", rows[1]["pool"], home)
    metrics = [{name: metric["value"] for name, metric in row["metrics"].items()} for row in rows]
    missing = [name for side in metrics for name, value in side.items() if value is None and name != "cpu_migrations"]
    claims.equal("metrics that are missing, except those that this kernel does not count", missing, [])
    foreign = [side["others_share"] for side in metrics]
    took = f"the neighbour took {foreign[0]} % of the pool's time, and {foreign[1]} % after the bind"
    claims.true(took, foreign[0] > 3 > 6 * foreign[1])
    lines = [f"{side['remote_memory']:.1f} MiB" for side in metrics]
    at_home = metrics[1]["remote_memory"] < HELD  # what is left are pages of the system's libraries, which it shares
    claims.true(f"of the worker's memory {lines[0]} are on remote nodes, and {lines[1]} after the bind and its restart", at_home)
    for line in measured.output.partition("NPU 0, pool")[2].splitlines()[1:9]:
        claims.true(line.strip(), True)
