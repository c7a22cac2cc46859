# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of CPUs that the kernel command line, a cpuset partition or interrupts of other devices take."""

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.conflicts import command_line, interrupts, isolation

PLAN = {
    "housekeeping": "0-1",
    "npus": [
        {"kind": "npu", "id": 0, "pool": "2-7", "irq": "2-3"},
        {"kind": "npu", "id": 1, "pool": "8-13", "irq": "8-9"},
        {"kind": "gpu", "id": 0, "pool": "14-17"},
        {"kind": "npu", "id": 9, "pool": ""},
    ],
}
EXCLUDING = {**PLAN, "options": {"exclude_isolated": True}}
FIT = "A kernel command line that fits this plan has "


def host(isolated="", online="0-19", **words):
    return {"cpus": {"online": online, "isolated": isolated}, "isolation": words}


def partition(group, kind="isolated", valid=True, cpus="4-7"):
    return host(partitions=[{"group": group, "kind": kind, "valid": valid, "cpus": cpus}])


TAKEN = (
    "cgroup %s is a cpuset partition (%s) with CPUs 4-7 of NPU 0. The kernel grants them to no other cgroup, so the pools lose them. Write "
    "member to its cpuset.cpus.partition, or exclude these CPUs with npu_affinity_cpus."
)
NO_POOLS = {"npus": [], "housekeeping": "0-1"}
HOSTS = {
    "nothing": host(),
    "an old record": {"cpus": {"online": "0-19"}},
    "whole pools": host("2-13"),
    "housekeeping, which the plan reports": host("0-1"),
    "in no pool": host("18-19"),
    "parts of pools": host("6-9"),
    "nohz_full": host(nohz_full="1-19"),
    "nohz_full of pools": host(nohz_full="2-19"),
    "rcu_nocbs": host(rcu_nocbs="1,4-7,10-17"),
    "rcu_nocbs of parts of pools": host(rcu_nocbs="4-5,8-15"),
    "rcu_nocbs that nohz_full completes": host(rcu_nocbs="4-5,8-17", nohz_full="6-7"),
    "rcu_nocbs that fits": host(rcu_nocbs="4-7,10-17"),
    "irqaffinity": host(irqaffinity="0-3"),
    "irqaffinity that fits": host(irqaffinity="0-3,8-9"),
    "managed interrupts alone": host(isolcpus="2-17", flags=["managed_irq"]),
    "a partition of others": partition("kubepods.slice"),
    "a partition with a scheduler": partition("user.slice", "root"),
    "a name to fool terminals": partition("a\x1b[2J", "root"),
    "a slice of an NPU": partition("npu.slice/npu-0.slice", cpus="2-7"),
    "a slice of an NPU with a scheduler": partition("npu.slice", "root"),
    "one that is not granted": partition("user.slice", valid=False),
    "a partition next to the pools": partition("user.slice", cpus="0-1"),
}
SAID = {
    "in no pool": "CPUs 18-19 are isolated from the scheduler and in no pool. Only threads that are pinned there run on them. Remove "
    "them from isolcpus if nothing else needs them.",
    "parts of pools": "Pools of NPU 0-1 are only partly isolated from the scheduler: CPUs 2-5,10-13 are not. Threads stay on these "
    "unless they are pinned. Isolate whole pools, or none of their CPUs.",
    "nohz_full": "nohz_full on the kernel command line includes CPUs 1, which are kept for the system. System calls and interrupts cost "
    "more there, and the kernel runs its own work on other CPUs. Leave them out of nohz_full.",
    "rcu_nocbs": "rcu_nocbs on the kernel command line includes CPUs 1, which are kept for the system. RCU callbacks of these CPUs run "
    "in kernel threads, which cost more and spare no pool. Leave them out of rcu_nocbs.",
    "rcu_nocbs of parts of pools": "rcu_nocbs on the kernel command line has only a part of the pools of NPU 0 and GPU 0: RCU callbacks "
    "still run on CPUs 6-7,16-17. Add these CPUs to rcu_nocbs, or remove the others.",
    "irqaffinity": "irqaffinity on the kernel command line excludes CPUs 8-9, to which the plan binds interrupts of NPU 1. New "
    "interrupts run on CPUs 0-3 until they are bound. Add these CPUs to irqaffinity.",
    "a partition of others": TAKEN % ("kubepods.slice", "isolated"),
    "a partition with a scheduler": TAKEN % ("user.slice", "root"),
    "a name to fool terminals": TAKEN % (r"a\x1b[2J", "root"),
    "a slice of an NPU": "cgroup npu.slice/npu-0.slice is an isolated cpuset partition with CPUs 2-7 of NPU 0, where threads do not "
    "spread over the CPUs by themselves. Write root or member to its cpuset.cpus.partition, unless every thread is pinned.",
    "one that is not granted": "cgroup user.slice asks to be a cpuset partition with CPUs 4-7 of NPU 0, which the kernel does not grant "
    "now. Check its cpuset.",
}


@pytest.mark.parametrize("name", HOSTS)
def test_contradictions_are_reported(name):
    assert list(isolation(HOSTS[name], PLAN)) == ([SAID[name]] if name in SAID else [])


def test_the_fitting_command_line_has_costs():
    expected = ["isolcpus=managed_irq,2-17: ", "nohz_full=4-7,10-17: ", "rcu_nocbs=4-7,10-17: ", "irqaffinity=0-3,8-9,18-19: "]
    lines = command_line(host(), PLAN)
    assert [line[: len(FIT + words)] for line, words in zip(lines, expected, strict=True)] == [FIT + words for words in expected]
    assert all(" Cost: " in line for line in lines)
    assert command_line(host(), {"npus": []}) == []
    assert command_line(host(online="2-17"), PLAN) == [
        "No kernel command line fits this plan, because its pools hold all online CPUs and the kernel needs others for its own work. "
        "Keep some with npu_affinity_housekeeping."
    ]


def test_what_is_explained_or_excluded_contradicts_nothing():
    fitting = host(isolcpus="2-17", flags=["managed_irq"], nohz_full="4-7,10-17", rcu_nocbs="4-7,10-17", irqaffinity="0-3,8-9,18-19")
    assert list(isolation(fitting, PLAN)) == []
    for topology, plan in ((host("18-19"), EXCLUDING), (host("18-19", nohz_full="0-19"), NO_POOLS)):
        assert list(isolation(topology, plan)) == []


NEIGHBOURS = {
    "npus": [
        *({"kind": "npu", "id": npu, "pool": f"{8 * npu}-{8 * npu + 7}"} for npu in range(4)),
        {"kind": "gpu", "id": 0, "pool": "32-39"},
        {"kind": "npu", "id": 9, "pool": ""},
    ]
}
NIC = {"pci": "0000:7d:00.0", "name": "eth0", "driver": "hns3", "numa": 0, "irqs": 64, "shared": {}, "single": []}
NAMELESS = {"name": NIC["pci"], "driver": "", "numa": None}
ABOUT = "eth0 (hns3, 0000:7d:00.0, node 0): "
DEVICES = [
    ("a queue for each CPU", {"single": ["0-15,40-87"]}, ABOUT + "16 of 64 interrupts may run on pool CPUs of NPU 0-1."),
    ("queues that share CPUs", {"single": ["0-31", "0-31"]}, ABOUT + "64 of 64 interrupts may run on pool CPUs of NPU 0-3."),
    ("anywhere", {"shared": {"0-47": 63, "40": 1}}, ABOUT + "63 of 64 interrupts may run on pool CPUs of NPU 0-3 and GPU 0."),
    ("on no pool", {"shared": {"40-47": 32}, "single": ["40-71"]}, None),
    ("nothing known of it", {**NAMELESS, "shared": {"39-40": 64}}, "0000:7d:00.0: 64 of 64 interrupts may run on pool CPUs of GPU 0."),
    ("a bad name", {"name": "e\x1b[2J", "single": ["0"]}, r"e\x1b[2J" + ABOUT[4:] + "1 of 64 interrupts may run on pool CPUs of NPU 0."),
]


@pytest.mark.parametrize("change, expected", [row[1:] for row in DEVICES], ids=[row[0] for row in DEVICES])
def test_interrupts_on_pools_are_counted(change, expected):
    assert interrupts({"others": [{**NIC, **change}]}, NEIGHBOURS) == ([expected] if expected else [])


def test_only_the_devices_with_most_interrupts_have_a_line():
    disks = [{**NIC, "name": f"nvme{number}", "irqs": number, "shared": {"0-39": number}} for number in range(1, 8)]
    lines = interrupts({"others": disks}, NEIGHBOURS)
    assert [sentence.split()[0] for sentence in lines[:-1]] == ["nvme7", "nvme6", "nvme5", "nvme4"]
    assert lines[-1] == "3 more devices have 6 interrupts that may run on pool CPUs."
    assert interrupts({"others": [{**NIC, "single": ["0-15"]}]}, NEIGHBOURS, {NIC["pci"]}) == [], "which the plan places"
    assert interrupts({}, NEIGHBOURS) == interrupts({"others": disks}, {"npus": []}) == []
