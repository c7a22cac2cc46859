# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was bound stays bound: over reboots, driver loads, irqbalance, and functions that come later."""

from __future__ import annotations

import time

from tests.lab.conftest import plan_of
from tests.lab.kernel import CQ, SQ, in_their_slices, irqs, on_their_cpus, where
from tests.lab.shapes import A2

DRIVER = "/sys/bus/pci/drivers/davinci_mock"
UNITS = "npu-affinity-irq@*.service"


def numbers_of(look):
    return {pci: sorted(map(int, function["vectors"])) for pci, function in look["functions"].items()}


def settle(machine):
    """Wait until the units that a driver's bind starts have ended."""
    machine.run("udevadm settle")
    machine.await_idle(UNITS, seconds=120)


def test_after_a_reboot(lab, claims):
    """A2-like machine: after a reboot"""
    machine = lab.bound(A2).machine
    plan = plan_of(machine)
    machine.reboot()
    machine.await_idle("npu-affinity-irq*.service", seconds=120)
    claims.equal("failed units", machine.run("systemctl --failed --plain --no-legend").split(), [])
    look = machine.look()
    in_their_slices(claims, machine, plan, look)
    on_their_cpus(claims, machine, plan, look)


def test_after_the_driver_was_loaded_again(lab, claims):
    """A2-like machine: rmmod and modprobe of the driver, which then has other interrupt numbers"""
    machine = lab.bound(A2).machine
    plan, before = plan_of(machine), numbers_of(machine.look())
    machine.run("rmmod davinci_mock && modprobe davinci_mock vectors=33")
    settle(machine)
    look = machine.look()
    changed = [pci for pci, numbers in numbers_of(look).items() if numbers != before[pci]]
    claims.true(f"interrupt numbers changed on {', '.join(changed)}", len(changed) >= 2, numbers_of(look))
    on_their_cpus(claims, machine, plan, look)


def test_vectors_that_the_driver_requests_late(lab, claims):
    """A2-like machine: a driver that requests its interrupts eight seconds after it was loaded"""
    machine = lab.bound(A2).machine
    plan = plan_of(machine)
    machine.run("rmmod davinci_mock && modprobe davinci_mock late_ms=8000 && udevadm settle")
    early = machine.look()["functions"][plan["npus"][0]["pci"]]
    claims.equal(f"number of {SQ} and {CQ} right after the load", (len(irqs(early, SQ)), len(irqs(early, CQ))), (0, 0))
    settle(machine)
    on_their_cpus(claims, machine, plan)


def test_functions_that_swap_their_numbers(lab, claims):
    """A2-like machine: two functions bound to the driver again in the other order, so that their numbers swap"""
    machine = lab.bound(A2).machine
    plan, before = plan_of(machine), machine.look()
    one, other = sorted(before["functions"])[:2]
    first_again, then = sorted((one, other), key=lambda pci: -before["functions"][pci]["number"])
    machine.run(f"for f in {one} {other}; do echo $f >{DRIVER}/unbind; done")
    machine.run(f"for f in {first_again} {then}; do echo $f >{DRIVER}/bind; done")
    settle(machine)
    look = machine.look()
    swapped = [look["functions"][pci]["number"] for pci in (one, other)]
    claims.true(
        f"{one} and {other} are now devices {swapped}, with interrupts of other numbers",
        swapped != [before["functions"][pci]["number"] for pci in (one, other)] and numbers_of(look) != numbers_of(before),
    )
    on_their_cpus(claims, machine, plan, look)


def test_a_function_that_appears_later(lab, claims):
    """A2-like machine: an NPU drops off the bus and comes back"""
    machine = lab.bound(A2).machine
    plan = plan_of(machine)
    late = plan["npus"][-1]["pci"]
    machine.run(f"echo 1 >/sys/bus/pci/devices/{late}/remove")
    claims.true(f"{late} is not on the bus", late not in machine.look()["functions"])
    machine.run("echo 1 >/sys/bus/pci/rescan && davinci-mock-bind")
    settle(machine)
    on_their_cpus(claims, machine, plan)


def test_irqbalance_leaves_them_alone(lab, claims):
    """A2-like machine: irqbalance runs for a minute"""
    machine = lab.bound(A2).machine
    plan = plan_of(machine)
    machine.run("systemctl start irqbalance")
    pid = machine.run("systemctl show --property=MainPID --value irqbalance").strip()
    claims.true("irqbalance was told so by --policyscript", "--policyscript=" in machine.run(f"tr '\\0' ' ' </proc/{pid}/cmdline"))
    time.sleep(60)
    claims.equal("irqbalance after 60 s", machine.run("systemctl is-active irqbalance").strip(), "active")
    on_their_cpus(claims, machine, plan)


def test_irqbalance_moves_them_where_it_was_not_told(lab, claims):
    """A2-like machine, never bound: irqbalance does move interrupts that somebody pinned by hand"""
    machine = lab.fresh(A2)
    pci, function = next((pci, function) for pci, function in machine.look()["functions"].items() if function["node"] == 0)
    pinned = " ".join(map(str, irqs(function, CQ)))
    machine.run(f"for n in {pinned}; do echo 7 >/proc/irq/$n/smp_affinity_list; done")
    claims.equal(f"{CQ} of {pci}", where(machine.look()["functions"][pci], CQ), [("7", "7")])
    machine.run("systemctl start irqbalance")
    deadline = time.monotonic() + 60
    while where(machine.look()["functions"][pci], CQ) == [("7", "7")] and time.monotonic() < deadline:
        time.sleep(2)
    found = where(machine.look()["functions"][pci], CQ)
    claims.true(f"irqbalance moved {CQ} to {found}", found != [("7", "7")])
