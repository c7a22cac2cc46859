# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that holds NPUs before the first bind: does it get their CPUs while it runs, and its own back? Containers in images of engines."""

import json
import time

import pytest

from tests.lab import image
from tests.lab.conftest import ALONE, KILL_MODULES, changes, drift, plan_of, root, said, success
from tests.lab.kernel import main_process, numbers, pages
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO, ENGINES, ENGINES_V1, V1
from tests.lab.test_engines import INSTALL, PREPARE

CONTAINERS = {"engines": ("docker", "podman", "quadlet", "ctr"), "engines-v1": ("docker", "podman")}.get(image.NAME, ())
SHAPES = {"engines": [ENGINES], "engines-v1": [ENGINES_V1]}.get(image.NAME, [DUO, V1])
MEMS = 3
MOVES = {"npu_affinity_adopt": "always", "npu_affinity_memory": "strict", "npu_affinity_move_memory": True}
LATE, WATCHER = "by-late", "npu-affinity-watch.service"
# Shares no code with the collection: processes by the last word of their commands, the CPUs of all threads, the process itself, and the
# memory nodes that it may use.
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
            mems = sorted({re.search(r"Mems_allowed_list:\s*(\S+)", text).group(1) for text in texts})
            found[words[-1]] = [int(pid), cpus, len(texts), mems]
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
RESETS = """import os, sys, time
held = open(sys.argv[1])
while True:
    os.sched_setaffinity(0, range(os.cpu_count()))
    time.sleep(1)
"""
HALF = 2560
"""Half of the pages that the next one touches on the CPU of its second argument, and so on the memory node of that CPU."""
HOLDS = f"""import os, sys, time
held, everything = open(sys.argv[1]), os.sched_getaffinity(0)
os.sched_setaffinity(0, {{int(sys.argv[2])}})
memory = bytearray({2 * HALF} * 4096)
memory[::4096] = b"x" * {2 * HALF}
os.sched_setaffinity(0, everything)
time.sleep(86400)
"""
JOURNAL = "journalctl --quiet --output=cat --unit=npu-affinity-watch _COMM=python3"
SESSION = "setsid systemd-run --quiet --scope --unit=session-1 --slice=user-0.slice"
PROGRAM_IN_CONTAINER = "sh -c 'exec 3</dev/davinci{number}; trap exit TERM; sleep 86400 & wait' by-{form}"
RUN = "{form} run --detach --restart=always --network=host --device=/dev/davinci{number} --name by-{form} infer " + PROGRAM_IN_CONTAINER
QUADLET = "[Container]\nImage=localhost/infer\nNetwork=host\nAddDevice=/dev/davinci{number}\nExec=" + PROGRAM_IN_CONTAINER + f"\n{INSTALL}"
START = {
    "docker": RUN,
    "podman": RUN,
    "quadlet": "systemctl daemon-reload && systemctl start by-quadlet",
    "ctr": "ctr run --detach --device=/dev/davinci{number} docker.io/library/infer:latest by-ctr " + PROGRAM_IN_CONTAINER,
}
# An engine whose update of a count fails once: it is refused, or kills who asked for it before or after it.
FAULTY = f"""#!/bin/sh
if [ "$1" = update ] && read -r count what 2>/dev/null </run/fault; then
  if [ $count -gt 1 ]; then
    echo $((count - 1)) $what >/run/fault
  else
    rm /run/fault
    case $what in refused) echo a refusal >&2; exit 1 ;; after) {{engine}} "$@" ;; esac
    {KILL_MODULES}
  fi
fi
exec {{engine}} "$@"
"""
SMALLER = {"npu_affinity_cpus": "0-4,6-10", "npu_affinity_replan": True}


def install(machine, name, words):
    """Install a service that runs the program."""
    machine.write(f"/etc/systemd/system/{name}.service", f"[Service]\nExecStart=/usr/bin/python3 /opt/hold.py {words} {name}\n{INSTALL}")
    machine.run(f"systemctl daemon-reload && systemctl enable {name}.service")


def look(machine, names):
    """What the witness sees, when these run with as many threads as they have at the end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = json.loads(machine.run("python3 -", stdin=WITNESS))
        if set(found) == set(names) and all(threads > 1 for name, (_pid, _cpus, threads, _mems) in found.items() if "service" in name):
            return found
        assert time.monotonic() < deadline, f"{found} run, and not {sorted(names)}"
        time.sleep(1)


def together(found, name, place=1):
    """The CPUs of all threads of a process, or the memory nodes."""
    return {number for text in found[name][place] for number in numbers(text)}


def memory(found):
    return {name: together(found, name, MEMS) for name in found}


def planned(machine, of="pool"):
    """The CPUs in the pool of each device by its number, or its memory nodes."""
    functions = machine.look()["functions"]
    return {functions[npu["pci"]]["number"]: numbers(npu[of]) for npu in plan_of(machine)["npus"]}


def start(machine):
    """Start work of each kind, and return the number of the device that each holds."""
    machine.write("/opt/hold.py", PROGRAM)
    install(machine, "by-service", "/dev/davinci1 0")
    machine.run(f"systemctl start by-service; {SESSION} python3 /opt/hold.py /dev/davinci0 by-process </dev/null >/dev/null 2>&1 &")
    held = {"by-service": 1, "by-process": 0}
    if CONTAINERS:
        machine.run(f"set -e\n{PREPARE}")
    for place, form in enumerate(CONTAINERS):
        held[f"by-{form}"] = number = 1 - place % 2
        if form == "quadlet":
            machine.write("/etc/containers/systemd/by-quadlet.container", QUADLET.format(form=form, number=number))
        machine.run(START[form].format(form=form, number=number))
    return held


def in_their_pools(claims, machine, held, when):
    """Claim that work comes to the pools of its NPUs, and return what the witness saw."""
    pool, deadline = planned(machine), time.monotonic() + PATIENCE
    while (found := look(machine, held)) and time.monotonic() < deadline:
        if all(together(found, name) == pool[number] for name, number in held.items()):
            break
        time.sleep(1)
    for name, number in sorted(held.items()):
        claims.equal(f"{name}: Cpus_allowed_list of all threads {when}", together(found, name), pool[number])
    return found


def given_back(claims, lab, machine, names, everything):
    """Unbind, claim that work has all CPUs again, and return what the witness saw."""
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    released = look(machine, names)
    for name in names:
        claims.equal(f"{name}: CPUs after unbind", together(released, name), everything)
    claims.equal("drop-ins", machine.run("ls -d /etc/systemd/system/by-*.d /run/systemd/system.control/by-* 2>/dev/null || true"), "")
    claims.equal("the watching service", machine.run(f"systemctl is-active {WATCHER} || true").strip(), "inactive")
    return released


@pytest.mark.parametrize("shape", [pytest.param(shape, id=shape.name, marks=[pytest.mark.core] * (shape is DUO)) for shape in SHAPES])
def test_running_work_is_adopted_and_given_back(lab, claims, tmp_path, shape):
    """Running work: bind with npu_affinity_adopt=always, work that starts later, report and rollback in between, unbind"""
    machine = lab.fresh(shape)
    held = start(machine)
    before = look(machine, held)
    wanted = MOVES if shape in (DUO, ENGINES) else {"npu_affinity_adopt": "always"}
    everything = together(before, "by-process")
    # No engine says that what ctr starts, a shell and its child, is a container.
    work = {"engines": "1 unit, 3 containers and 3 processes", "engines-v1": "1 unit, 2 containers and 1 process"}
    work = work.get(image.NAME, "1 unit and 1 process")
    for words, what in (["--check"], f"{work} would be adopted"), ([], f"{work} adopted"):
        run = lab.play(machine, "bind", *words, **wanted)
        claims.equal(f"exit status of bind {words}", success(run), (0, ""))
        claims.true(what, f"{what} on {shape.name}" in run.output, run.output)
        if words:
            claims.equal("CPUs after check mode", look(machine, held), before)
    after = in_their_pools(claims, machine, held, "after bind")
    for name in held:
        claims.equal(f"{name}: runs on", after[name][0], before[name][0])
    if wanted is MOVES:
        nodes = planned(machine, "memory_nodes")
        moved = {name: nodes[number] for name, number in held.items() if name not in ("by-process", "by-ctr")}
        claims.equal("Mems_allowed_list after bind", memory(after), {**memory(before), **moved})
    if shape is DUO:
        claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **wanted)), (0, []))
        claims.equal("exit status and drift of verify", drift(lab, machine, tmp_path), (0, {}))
    if shape is ENGINES:
        report = {**MOVES, "npu_affinity_adopt": "report"}
        for play, expected in ("bind", before), ("rollback", after), ("bind", before):
            words = report if play == "bind" else {**MOVES, "npu_affinity_to": "-1"}
            claims.equal(f"exit status of {play}", success(lab.play(machine, play, **words)), (0, ""))
            now = look(machine, held)
            for kind, place in ("CPUs", 1), ("memory nodes", MEMS):
                there, wished = ({name: together(found, name, place) for name in held} for found in (now, expected))
                claims.equal(f"{kind} after {play}", there, wished)
        claims.equal("exit status of the last bind", success(lab.play(machine, "bind", **wanted)), (0, ""))
    install(machine, LATE, "/dev/davinci0")
    machine.run(f"systemctl start {LATE} && systemctl restart by-service")
    in_their_pools(claims, machine, {**held, LATE: 0}, "after one was restarted and one has started later")
    released = given_back(claims, lab, machine, [*held, LATE], everything)
    kept = {name for name in held if released[name][0] == before[name][0]}
    claims.equal("what still runs, except for the service that was restarted", kept, set(held) - {"by-service"})
    claims.equal("memory nodes after unbind", memory({name: released[name] for name in held}), memory(before))
    if CONTAINERS:
        inspect = "docker inspect --format {{.HostConfig.CpusetCpus}} by-docker"
        claims.equal("CPU set in docker's record", numbers(machine.run(inspect).strip()), everything)


@pytest.mark.skipif(not CONTAINERS, reason="only images of engines can show it")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_adoption_that_is_refused_or_killed_is_given_back(lab, claims, shape):
    """Running containers: binds of other plans, in which an engine refuses, or the bind is killed before and after an update; unbind"""
    machine = lab.fresh(shape)
    held = start(machine)
    everything = together(look(machine, held), "by-process")
    for engine in ("docker", "podman"):
        machine.write(f"/usr/local/bin/{engine}", FAULTY.format(engine=machine.run(f"command -v {engine}").strip()))
        machine.run(f"chmod 755 /usr/local/bin/{engine}")
    pools = []
    for settings in SMALLER, {"npu_affinity_replan": True}:
        claims.equal("exit status of bind", success(lab.play(machine, "bind", npu_affinity_adopt="now", **settings)), (0, ""))
        pools.append(planned(machine))
        in_their_pools(claims, machine, held, "after bind")
    for fault, settings in ("1 refused", SMALLER), ("1 before", SMALLER), ("2 after", {"npu_affinity_replan": True}), ("1 after", SMALLER):
        machine.write("/run/fault", fault + "\n")
        run = lab.play_as(root(machine, ALONE), machine, "bind", npu_affinity_adopt="now", **settings)
        claims.equal(f"a bind with this fault fails: {fault}", run.status != 0, fault != "1 refused")
        claims.equal("it says what an engine refused", "a refusal" in run.output, fault == "1 refused")
        found = look(machine, held)
        sets = {name: together(found, name) for name in held}
        claims.true(f"CPUs after it: {sets}", all(sets[name] in [pool[number] for pool in pools] for name, number in held.items()))
    given_back(claims, lab, machine, held, everything)


@pytest.mark.skipif(image.NAME == "engines-v1", reason="one image shows it")
@pytest.mark.parametrize("shape", SHAPES[:1], ids=lambda shape: shape.name)
def test_adopted_work_after_engine_restarts_and_a_reboot(lab, claims, shape):
    """Running work: bind with npu_affinity_adopt=always, engines restarted, a reboot with one service more, unbind"""
    machine = lab.fresh(shape)
    held = start(machine)
    everything = together(look(machine, held), "by-process")
    claims.equal("exit status of bind", success(lab.play(machine, "bind", npu_affinity_adopt="always")), (0, ""))
    if CONTAINERS:
        watcher = main_process(machine, WATCHER)
        machine.run("systemctl restart containerd docker && podman restart --time=1 by-podman && systemctl enable podman-restart")
        if "quadlet" in CONTAINERS:
            machine.run("systemctl restart by-quadlet")
        in_their_pools(claims, machine, held, "after the engines were restarted")
        claims.equal("process of the watcher", main_process(machine, WATCHER), watcher)
    install(machine, LATE, "/dev/davinci0")
    machine.reboot()
    booted = {name: number for name, number in {**held, LATE: 0}.items() if name not in ("by-process", "by-ctr")}
    in_their_pools(claims, machine, booted, "after a reboot")
    claims.equal("failed units", machine.run("systemctl --failed --plain --no-legend").split(), [])
    given_back(claims, lab, machine, booted, everything)


@pytest.mark.skipif(bool(CONTAINERS), reason="one image shows it")
def test_work_that_resets_its_cpus_is_left_alone(lab, claims):
    """Small machine: bind with npu_affinity_adopt=always while a process takes all CPUs back all the time"""
    machine = lab.fresh(DUO)
    machine.write("/opt/reset.py", RESETS)
    machine.run(f"{SESSION} python3 /opt/reset.py /dev/davinci0 by-reset </dev/null >/dev/null 2>&1 &")
    everything = together(look(machine, ["by-reset"]), "by-reset")
    bound = lab.play(machine, "bind", npu_affinity_adopt="always", npu_affinity_rebind_limit=2)
    claims.equal("exit status of bind", success(bound), (0, ""))
    deadline = time.monotonic() + PATIENCE
    while "left alone" not in (journal := machine.run(JOURNAL)) and time.monotonic() < deadline:
        machine.run("systemd-run --quiet --wait true")  # a new group wakes the watcher
    claims.true(f"its journal: {journal.strip()}", "did not keep them, and is left alone; likely the process itself" in journal)
    machine.run("systemd-run --quiet --wait true; sleep 3")
    claims.equal("its journal later", machine.run(JOURNAL), journal)
    claims.equal("CPUs of the process", together(look(machine, ["by-reset"]), "by-reset"), everything)
    verified = lab.play(machine, "verify")
    claims.equal("exit status of verify", success(verified), (0, ""))
    claims.true("and what it says", "1 NPU process runs outside its pool: python3 (pid " in verified.output, verified.output)


def away(machine, number):
    """The memory node of a device, another node, and a CPU of that."""
    node = next(function["node"] for function in machine.look()["functions"].values() if function["number"] == number)
    other = 1 - min(node, 1)
    return node, other, min(numbers(machine.run(f"cat /sys/devices/system/node/node{other}/cpulist").strip()))


@pytest.mark.skipif(bool(CONTAINERS), reason="one image shows it")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_memory_of_a_running_process_moves_on_request(lab, claims, shape):
    """Running work with memory on the wrong node: bind with npu_affinity_adopt=now without and with npu_affinity_move_memory"""
    machine = lab.fresh(shape)
    node, other, cpu = away(machine, 1)
    machine.write("/opt/hold.py", HOLDS)
    install(machine, "by-memory", f"/dev/davinci1 {cpu}")
    machine.run(f"systemctl start by-memory; {SESSION} python3 /opt/hold.py /dev/davinci1 {cpu} by-process </dev/null >/dev/null 2>&1 &")
    found = look(machine, ["by-memory", "by-process"])
    workers = {name: pid for name, (pid, *_others) in sorted(found.items())}
    deadline = time.monotonic() + PATIENCE
    while any(pages(machine, pid).get(other, 0) < HALF for pid in workers.values()) and time.monotonic() < deadline:
        time.sleep(1)
    stays = {"npu_affinity_adopt": "now", "npu_affinity_memory": "strict"}
    moves = {**stays, "npu_affinity_move_memory": True}
    tool = machine.run("command -v migratepages").strip()
    for words, title in ([], "without a request"), (["--check"], "in check mode"), (["tool"], "without migratepages"):
        machine.run(f"mv {tool} /opt/kept" if words == ["tool"] else "true")
        run = lab.play(machine, "bind", *(word for word in words if word != "tool"), **(moves if words else stays))
        claims.equal(f"exit status of bind {title}", success(run), (0, ""))
        there = {name: pages(machine, pid).get(other, 0) >= HALF for name, pid in workers.items()}
        claims.equal(f"pages that stay {title}", there, {"by-memory": True, "by-process": True})
        claims.equal(f"it says to install numactl {title}", "install numactl on this host" in said(run), words == ["tool"])
    machine.run(f"mv /opt/kept {tool}")
    claims.equal("exit status of bind with a request", success(lab.play(machine, "bind", **moves)), (0, ""))
    for name, pid in workers.items():
        after = pages(machine, pid)
        claims.true(f"{name}: its pages are on node {node}: {after}", after.get(node, 0) >= HALF > after.get(other, 0))
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **moves)), (0, []))
    given_back(claims, lab, machine, list(workers), together(found, "by-process"))
    claims.equal("what still runs", {name: pid for name, (pid, *_others) in sorted(look(machine, workers).items())}, workers)
