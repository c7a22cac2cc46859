# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kernels and systemds do differently, on one machine from bind to unbind: ``LAB_SUITE`` says of which release of Debian."""

import pytest

from tests.lab.conftest import drift, plan_of, success
from tests.lab.image import ARCHITECTURE, PLATFORMS
from tests.lab.kernel import CQ, allowed_of_threads, as_planned, in_their_slices, irqs, on_their_cpus, pin, start
from tests.lab.shapes import DUO
from tests.lab.test_faults import OTHER_PLAN
from tests.lab.test_irq import reboot, reload_driver
from tests.lab.test_undo import as_before
from tests.lab.test_workloads import NAMED

SYSTEM = 'uname -rm; systemctl --version | head -n 1; python3 --version; [ -L /bin ] && echo "merged /usr" || echo "/bin is no link"'


@pytest.mark.architecture
def test_from_bind_to_unbind(lab, claims, tmp_path):
    """Small machine: bind, reboot, bind by another plan, driver load, rollback, drift by hand and unbind, while a worker runs"""
    machine, _run, before, files = lab.bound(DUO)
    system = machine.run(SYSTEM).splitlines()
    claims.true(f"the machine: {', '.join(system)}", system[0].endswith(f" {PLATFORMS[ARCHITECTURE]}"))
    plan = plan_of(machine)
    npu = plan["npus"][0]
    reboot(claims, machine)
    as_planned(claims, machine, plan)
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))
    worker = start(machine, "worker", npu["slice"], NAMED)
    names = ("python3", "acl_thread", "release_thread")

    run = lab.play(machine, "bind", npu_affinity_threads_enabled=True, **OTHER_PLAN)
    claims.equal("exit status of a bind by another plan, with threads", success(run), (0, ""))
    other = plan_of(machine)
    claims.true("it is another plan", other["npus"] != plan["npus"])
    in_their_slices(claims, machine, other, threads=True)
    placed = dict(zip(names, ({other["npus"][0][role]} for role in ("main", "acl", "release")), strict=True))
    claims.equal("CPUs of the worker's threads", allowed_of_threads(machine, worker), placed)
    on_their_cpus(claims, machine, other, reload_driver(claims, machine))

    claims.equal("exit status of the rollback", success(lab.play(machine, "rollback", npu_affinity_to="-1")), (0, ""))
    look = as_planned(claims, machine, plan)
    claims.equal("CPUs of the worker's threads", allowed_of_threads(machine, worker), {name: {npu["pool"]} for name in names})

    machine.run(f"systemctl stop npu-affinity-irq.timer && systemctl set-property --runtime {npu['slice']} AllowedCPUs=0")
    pin(machine, irqs(look["functions"][npu["pci"]], CQ), 11)
    changed = (f"NPU {npu['id']} {CQ}", f"{npu['slice']} CPUs", "npu-affinity-irq.timer")
    claims.equal("exit status and causes of drift", drift(lab, machine, tmp_path), (2, dict.fromkeys(changed, "manual change")))
    machine.run(f"systemctl revert {npu['slice']}")
    claims.equal("exit status of a bind after that", success(lab.play(machine, "bind")), (0, ""))
    claims.equal("exit status and drift after it", drift(lab, machine, tmp_path), (0, {}))
    machine.run("systemctl daemon-reload")
    as_planned(claims, machine, plan)

    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    claims.equal("CPUs of the worker's threads", allowed_of_threads(machine, worker), {name: {before["online"]} for name in names})
    machine.run("systemctl stop worker && systemctl stop npu.slice")
    as_before(claims, machine, before, files)
