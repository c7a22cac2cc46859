# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After bind verify finds no drift, and names every drift there is with its cause; after unbind the machine is as it was."""

from __future__ import annotations

import time

from tests.lab.conftest import changes, drift, plan_of, success
from tests.lab.kernel import CQ, SETTLE, SQ, allowed_to, irqs, numbers, pages, start_worker, where
from tests.lab.machine import PATIENCE
from tests.lab.shapes import A2

UNITS = "/etc/systemd/system"
WORKQUEUES = "/sys/devices/virtual/workqueue"
RULE = "/etc/udev/rules.d/90-npu-affinity.rules"
EVERYWHERE = "ffffff"


def test_drift_by_hand(lab, claims, tmp_path):
    """A2-like machine: verify after bind, and after somebody changed one thing of every kind"""
    machine = lab.bound(A2).machine
    claims.equal("exit status and drift right after bind", drift(lab, machine, tmp_path), (0, {}))
    npus, functions = {npu["id"]: npu for npu in plan_of(machine)["npus"]}, machine.look()["functions"]
    devices = {id: functions[npu["pci"]]["number"] for id, npu in npus.items()}
    irq, offline = irqs(functions[npus[1]["pci"]], CQ)[0], max(numbers(npus[3]["pool"]))
    machine.run(f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service && echo 23 >/proc/irq/{irq}/smp_affinity_list")
    machine.run(f"echo {EVERYWHERE} >{WORKQUEUES}/dev{devices[2]}_sq_send_wq/cpumask")
    machine.run(f"taskset -pc 0-23 $(pgrep -x dev{devices[2]}_sq_task)")
    machine.run("systemctl set-property --runtime npu-1.slice AllowedCPUs=0")
    machine.run(f"echo CPUWeight=7 >>{UNITS}/npu-2.slice && rm {UNITS}/multi-user.target.wants/npu.slice")
    machine.run(f"echo 0 >/sys/devices/system/cpu/cpu{offline}/online")
    before, files = machine.look(), machine.files()
    expected = {
        f"NPU 1 {CQ}": "someone's edit",
        f"NPU 2 dev{devices[2]}_sq_send_wq": "someone's edit",
        f"NPU 2 dev{devices[2]}_sq_task": "someone's edit",
        "npu-1.slice CPUs": "someone's edit",
        "npu-affinity-irq.timer": "someone's edit",
        f"{UNITS}/npu-2.slice": "someone's edit",
        "npu.slice at boot": "someone's edit",
        "pool of NPU 3": "offline CPU",
    }
    claims.equal("exit status and causes of drift", drift(lab, machine, tmp_path), (2, expected))
    claims.true("verify changed nothing", machine.look() == before and machine.files() == files)
    machine.run(f"echo 1 >/sys/devices/system/cpu/cpu{offline}/online; systemctl revert npu-1.slice")
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))


def test_drift_by_programs(lab, claims, tmp_path):
    """A2-like machine: verify after the driver was loaded without our rule, and after irqbalance ran without our policy"""
    machine = lab.bound(A2).machine
    machine.run(f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service && rm {RULE} && udevadm control --reload")
    machine.run(f"rmmod davinci_mock && modprobe davinci_mock && {SETTLE}")
    status, found = drift(lab, machine, tmp_path)
    claims.equal("exit status", status, 2)
    edited = {RULE, "npu-affinity-irq.timer"}
    claims.equal(f"causes of {sorted(edited)}", {found.pop(name) for name in edited}, {"someone's edit"})
    journal = machine.run("journalctl --boot --no-pager --output=short-monotonic --lines=30 --unit='npu-affinity*'")
    claims.true(f"causes of all else: {set(found.values())}", set(found.values()) == {"driver reload"}, journal)
    named = {name.partition(" ")[2].partition(" ")[0] for name in found if name.endswith((SQ, CQ, "_sq_send_wq", "_sq_task"))}
    claims.equal("NPUs named", named, {"0", "1", "2", "3"})
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    functions = machine.look()["functions"]
    machine.run(
        f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service && rm -r {UNITS}/irqbalance.service.d && systemctl daemon-reload"
    )
    machine.run("systemctl start irqbalance")
    deadline = time.monotonic() + PATIENCE
    while all(where(machine.look()["functions"][pci], CQ) == where(function, CQ) for pci, function in functions.items()):
        assert time.monotonic() < deadline, "irqbalance moves nothing"
    machine.run("systemctl kill --signal=STOP irqbalance")
    status, found = drift(lab, machine, tmp_path)
    claims.equal("exit status", status, 2)
    moved = {name: cause for name, cause in found.items() if name.endswith((SQ, CQ))}
    claims.equal(f"cause of {', '.join(sorted(moved))}", set(moved.values()), {"irqbalance"})


def test_unbind(lab, claims):
    """A2-like machine: unbind after bind, while a worker runs in a slice"""
    machine, _run, before, files = lab.bound(A2)
    claims.true("bind changed what is compared", machine.look() != before and machine.files() != files)
    npu = plan_of(machine)["npus"][0]
    worker = start_worker(machine, "worker", npu["slice"], 20)
    status, held = f"cat /proc/{worker}/status", pages(machine, worker)
    claims.equal("the worker's CPUs and memory nodes", allowed_to(machine, status), (npu["pool"], npu["mems"]))
    run = lab.play(machine, "unbind")
    claims.equal("exit status", success(run), (0, ""))
    nodes = allowed_to(machine, "cat /proc/1/status")[1]
    claims.equal("the worker still runs, with CPUs and memory nodes", allowed_to(machine, status), (before["online"], nodes))
    (home,) = (node for node, count in held.items() if count == max(held.values()))
    claims.true(f"its pages are still on node {home}: {held}", pages(machine, worker)[home] >= held[home])
    said = [str(entry["result"].get("msg")) for entry in run.of("a2", "ok")]
    claims.true(
        f"unbind says that {npu['slice']} is left", any("no limits any more" in text and npu["slice"] in text for text in said), said
    )
    machine.run("systemctl stop worker && systemctl stop npu.slice")
    after = machine.look()
    for part in ("slices", "workqueues", "threads"):
        claims.equal(f"{part} are as before the first bind", after[part], before[part])
    for pci, function in before["functions"].items():
        for irq, vector in function["vectors"].items():
            found = after["functions"][pci]["vectors"][irq]
            assert found["affinity"] == vector["affinity"], (pci, irq, vector, found)
        claims.true(f"the affinity of all {len(function['vectors'])} interrupts of {pci} is as before the first bind", True)
    left = sorted({path for path, _state in machine.files().items() ^ files.items()})
    claims.equal(f"of {len(files)} files, links and folders, those that differ from before", left, [])
    again = lab.play(machine, "unbind")
    claims.equal("exit status and changes of a second unbind", changes(again), (0, []))


def test_unbind_starts_what_bind_had_stopped(lab, claims):
    """A2-like machine: irqbalance, which a bind had stopped and disabled, runs again after unbind"""
    machine = lab.fresh(A2)
    machine.run("systemctl enable --now irqbalance")
    files = machine.files()
    state = "systemctl is-active irqbalance; systemctl is-enabled irqbalance"
    claims.equal("exit status of bind", success(lab.play(machine, "bind", npu_affinity_irqbalance="stop")), (0, ""))
    claims.equal("irqbalance", machine.run(f"{state} || true").split(), ["inactive", "disabled"])
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("irqbalance", machine.run(f"{state} || true").split(), ["active", "enabled"])
    claims.equal("files that differ from before", sorted({path for path, _state in machine.files().items() ^ files.items()}), [])
