# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What soft split needs on a host: placed once, told by checksums, and removed without touching what someone else placed; what limits
containers that share an NPU: these files, the library in every process, and the limiter."""

import contextlib
import os
import pathlib
import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Findings
from ansible_collections.npu.affinity.plugins.module_utils._drift.codes import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Comparing, Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.slices import drift
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.feature import FEATURE
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.soft_split import require
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from tests.fakes.confined import confined, read_only
from tests.fakes.kernel import FOLDER, REGION, restored, sha, split as bind
from tests.fakes.machine import snapshot

LIBRARY_FILE, PRELOAD_FILE, LIMITER = FOLDER + "/libvnpu.so", FOLDER + "/ld.so.preload", FOLDER + "/limiter"
LIBRARY = b"\x7fELF library"


@pytest.fixture
def host(tmp_path):
    """A host below the folder of a test."""
    (tmp_path / "usr/local").mkdir(parents=True)
    return Host(str(tmp_path))


def mode(host, path):
    return os.stat(host.path(path)).st_mode & 0o7777


def place(host, **contents):
    """Write the library and the limiter, as an administrator does."""
    for name, content in contents.items():
        put(host, "%s/%s" % (FOLDER, {"library": "libvnpu.so", "preload": "ld.so.preload"}.get(name, name)), content)


def put(host, path, content):
    os.makedirs(os.path.dirname(host.path(path)), exist_ok=True)
    pathlib.Path(host.path(path)).write_bytes(content)


def test_directories_for_plugins_own_files_are_made_and_removed(host):
    before = snapshot(host.root)
    assert bind(host, check=True).report.folders == {FOLDER: (None, 0o775), REGION: (None, 0o1777)}
    assert snapshot(host.root) == before
    bind(host)
    assert (mode(host, FOLDER), mode(host, REGION)) == (0o775, 0o1777)
    assert not bind(host).changed
    os.chmod(host.path(REGION), 0o700)
    assert bind(host).report.folders == {REGION: (0o700, 0o1777)} and mode(host, REGION) == 0o1777
    assert bind(host, "777").report.folders == {REGION: (0o1777, 0o777)}
    restored(FEATURE.restore, host)
    assert not host.exists(FOLDER) and not host.exists(REGION)


BOTH = {"libvnpu.so": LIBRARY, "limiter": b"limiter"}


def test_files_are_placed_and_preload_follows_the_library(host):
    predicted, step = bind(host, names=BOTH, check=True), bind(host, names=BOTH)
    assert step.result() == predicted.result() and step.lines() == predicted.lines()
    assert step.result()["files"] == [LIBRARY_FILE, LIMITER, PRELOAD_FILE]
    assert host.read(PRELOAD_FILE) == "/hami-vnpu-core/libvnpu.so" and not host.exists("/etc/ld.so.preload")
    assert (mode(host, LIMITER), mode(host, LIBRARY_FILE)) == (0o755, 0o644) and not bind(host, names=BOTH).changed
    place(host, limiter=b"half a lim")
    assert not bind(host, names={"libvnpu.so": LIBRARY}).report.files
    with pytest.raises(ValueError, match="limiter has SHA-256 .* this collection did not place it"):
        bind(host, names=BOTH)


def test_a_new_version_replaces_managed_files_and_removes_others(host):
    bind(host, names=BOTH)
    step = bind(host, names={"libvnpu.so": b"newer"})
    assert (step.report.files, step.report.removed) == ([LIBRARY_FILE], [LIMITER])
    step.undo()
    assert not bind(host, names=BOTH).changed
    bind(host, names={"libvnpu.so": b"newer"})
    outcome, undone = restored(FEATURE.restore, host, check=True)
    assert (outcome.warnings, undone.actions) == ([], ["remove " + PRELOAD_FILE, "remove " + LIBRARY_FILE])


def test_foreign_files_stay_with_their_directory_and_permissions(host):
    place(host, library=b"of HAMi's plugin", preload=b"/hami-vnpu-core/libvnpu.so\n")
    os.chmod(host.path(FOLDER), 0o755)
    before = snapshot(host.root)
    with pytest.raises(ValueError, match="Take it out of npu_affinity_vnpu_files when HAMi's device plugin owns it"):
        bind(host, names={"libvnpu.so": LIBRARY})
    assert snapshot(host.root) == before
    bind(host, names={"limiter": b"limiter", "other": b"other"})
    place(host, other=b"another")
    put(host, REGION + "/0_global_registry", b"in use")
    outcome, undone = restored(FEATURE.restore, host)
    assert undone.actions == ["remove " + LIMITER]
    assert outcome.warnings == [FOLDER + "/other was changed by someone else since it was placed and stays"]
    assert host.names(FOLDER) == ["ld.so.preload", "libvnpu.so", "other"], "what somebody changed is theirs, too"
    assert mode(host, FOLDER) == 0o755 and host.exists(REGION + "/0_global_registry")


def test_a_read_only_place_is_refused_before_the_first_write(host, tmp_path):
    before = snapshot(tmp_path)
    said = "^%s cannot be written: /usr/local: Read-only file system; set npu_affinity_vnpu_folder to" % FOLDER
    with pytest.raises(ValueError, match=said):
        confined(read_only, tmp_path / "usr/local", lambda: bind(host, names={"limiter": b"limiter"}, check=True))
    assert snapshot(tmp_path) == before


PRELOAD = "/hami-vnpu-core/%slibvnpu.so\n"
DOUBTFUL = [
    (PRELOAD_FILE, PRELOAD % "target/debug/", "/target/debug/libvnpu.so: containers will run without any limit"),
    ("/etc/ld.so.preload", PRELOAD % "", "the host's own /etc/ld.so.preload loads libvnpu.so into every program"),
]


@pytest.mark.parametrize("path, content, sentence", DOUBTFUL)
def test_preload_files_that_load_nothing_or_everything_are_said(host, path, content, sentence):
    os.mkdir(host.path(FOLDER))
    put(host, path, content.encode())
    (warning,) = bind(host).warnings
    assert sentence in warning


REFUSED = [
    ({"folder": "/etc"}, "cannot be '/etc': /etc is the host's own"),
    ({"folder": "/etc/hami"}, "/etc is the host's own"),
    ({"shared_region": "/opt/../etc"}, "without '..'"),
    ({"folder": "/usr/bin"}, "cannot be '/usr/bin': /usr is the host's own"),
    ({"shared_region": "/run/systemd"}, "the shared region cannot be '/run/systemd': /run is the host's own"),
    ({"shared_region": "/usr/local"}, "/usr is the host's own"),
    ({"shared_region": "/var/log/hami"}, "/var is the host's own"),
    ({"shared_region": "/opt/hami/region"}, "cannot be '/opt/hami/region' (it leads to /run/region): /run is the host's own"),
    ({"folder": "hami"}, "must be an absolute path"),
    ({"folder": "/"}, "must be an absolute path of its own"),
    ({"folder": "/opt/link", "files": [{"name": "libvnpu.so", "sha256": sha(LIBRARY)}]}, "is not a directory (a link does not count"),
    ({"files": [{"name": "../limiter", "sha256": sha(b"")}]}, "'../limiter' is not the name of a file below"),
    ({"files": [{"name": "limiter", "sha256": "abc"}]}, "limiter: 'abc' is not a SHA-256"),
]


@pytest.mark.parametrize("wanted, sentence", REFUSED)
def test_places_that_are_the_hosts_own_are_refused(host, wanted, sentence):
    for folder in ("run", "opt", "srv"):
        os.mkdir(host.path("/" + folder))
    os.symlink("/run", host.path("/opt/hami"))
    os.symlink("/srv", host.path("/opt/link"))
    before = snapshot(host.root)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        bind(host, **wanted)
    assert snapshot(host.root) == before


THEIRS = {
    "a region that only its owner writes": (REGION, 0o755, "has permissions 0755, needs 1777, and was not made here", None),
    "a region as the guide of HAMi has it": (REGION, 0o777, None, "/usr/local/hami-shared-region has permissions 0777, not 1777"),
    "a directory that others may not read": (FOLDER, 0o700, "'chmod 0775 /usr/local/hami-vnpu-core'", None),
    "a directory in which anybody replaces the library": (FOLDER, 0o777, None, "has permissions 0777, not 0775"),
    "a directory that only root writes": (FOLDER, 0o755, None, None),
}


@pytest.mark.parametrize("path, bits, refusal, warning", THEIRS.values(), ids=THEIRS)
def test_permissions_of_an_existing_directory_stay(host, path, bits, refusal, warning):
    os.mkdir(host.path(path))
    os.chmod(host.path(path), bits)
    if refusal:
        with pytest.raises(ValueError, match=refusal):
            bind(host)
    else:
        assert [warning in text for text in bind(host).warnings] == [True] * bool(warning)
        assert not bind(host).changed
    assert mode(host, path) == bits


TODAY = {LIBRARY_FILE: "ELF", PRELOAD_FILE: PRELOAD % ""}
PUBLISHED = {FOLDER + "/target/debug/libvnpu.so": "ELF", PRELOAD_FILE: PRELOAD % "target/debug/"}
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


def compared(tree, *vnpus, idle=(), files=()):
    """Return what a comparison finds, and its drift as a result has it."""
    findings, live = Findings(), {"slices": {"vnpus": vnpus}}
    if files:
        names = [{"name": name, "sha256": "0" * 64} for name in files]
        live["vnpu"] = {"folder": FOLDER, "shared_region": REGION, "shared_mode": "1777", "files": names}
    FEATURE.compare(Comparing(findings, tree.host, {"npus": []}, Wanted(live=live, soft_split=FOLDER), set(), set(), idle))
    return findings, [result_of(finding) for finding in findings.drift]


PLACED = [
    (TODAY, []),
    (PUBLISHED, []),
    ({}, [(PRELOAD_FILE, "no such file"), (LIBRARY_FILE, "no such file")]),
    ({PRELOAD_FILE: TODAY[PRELOAD_FILE]}, [(LIBRARY_FILE, "no such file")]),
    ({PRELOAD_FILE: PUBLISHED[PRELOAD_FILE], LIBRARY_FILE: "ELF"}, [(FOLDER + "/target/debug/libvnpu.so", "no such file")]),
    ({LIBRARY_FILE: "ELF"}, [(PRELOAD_FILE, "no such file")]),
    ({LIBRARY_FILE: "ELF", PRELOAD_FILE: "/usr/lib/jemalloc.so\n"}, [(PRELOAD_FILE, "a file that does not")]),
    ({PRELOAD_FILE: "/opt/in-the-image/libvnpu.so\n"}, []),
]


@pytest.mark.parametrize("files, missing", PLACED)
def test_the_files_of_either_layout_must_be_there(tree, files, missing):
    tree.write(files)
    found, rows = compared(tree, A, {**A, "name": "b"})
    assert [(row["object"], row["found"]) for row in rows] == missing
    for entry in found.drift:
        assert entry.cause == ("manual change", "removed, or never placed; new containers of vNPU a and b run without any limit")
    said = missing and missing[0][0] + r" is not on the host \(.*containers of vNPUs would run without any limit"
    with pytest.raises(ValueError, match=said) if missing else contextlib.nullcontext():
        require(tree.host, FOLDER)


@pytest.mark.parametrize("placed, refused", [((), True), (("libvnpu.so",), True), (("limiter",), False)])
def test_a_limiter_that_units_start_must_exist_or_be_placed(tree, placed, refused):
    layout = {"folder": FOLDER, "files": [{"name": name, "sha256": "0" * 64} for name in placed]}
    state = {"expected": [], "programs": [LIMITER], "live": {"vnpu": layout} if placed else {}}
    said = "limiter is not on the host, and the units of vNPUs start it"
    with pytest.raises(ValueError, match=said) if refused else contextlib.nullcontext():
        drift.require(tree.host, state)


def test_without_planned_vnpus_missing_hami_files_are_a_remark(tree):
    found, rows = compared(tree)
    said = LIBRARY_FILE + " is not there (the library that limits containers): until HAMi's device plugin has placed"
    assert rows == [] and found.remarks[1].startswith(said)
    assert compared(tree, files=["libvnpu.so"])[0].remarks == []


def test_a_container_in_a_vnpu_slice_must_load_the_library(tree):
    tree.write(TODAY)
    process(tree, 4711, IN_SLICE + "/docker-1.scope")
    assert compared(tree, A)[0].checked["processes"] == ["libvnpu.so of vNPU a"]
    process(tree, 4712, IN_SLICE + "/docker-2.scope", maps="7f00 r-xp /usr/bin/python3")
    process(tree, 4713, "/npu.slice/npu-0.slice/npu-0-ab.slice/docker-3.scope", maps="")
    _findings, (row,) = compared(tree, A)
    assert row["kind"] == "processes"
    said = "libvnpu.so of vNPU a: expected in every process, found none in process 4712 python; likely not restarted: started without"
    assert row["sentence"].startswith(said)


def test_pods_are_told_by_their_quota(tree):
    tree.write(TODAY)
    pod = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope"
    for pid, environ, maps in ((1, "A=1\0NPU_MEM_QUOTA=28672", ""), (2, "NPU_MEM_QUOTA=1", MAPS), (3, "HOME=/NPU_MEM_QUOTA=", "")):
        process(tree, pid, pod % pid, environ=environ, maps=maps)
    process(tree, 4, pod % 4, environ="NPU_MEM_QUOTA=1", maps="", device=None)
    found, rows = compared(tree)
    assert found.checked["processes"] == ["libvnpu.so of cri-containerd-1.scope", "libvnpu.so of cri-containerd-2.scope"]
    assert [row["found"] for row in rows] == ["none in process 1 python"]


def test_a_container_stands_still_without_its_limiter(tree):
    tree.write(TODAY)
    assert compared(tree, LIMITED)[1] == [], "nothing runs, and nothing is to be limited"
    process(tree, 4711, IN_SLICE + "/docker-1.scope")
    _found, (row,) = compared(tree, LIMITED)
    told = ("limiter of vNPU a", "a process of " + UNIT, "none next to process 4711 python", UNIT)
    assert tuple(row[key] for key in ("object", "expected", "found", "unit")) == told
    assert "the container hangs: 'systemctl start %s'" % UNIT in row["remark"]
    assert compared(tree, LIMITED, idle=[UNIT])[1] == [], "the unit is drift of its own"
    process(tree, 900, "%s/%s" % (IN_SLICE, UNIT), comm="limiter", maps="", device="/dev/davinci_manager")
    findings, rows = compared(tree, LIMITED)
    assert (findings.checked["processes"], rows) == (["libvnpu.so of vNPU a", "limiter of vNPU a"], [])
