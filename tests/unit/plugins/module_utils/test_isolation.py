# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's topology has of CPUs that the kernel command line or a cpuset partition sets apart."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._kernel.isolation import isolation
from tests.fakes.systemd import ModelledSystemd

CPU = "/sys/devices/system/cpu/"
GROUPS = "/sys/fs/cgroup/"
V2 = {GROUPS + "cgroup.controllers": "cpuset cpu"}


def booted(words, **files):
    return {"/proc/cmdline": "root=/dev/sda2 " + words, CPU + "possible": "0-15", **{CPU + name: text for name, text in files.items()}}


def group(name, partition, cpus="4-7", effective="4-7"):
    files = {"cpuset.cpus.partition": partition, "cpuset.cpus": cpus, "cpuset.cpus.effective": effective}
    return {f"{GROUPS}{name}/{file}": text for file, text in files.items()}


def partition(name, kind="isolated", valid=True, cpus="4-7"):
    return {"partitions": [{"group": name, "kind": kind, "valid": valid, "cpus": cpus}]}


HOSTS = {
    "nothing": (booted("quiet"), {}),
    "no files": ({}, {}),
    "isolcpus": (booted("isolcpus=2-5,8"), {"isolcpus": "2-5,8", "flags": ["domain"]}),
    "isolcpus with flags": (booted("isolcpus=nohz,managed_irq,2-5"), {"isolcpus": "2-5", "flags": ["managed_irq", "nohz"]}),
    "isolcpus of all but the first": (booted("isolcpus=domain,1-N"), {"isolcpus": "1-15", "flags": ["domain"]}),
    "every second CPU": (booted("rcu_nocbs=0-7:1/2"), {"rcu_nocbs": "0,2,4,6"}),
    "all": (booted("rcu_nocbs=all irqaffinity=0-1"), {"rcu_nocbs": "0-15", "irqaffinity": "0-1"}),
    "CPUs that are not there": (booted("irqaffinity=14-99"), {"irqaffinity": "14-15"}),
    "the last one counts": (booted("irqaffinity=0 irqaffinity=1"), {"irqaffinity": "1"}),
    "a parameter in quotes": (booted('"isolcpus=2-3"'), {"isolcpus": "2-3", "flags": ["domain"]}),
    "a value in quotes": (booted('isolcpus="nohz,2-3" quiet'), {"isolcpus": "2-3", "flags": ["nohz"]}),
    "a blank in quotes": (booted('a="b isolcpus=2-3" "c irqaffinity=1'), {}),
    "a parameter of another name": (booted("xisolcpus=1 my.nohz_full=1"), {}),
    "nohz_full as the kernel has it": (booted("nohz_full=0-15", nohz_full="1-15"), {"nohz_full": "1-15"}),
    "nohz_full that the kernel did not take": (booted("nohz_full=0-15", nohz_full="(null)"), {}),
    "nohz_full of a record without the file": (booted("nohz_full=2-3"), {"nohz_full": "2-3"}),
    "members": ({**V2, **group("system.slice", "member")}, {}),
    "an isolated partition": ({**V2, **group("kubepods", "isolated")}, partition("kubepods")),
    "a partition of root, cut": ({**V2, **group("user.slice", "root", "4-9")}, partition("user.slice", "root")),
    "one that is not granted": (
        {**V2, **group("user.slice", "isolated invalid (Cpu list in cpuset.cpus not exclusive)", "4-9")},
        partition("user.slice", valid=False, cpus="4-9"),
    ),
    "a slice of an NPU": ({**V2, **group("npu.slice/npu-0.slice", "isolated")}, partition("npu.slice/npu-0.slice")),
    "further down": ({**V2, **group("system.slice/a.service", "isolated")}, {}),
    "a word of a newer kernel": ({**V2, **group("user.slice", "\x1b[2J")}, {}),
    "cgroup v1": (group("user.slice", "isolated"), {}),
}


@pytest.mark.parametrize("files, expected", HOSTS.values(), ids=HOSTS)
def test_isolation_of_a_host(tree, files, expected):
    problems = []
    assert (isolation(tree.write(files), problems), problems) == (expected, [])


def test_a_kernel_without_nohz_full_ignores_it(tmp_path):
    host = ModelledSystemd(str(tmp_path))
    for path, text in booted("nohz_full=2-3 isolcpus=2").items():
        host.put("/" + path.lstrip("/"), text)
    assert isolation(host, []) == {"flags": ["domain"], "isolcpus": "2"}


@pytest.mark.parametrize("word", ["isolcpus=a-b", "irqaffinity=3-1", "irqaffinity=00ff", "rcu_nocbs=,", "isolcpus=0-99999999"])
def test_a_value_that_names_no_cpus_leaves_the_others(tree, word):
    problems, others = [], "nohz_full=2-3" + (" irqaffinity=0" if word.startswith("isolcpus") else " isolcpus=2")
    files = {**booted(f"{others} {word}"), **V2, **group("kubepods", "isolated")}
    found = isolation(tree.write(files), problems)
    expected = {"irqaffinity": "0"} if word.startswith("isolcpus") else {"isolcpus": "2", "flags": ["domain"]}
    assert found == {"nohz_full": "2-3", **expected, **partition("kubepods")}
    assert len(problems) == 1 and f"{word.partition('=')[0]} of /proc/cmdline" in problems[0]


def test_a_partition_without_a_cpulist_leaves_the_others(tree):
    problems, files = [], {**V2, **group("a.slice", "isolated", effective="x"), **group("b.slice", "isolated")}
    assert isolation(tree.write(files), problems) == partition("b.slice") and "a.slice" in problems[0]


def test_many_groups_are_not_all_read(tree):
    files = V2.copy()
    for number in range(100):
        files.update(group(f"box{number:03}", "isolated"))
    assert len(isolation(tree.write(files), [])["partitions"]) == 64
