# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers of one service, as those of vLLM, fork, set their title, open a device, and allocate. When are they placed, and where?"""

import json
import statistics

from tests.lab.conftest import drift, plan_of, success
from tests.lab.kernel import numbers, run_service
from tests.lab.shapes import EIGHT

SHAPE = EIGHT
SETTINGS = {"npu_affinity_adopt": "always", "npu_affinity_min_cpus": 3}
DEVICES, ROUNDS, MEBIBYTES = 8, 13, 16
LIMIT = 3.0
"""Seconds in which half of the workers are placed where the CPU is emulated; tests/benchmarks/host.py measures a real one."""
SLOWER = 50
"""An emulated CPU needs some so many times as long, and the watcher pauses by the CPU time that it took: here by as much less."""
WIDER = f"""[Service]
ExecStart=
ExecStart=/usr/bin/python3 -c "from npu_affinity._command import watch as own; \\
  own.CREDIT *= {SLOWER}; own.SHARE_OF_LOOKS /= {SLOWER}; own.main([])"
"""
JOURNAL = "journalctl --quiet --output=cat --unit=npu-affinity-watch"
WATCHES = f"until [ $({JOURNAL} | grep -c ^Watches) = 2 ]; do sleep 1; done"
DROP_IN = "/run/systemd/system/npu-affinity-watch.service.d"
# A parent without a device, and a worker for each device and round, which replaces that of the round before. It starts on all CPUs of the
# service, and writes how long after its open it had those of /run/pools alone, which it has then, and on which nodes it allocated memory.
SERVICE = f"""import json, os, re, signal, time
def title(name):
    with open("/proc/self/comm", "w") as file:
        file.write(name)
def nodes():
    mappings = [re.findall(r" N(\\d+)=(\\d+)", line) for line in open("/proc/self/numa_maps") if " anon=" in line]
    return {{node: int(pages) for node, pages in max(mappings, key=lambda found: sum(int(pages) for _node, pages in found))}}
def work(number):
    title("VLLM::Worker_TP")
    os.sched_setaffinity(0, everything)
    first = os.sched_getaffinity(0)
    os.open("/dev/davinci%d" % number, os.O_RDONLY)
    begin = time.monotonic()
    while pools and not os.sched_getaffinity(0) <= set(pools[number]) and time.monotonic() < begin + 20:
        time.sleep(0.005)
    taken = time.monotonic() - begin
    memory = bytearray({MEBIBYTES} << 20)
    memory[::4096] = b"x" * ({MEBIBYTES} << 8)
    return [number, taken, sorted(first), sorted(os.sched_getaffinity(0)), nodes()], memory
pools = json.load(open("/run/pools")) if os.path.exists("/run/pools") else []
everything, workers = os.sched_getaffinity(0), {{}}
title("VLLM::EngineCor")
for number in list(range({DEVICES})) * ({ROUNDS} if pools else 1):
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        row, memory = work(number)
        os.write(writer, json.dumps(row).encode())
        signal.pause()
    if number in workers:
        os.kill(workers[number], signal.SIGKILL)
        os.waitpid(workers[number], 0)
    workers[number] = worker
    with open("/run/rows", "a") as file:
        file.write(os.read(reader, 4096).decode() + "\\n")
    os.close(reader)
    os.close(writer)
open("/run/done", "w").close()
signal.pause()
"""
UNIT = "ranks.service"
ENDED = f"until [ -e /run/done ]; do systemctl is-active --quiet {UNIT} || break; sleep 1; done; cat /run/rows; rm -f /run/rows /run/done"


def rows(machine):
    """What each worker wrote: its device, the seconds from open to placement, its CPUs before and after, and its pages by node."""
    return [json.loads(line) for line in machine.run(ENDED, timeout=900).splitlines()]


def local(found, homes):
    """The share of each worker's pages that lie on the node of its device."""
    return [nodes.get(homes[number], 0) / sum(nodes.values()) for number, *_others, nodes in found]


def test_workers_are_placed_when_they_open_a_device(lab, claims, tmp_path):
    """Workers of one service with npu_affinity_adopt=always: from the open to their pool, and the nodes of what they allocate then"""
    machine = lab.fresh(EIGHT)
    homes = {function["number"]: str(function["node"]) for function in machine.look()["functions"].values()}
    run_service(machine, UNIT, SERVICE)
    unbound = local(rows(machine), homes)
    machine.run(f"systemctl stop {UNIT}")
    claims.true(f"local pages of {len(unbound)} workers before, mean: {statistics.mean(unbound):.2f}", len(unbound) == DEVICES)
    claims.equal("exit status of bind", success(lab.play(machine, "bind", **SETTINGS)), (0, ""))
    functions = machine.look()["functions"]
    pools = {functions[npu["pci"]]["number"]: numbers(npu["pool"]) for npu in plan_of(machine)["npus"]}
    machine.write("/run/pools", json.dumps([sorted(pools[number]) for number in range(DEVICES)]))
    machine.write(f"{DROP_IN}/lab.conf", WIDER)
    machine.run(f"systemctl daemon-reload && systemctl restart npu-affinity-watch && {WATCHES} && systemctl start {UNIT}")
    found = rows(machine)
    journal = machine.run(JOURNAL)
    times = sorted(taken for _number, taken, *_others in found)
    half, nearly_all = statistics.median(times), times[int(0.99 * len(times))]
    claims.equal("workers that wrote a row", len(found), DEVICES * ROUNDS)
    there = [number for number, _taken, first, *_others in found if set(first) <= pools[number]]
    claims.equal("workers that started in their pool", there, [])
    shown = f"median {half * 1000:.0f} ms, 99 % {nearly_all * 1000:.0f} ms, longest {times[-1] * 1000:.0f} ms"
    claims.true(f"open to placement: {shown}", half < LIMIT, journal)
    (sources, *_again) = [line for line in journal.splitlines() if line.startswith("Watches")]
    claims.true(f"the watcher's sources: {sources}", "programs that start and device files" in sources)
    outside = [(number, cpus) for number, _taken, _first, cpus, _nodes in found if not set(cpus) <= pools[number]]
    claims.equal("workers outside their pool", outside, [])
    bound = local(found, homes)
    claims.true(
        f"local pages after, mean: {statistics.mean(bound):.2f}, least: {min(bound):.2f}", statistics.mean(bound) > 0.95, str(found)
    )
    machine.run(f"rm -r {DROP_IN} && systemctl daemon-reload && systemctl restart npu-affinity-watch")
    status = machine.run("npu-affinity status")
    for npu in plan_of(machine)["npus"]:
        rank = functions[npu["pci"]]["number"]
        claims.true(f"status shows rank {rank}", f"rank {rank} of {UNIT}: NPU {npu['id']}" in status, status)
    claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path, **SETTINGS), (0, {}))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
