# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards that are lost, cards that come back, and machines that have none."""

import pytest

from tests.lab.conftest import PLAN, changed_files, changes, drift, plan_of, said, success
from tests.lab.kernel import allowed_to, main_process, on_their_cpus, run_service, variables
from tests.lab.shapes import DUO, NONE

NAME = "ASCEND_RT_VISIBLE_DEVICES"
WORKER = "import time\ntime.sleep(3600)\n"


def test_a_card_that_is_lost_and_comes_back(lab, claims, tmp_path):
    """Small machine: a card drops off the bus, so that logic ids close up, and comes back"""
    machine = lab.bound(DUO).machine
    npus = {npu["id"]: npu for npu in plan_of(machine)["npus"]}
    units = {npu: f"worker{npu}.service" for npu in npus}
    services = {"npu_affinity_services": [{"unit": unit, "npus": [npu]} for npu, unit in units.items()]}
    claims.equal("exit status of a bind with a service for each NPU", success(lab.play(machine, "bind", **services)), (0, ""))
    for unit in units.values():
        run_service(machine, unit, WORKER)
    pools = {npu: npus[npu]["pool"] for npu in npus}
    claims.equal("CPUs of the services by NPU", cpus_of(machine, units), pools)
    lost = npus[0]["pci"]
    machine.run(f"echo 1 >/sys/bus/pci/devices/{lost}/remove")
    run = lab.play(machine, "bind", **services)
    claims.equal(f"exit status of a bind without {lost}", success(run), (0, ""))
    sentence = f"{units[0]} has the CPUs of npu-0.slice, although NPU 0 (PCI {lost}) cannot be found"
    claims.true(f"it says: {sentence}", sentence in said(run), said(run))
    plan = plan_of(machine)
    claims.equal("pools by PCI function", {npu["pci"]: npu["pool"] for npu in plan["npus"]}, without(npus, lost))
    machine.run(f"systemctl restart {' '.join(units.values())}")
    claims.equal("CPUs of the services, restarted", cpus_of(machine, units), pools)
    now = {0: "-1", 1: "0"}
    claims.equal("ids that they were told: those of now, and none for the one of the lost card", ids_of(machine, units), now)
    on_their_cpus(claims, machine, plan)
    machine.run("echo 1 >/sys/bus/pci/rescan && davinci-mock-bind")
    status, found = drift(lab, machine, tmp_path, **services)
    claims.true(f"the card is back, and verify reports it: {found}", "new card" in found.values())
    claims.equal("its exit status", status, 2)
    claims.equal("exit status of a bind with the card", success(lab.play(machine, "bind", **services)), (0, ""))
    plan = plan_of(machine)
    claims.equal("pools by PCI function", {npu["pci"]: npu["pool"] for npu in plan["npus"]}, without(npus, None))
    claims.equal("CPUs of the services", cpus_of(machine, units), pools)
    on_their_cpus(claims, machine, plan)
    status, found = drift(lab, machine, tmp_path, **services)
    claims.equal("causes of what verify finds: ids of the time without the card", set(found.values()), {"not restarted"})
    machine.run(f"systemctl restart {' '.join(units.values())}")
    claims.equal("ids that the services were told, restarted", ids_of(machine, units), {npu: str(npu) for npu in npus})
    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **services), (0, {}))


def cpus_of(machine, units):
    return {npu: allowed_to(machine, f"cat /proc/{main_process(machine, unit)}/status")[0] for npu, unit in units.items()}


def ids_of(machine, units):
    return {npu: found[NAME] for npu, unit in units.items() if (found := variables(machine, unit, NAME))}


def without(npus, lost):
    return {npu["pci"]: npu["pool"] for npu in npus.values() if npu["pci"] != lost}


@pytest.mark.parametrize("shape", [NONE], ids=lambda shape: shape.name)
def test_a_machine_without_accelerators(lab, claims, shape):
    """Machine without accelerators: a bind writes nothing"""
    machine = lab.fresh(shape)
    machine.run("rm -r /usr/local/Ascend /etc/ascend_install.info")
    files = machine.files()
    for options in ((), ("--check", "--diff")):
        run = lab.play(machine, "bind", "-v", *options)
        claims.equal(f"exit status and changes of bind {' '.join(options)}", changes(run), (0, []))
    claims.true("bind says why", "no accelerator" in said(run), said(run))
    claims.equal(f"of {len(files)} files, links and folders, those that differ", changed_files(machine, files), [])
    claims.equal("our units", machine.run("systemctl list-units --all --plain --no-legend 'npu*'").split(), [])
    claims.equal("exit status of verify", success(lab.play(machine, "verify")), (0, ""))
    claims.equal("exit status and changes of unbind", changes(lab.play(machine, "unbind")), (0, []))
    claims.equal("files that differ after all that", changed_files(machine, files), [])
    claims.equal("plan", machine.run(f"ls {PLAN} 2>/dev/null || true"), "")
