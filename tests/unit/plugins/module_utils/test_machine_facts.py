# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._kernel import machine


@pytest.mark.parametrize(
    "story, files, expected",
    [
        ("nothing", {}, (None, None, None, None, None)),
        (
            "a server",
            {
                "/proc/sys/kernel/arch": "aarch64",
                "/proc/sys/kernel/osrelease": "5.10.0-1.aarch64",
                "/sys/class/dmi/id/product_name": "Atlas 800I A2 ",
                "/usr/lib64/systemd/libsystemd-shared-249-9.so": "",
                "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu",
            },
            ("aarch64", "5.10.0-1.aarch64", "Atlas 800I A2", 249, "v2"),
        ),
        (
            "another one",
            {
                "/proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel",
                "/proc/device-tree/model": "Model S\0",
                "/usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so": "",
                "/sys/fs/cgroup/unified/cgroup.controllers": "",
                "/sys/fs/cgroup/cpuset": None,
            },
            ("x86_64", None, "Model S", 257, "hybrid"),
        ),
        ("an older one", {"/proc/cpuinfo": "CPU implementer : 0x48", "/sys/fs/cgroup/cpuset": None}, ("aarch64", None, None, None, "v1")),
    ],
)
def test_the_kind_of_machine(tree, story, files, expected):
    found = machine.machine(tree.write(files))
    assert tuple(found[key] for key in ("architecture", "kernel", "product", "systemd", "cgroup")) == expected, story


V2 = "/sys/fs/cgroup/cgroup.controllers"
SYSTEMD = "/usr/lib/systemd/libsystemd-shared-%d.so"


@pytest.mark.parametrize(
    "story, files, cpusets, sets_cpus",
    [
        ("v2 with the controller", {V2: "cpu cpuset io", SYSTEMD % 244: ""}, True, True),
        ("v2 without it", {V2: "cpu io memory pids", SYSTEMD % 249: ""}, False, False),
        ("v2 without any", {V2: "", SYSTEMD % 249: ""}, False, False),
        ("an old systemd", {V2: "cpuset cpu", SYSTEMD % 243: ""}, True, False),
        ("v2, systemd unknown", {V2: "cpuset cpu"}, True, True),
        ("v1", {"/sys/fs/cgroup/cpuset": None, SYSTEMD % 249: ""}, None, False),
    ],
)
def test_systemd_sets_cpus_only_with_the_cpuset_controller(tree, story, files, cpusets, sets_cpus):
    found = machine.machine(tree.write(files))
    assert (found["cpusets"], machine.sets_cpus(found)) == (cpusets, sets_cpus), story
