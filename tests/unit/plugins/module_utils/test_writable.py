# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that cannot be written are refused before the first write."""

import contextlib
import fcntl
import os
import re
import struct
import types
from pathlib import Path

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state import writable
from ansible_collections.npu.affinity.plugins.module_utils._state.files import FileState, remove_empty
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from tests.fakes.systemd import a_request
from tests.fakes.confined import confined, forbidden, read_only

USUAL, OTHER, RULES = installed.ARCHIVE, "/var/lib/code/npu_affinity.zip", "/etc/udev/rules.d/90-npu-affinity.rules"
DENIED = "Permission denied ('ausearch -m avc' shows what SELinux refused)"
_SETFLAGS = 0x40086602
SETTING, MADE = "; set npu_affinity_library to a folder", "; make it writable, or switch off the feature"
MOUNTS = [
    ([USUAL, RULES], "/usr", "/usr/local: Read-only file system", SETTING),
    ([installed.COMMAND], "/usr", "/usr/local: Read-only file system", SETTING),
    ([OTHER], "/var", "/var/lib: Read-only file system", SETTING),
    ([OTHER, RULES], "/etc", "/etc/udev/rules.d: Read-only file system", MADE),
    ([OTHER, RULES], "/usr", None, None),
    ([RULES], "/elsewhere", None, None),
]


@pytest.fixture
def host(tmp_path):
    for folder in ("usr/local", "var/lib", "etc/udev/rules.d"):
        (tmp_path / folder).mkdir(parents=True)
    return Host(str(tmp_path))


def refusal(function, *arguments, **options):
    """Return why something is refused, or nothing."""
    try:
        function(*arguments, **options)
    except ValueError as error:
        return str(error)
    return ""


def wanted(*paths, text="# Managed by npu.affinity\n"):
    return a_request(files=[{"path": path, "content": text} for path in paths])


@contextlib.contextmanager
def unchangeable(place):
    """Set and clear the flag of ``chattr +i``."""
    with open(place) as file:
        try:
            fcntl.ioctl(file, _SETFLAGS, struct.pack("l", 0x10))
        except OSError as error:
            pytest.skip(f"no file can be made immutable here: {error}")
        try:
            yield
        finally:
            fcntl.ioctl(file, _SETFLAGS, struct.pack("l", 0))


def mounted(monkeypatch, host, mount, flag=os.ST_RDONLY):
    def statvfs(place):
        return types.SimpleNamespace(f_flag=flag if place.startswith(host.root + mount) else 0)

    monkeypatch.setattr(writable.os, "statvfs", statvfs)


@pytest.mark.parametrize(("paths", "mount", "why", "advice"), MOUNTS)
def test_a_read_only_folder_is_refused_with_what_to_do(host, monkeypatch, paths, mount, why, advice):
    mounted(monkeypatch, host, mount)
    if why is None:
        assert list(apply(host, wanted(*paths), check=True).changes) == paths
        return
    for check in (True, False):
        with pytest.raises(ValueError, match=f" cannot be written: {why}{advice}"):
            apply(host, wanted(*paths), check)
    assert [path for path in (host.root + folder for folder in ("/usr/local", "/var/lib", "/etc/npu-affinity")) if host.names(path)] == []


@pytest.mark.parametrize(("path", "flag", "refused"), [(OTHER, os.ST_NOEXEC, True), (USUAL, os.ST_NOEXEC, False), (OTHER, 0, False)])
def test_a_noexec_mount_holds_no_host_code(host, monkeypatch, path, flag, refused):
    monkeypatch.setattr(Host, "live", True)
    monkeypatch.setattr(host, "resolve", lambda path: host.root + path)
    mounted(monkeypatch, host, "/", flag)
    changes = {path: (FileState(None, None), FileState("code", 0o644))}
    assert ("/var/lib is mounted noexec" in refusal(writable.Writing(host, changes, [path]).refuse_impossible)) is refused


def test_a_folder_without_the_right_to_write_is_refused(host, monkeypatch):
    monkeypatch.setattr(writable.os, "access", lambda place, mode: False)
    with pytest.raises(ValueError, match="cannot be written: /usr/local: Permission denied; set npu_affinity_library"):
        apply(host, wanted(USUAL))


RIGHTS = [
    # the mode of the folder above it and of the nearest one, whose that one is, and who may write where
    (0o755, 0o755, None, ""),
    (0o755, 0o775, None, ""),
    (0o755, 0o777, None, "every user can write to /var/lib"),
    (0o755, 0o1777, None, "every user can write to /var/lib"),
    (0o777, 0o755, None, "every user can write to /var"),
    (0o1777, 0o755, None, ""),
    (0o755, 0o755, 1234, "user 1234 can write to /var/lib"),
]


@pytest.mark.parametrize(("above", "mode", "owner", "who"), RIGHTS)
def test_host_code_goes_only_where_root_alone_can_write(host, monkeypatch, above, mode, owner, who):
    nearest = Path(host.root, "var/lib")
    nearest.parent.chmod(above)
    nearest.chmod(mode)
    plain = os.stat

    def stat(path, **options):
        found = list(plain(path, **options))
        if owner is not None and Path(path) == nearest:
            found[4] = owner
        return os.stat_result(found)

    monkeypatch.setattr(writable.os, "stat", stat)
    assert refusal(apply, host, wanted(OTHER), check=True) == (
        who and f"npu_affinity_library is /var/lib/code: {who}, and root runs the host code; name a folder of root's"
    )


KERNEL = [
    (read_only, "usr", USUAL, "/usr/local: Read-only file system", SETTING),
    (read_only, "etc", RULES, "/etc/udev/rules.d: Read-only file system", MADE),
    (forbidden, "usr", USUAL, DENIED, SETTING),
    (forbidden, "var", OTHER, DENIED, SETTING),
]


@pytest.mark.parametrize(("confine", "folder", "path", "why", "advice"), KERNEL)
def test_what_the_kernel_refuses_is_named_with_what_to_do(host, confine, folder, path, why, advice):
    before = sorted(Path(host.root).rglob("*"))
    request = wanted(*dict.fromkeys([RULES, path]))
    with pytest.raises(ValueError, match="^" + re.escape(f"{path} cannot be written: {why}{advice}")):
        confined(confine, f"{host.root}/{folder}", lambda: apply(host, request))
    assert sorted(Path(host.root).rglob("*")) == before


def test_a_file_that_must_not_change_is_named(host):
    apply(host, wanted(USUAL, RULES))
    said = f"^{USUAL} cannot be written: Operation not permitted{SETTING}"
    with unchangeable(host.root + USUAL), pytest.raises(ValueError, match=said):
        apply(host, wanted(USUAL, text="# Managed by npu.affinity, changed\n"))


def test_a_folder_that_is_not_there_need_not_be_writable(host):
    folders = ["/etc/npu-affinity", "/usr/local/lib/npu-affinity"]
    (Path(host.root) / "etc/npu-affinity").mkdir(parents=True)
    (Path(host.root) / "usr/local/lib").mkdir(parents=True, exist_ok=True)
    assert confined(read_only, host.root + "/usr", lambda: remove_empty(host, folders)) == folders[:1]


def test_what_cannot_be_removed_needs_no_setting(host):
    apply(host, wanted(USUAL))
    moved = a_request(owned=[USUAL])
    said = f"^{USUAL} cannot be removed: /usr/local/lib/npu-affinity: Read-only file system; make it writable and run again$"
    with pytest.raises(ValueError, match=said):
        confined(read_only, host.root + "/usr", lambda: apply(host, moved))
