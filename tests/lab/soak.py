# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations of a soak, which a seed chooses: what operators do to a bound machine, and what goes wrong there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import NamedTuple

from tests.lab import image
from tests.lab.conftest import KILL_MODULES, PLAN, changes, drift, kill, success
from tests.lab.kernel import SETTLE, allowed_to, in_their_slices, numbers, on_their_cpus, settle, start_worker, words_of_irqbalance
from tests.lab.machine import HERE
from tests.lab.shapes import A2, ENGINES

SHAPE = A2 if image.NAME == "lab" else ENGINES
CONTAINERS = () if SHAPE is A2 else ("docker", "podman")
"""Engines of the image."""
ALWAYS = {"npu_affinity_replan": True, "npu_affinity_move_memory": True}
INVENTORIES = [
    {**ALWAYS, **options}
    for options in (
        {},
        {"npu_affinity_cpus": f"0-8,10-{SHAPE.cpus - 1}", "npu_affinity_smt": "threads"},
        {"npu_affinity_strategy": "global_slice"},
        {"npu_affinity_strategy": "distributed", "npu_affinity_interval": "5min"},
        {"npu_affinity_housekeeping": "0-1", "npu_affinity_smt": "threads", "npu_affinity_min_cpus": 3},
        {"npu_affinity_threads_enabled": True, "npu_affinity_metrics_enabled": True, "npu_affinity_tuning": {"swappiness": "1"}},
        {"npu_affinity_workloads": [{"name": "pair", "npus": [0, 1]}]},
        {"npu_affinity_irq_enabled": False},
    )
]
WORKER = "soak"
MEBIBYTES = 8
WORKERS = 4
"""That run at the same time."""
LOCK = "/run/npu-affinity.lock"
LOCKED = f"for moment in $(seq 300); do ! [ -e {LOCK} ] || flock --nonblock --shared {LOCK} true || break; sleep 0.1; done"
"""Waits until somebody changes the machine."""
SOUND = (HERE / "sound.py").read_text()


class Soak:
    """A machine, and what its operations have to know of each other.

    ``options`` are those of the bind in force. ``settled``: that bind was whole and nothing has happened since that it does not outlast.
    """

    def __init__(self, lab, machine, claims, folder):
        self.lab, self.machine, self.claims, self.folder = lab, machine, claims, folder
        self.options, self.settled, self.started = {}, False, 0
        self.begun = machine.run("date +%s").strip()

    def play(self, playbook, *arguments, **variables):
        return self.lab.play(self.machine, playbook, *arguments, **variables)

    def plan(self):
        """The plan in force, or None."""
        return json.loads(self.machine.run(f"cat {PLAN} 2>/dev/null || echo null"))

    def workers(self):
        """What ends each worker."""
        units = self.machine.run(f"systemctl list-units --plain --no-legend '{WORKER}*.service'").splitlines()
        found = [f"systemctl stop {line.split()[0]}" for line in units]
        for engine in CONTAINERS:
            found += [f"{engine} kill {name}" for name in self.machine.run(f"{engine} ps --quiet").split()]
        return found

    def start_worker(self, engine, slice_name):
        """Start a process in a slice, in a container of an engine if the image has it; return its process id."""
        self.started += 1
        name = f"{WORKER}{self.started}"
        if engine not in CONTAINERS:
            return start_worker(self.machine, name, slice_name, MEBIBYTES)
        self.machine.run(f"{engine} run --detach --rm --network=host --name={name} --cgroup-parent={slice_name} infer sleep 86400")
        return int(self.machine.run(f"{engine} inspect --format '{{{{.State.Pid}}}}' {name}"))

    def offline(self):
        return self.machine.run("cat /sys/devices/system/cpu/offline").strip()

    def sound(self):
        """Claim what holds at any moment."""
        found = json.loads(self.machine.run("python3 -", stdin=SOUND))
        self.claims.equal("what must hold at any moment, and does not", found["wrong"], [])
        if self.settled:
            self.claims.equal("files that were being written", found["left"], [])
        return found

    def bind(self, options):
        """Bind, which is refused only where the options name a CPU that is offline, or too few of a node are left."""
        run = self.play("bind", **options)
        offline = self.offline()
        if run.status and offline and ("offline" in run.output or "NPU_TOO_FEW_CPUS" in run.output):
            self.claims.true(f"bind refuses: CPU {offline} is offline", True)
            return
        self.claims.equal(f"exit status of bind with {options}", success(run), (0, ""))
        self.options, self.settled = options, True

    def as_bound(self):
        """Claim that interrupts and slices have the CPUs of the plan, where nothing stands against it."""
        if self.settled and not self.offline():
            plan, look = self.plan(), self.machine.look()
            in_their_slices(self.claims, self.machine, plan, look)
            if self.options is not None and self.options.get("npu_affinity_irq_enabled", True):
                on_their_cpus(self.claims, self.machine, plan, look)


def bind(soak, chance):
    soak.bind(chance.choice(INVENTORIES))


def check(soak, _chance):
    """Check mode finds nothing to do after a bind."""
    if soak.settled and soak.options is not None:
        soak.claims.equal("exit status and changes in check mode", changes(soak.play("bind", "--check", **soak.options)), (0, []))


def verify(soak, _chance):
    found = drift(soak.lab, soak.machine, soak.folder)
    if soak.settled:
        soak.claims.equal("exit status and drift", found, (0, {}))
    else:
        soak.claims.true(f"verify says {found}", found[0] in (0, 2))


def rollback(soak, _chance):
    """Back to the state before, which has the CPUs that were online then."""
    run = soak.play("rollback", npu_affinity_to="-1", npu_affinity_move_memory=True)
    refused = "no earlier state" in run.output or "no history" in run.output or (soak.offline() and run.status)
    soak.claims.true("rollback succeeds, or has nowhere to go", run.status == 0 or refused, run.output)
    soak.options, soak.settled = None, run.status == 0 and soak.plan() is not None


def unbind(soak, _chance):
    """Unbind, and bind again."""
    stop_workers(soak, None)
    online(soak, None)
    soak.claims.equal("exit status of unbind", success(soak.play("unbind")), (0, ""))
    soak.claims.equal("files that are left of it", soak.machine.run(f"ls -d {PLAN} /etc/systemd/system/npu* 2>/dev/null || true"), "")
    soak.bind(INVENTORIES[0])


def reload_driver(soak, chance):
    soak.machine.run(f"rmmod davinci_mock && modprobe davinci_mock vectors={chance.choice((33, 50, 80))} && {SETTLE}")
    settle(soak.machine)
    soak.as_bound()


def offline(soak, chance):
    """CPUs go, until two are gone."""
    gone = chance.sample(range(1, SHAPE.cpus), 2)[: 2 - len(numbers(soak.offline()))]
    soak.machine.run(f"for cpu in {' '.join(map(str, gone))}; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done")
    soak.settled = False


def online(soak, _chance):
    """All CPUs that are gone come back."""
    back = sorted(numbers(soak.offline()))
    soak.machine.run(f"for cpu in {' '.join(map(str, back))}; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done")
    soak.settled = soak.settled and not back


def kill_run(soak, chance):
    """A bind or an unbind is killed while it changes the machine."""
    playbook, options = chance.choice(("bind", "bind", "unbind")), chance.choice(INVENTORIES)
    run = soak.lab.begin(soak.machine, playbook, **(options if playbook == "bind" else {}))
    soak.machine.run(f"{LOCKED}; sleep {chance.uniform(0, 5):.1f}; {KILL_MODULES}")
    kill(*run)
    soak.options, soak.settled = None, False


def kill_program(soak, chance):
    """What the timer and the boot run is killed."""
    unit, wait = "npu-affinity-irq.service", f"sleep {chance.uniform(0, 1):.1f}"
    soak.machine.run(f"systemctl start --no-block {unit}; {wait}; systemctl kill --signal=KILL {unit} || true")
    soak.settled = False


def restart_irqbalance(soak, _chance):
    soak.machine.run("systemctl restart irqbalance")
    words = words_of_irqbalance(soak.machine)
    if soak.settled and soak.options is not None and soak.options.get("npu_affinity_irq_enabled", True):
        soak.claims.true("irqbalance runs with the policy", "--policyscript=" in words, words)


def step_clock(soak, chance):
    """The clock is some hours off from when the soak began, back or forth."""
    soak.machine.run(f"date --set=@$(({soak.begun} + {chance.randint(-48 * 3600, 48 * 3600)}))")


def start_workers(soak, chance):
    """A process starts in a slice, and has its CPUs and memory nodes."""
    place, engine = chance.random(), chance.choice(("systemd", "docker", "podman"))
    plan = soak.plan()
    if not plan or len(soak.workers()) >= WORKERS:
        return
    npu = plan["npus"][int(place * len(plan["npus"]))]
    worker = soak.start_worker(engine, npu["slice"])
    if soak.settled and not soak.offline():
        found = allowed_to(soak.machine, f"cat /proc/{worker}/status")
        soak.claims.equal(f"CPUs and memory nodes of a process in {npu['slice']}", found, (npu["pool"], npu["memory_nodes"]))


def stop_workers(soak, _chance):
    if workers := soak.workers():
        soak.machine.run(" && ".join(workers))


def reload_systemd(soak, _chance):
    soak.machine.run("systemctl daemon-reload")
    soak.as_bound()


def reboot(soak, _chance):
    soak.machine.reboot()
    soak.machine.await_idle("npu-affinity-irq*.service")
    if soak.settled:
        soak.claims.equal("failed units after a reboot", soak.machine.run("systemctl --failed --plain --no-legend").split(), [])
    soak.as_bound()


def cut_power(soak, _chance):
    soak.machine.cut_power()
    soak.machine.await_idle("npu-affinity-irq*.service")
    soak.settled = False


class Operation(NamedTuple):
    """What a soak does now and then; ``weight`` says how often."""

    weight: int
    act: Callable[[Soak, random.Random], None]
    fault: bool = False


OPERATIONS = {
    "bind": Operation(14, bind),
    "verify": Operation(8, verify),
    "bind in check mode": Operation(6, check),
    "rollback": Operation(4, rollback),
    "unbind and bind": Operation(2, unbind),
    "worker started": Operation(6, start_workers),
    "workers stopped": Operation(3, stop_workers),
    "CPUs online": Operation(5, online),
    "daemon-reload": Operation(3, reload_systemd),
    "reboot": Operation(1, reboot),
    "driver reload": Operation(6, reload_driver, fault=True),
    "CPUs offline": Operation(5, offline, fault=True),
    "run killed": Operation(6, kill_run, fault=True),
    "program killed": Operation(3, kill_program, fault=True),
    "irqbalance restarted": Operation(3, restart_irqbalance, fault=True),
    "clock step": Operation(6, step_clock, fault=True),
    "power cut": Operation(1, cut_power, fault=True),
}


def chosen(seed, number):
    """The operation of a step, and the chance of its details: what one step draws changes no other."""
    chance = random.Random(f"{seed} {number}")
    (name,) = chance.choices(list(OPERATIONS), [operation.weight for operation in OPERATIONS.values()])
    return name, chance
