# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan says of CPUs that the kernel command line or a cpuset partition sets apart."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._desired.isolation import explained, remarks

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


def host(isolated="", online="0-19", **isolation):
    return {"cpus": {"online": online, "isolated": isolated}, "isolation": isolation}


def partition(group, kind="isolated", valid=True, cpus="4-7"):
    return host(partitions=[{"group": group, "kind": kind, "valid": valid, "cpus": cpus}])


TAKEN = (
    "cgroup %s is a cpuset partition (%s) with CPUs 4-7 of NPU 0. The kernel grants them to no other cgroup, so the pools lose them. Write "
    "member to its cpuset.cpus.partition, or exclude these CPUs with npu_affinity_cpus."
)
HOSTS = [
    ("nothing", host(), None),
    ("an old record", {"cpus": {"online": "0-19"}}, None),
    ("whole pools", host("2-13"), None),
    ("housekeeping, which the plan reports", host("0-1"), None),
    (
        "in no pool",
        host("18-19"),
        "CPUs 18-19 are isolated from the scheduler and in no pool. Only threads that are pinned there run on them. Remove them from "
        "isolcpus if nothing else needs them.",
    ),
    (
        "parts of pools",
        host("6-9"),
        "Pools of NPU 0-1 are only partly isolated from the scheduler: CPUs 2-5,10-13 are not. Threads stay on these unless they are "
        "pinned. Isolate whole pools, or none of their CPUs.",
    ),
    (
        "nohz_full",
        host(nohz_full="1-19"),
        "nohz_full on the kernel command line includes CPUs 1, which are kept for the system. System calls and interrupts cost more there, "
        "and the kernel runs its own work on other CPUs. Leave them out of nohz_full.",
    ),
    ("nohz_full of pools", host(nohz_full="2-19"), None),
    (
        "rcu_nocbs",
        host(rcu_nocbs="1,4-7,10-17"),
        "rcu_nocbs on the kernel command line includes CPUs 1, which are kept for the system. RCU callbacks of these CPUs run in kernel "
        "threads, which cost more and spare no pool. Leave them out of rcu_nocbs.",
    ),
    (
        "rcu_nocbs of parts of pools",
        host(rcu_nocbs="4-5,8-15"),
        "rcu_nocbs on the kernel command line has only a part of the pools of NPU 0 and GPU 0: RCU callbacks still run on CPUs "
        "6-7,16-17. Add these CPUs to rcu_nocbs, or remove the others.",
    ),
    ("rcu_nocbs that nohz_full completes", host(rcu_nocbs="4-5,8-17", nohz_full="6-7"), None),
    ("rcu_nocbs that fits", host(rcu_nocbs="4-7,10-17"), None),
    (
        "irqaffinity",
        host(irqaffinity="0-3"),
        "irqaffinity on the kernel command line excludes CPUs 8-9, to which the plan binds interrupts of NPU 1. New interrupts run on CPUs "
        "0-3 until they are bound. Add these CPUs to irqaffinity.",
    ),
    ("irqaffinity that fits", host(irqaffinity="0-3,8-9"), None),
    ("managed interrupts alone", host(isolcpus="2-17", flags=["managed_irq"]), None),
    ("a partition of others", partition("kubepods.slice"), TAKEN % ("kubepods.slice", "isolated")),
    ("a partition with a scheduler", partition("user.slice", "root"), TAKEN % ("user.slice", "root")),
    ("a name to fool terminals", partition("a\x1b[2J", "root"), TAKEN % (r"a\x1b[2J", "root")),
    (
        "a slice of an NPU",
        partition("npu.slice/npu-0.slice", cpus="2-7"),
        "cgroup npu.slice/npu-0.slice is an isolated cpuset partition with CPUs 2-7 of NPU 0, where threads do not spread over the CPUs by "
        "themselves. Write root or member to its cpuset.cpus.partition, unless every thread is pinned.",
    ),
    ("a slice of an NPU with a scheduler", partition("npu.slice", "root"), None),
    (
        "one that is not granted",
        partition("user.slice", valid=False),
        "cgroup user.slice asks to be a cpuset partition with CPUs 4-7 of NPU 0, which the kernel does not grant now. Check its cpuset.",
    ),
    ("a partition next to the pools", partition("user.slice", cpus="0-1"), None),
]


@pytest.mark.parametrize("topology, expected", [row[1:] for row in HOSTS], ids=[row[0] for row in HOSTS])
def test_contradictions_are_reported(topology, expected):
    assert list(remarks(topology, PLAN)) == ([expected] if expected else [])


def test_excluded_cpus_and_hosts_without_pools_have_no_remark():
    assert list(remarks(host("18-19"), EXCLUDING)) == []
    assert list(remarks(host("18-19", nohz_full="0-19"), {"npus": [], "housekeeping": "0-1"})) == []


def test_the_fitting_command_line_has_costs():
    expected = ["isolcpus=managed_irq,2-17: ", "nohz_full=4-7,10-17: ", "rcu_nocbs=4-7,10-17: ", "irqaffinity=0-3,8-9,18-19: "]
    found = explained(host(), PLAN)
    assert [line[: len(FIT + words)] for line, words in zip(found, expected, strict=True)] == [FIT + words for words in expected]
    assert all(" Cost: " in line for line in found)
    assert explained(host(), {"npus": []}) == []
    assert explained(host(online="2-17"), PLAN) == [
        "No kernel command line fits this plan, because its pools hold all online CPUs and the kernel needs others for its own work. "
        "Keep some with npu_affinity_housekeeping."
    ]


def test_what_is_explained_contradicts_nothing():
    fitting = host(isolcpus="2-17", flags=["managed_irq"], nohz_full="4-7,10-17", rcu_nocbs="4-7,10-17", irqaffinity="0-3,8-9,18-19")
    assert list(remarks(fitting, PLAN)) == []
