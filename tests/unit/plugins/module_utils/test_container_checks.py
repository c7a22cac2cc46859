# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container sets work, and what is left of those that do less than asked."""

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._launch.launching import check

STATIC = {"policy": "static", "reservedSystemCPUs": "0-7"}
SLICED = {"binding": "global_slice", "total_npus": 2}
VERDICTS = [
    ("a slice", {"cgroup_parent": "npu-3.slice"}, True, ""),
    ("the root slice", {"cgroup_parent": "-.slice"}, True, ""),
    ("no slice", {"cgroup_parent": "npu3"}, False, "should be a valid slice"),
    ("too short", {"cgroup_parent": ".slice"}, False, "should be a valid slice"),
    ("a path", {"cgroup_parent": "npu.slice/npu-3.slice"}, False, "invalid slice name: npu.slice/npu-3.slice"),
    ("an empty part", {"cgroup_parent": "npu--3.slice"}, False, "invalid slice name"),
    ("a blank", {"cgroup_parent": "npu 3.slice"}, False, "invalid slice name"),
    ("a slice for cgroupfs", {"cgroup_parent": "npu-3.slice", "driver": "cgroupfs"}, False, "takes a path"),
    ("a path for cgroupfs", {"cgroup_parent": "/npu.slice/npu-3.slice", "driver": "cgroupfs"}, True, ""),
    ("CPUs that exist", {"container_cpus": "2-3", "host_cpus": "0-3"}, True, ""),
    ("CPUs that do not exist", {"container_cpus": "2-4", "host_cpus": "0-3"}, False, "requested 2-4, available: 0-3"),
    ("outside the slice, v1", {"container_cpus": "6-9", "slice_cpus": "0-7", "cgroup": 1}, False, "permission denied: CPUs 8-9"),
    ("hybrid is v1", {"container_cpus": "6-9", "slice_cpus": "0-7", "cgroup": "hybrid"}, False, "permission denied"),
    ("inside the slice, v1", {"container_cpus": "6-7", "slice_cpus": "0-7", "cgroup": "v1"}, True, ""),
    ("reserved", {"kubelet": STATIC, "slice_cpus": "4-7"}, True, ""),
    ("not reserved", {"kubelet": STATIC, "slice_cpus": "6-9"}, False, "hands out CPUs 8-9; reservedSystemCPUs, now 0-7, must cover"),
    ("nothing reserved", {"kubelet": {"policy": "static", "reservedSystemCPUs": ""}, "slice_cpus": "6"}, False, "now (none)"),
    ("reservation unknown", {"kubelet": {"policy": "static"}, "slice_cpus": "4-7"}, "warn", "reservedSystemCPUs cover 4-7"),
    ("taken by a pod", {"kubelet": {"policy": "static", "exclusive": {"a/b": "7-8"}}, "slice_cpus": "4-7"}, False, "CPUs 7 to container"),
    ("pods float", {"kubelet": {"policy": "none"}, "slice_cpus": "4-7"}, "warn", "pods float"),
    ("no kubelet", {"kubelet": {}, "slice_cpus": "4-7"}, True, ""),
    ("4 CPUs for each", {**SLICED, "container_cpus": "0-8"}, False, "Need at least 10 CPUs in cpuset"),
    ("5 CPUs for each", {**SLICED, "container_cpus": "0-9"}, True, ""),
    ("by affinity", {"binding": "topo_affinity", "container_cpus": "0-9", "total_npus": 2}, "warn", "affinity of all listed NPUs"),
    ("binding counts what the slice leaves", {**SLICED, "container_cpus": "0-9", "slice_cpus": "0-7"}, False, "total_allowed=8"),
    ("the worst of two", {"cgroup_parent": "npu3", "kubelet": {"policy": "none"}, "slice_cpus": "0"}, False, "should be a valid slice"),
    ("a warning beats nothing", {"cgroup_parent": "a.slice", "kubelet": {"policy": "none"}, "slice_cpus": "0"}, "warn", "pods float"),
]


@pytest.mark.parametrize("statement, ok, message", [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS])
def test_verdict(statement, ok, message):
    verdict = check(**statement)
    assert verdict.ok == ok
    assert verdict.message == "" if ok is True else message in verdict.message


@pytest.mark.parametrize(
    "container_cpus, slice_cpus, effective",
    [("", "0-7", "0-7"), ("2,1", "0-7", "1-2"), ("6-9", "0-7", "6-7"), ("8-9", "0-7", "0-7"), ("8-9", None, "8-9"), ("", None, None)],
)
def test_effective_cpus_on_cgroup_v2(container_cpus, slice_cpus, effective):
    verdict = check(container_cpus=container_cpus, slice_cpus=slice_cpus)
    assert (verdict.ok, verdict.effective) == (True, effective)
    assert bool(verdict.message) == (slice_cpus is not None and "9" in container_cpus)


@pytest.mark.parametrize(
    "statement, sentence",
    [
        ({}, "nothing to check"),
        ({"container_cpus": "0-x"}, "container_cpus: '0-x'"),
        ({"binding": "global_slice", "container_cpus": "0-9"}, "total_npus: in-process binding counts at least 1 NPU, got 0"),
    ],
)
def test_statements_that_say_nothing_are_refused(statement, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(**statement)
