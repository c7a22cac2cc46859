# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the kernel refuses, the interrupt or unit is reported, and everything else is bound all the same."""

import pytest

from tests.lab.conftest import changed_files, changes, plan_of, said, success
from tests.lab.image import ARCHITECTURE
from tests.lab.kernel import CQ, DRIVER, SQ, allowed_to, irqs, main_process, numbers, on_their_cpus, refused, run_service, where
from tests.lab.shapes import A2, DUO

HOLDER = "import time\ndevice = open('/dev/davinci0', 'rb')\nopen('/run/engine', 'w').close()\ntime.sleep(3600)\n"
FILL = """
filled=0
for irq in {irqs}; do
  echo {cpu} 2>/dev/null >/proc/irq/$irq/smp_affinity_list || break
  filled=$((filled + 1))
done
echo $filled
"""


def interrupts(run):
    """The entries of the interrupt module's result: ``[(pci, entry)]``."""
    return [(npu["pci"], entry) for npu in npus(run) for entry in npu["interrupts"]]


def npus(run):
    """What the task that binds interrupts says of every NPU."""
    return [entry["result"]["interrupts"]["npus"] for entry in run.results if entry["result"].get("interrupts")][-1]


@pytest.mark.parametrize("shape", [A2], ids=lambda shape: shape.name)  # the kernel manages one vector for each CPU at most
def test_interrupts_that_the_kernel_manages(lab, claims, shape):
    """A2-like machine: completion queues whose interrupts the kernel places itself (EIO or EPERM)"""
    machine = lab.fresh(shape)
    machine.run("rmmod davinci_mock && modprobe davinci_mock managed=1 vectors=18")
    before = machine.look()
    pci = next(iter(before["functions"]))
    refused(claims, machine, irqs(before["functions"][pci], CQ)[:1])
    run = lab.play(machine, "bind", "-v")
    claims.equal("exit status of bind", run.status, 0)
    states = {(entry["name"], entry["state"]) for _pci, entry in interrupts(run)}
    there = (CQ, "bound")  # the kernel may have placed one where the plan has it
    claims.equal("the others are reported as", sorted(states - {there}), [(CQ, "managed"), (SQ, "changed")])
    claims.true(f"bind says it of every {CQ}", run.output.count(f"{CQ} is placed by the kernel itself") >= len(before["functions"]))
    plan, look = plan_of(machine), machine.look()
    for npu in plan["npus"]:
        first, device = str(min(numbers(npu["irq"]))), look["functions"][npu["pci"]]["number"]
        claims.equal(f"NPU {npu['id']} {SQ}", where(look["functions"][npu["pci"]], SQ), [(first, first)])
        claims.equal(f"workqueue dev{device}_sq_send_wq", look["workqueues"][f"dev{device}_sq_send_wq"], first)
        claims.equal(f"{npu['slice']} cpuset.cpus.effective", look["slices"][npu["slice"]]["cpus"], npu["pool"])
    again = lab.play(machine, "bind")
    claims.equal("exit status and changes of a second bind", changes(again), (0, []))


@pytest.mark.skipif(ARCHITECTURE != "amd64", reason="only x86 has few interrupt vectors for each CPU")
@pytest.mark.parametrize("shape", [A2], ids=lambda shape: shape.name)  # which has enough spare interrupts
def test_a_cpu_without_free_vectors(lab, claims, shape):
    """A2-like machine: the CPU for the completion queues of an NPU has no interrupt vectors left (ENOSPC)"""
    machine = lab.fresh(shape)
    machine.run("rmmod davinci_mock && modprobe davinci_mock spares=1")
    look = machine.look()
    spares = sorted(irq for function in look["functions"].values() for irq in irqs(function, "spare_irq"))
    filled = int(machine.run(FILL.format(irqs=" ".join(map(str, spares)), cpu=1)))
    claims.true(f"CPU 1 is full after {filled} of {len(spares)} spare interrupts", 100 < filled < len(spares))
    run = lab.play(machine, "bind", "-v")
    claims.equal("exit status of bind", run.status, 0)
    plan, look = plan_of(machine), machine.look()
    full = next(npu for npu in plan["npus"] if 1 in numbers(npu["irq"]))
    states = {entry["state"] for pci, entry in interrupts(run) if pci == full["pci"] and entry["name"] == CQ}
    claims.true(f"{CQ} of NPU {full['id']} is reported as full", "full" in states, states)
    claims.true("bind says which CPU is full", "no interrupt vectors are left on CPU 1" in run.output, run.output)
    for affinity, effective in where(look["functions"][full["pci"]], CQ):
        in_pool = numbers(effective) <= numbers(full["pool"])
        claims.true(f"{CQ} of NPU {full['id']} is on CPU {effective} of its pool {full['pool']}", in_pool)
        claims.equal("its affinity", affinity, effective)
    others = dict(plan, npus=[npu for npu in plan["npus"] if npu is not full])
    on_their_cpus(claims, machine, others, look)


def test_vectors_without_a_handler(lab, claims):
    """Small machine: the driver of one NPU has requested the mailbox's interrupt only"""
    machine = lab.fresh(DUO)
    pci = sorted(machine.look()["functions"])[0]
    machine.run(f"echo {pci} >{DRIVER}/unbind; echo 1 >/sys/module/davinci_mock/parameters/late; echo {pci} >{DRIVER}/bind")
    function = machine.look()["functions"][pci]
    claims.equal(f"handlers of {pci}", [vector["name"] for vector in function["vectors"].values()], [f"trs-mbox-{function['number']}-0"])
    run = lab.play(machine, "bind")
    claims.true("bind fails", run.status != 0)
    claims.true("and says why", f"has not requested {SQ} and {CQ}" in run.failure("duo"), run.failure("duo"))
    facts = [entry["result"].get("ansible_facts", {}) for entry in run.results]
    plan = next(found["npu_affinity_plan"] for found in facts if "npu_affinity_plan" in found)
    others = dict(plan, npus=[npu for npu in plan["npus"] if npu["pci"] != pci])
    claims.equal("NPUs in the report", len(npus(run)), len(plan["npus"]))
    on_their_cpus(claims, machine, others)


def test_housekeeping_beside_what_uses_an_npu(lab, claims):
    """Small machine: something in system.slice, as Docker's containers are, uses an NPU, and housekeeping would confine it"""
    machine = lab.fresh(DUO)
    run_service(machine, "engine.service", HOLDER)
    machine.run("until [ -e /run/engine ]; do sleep 0.3; done")
    look, files = machine.look(), machine.files()
    status = f"cat /proc/{main_process(machine, 'engine.service')}/status"
    options = {"npu_affinity_housekeeping": "0", "npu_affinity_smt": "threads"}
    run = lab.play(machine, "bind", **options)
    claims.true("bind refuses", run.status != 0)
    claims.true("and says whom, and how to insist", "engine.service" in said(run) and "confine_holders" in said(run), said(run))
    claims.equal("CPUs of the process", allowed_to(machine, status)[0], look["online"])
    claims.true("interrupts, workqueues, threads and cpusets are as before", machine.look() == look)
    claims.equal("files that differ from before", changed_files(machine, files), [])
    run = lab.play(machine, "bind", npu_affinity_housekeeping_confine_holders=True, **options)
    claims.equal("exit status when it may be confined", success(run), (0, ""))
    claims.equal("CPUs of the process", allowed_to(machine, status)[0], plan_of(machine)["housekeeping"])


def test_a_set_that_the_kernel_does_not_grant(lab, claims):
    """Small machine: somebody gave a slice a CPU of another one by hand; systemd says nothing, bind does"""
    machine = lab.bound(DUO).machine
    other, pool = (npu["pool"] for npu in plan_of(machine)["npus"])
    machine.run(f"systemctl set-property npu-1.slice AllowedCPUs={other.split('-')[0]}")
    found = machine.look()["slices"]["npu-1.slice"]["cpus"]
    claims.true(f"npu-1.slice has CPUs {found} instead of {pool}", found != pool)
    run = lab.play(machine, "bind")
    claims.true("bind fails", run.status != 0)
    found = machine.look()["slices"]["npu-1.slice"]["cpus"]  # after its reload, which in systemd 247 adds the set to that of the file
    said = f"npu-1.slice should have CPUs {pool} and has {found} (overridden by /etc/systemd/system.control/npu-1.slice.d/"
    claims.true(f"and says: {said}...)", said in run.failure("duo"), run.failure("duo"))
