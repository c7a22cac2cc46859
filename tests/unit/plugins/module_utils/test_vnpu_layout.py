# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What soft split needs on a host: placed once, told by checksums, and removed without touching what someone else placed."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.layout import Layout, apply, leavings, remove
from tests.fakes.confined import confined, read_only
from tests.fakes.machine import snapshot

FOLDER, REGION = "/usr/local/hami-vnpu-core", "/usr/local/hami-shared-region"
LIBRARY = b"\x7fELF library"


def sha(content):
    return hashlib.sha256(content).hexdigest()


def layout(mode=0o1777, **files):
    names = {name.replace("__", "/").replace("_so", ".so"): sha(content) for name, content in files.items()}
    return Layout(FOLDER, REGION, mode, names)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "usr/local").mkdir(parents=True)
    return tmp_path


def mode(root, path):
    return (root / path[1:]).stat().st_mode & 0o7777


def place(root, name, content):
    path = root / FOLDER[1:] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_directories_for_plugins_own_files_are_made_and_removed(root):
    host = Host(str(root))
    before = snapshot(root)
    assert apply(host, layout(), check=True).folders == {FOLDER: (None, 0o775), REGION: (None, 0o1777)}
    assert snapshot(root) == before
    apply(host, layout())
    assert (mode(root, FOLDER), mode(root, REGION)) == (0o775, 0o1777)
    assert not apply(host, layout()).changed
    (root / REGION[1:]).chmod(0o700)
    assert apply(host, layout()).folders == {REGION: (0o700, 0o1777)}
    assert mode(root, REGION) == 0o1777
    assert apply(host, layout(0o777)).folders == {REGION: (0o1777, 0o777)}
    remove(host, previous.recorded(host)["vnpu"])
    assert not (root / FOLDER[1:]).exists() and not (root / REGION[1:]).exists()


def test_missing_files_are_named_and_preload_follows_the_library(root):
    host, wanted = Host(str(root)), layout(libvnpu_so=LIBRARY, limiter=b"limiter")
    report = apply(host, wanted)
    assert (report.missing, report.written) == (["libvnpu.so", "limiter"], [FOLDER + "/ld.so.preload"])
    assert (root / FOLDER[1:] / "ld.so.preload").read_text() == "/hami-vnpu-core/libvnpu.so\n"
    assert not (root / "etc/ld.so.preload").exists()
    place(root, "libvnpu.so", LIBRARY)
    place(root, "limiter", b"half a lim")
    assert apply(host, layout(libvnpu_so=LIBRARY)).missing == []
    with pytest.raises(ValueError, match="limiter has SHA-256 .* this collection did not place it"):
        apply(host, wanted)
    place(root, "limiter", b"limiter")
    assert not apply(host, wanted).changed


def test_a_new_version_replaces_managed_files_and_removes_others(root):
    host = Host(str(root))
    apply(host, layout(libvnpu_so=LIBRARY, limiter=b"limiter"))
    place(root, "libvnpu.so", LIBRARY)
    place(root, "limiter", b"limiter")
    report = apply(host, layout(libvnpu_so=b"newer"))
    assert (report.missing, report.removed) == (["libvnpu.so"], [FOLDER + "/limiter"])
    place(root, "libvnpu.so", b"newer")
    assert leavings(host, previous.recorded(host)["vnpu"]) == ([FOLDER + "/ld.so.preload", FOLDER + "/libvnpu.so"], [])


def test_foreign_files_stay_with_their_directory_and_permissions(root):
    host = Host(str(root))
    place(root, "libvnpu.so", b"of HAMi's plugin")
    place(root, "ld.so.preload", b"/hami-vnpu-core/libvnpu.so\n")
    os.chmod(str(root / FOLDER[1:]), 0o755)
    before = snapshot(root)
    with pytest.raises(ValueError, match="Take it out of npu_affinity_vnpu_files when HAMi's device plugin owns it"):
        apply(host, layout(libvnpu_so=LIBRARY))
    assert snapshot(root) == before
    apply(host, layout(limiter=b"limiter"))
    place(root, "limiter", b"limiter")
    (root / REGION[1:] / "0_global_registry").write_text("in use")
    remove(host, previous.recorded(host)["vnpu"])
    assert sorted(os.listdir(str(root / FOLDER[1:]))) == ["ld.so.preload", "libvnpu.so"]
    assert mode(root, FOLDER) == 0o755
    assert (root / REGION[1:] / "0_global_registry").exists()


@pytest.mark.parametrize("check", [True, False])
def test_a_read_only_place_is_refused_before_the_first_write(root, check):
    before = snapshot(root)
    said = "^%s cannot be written: /usr/local: Read-only file system; set npu_affinity_vnpu_folder to" % FOLDER
    with pytest.raises(ValueError, match=said):
        confined(read_only, root / "usr/local", lambda: apply(Host(str(root)), layout(limiter=b"limiter"), check))
    assert snapshot(root) == before


def test_a_file_of_ours_that_somebody_changed_is_theirs(root):
    host = Host(str(root))
    apply(host, layout(limiter=b"limiter"))
    place(root, "limiter", b"another")
    assert leavings(host, previous.recorded(host)["vnpu"]) == ([], [FOLDER + "/limiter"])
    remove(host, previous.recorded(host)["vnpu"])
    assert (root / FOLDER[1:] / "limiter").read_bytes() == b"another"


PRELOAD = "/hami-vnpu-core/%slibvnpu.so\n"
DOUBTFUL = [
    ("ld.so.preload", PRELOAD % "target/debug/", "/target/debug/libvnpu.so: containers will run without any limit"),
    ("../../../etc/ld.so.preload", PRELOAD % "", "the host's own /etc/ld.so.preload loads libvnpu.so into every program"),
]


@pytest.mark.parametrize("name, content, sentence", DOUBTFUL)
def test_preload_files_that_load_nothing_or_everything_are_said(root, name, content, sentence):
    (root / "etc").mkdir()
    place(root, "x", b"")
    place(root, name, content.encode())
    (warning,) = apply(Host(str(root)), layout()).warnings
    assert sentence in warning


REFUSED = [
    (layout()._replace(folder="/etc"), "cannot be '/etc': /etc is the host's own"),
    (layout()._replace(folder="/etc/hami"), "/etc is the host's own"),
    (layout()._replace(shared_region="/opt/../etc"), "without '..'"),
    (layout()._replace(folder="/usr/bin"), "cannot be '/usr/bin': /usr is the host's own"),
    (layout()._replace(shared_region="/run/systemd"), "the shared region cannot be '/run/systemd': /run is the host's own"),
    (layout()._replace(shared_region="/usr/local"), "/usr is the host's own"),
    (layout()._replace(shared_region="/var/log/hami"), "/var is the host's own"),
    (layout()._replace(shared_region="/opt/hami/region"), "cannot be '/opt/hami/region' (it leads to /run/region): /run is the host's own"),
    (layout()._replace(folder="hami"), "must be an absolute path"),
    (layout()._replace(folder="/"), "must be an absolute path of its own"),
    (layout()._replace(files={"../limiter": sha(b"")}), "'../limiter' is not the name of a file below"),
    (layout()._replace(files={"limiter": "abc"}), "limiter: 'abc' is no SHA-256"),
]


@pytest.mark.parametrize("wanted, sentence", REFUSED)
def test_places_that_are_the_hosts_own_are_refused(root, wanted, sentence):
    (root / "run").mkdir()
    (root / "opt").mkdir()
    (root / "opt/hami").symlink_to("/run")
    before = snapshot(root)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        apply(Host(str(root)), wanted)
    assert snapshot(root) == before


THEIRS = [
    ("a region that only its owner writes", REGION, 0o755, "has permissions 0755, needs 1777, and was not made here", None),
    ("a region as the guide of HAMi has it", REGION, 0o777, None, "/usr/local/hami-shared-region has permissions 0777, not 1777"),
    ("a directory that others may not read", FOLDER, 0o700, "'chmod 0775 /usr/local/hami-vnpu-core'", None),
    ("a directory in which anybody replaces the library", FOLDER, 0o777, None, "has permissions 0777, not 0775"),
    ("a directory that only root writes", FOLDER, 0o755, None, None),
]


@pytest.mark.parametrize("path, bits, refusal, warning", [row[1:] for row in THEIRS], ids=[row[0] for row in THEIRS])
def test_permissions_of_an_existing_directory_stay(root, path, bits, refusal, warning):
    (root / path[1:]).mkdir()
    (root / path[1:]).chmod(bits)
    if refusal:
        with pytest.raises(ValueError, match=refusal):
            apply(Host(str(root)), layout())
    else:
        warnings = apply(Host(str(root)), layout()).warnings
        assert [warning in text for text in warnings] == [True] * bool(warning)
        assert not apply(Host(str(root)), layout()).changed
    assert mode(root, path) == bits


def test_a_link_is_no_directory_for_libraries(root):
    (root / "etc").mkdir()
    (root / FOLDER[1:]).symlink_to("/etc")
    with pytest.raises(ValueError, match="is not a directory .a link does not count"):
        apply(Host(str(root)), layout(libvnpu_so=LIBRARY))
    assert list(pathlib.Path(str(root / "etc")).iterdir()) == []
