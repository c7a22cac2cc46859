# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work inside its pool that has fewer CPUs than its role, or other memory, and who is to blame."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Device
from ansible_collections.npu.affinity.plugins.module_utils._drift.placement import Judge
from ansible_collections.npu.affinity.plugins.module_utils._users import finding
from ansible_collections.npu.affinity.plugins.module_utils._users.pools import sentence
from tests.fakes.work import CGROUPS, DOCKER, SERVICE, SESSION, plan_of, user, working
from tests.fakes.workers import npu

PLAN = {"npus": [npu(0, 0, pool="0-7", irq="0", main="1-5", acl="6", release="7", memory_nodes="0-1")]}
UNIT = "/etc/systemd/system/outside.service"
TUNED = "/etc/systemd/system.conf.d/00-tuned.conf"
OF_MANAGER = {"/etc/systemd/system.conf": "[Manager]\nCPUAffinity=0-3"}
BY_SHIM = {
    "/proc/50/comm": "containerd-shim",
    "/proc/50/status": "Cpus_allowed_list:\t0-3\n",
    "/proc/50/stat": "50 (shim) S 1",
    "/proc/100/stat": "100 (x) S 50",
}
OF_DOCKER = {"/proc/50/cgroup": "0::/system.slice/docker.service", "/etc/systemd/system/docker.service": "[Service]\nCPUAffinity=0-3"}
OF_TUNED = {"/etc/tuned/active_profile": "realtime", "/etc/tuned/realtime-variables.conf": "isolated_cores=4-7"}
CAUSES = {
    "TuneD's file for systemd": ({TUNED: "[Manager]\nCPUAffinity=0-1\nCPUAffinity=2-3\n"}, TUNED + " says CPUAffinity=2-3"),
    "systemd's own file": (OF_MANAGER, "/etc/systemd/system.conf says CPUAffinity=0-3"),
    "the kernel command line": ({"/proc/cmdline": "quiet systemd.cpu_affinity=0-3"}, "/proc/cmdline has systemd.cpu_affinity=0-3"),
    "systemd": ({"/proc/1/status": "Cpus_allowed_list:\t0-3\n", "/proc/100/stat": "100 (x) S 1"}, "systemd itself (process 1)"),
    "the unit": ({UNIT: "[Service]\nCPUAffinity=0-3"}, UNIT + " says CPUAffinity=0-3"),
    "an engine's service": ({**BY_SHIM, **OF_DOCKER}, "/etc/systemd/system/docker.service says CPUAffinity=0-3"),
    "a runtime": (BY_SHIM, "containerd-shim (process 50), whose mask runc before 1.2.7"),
    "TuneD": (OF_TUNED, "TuneD's profile realtime takes running threads off its isolated CPUs"),
    "a launcher": ({**BY_SHIM, "/proc/50/comm": "numactl"}, "numactl (process 50) started it with this mask"),
    "a program of the table": ({"/proc/100/environ": "SGLANG_SET_CPU_AFFINITY=1\0"}, "SGLang"),
    "the program": ({"/etc/systemd/system.conf": "[Manager]\nCPUAffinity=0-1"}, "the program itself"),
}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return working(tmp_path, monkeypatch)


def judged(machine, group=SERVICE, **options):
    return Judge(machine, PLAN, **options).confined(user(machine, group, 0))


@pytest.mark.parametrize("files, why", CAUSES.values(), ids=CAUSES)
def test_the_cause_of_a_narrow_mask_is_named(machine, files, why):
    machine.process(100, SERVICE, ("0-3",))
    machine.lay(files)
    found = judged(machine)
    assert found["cause"].startswith(why) and (found["cpus"], found["pool"], found["pids"]) == ("0-3", "0-7", [100])
    assert sentence([found]).startswith("1 NPU process is not placed as planned: outside.service (pid 100, NPU 0) on CPUs 0-3, pool 0-7 (")
    assert found["next"]


GRANTS = {
    "a group around it": ({"/system.slice": "0-3"}, "its group /sys/fs/cgroup/system.slice grants no others"),
    "its own group": ({SERVICE: "0-3"}, "its group /sys/fs/cgroup/system.slice/outside.service grants no others"),
    "the root": ({"": "0-3", "/system.slice": "0-3"}, "the root's effective cpuset (/sys/fs/cgroup) has no others"),
}


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "v2"])
@pytest.mark.parametrize("sets, why", GRANTS.values(), ids=GRANTS)
def test_a_narrow_cpuset_is_named(machine, sets, why, v1):
    machine.process(100, SERVICE, ("0-3",))
    machine.lay({CGROUPS + folder + "/cpuset.cpus.effective": cpus for folder, cpus in sets.items()})
    machine.lay({CGROUPS + "/cpuset" + folder + "/cpuset.effective_cpus": cpus for folder, cpus in sets.items()})
    machine.lay({"/proc/100/cgroup": "4:cpuset:%s\n1:name=systemd:%s\n" % (SERVICE, SERVICE)} if v1 else {})
    assert judged(machine)["cause"].startswith(why.replace(CGROUPS, CGROUPS + "/cpuset") if v1 else why)


RIGHT = {
    "all of the pool": ("0-7", "worker", {}),
    "its role": ("1-5", "worker", {}),
    "the CPU of a role by name": ("6", "acl_thread", {}),
    "a name that is left alone": ("3", "uvb_poll_window", {}),
    "its part of the pool, a vNPU": ("2-3", "worker", {"expected": {"outside.service": {2, 3}}}),
    "a pattern of the settings": ("6", "mine", {"patterns": {"acl": ["mine"]}}),
}


@pytest.mark.parametrize("mask, name, options", RIGHT.values(), ids=RIGHT)
def test_a_thread_with_the_cpus_of_its_role_is_right(machine, mask, name, options):
    machine.process(100, SERVICE, (None, mask))
    machine.put("/proc/100/task/101/comm", name)
    for cpus, is_right in ((mask, True), ("3", name != "worker")):
        machine.set_affinity(101, expand(cpus))
        assert (judged(machine, **options) is None) == is_right


def test_a_role_whose_patterns_are_null_has_the_usual_ones(machine):
    machine.process(100, SERVICE, (None, "6"))
    machine.put("/proc/100/task/101/comm", "acl_thread")
    judge = Judge.of(machine, PLAN, [], {"threads": {"patterns": {"acl": None, "kv": ["mine"]}}})
    assert judge.confined(user(machine, SERVICE, 0)) is None


POLICIES = {
    "strict on one of two nodes": ("bind:0", "its memory policy is bind:0, and the plan has memory nodes 0-1"),
    "another node": ("prefer:2", "its memory policy is prefer:2"),
    "several preferred": ("prefer (many):0,2", "its memory policy is prefer (many):0,2"),
    "one of them preferred": ("prefer:1", None),
    "strict on all": ("bind:0-1", None),
    "none": ("default", None),
}


@pytest.mark.parametrize("policy, why", POLICIES.values(), ids=POLICIES)
def test_a_memory_policy_against_the_plan_is_named(machine, policy, why):
    machine.process(100, DOCKER)
    machine.put("/proc/100/numa_maps", "55d0a2 %s file=/usr/bin/python3 mapped=1 N0=1\n55d0a3 bind:7 anon=1\n" % policy)
    found = judged(machine, DOCKER)
    assert found["cause"].startswith(why) if why else found is None
    machine.put("/proc/100/environ", "SGLANG_SET_CPU_AFFINITY=1\0")
    found = judged(machine, DOCKER)
    assert "started with SGLANG_SET_CPU_AFFINITY=1)" in found["cause"] if why else found is None


def test_work_of_many_is_judged_process_by_process(machine, monkeypatch):
    """Two processes of one session, each in the pool of the other's NPU."""
    monkeypatch.setattr(finding, "owners", lambda host, npus: {"davinci%d" % number: Device("npu", number, "") for number in (0, 1)})
    machine.process(300, SESSION, ("4-7",))
    machine.process(310, SESSION, ("0-3",))
    found = user(machine, SESSION, 0, 1)
    for number, process in enumerate(found["processes"]):
        process["devices"] = ["davinci%d" % number]
    placed = Judge(machine, plan_of("0-3", "4-7")).placement([found])
    assert [(one["pids"], one["cpus"], one["pool"]) for one in placed.outside] == [([300], "4-7", "0-3"), ([310], "0-3", "4-7")]
