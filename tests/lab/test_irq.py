# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was bound stays bound: over reboots, driver loads, irqbalance, and functions that come later."""

import pytest

from tests.lab.conftest import PLAY_SECONDS, plan_of, success
from tests.lab.kernel import (
    CQ,
    DRIVER,
    SETTLE,
    SQ,
    UNITS,
    as_planned,
    await_another_place,
    irqs,
    on_their_cpus,
    pin,
    settle,
    words_of_irqbalance,
)
from tests.lab.shapes import DUO


def numbers_of(look):
    return {pci: sorted(map(int, function["vectors"])) for pci, function in look["functions"].items()}


def reboot(claims, machine):
    """Reboot, and claim that no unit failed."""
    machine.reboot()
    machine.await_idle("npu-affinity-irq*.service")
    claims.equal("failed units after a reboot", machine.run("systemctl --failed --plain --no-legend").split(), [])


def reload_driver(claims, machine):
    """Load the driver again, claim that its interrupts have other numbers then, and return what the kernel says."""
    before = numbers_of(machine.look())
    machine.run("rmmod davinci_mock && modprobe davinci_mock vectors=33")
    settle(machine)
    look = machine.look()
    changed = [pci for pci, numbers in numbers_of(look).items() if numbers != before[pci]]
    claims.true(
        f"the driver was loaded again; interrupt numbers changed on {', '.join(changed)}", 2 * len(changed) >= len(before), numbers_of(look)
    )
    return look


@pytest.mark.core
@pytest.mark.architecture
def test_after_a_reboot(lab, claims):
    """Small machine: after a reboot"""
    machine = lab.bound(DUO).machine
    plan = plan_of(machine)
    reboot(claims, machine)
    as_planned(claims, machine, plan)


@pytest.mark.core
@pytest.mark.architecture
def test_after_the_driver_was_loaded_again(lab, claims):
    """Small machine: rmmod and modprobe of the driver, which then has other interrupt numbers"""
    machine = lab.bound(DUO).machine
    on_their_cpus(claims, machine, plan_of(machine), reload_driver(claims, machine))


@pytest.mark.architecture
def test_vectors_that_the_driver_requests_late(lab, claims):
    """Small machine: a driver that requests its interrupts long after it was loaded"""
    machine = lab.bound(DUO).machine
    plan = plan_of(machine)
    run = lab.play(machine, "bind", npu_affinity_wait=PLAY_SECONDS)
    claims.equal("exit status of a bind whose units wait as long as it takes", success(run), (0, ""))
    machine.run(f"rmmod davinci_mock && modprobe davinci_mock late=1 && {SETTLE}")
    early = machine.look()["functions"].values()
    found = {name: sum(len(irqs(function, name)) for function in early) for name in (SQ, CQ)}
    claims.equal("number of interrupts after the load", found, {SQ: 0, CQ: 0})
    waiting = machine.run(f"systemctl list-units --plain --no-legend --state=activating '{UNITS}'").splitlines()
    claims.equal("units that wait for them", len(waiting), len(plan["npus"]))
    machine.run(f"for function in {DRIVER}/0000:*; do echo 1 >$function/request_irqs; done")
    settle(machine)
    on_their_cpus(claims, machine, plan)


@pytest.mark.core
def test_functions_that_swap_their_numbers(lab, claims):
    """Small machine: two functions bound to the driver again in the other order, so that their numbers swap"""
    machine = lab.bound(DUO).machine
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
    """Small machine: an NPU drops off the bus and comes back"""
    machine = lab.bound(DUO).machine
    plan = plan_of(machine)
    late = plan["npus"][-1]["pci"]
    machine.run(f"echo 1 >/sys/bus/pci/devices/{late}/remove")
    claims.true(f"{late} is not on the bus", late not in machine.look()["functions"])
    machine.run("echo 1 >/sys/bus/pci/rescan && davinci-mock-bind")
    settle(machine)
    on_their_cpus(claims, machine, plan)


def await_passes(machine, pid, passes):
    """Wait until irqbalance has read the counts of all interrupts so many more times, which it does once a pass."""
    machine.run(f"""
read_so_far() {{ sed -n 's/^rchar: //p' /proc/{pid}/io; }}
enough=$(($(read_so_far) + {passes} * $(cat /proc/interrupts /proc/stat | wc -c)))
while [ $(read_so_far) -lt $enough ]; do sleep 1; done
""")


def test_irqbalance_leaves_them_alone(lab, claims):
    """Small machine: irqbalance runs, and moves what is not an NPU's"""
    machine = lab.bound(DUO).machine
    plan = plan_of(machine)
    others = machine.run("ls /sys/class/net/e*/device/../msi_irqs").split()
    pin(machine, others, 7)
    machine.run("systemctl start irqbalance")
    pid = machine.run("systemctl show --property=MainPID --value irqbalance").strip()
    claims.true("irqbalance was told so by --policyscript", "--policyscript=" in words_of_irqbalance(machine))
    await_another_place(machine, others, 7)
    claims.true("irqbalance moved interrupts of the network card, which were pinned to CPU 7", True)
    await_passes(machine, pid, 3)
    claims.equal("irqbalance after three more passes", machine.run("systemctl is-active irqbalance").strip(), "active")
    on_their_cpus(claims, machine, plan)
