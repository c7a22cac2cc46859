# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile sets reaches the process of a service, comes back at boot, and is removed by unbind."""

from __future__ import annotations

from tests.lab.conftest import changes, drift, plan_of, said, success
from tests.lab.kernel import allowed_to, main_process, numbers, variables
from tests.lab.shapes import DUO

UNIT = "infer.service"
SERVICE = "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n"
SETTINGS = {"npu_affinity_profile": "latency", "npu_affinity_services": [{"unit": UNIT, "npus": [0]}]}
NAMES = ("OMP_", "TASK_QUEUE_ENABLE", "LD_PRELOAD")


def test_a_profile_holds_until_unbind(lab, claims, tmp_path):
    """Small machine: variables and CPUs of a service by a profile, after a reboot, and after unbind"""
    machine = lab.bound(DUO).machine
    machine.write(f"/etc/systemd/system/{UNIT}", SERVICE)
    machine.run(f"systemctl daemon-reload && systemctl enable --now {UNIT}")
    claims.equal("its variables before", variables(machine, UNIT, NAMES), {})
    run = lab.play(machine, "bind", **SETTINGS)
    claims.equal("exit status of bind", success(run), (0, ""))
    claims.true("an allocator that is not installed is a remark", "neither jemalloc nor tcmalloc" in said(run), said(run))
    machine.run(f"systemctl restart {UNIT}")
    pool, main = (plan_of(machine)["npus"][0][name] for name in ("pool", "main"))
    found = variables(machine, UNIT, NAMES)
    threads = int(found.get("OMP_NUM_THREADS", "0"))
    claims.true(f"OpenMP has {threads} threads on pool {pool}", 0 < threads <= len(numbers(pool)))
    claims.equal("its variables", found, {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "false", "TASK_QUEUE_ENABLE": "1"})
    claims.equal("exit status and changes of a second bind", changes(lab.play(machine, "bind", **SETTINGS)), (0, []))
    claims.equal("exit status and drift", drift(lab, machine, tmp_path, **SETTINGS), (0, {}))

    machine.reboot()
    machine.await_idle("npu-affinity-*.service")
    claims.equal("its variables after a reboot", variables(machine, UNIT, NAMES), found)
    machine.run(f"for _ in $(seq 100); do taskset -pc {main_process(machine, UNIT)} | grep -q ': {main}$' && break; sleep 0.2; done")
    claims.equal("CPUs of its main thread", allowed_to(machine, f"cat /proc/{main_process(machine, UNIT)}/status")[0], main)
    claims.equal("exit status of unbind", success(lab.play(machine, "unbind")), (0, ""))
    machine.run(f"systemctl restart {UNIT}")
    claims.equal("its variables after unbind", variables(machine, UNIT, NAMES), {})
