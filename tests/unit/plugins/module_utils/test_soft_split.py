# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What limits containers that share an NPU: the files of the host, the library in every process, and the limiter."""

from __future__ import annotations

import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.soft_split import check_soft_split
from ansible_collections.npu.affinity.plugins.module_utils._features.slices.step import Prerequisites
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.presence import Presence

FOLDER = "/usr/local/hami-vnpu-core"
LIBRARY, PRELOAD = FOLDER + "/libvnpu.so", FOLDER + "/ld.so.preload"
TODAY = {LIBRARY: "ELF", PRELOAD: "/hami-vnpu-core/libvnpu.so\n"}
PUBLISHED = {FOLDER + "/target/debug/libvnpu.so": "ELF", PRELOAD: "/hami-vnpu-core/target/debug/libvnpu.so\n"}
UNIT = "npu-affinity-limiter-a.service"
A = {"name": "a", "slice": "npu-0-a.slice", "limiter": None}
LIMITED = {**A, "limiter": UNIT}
IN_SLICE = "/npu.slice/npu-0.slice/npu-0-a.slice"
MAPS = "7f00 r-xp /usr/bin/python3\n7f01 r-xp /hami-vnpu-core/libvnpu.so"


def process(tree, pid, group, comm="python", maps=MAPS, environ="", device="/dev/davinci0"):
    folder = "/proc/%d" % pid
    tree.write({folder + "/comm": comm, folder + "/cgroup": "0::" + group, folder + "/maps": maps, folder + "/environ": environ})
    if device:
        tree.write({folder + "/fd": None})
        os.symlink(device, tree.root + folder + "/fd/40")


def results(findings):
    return [result_of(finding) for finding in findings.drift]


def look(tree, *vnpus, **others):
    findings = Findings()
    check_soft_split(findings, tree.host, FOLDER, vnpus, **others)
    return findings


FILES = [
    (TODAY, []),
    (PUBLISHED, []),
    ({}, [(PRELOAD, "no such file"), (LIBRARY, "no such file")]),
    ({PRELOAD: TODAY[PRELOAD]}, [(LIBRARY, "no such file")]),
    ({PRELOAD: PUBLISHED[PRELOAD], LIBRARY: "ELF"}, [(FOLDER + "/target/debug/libvnpu.so", "no such file")]),
    ({LIBRARY: "ELF"}, [(PRELOAD, "no such file")]),
    ({LIBRARY: "ELF", PRELOAD: "/usr/lib/jemalloc.so\n"}, [(PRELOAD, "a file that does not")]),
    ({PRELOAD: "/opt/in-the-image/libvnpu.so\n"}, []),
]


@pytest.mark.parametrize("files, missing", FILES)
def test_the_files_of_either_layout_must_be_there(tree, files, missing):
    tree.write(files)
    found = look(tree, A, {**A, "name": "b"})
    assert [(entry["object"], entry["found"]) for entry in results(found)] == missing
    for entry in found.drift:
        assert entry.cause == ("manual change", "removed, or never placed; new containers of vNPU a and b run without any limit")
    if missing:
        with pytest.raises(ValueError, match=missing[0][0] + r" is not on the host \(.*containers of vNPUs would run without any limit"):
            Presence(tree.host, FOLDER).look(check=False)
    else:
        Presence(tree.host, FOLDER).look(check=False)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("placed, refused", [((), True), (("libvnpu.so",), True), (("limiter",), False)])
def test_a_limiter_that_units_start_must_exist_or_be_placed(tree, check, placed, refused):
    layout = {"folder": FOLDER, "files": [{"name": name, "sha256": "0" * 64} for name in placed]}
    step = Prerequisites(tree.host, {"expected": [], "programs": [FOLDER + "/limiter"], "live": {"vnpu": layout} if placed else {}})
    if refused:
        with pytest.raises(ValueError, match="limiter is not on the host, and the units of vNPUs start it"):
            step.look(check)
    else:
        step.look(check)


def test_without_planned_vnpus_missing_hami_files_are_a_remark(tree):
    found = look(tree)
    assert found.drift == []
    assert found.remarks[1].startswith(
        LIBRARY + " is not there (the library that limits containers): until HAMi's device plugin has placed"
    )
    assert look(tree, ours=[LIBRARY, PRELOAD]).remarks == []


def test_a_container_in_a_vnpu_slice_must_load_the_library(tree):
    tree.write(TODAY)
    process(tree, 4711, IN_SLICE + "/docker-1.scope")
    assert look(tree, A).checked["processes"] == ["libvnpu.so of vNPU a"]
    process(tree, 4712, IN_SLICE + "/docker-2.scope", maps="7f00 r-xp /usr/bin/python3")
    process(tree, 4713, "/npu.slice/npu-0.slice/npu-0-ab.slice/docker-3.scope", maps="")
    (entry,) = results(look(tree, A))
    assert (entry["kind"], entry["object"], entry["found"]) == ("processes", "libvnpu.so of vNPU a", "none in process 4712 python")
    assert entry["sentence"].startswith(
        "libvnpu.so of vNPU a: expected in every process, found none in process 4712 python; likely not restarted: started without"
    )


def test_pods_are_told_by_their_quota(tree):
    tree.write(TODAY)
    pod = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope"
    for pid, environ, maps in ((1, "A=1\0NPU_MEM_QUOTA=28672", ""), (2, "NPU_MEM_QUOTA=1", MAPS), (3, "HOME=/NPU_MEM_QUOTA=", "")):
        process(tree, pid, pod % pid, environ=environ, maps=maps)
    process(tree, 4, pod % 4, environ="NPU_MEM_QUOTA=1", maps="", device=None)
    found = look(tree)
    assert found.checked["processes"] == ["libvnpu.so of cri-containerd-1.scope", "libvnpu.so of cri-containerd-2.scope"]
    assert [entry["found"] for entry in results(found)] == ["none in process 1 python"]


def test_a_container_stands_still_without_its_limiter(tree):
    tree.write(TODAY)
    assert look(tree, LIMITED).drift == [], "nothing runs, and nothing is to be limited"
    process(tree, 4711, IN_SLICE + "/docker-1.scope")
    (entry,) = results(look(tree, LIMITED))
    assert (entry["object"], entry["expected"], entry["found"], entry["unit"]) == (
        "limiter of vNPU a",
        "a process of " + UNIT,
        "none next to process 4711 python",
        UNIT,
    )
    assert "the container stands still: 'systemctl start %s'" % UNIT in entry["remark"]
    assert look(tree, LIMITED, idle=[UNIT]).drift == [], "the unit is drift of its own"
    process(tree, 900, "%s/%s" % (IN_SLICE, UNIT), comm="limiter", maps="", device="/dev/davinci_manager")
    assert look(tree, LIMITED).checked["processes"] == ["libvnpu.so of vNPU a", "limiter of vNPU a"]
    assert look(tree, LIMITED).drift == []
