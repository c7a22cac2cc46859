# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After bind verify finds no drift, and names every drift there is with its cause; unbind and rollback restore what was there."""

import json
import time

import pytest

from tests.lab.conftest import ALONE, PLAN, changed_files, changes, drift, plan_of, said, success
from tests.lab.kernel import CQ, DRIVER, SETTLE, SQ, allowed_to, irqs, numbers, on_their_cpus, pages, start_worker, where
from tests.lab.machine import PATIENCE
from tests.lab.shapes import DUO
from tests.lab.test_irq import settle

UNITS = "/etc/systemd/system"
WORKQUEUES = "/sys/devices/virtual/workqueue"
RULE = "/etc/udev/rules.d/90-npu-affinity.rules"
EVERYWHERE = "fff"
POLICY = "/usr/local/lib/npu-affinity/irqbalance-policy"
LOCK = "/run/npu-affinity.lock"


def as_before(claims, machine, look, files):
    """Claim that a machine is what it was before its first bind; its interrupts may have other numbers."""
    after = machine.look()
    for part in ("slices", "workqueues", "threads"):
        claims.equal(f"{part} are as before the first bind", after[part], look[part])
    for pci, function in look["functions"].items():
        found = [(vector["name"], vector["affinity"]) for vector in after["functions"][pci]["vectors"].values()]
        wanted = [(vector["name"], vector["affinity"]) for vector in function["vectors"].values()]
        claims.true(
            f"the affinity of all {len(wanted)} interrupts of {pci} is as before the first bind", found == wanted, f"{found} {wanted}"
        )
    left = changed_files(machine, files)
    claims.equal(f"of {len(files)} files, links and folders, those that differ from before", left, [])


@pytest.mark.core
@pytest.mark.architecture
def test_drift_by_hand(lab, claims, tmp_path):
    """Small machine: verify after bind, and after somebody changed one thing of every kind"""
    machine = lab.bound(DUO).machine
    claims.equal("exit status and drift right after bind", drift(lab, machine, tmp_path), (0, {}))
    npus, functions = {npu["id"]: npu for npu in plan_of(machine)["npus"]}, machine.look()["functions"]
    devices = {id: functions[npu["pci"]]["number"] for id, npu in npus.items()}
    irq, offline = irqs(functions[npus[1]["pci"]], CQ)[0], max(numbers(npus[0]["pool"]))
    machine.run(f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service && echo 9 >/proc/irq/{irq}/smp_affinity_list")
    machine.run(f"echo {EVERYWHERE} >{WORKQUEUES}/dev{devices[0]}_sq_send_wq/cpumask")
    machine.run(f"taskset -pc 0-11 $(pgrep -x dev{devices[0]}_sq_task)")
    machine.run("systemctl set-property --runtime npu-1.slice AllowedCPUs=0")
    machine.run(f"echo CPUWeight=7 >>{UNITS}/npu-0.slice && rm {UNITS}/multi-user.target.wants/npu.slice")
    machine.run(f"echo 0 >/sys/devices/system/cpu/cpu{offline}/online")
    before, files = machine.look(), machine.files()
    expected = {
        f"NPU 1 {CQ}": "manual change",
        f"NPU 0 dev{devices[0]}_sq_send_wq": "manual change",
        f"NPU 0 dev{devices[0]}_sq_task": "manual change",
        "npu-1.slice CPUs": "manual change",
        "npu-affinity-irq.timer": "manual change",
        f"{UNITS}/npu-0.slice": "manual change",
        "npu.slice at boot": "manual change",
        "pool of NPU 0": "offline CPU",
    }
    claims.equal("exit status and causes of drift", drift(lab, machine, tmp_path), (2, expected))
    claims.true("verify changed nothing", machine.look() == before and machine.files() == files)
    machine.run(f"echo 1 >/sys/devices/system/cpu/cpu{offline}/online; systemctl revert npu-1.slice")
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))


def test_drift_by_programs(lab, claims, tmp_path):
    """Small machine: verify after the driver was loaded without our rule, and after irqbalance began while its policy was missing"""
    machine = lab.bound(DUO).machine
    machine.run(f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service && rm {RULE} && udevadm control --reload")
    machine.run(f"rmmod davinci_mock && modprobe davinci_mock && {SETTLE}")
    machine.run("systemctl reset-failed 'npu-affinity*' || true")  # a unit that the stop, or the saved state, met while it ran
    status, found = drift(lab, machine, tmp_path)
    claims.equal("exit status", status, 2)
    edited = {RULE, "npu-affinity-irq.timer"}
    claims.equal(f"causes of {sorted(edited)}", {found.pop(name) for name in edited}, {"manual change"})
    journal = machine.run("journalctl --boot --no-pager --output=short-monotonic --lines=30 --unit='npu-affinity*'")
    claims.true(f"causes of all else: {set(found.values())}", set(found.values()) == {"driver reload"}, journal)
    named = {name.partition(" ")[2].partition(" ")[0] for name in found if name.endswith((SQ, CQ, "_sq_send_wq", "_sq_task"))}
    claims.equal("NPUs named", named, {"0", "1"})
    claims.equal("exit status of bind", success(lab.play(machine, "bind")), (0, ""))
    functions = machine.look()["functions"]
    machine.run(f"systemctl stop npu-affinity-irq.timer npu-affinity-irq.service; mv {POLICY} {POLICY}.away; systemctl start irqbalance")
    deadline = time.monotonic() + PATIENCE
    while all(where(machine.look()["functions"][pci], CQ) == where(function, CQ) for pci, function in functions.items()):
        assert time.monotonic() < deadline, "irqbalance moves nothing"
    machine.run(f"mv {POLICY}.away {POLICY}; systemctl kill --signal=STOP irqbalance")
    status, found = drift(lab, machine, tmp_path)
    claims.equal("exit status", status, 2)
    moved = {name: cause for name, cause in found.items() if name.endswith((SQ, CQ))}
    claims.equal(f"cause of {', '.join(sorted(moved))}", set(moved.values()), {"irqbalance"})
    (fought, *_others) = irqs(functions[plan_of(machine)["npus"][0]["pci"]], CQ)
    for _time in range(5):
        machine.run(f"echo 0 >/proc/irq/{fought}/smp_affinity_list; systemctl start npu-affinity-irq.service")
    claims.equal(f"IRQ {fought}, moved for the fifth time", machine.run(f"cat /proc/irq/{fought}/smp_affinity_list").strip(), "0")
    (entry,) = map(json.loads, machine.run("journalctl --boot --output=json NPU_AFFINITY_ACTION=stop").splitlines())
    who = entry["NPU_AFFINITY_REASON"]
    claims.true(f"the journal names what moves it: {who}", f"irqbalance: it was started before its policy {POLICY} last changed" in who)


@pytest.mark.core
@pytest.mark.architecture
def test_unbind(lab, claims):
    """Small machine: unbind after bind, while a worker runs in a slice"""
    machine, _run, before, files = lab.bound(DUO)
    claims.true("bind changed what is compared", machine.look() != before and machine.files() != files)
    npu = plan_of(machine)["npus"][0]
    worker = start_worker(machine, "worker", npu["slice"], 20)
    status, held = f"cat /proc/{worker}/status", pages(machine, worker)
    claims.equal("the worker's CPUs and memory nodes", allowed_to(machine, status), (npu["pool"], npu["memory_nodes"]))
    run = lab.play(machine, "unbind")
    claims.equal("exit status", success(run), (0, ""))
    nodes = allowed_to(machine, "cat /proc/1/status")[1]
    claims.equal("the worker still runs, with CPUs and memory nodes", allowed_to(machine, status), (before["online"], nodes))
    (home,) = (node for node, count in held.items() if count == max(held.values()))
    claims.true(f"its pages are still on node {home}: {held}", pages(machine, worker)[home] >= held[home])
    said = [str(entry["result"].get("msg")) for entry in run.of("duo", "ok")]
    claims.true(
        f"unbind says that {npu['slice']} is left", any("no limits any more" in text and npu["slice"] in text for text in said), said
    )
    machine.run("systemctl stop worker && systemctl stop npu.slice")
    as_before(claims, machine, before, files)
    again = lab.play(machine, "unbind")
    claims.equal("exit status and changes of a second unbind", changes(again), (0, []))


def test_unbind_of_what_was_bound_later(lab, claims):
    """Small machine: unbind after a driver requested the interrupts of an NPU only after the first bind"""
    machine = lab.fresh(DUO)
    pci = sorted(machine.look()["functions"])[0]
    machine.run(f"echo {pci} >{DRIVER}/unbind; echo 1 >/sys/module/davinci_mock/parameters/late; echo {pci} >{DRIVER}/bind")
    files = machine.files()
    run = lab.play(machine, "bind", npu_affinity_irq_failure="warn", npu_affinity_wait=1)
    claims.equal("exit status of a bind that does not mind", success(run), (0, ""))
    claims.true(f"it says that {SQ} and {CQ} are missing", f"has not requested {SQ} and {CQ}" in said(run), said(run))
    machine.run(f"echo 1 >{DRIVER}/{pci}/request_irqs")
    function = machine.look()["functions"][pci]
    machine.run("systemctl start npu-affinity-irq.service")
    on_their_cpus(claims, machine, plan_of(machine))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    found = machine.look()["functions"][pci]
    for name in (SQ, CQ):
        affinities = [sorted({affinity for affinity, _effective in where(state, name)}) for state in (found, function)]
        claims.equal(f"affinity of {name} of {pci}, as before it was bound", *affinities)
    left = changed_files(machine, files)
    claims.equal(f"of {len(files)} files, links and folders, those that differ from before", left, [])


def test_two_binds_at_once(lab, claims):
    """Small machine, never bound: two operators bind it at the same time, and one unbinds it"""
    machine = lab.fresh(DUO)
    before, files = machine.look(), machine.files()
    machine.run(f"systemd-run --quiet --unit=holder flock {LOCK} sleep infinity && until [ -e {LOCK} ]; do sleep 0.3; done")
    runs = [lab.begin(machine, "bind") for _operator in range(2)]
    await_lock(machine, [journal for _process, journal in runs])
    claims.true("both have planned, and wait for the run that changes the host", not plan_is_there(machine))
    machine.run("systemctl stop holder")
    ended = [lab.ended(*run) for run in runs]
    claims.equal("their exit statuses", [success(run) for run in ended], [(0, "")] * 2)
    wrote = [len(run.files("duo")[0]) for run in ended]
    claims.true(f"one wrote files, the other had nothing left to do: {wrote}", sorted(map(bool, wrote)) == [False, True])
    on_their_cpus(claims, machine, plan_of(machine))
    claims.equal("exit status and changes of one more bind", changes(lab.play(machine, "bind")), (0, []))
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    as_before(claims, machine, before, files)


def await_lock(machine, journals):
    """Wait until every run has gathered the topology and its next module runs, which cannot end while somebody holds the lock."""
    deadline = time.monotonic() + PATIENCE
    while True:
        gathered = all(journal.exists() and '"step": "plan_to_bind"' in journal.read_text() for journal in journals)
        if gathered and int(machine.run(f"pgrep -cxf {ALONE} || true")) == len(journals):
            return
        assert time.monotonic() < deadline, "the runs do not come as far as the lock"
        time.sleep(1)


def plan_is_there(machine):
    return machine.run(f"[ ! -e {PLAN} ] || echo there") != ""


def test_unbind_beside_a_masked_irqbalance(lab, claims):
    """Small machine: irqbalance, which a bind had stopped, was masked since; unbind does all else, and the rest when it is unmasked"""
    machine = lab.fresh(DUO)
    machine.run("systemctl enable --now irqbalance")
    look, files = machine.look(), machine.files()
    claims.equal("exit status of bind", success(lab.play(machine, "bind", npu_affinity_irqbalance="stop")), (0, ""))
    state = "systemctl is-active irqbalance; systemctl is-enabled irqbalance"
    claims.equal("irqbalance", machine.run(f"{state} || true").split(), ["inactive", "disabled"])
    machine.run("systemctl mask irqbalance")
    run = lab.play(machine, "unbind")
    claims.equal("exit status of unbind", run.status, 2)
    claims.true("it says why, and what to do", "systemctl unmask irqbalance.service, and unbind again" in said(run), said(run))
    left = changed_files(machine, files)
    claims.true(
        f"all other files are as before: {left}", all("irqbalance" in path or path.startswith("/etc/npu-affinity") for path in left)
    )
    after = machine.look()
    for part in ("slices", "workqueues", "threads"):
        claims.equal(f"{part} are as before the first bind", after[part], look[part])
    machine.run("systemctl unmask irqbalance")
    claims.equal("exit status of an unbind after it was unmasked", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("irqbalance", machine.run(f"{state} || true").split(), ["active", "enabled"])
    claims.equal("files that differ from before", changed_files(machine, files), [])


def journal(machine, action):
    lines = machine.run(f"journalctl --sync && journalctl --output=json --no-pager NPU_AFFINITY_ACTION={action}").splitlines()
    return [json.loads(line) for line in lines]


def test_the_journal_says_who_moved_interrupts(lab, claims):
    """Small machine: the driver is loaded again, and the units that bind its interrupts say so"""
    machine = lab.bound(DUO).machine
    functions = {npu["pci"] for npu in plan_of(machine)["npus"]}
    before = len(journal(machine, "rebind"))
    machine.run(f"rmmod davinci_mock && modprobe davinci_mock vectors=33 && {SETTLE}")
    settle(machine)
    lines = journal(machine, "rebind")[before:]
    said = " ".join(line["NPU_AFFINITY_CHANGES"] for line in lines)
    claims.equal("who rebound", {line["NPU_AFFINITY_AUTHOR"] for line in lines}, {"npu_affinity irq"})
    claims.equal("functions that the lines name", {pci for pci in functions if pci in said}, functions)
