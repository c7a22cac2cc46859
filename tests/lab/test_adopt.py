# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that holds NPUs before the first bind: does it get their CPUs while it runs, and its own back? Containers only in image engines."""

from __future__ import annotations

import json
import time

import pytest

from tests.lab import image
from tests.lab.conftest import changes, drift, plan_of, success
from tests.lab.kernel import numbers
from tests.lab.machine import PATIENCE
from tests.lab.shapes import A2, ENGINES, V1
from tests.lab.test_engines import PREPARE

WITH_ENGINES = image.NAME == "engines"
SHAPES = [A2] if WITH_ENGINES else [A2, V1]
LATE = "by-late"
# Shares no code with the collection: processes by the last word of their commands, the CPUs of all threads, and the process itself.
WITNESS = r"""
import glob, json, os, re
found = {}
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path).read().split("\0")[:-1]
        if words and re.match("by-[a-z]+$", words[-1]) and words[0].endswith(("sh", "python3")):
            pid = path.split("/")[2]
            texts = [open(status).read() for status in glob.glob("/proc/%s/task/*/status" % pid)]
            cpus = sorted({re.search(r"Cpus_allowed_list:\s*(\S+)", text).group(1) for text in texts})
            found[words[-1]] = [int(pid), cpus, len(texts)]
    except OSError:
        pass
print(json.dumps(found))
"""
# Opens the device of the first argument, with a thread that has a mask of its own where a second one names a CPU.
PROGRAM = """import contextlib, os, sys, threading, time
held = open(sys.argv[1])
def own():
    if len(sys.argv) > 3:
        with contextlib.suppress(OSError):  # its cpuset does not have that CPU
            os.sched_setaffinity(threading.get_native_id(), {int(sys.argv[2])})
    time.sleep(86400)
threading.Thread(target=own, daemon=True).start()
time.sleep(86400)
"""
IN_CONTAINER = "sh -c 'exec 3</dev/davinci0; trap exit TERM; sleep 86400 & wait'"
RUN = "run --detach --network=host --device=/dev/davinci{} --name {} infer %s {}" % IN_CONTAINER.replace("davinci0", "davinci{}")


def service(machine, name, words):
    """Install and start a service that runs the program."""
    machine.write(f"/etc/systemd/system/{name}.service", f"[Service]\nExecStart=/usr/bin/python3 /run/hold.py {words} {name}\n")
    machine.run(f"systemctl daemon-reload && systemctl start {name}.service")


def look(machine, names):
    """What the witness sees, when these run with as many threads as they have at the end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = json.loads(machine.run("python3 -", stdin=WITNESS))
        if set(found) == set(names) and all(threads > 1 for name, (_pid, _cpus, threads) in found.items() if "service" in name):
            return found
        assert time.monotonic() < deadline, f"{found} run, and not {sorted(names)}"
        time.sleep(1)


def together(found, name):
    """The CPUs of all threads of a process."""
    return {cpu for cpus in found[name][1] for cpu in numbers(cpus)}


def pools(machine):
    """The CPUs in the pool of each device by its number."""
    functions = machine.look()["functions"]
    return {functions[npu["pci"]]["number"]: numbers(npu["pool"]) for npu in plan_of(machine)["npus"]}


def start(machine):
    """Start work of each kind, and return the number of the device that each holds."""
    machine.write("/run/hold.py", PROGRAM)
    service(machine, "by-service", "/dev/davinci1 0")
    machine.run("setsid python3 /run/hold.py /dev/davinci0 by-process </dev/null >/dev/null 2>&1 &")
    held = {"by-service": 1, "by-process": 0}
    if WITH_ENGINES:
        machine.run(f"set -e\n{PREPARE}")
        for engine, number in (("docker", 1), ("podman", 0)):
            name = f"by-{engine}"
            machine.run(f"{engine} {RUN.format(number, name, number, name)}")
            held[name] = number
    return held


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_running_work_is_adopted_and_given_back(lab, claims, tmp_path, shape):
    """Running work: bind with npu_affinity_adopt=always, work that starts later, unbind"""
    machine = lab.fresh(ENGINES if WITH_ENGINES else shape)
    held = start(machine)
    before = look(machine, held)
    everything = together(before, "by-process")
    run = lab.play(machine, "bind", npu_affinity_adopt="always")
    claims.equal("exit status of bind", success(run), (0, ""))
    pool, after = pools(machine), look(machine, held)
    for name, number in sorted(held.items()):
        claims.equal(f"{name}: Cpus_allowed_list of all threads, from {before[name][1]}", together(after, name), pool[number])
        claims.equal(f"{name}: runs on", after[name][0], before[name][0])
    if shape is A2:
        claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", npu_affinity_adopt="always")), (0, []))
        claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path), (0, {}))
    service(machine, LATE, "/dev/davinci0")
    names, deadline = [*held, LATE], time.monotonic() + PATIENCE
    while together(late := look(machine, names), LATE) != pool[0] and time.monotonic() < deadline:
        time.sleep(1)
    claims.equal("a service that started later", together(late, LATE), pool[0])
    machine.run("systemctl restart by-service")
    claims.equal("the service after its restart", together(look(machine, names), "by-service"), pool[1])
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    released = look(machine, names)
    for name in names:
        claims.equal(f"{name}: CPUs after unbind", together(released, name), everything)
    kept = {name for name in held if released[name][0] == before[name][0]}
    claims.equal("what still runs, but for the service that was restarted", kept, set(held) - {"by-service"})
    claims.equal("drop-ins", machine.run("ls -d /etc/systemd/system/by-*.d /run/systemd/system.control/by-* 2>/dev/null || true"), "")
    claims.equal("the watching service", machine.run("systemctl is-active npu-affinity-adopt || true").strip(), "inactive")
    if WITH_ENGINES:
        inspect = "docker inspect --format {{.HostConfig.CpusetCpus}} by-docker"
        claims.equal("CPU set in docker's record", numbers(machine.run(inspect).strip()), everything)
