# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where systemd ignores CPU sets on slices, as with cgroup v1: what running services are really allowed to use."""

import pytest

from tests.lab.conftest import changed_files, changes, drift, plan_of, said, success
from tests.lab.kernel import allowed_to, main_process, on_their_cpus, policies, run_service
from tests.lab.shapes import HYBRID, V1

EVERYTHING = "CPUAffinity=0-11\nNUMAPolicy=interleave\nNUMAMask=0-1"
"""What a service says itself, and systemd would add to ours."""
POLICIES = ["default", "interleave:0-1"]
"""Of the memory of the two services before a bind and after unbind."""
HIERARCHIES = {"v1": ["tmpfs"], "hybrid": ["tmpfs", "cgroup2fs"]}
SITE = "/etc/systemd/system/worker@1.service.d/90-site.conf"
WORKER = "import time\nheld = b'x' * (20 << 20)\nwhile True:\n    time.sleep(60)\n"


def edited_by_hand(lab, claims, folder, machine, services):
    """Claim that verify names a worker that was given other CPUs, and a drop-in of others."""
    unit = services["npu_affinity_services"][0]["unit"]
    machine.run(f"taskset --all-tasks --pid --cpu-list {machine.look()['online']} {main_process(machine, unit)}")
    status, found = drift(lab, machine, folder, **services)
    claims.true(f"after {unit} was given every CPU by hand, verify names it: {found}", any(unit in name for name in found))
    claims.equal("its exit status", status, 2)
    machine.write(SITE, "[Service]\nCPUAffinity=0-11\n")
    machine.run("systemctl daemon-reload")
    run = lab.play(machine, "verify", **services)
    claims.equal("exit status of verify with another drop-in", run.status, 2)
    claims.true(f"it names {SITE}", SITE in said(run), said(run))
    machine.run(f"rm {SITE} && systemctl daemon-reload")


@pytest.mark.suites("bullseye", "bookworm")  # Debian 13's kernel has no cpusets of cgroup v1, systemd 258 no cgroup v1
@pytest.mark.parametrize("shape", [pytest.param(V1, id="v1", marks=pytest.mark.architecture), pytest.param(HYBRID, id="hybrid")])
def test_services_without_cpusets(lab, claims, tmp_path, shape):
    """cgroup v1 machine: two named services, one with CPUs of its own, bound by CPUAffinity= and NUMAMask=, verified and unbound"""
    machine = lab.fresh(shape)
    found = machine.run("stat --file-system --format=%T /sys/fs/cgroup /sys/fs/cgroup/unified 2>/dev/null || true").split()
    claims.equal(f"{shape.about}: file systems of the hierarchies", found, HIERARCHIES[shape.name])
    units = ["worker@0.service", "worker@1.service"]
    run_service(machine, units[0], WORKER)
    run_service(machine, units[1], WORKER, EVERYTHING)
    before = {unit: main_process(machine, unit) for unit in units}
    for unit, policy in zip(units, POLICIES, strict=True):
        claims.equal(f"{unit}: memory policies", policies(machine, before[unit]), {policy})
    files, look = machine.files(), machine.look()
    services = {"npu_affinity_services": [{"unit": unit, "npus": [npu]} for npu, unit in enumerate(units)]}
    run = lab.play(machine, "bind", "-v", **services)
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.true("it says that systemd ignores CPU sets on slices", "where systemd ignores AllowedCPUs= on slices" in said(run), said(run))
    claims.true("and what waits for a restart", f"to do on {shape.name}: restart {', '.join(units)}" in said(run), said(run))
    plan = plan_of(machine)
    on_their_cpus(claims, machine, plan)
    claims.equal("processes of the services, as before", {unit: main_process(machine, unit) for unit in units}, before)
    for unit in units:
        claims.equal(f"{unit}: CPUs until then", allowed_to(machine, f"cat /proc/{before[unit]}/status")[0], look["online"])
    machine.run(f"systemctl restart {' '.join(units)}")
    for unit, npu in zip(units, plan["npus"], strict=True):
        process = main_process(machine, unit)
        claims.equal(f"{unit}: CPUs after a restart", allowed_to(machine, f"cat /proc/{process}/status")[0], npu["pool"])
        claims.equal(f"{unit}: memory policies", policies(machine, process), {f"bind:{npu['mems']}"})
    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **services), (0, {}))
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **services)), (0, []))
    if shape is V1:
        edited_by_hand(lab, claims, tmp_path, machine, services)
    run = lab.play(machine, "unbind")
    claims.equal("exit status of unbind", success(run), (0, ""))
    claims.true("it says what waits for a restart", all(unit in said(run) for unit in units), said(run))
    claims.equal("files that differ from before", changed_files(machine, files), [])
    machine.run(f"systemctl restart {' '.join(units)}")
    for unit, policy in zip(units, POLICIES, strict=True):
        process = main_process(machine, unit)
        claims.equal(f"{unit}: CPUs after a restart", allowed_to(machine, f"cat /proc/{process}/status")[0], look["online"])
        claims.equal(f"{unit}: memory policies", policies(machine, process), {policy})
