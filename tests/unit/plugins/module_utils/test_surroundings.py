# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers, chroots and virtual machines are recognized by what they show, and machines are not taken for them."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._kernel.surroundings import identity, surroundings

ROOT_CPUSET = "/sys/fs/cgroup/cpuset.cpus.effective"
LXCFS = "lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\nlxcfs /sys/devices/system/cpu/online fuse.lxcfs rw 0 0"
PARTITION = "/sys/fs/cgroup/rt.slice/cpuset.cpus"
SEEN = [
    # files, the CPUs online, the kind and what tells it; None for a machine
    ("a machine", {ROOT_CPUSET: "0-7", "/proc/1/status": "Cpus_allowed_list:\t0-31"}, "0-7", None),
    ("a manager's CPUAffinity", {ROOT_CPUSET: "0-7", "/proc/1/status": "Cpus_allowed_list:\t0-3"}, "0-7", None),
    (
        "a partition of the machine",
        {
            ROOT_CPUSET: "0-5",
            "/sys/fs/cgroup/cgroup.controllers": "cpuset",
            f"{PARTITION}.partition": "root",
            f"{PARTITION}.effective": "6-7",
        },
        "0-7",
        None,
    ),
    ("isolated CPUs", {ROOT_CPUSET: "0-5", "/sys/fs/cgroup/cpuset.cpus.isolated": "6-7"}, "0-7", None),
    ("an image", {"/proc/1/comm": None, "/.dockerenv": ""}, "0-7", None),
    ("another PID 1", {"/proc/1/comm": "python3"}, "0-7", ("container", "PID 1 is python3, not systemd")),
    ("a mark of an engine", {"/run/.containerenv": ""}, "0-7", ("container", "/run/.containerenv exists")),
    ("lxcfs", {"/proc/mounts": LXCFS}, "0-7", ("container", "lxcfs is mounted over files of /proc or /sys")),
    ("virtual CPUs", {ROOT_CPUSET: "24-31"}, "0-7", ("container", "the root cpuset has CPUs 24-31, but CPUs 0-7 are online")),
    ("virtual CPUs, v1", {"/sys/fs/cgroup/cpuset/cpuset.effective_cpus": "4-11"}, "0-7", ("container", "the root cpuset has CPUs 4-11")),
    ("--cpuset-cpus", {ROOT_CPUSET: "2-3"}, "0-7", ("container", "the root cpuset has CPUs 2-3, but CPUs 0-7 are online")),
    ("PID 1 elsewhere", {"/proc/1/status": "Cpus_allowed_list:\t24-31"}, "0-7", ("container", "PID 1 may use CPUs 24-31")),
    ("a guest", {"/sys/class/dmi/id/sys_vendor": "QEMU"}, "0-7", ("virtual machine", "its firmware calls it QEMU")),
    (
        "an instance",
        {"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "p5.48xlarge"},
        "0-7",
        ("virtual machine", ""),
    ),
    ("a metal instance", {"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "g5g.metal"}, "0-7", None),
    ("nothing known", {"/proc/1/status": "Cpus_allowed_list:\t0-7"}, "", None),
]


@pytest.mark.parametrize("files, online, expected", [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_what_a_host_is_is_told_by_what_it_shows(tree, files, online, expected):
    tree.write({path: text for path, text in {"/proc/1/comm": "systemd", **files}.items() if text is not None})
    found = surroundings(tree.host, set(expand(online)))
    if expected is None:
        assert found is None
    else:
        assert (found["kind"], expected[1] in found["why"]) == (expected[0], True)


def test_all_names_of_a_machine_have_one_identity(tree):
    assert identity(tree.host) is None
    tree.write({"/etc/machine-id": "b08dfa6083e7567a1921a715000001fb"})
    of_image = identity(tree.host)
    tree.write({"/proc/sys/kernel/random/boot_id": "1a2b3c4d-0000-4000-8000-000000000001"})
    assert identity(tree.host) not in (None, of_image), "machines from one image have one machine id"
