# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that cannot be written are refused before the first write."""

from __future__ import annotations

import os
import types

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host import installed
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._transaction import writable
from ansible_collections.npu.affinity.plugins.module_utils._transaction.host_files import apply
from ansible_collections.npu.affinity.plugins.module_utils._transaction.request import Request

USUAL, OTHER, RULES = installed.ARCHIVE, "/var/lib/code/npu_affinity.zip", "/etc/udev/rules.d/90-npu-affinity.rules"
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


def mounted(monkeypatch, host, mount, flag=os.ST_RDONLY):
    def statvfs(place):
        return types.SimpleNamespace(f_flag=flag if place.startswith(host.root + mount) else 0)

    monkeypatch.setattr(writable.os, "statvfs", statvfs)


@pytest.mark.parametrize(("paths", "mount", "why", "advice"), MOUNTS)
def test_a_read_only_folder_is_refused_with_what_to_do(host, monkeypatch, paths, mount, why, advice):
    mounted(monkeypatch, host, mount)
    request = Request(files=[{"path": path, "content": "# Managed by npu.affinity\n"} for path in paths])
    if why is None:
        assert list(apply(host, request, check=True).changes) == paths
        return
    for check in (True, False):
        with pytest.raises(ValueError, match=f" cannot be written: {why}{advice}"):
            apply(host, request, check)
    assert [path for path in (host.root + folder for folder in ("/usr/local", "/var/lib", "/etc/npu-affinity")) if host.names(path)] == []


@pytest.mark.parametrize(("path", "flag", "refused"), [(OTHER, os.ST_NOEXEC, True), (USUAL, os.ST_NOEXEC, False), (OTHER, 0, False)])
def test_a_noexec_mount_holds_no_host_code(host, monkeypatch, path, flag, refused):
    monkeypatch.setattr(Host, "live", True)
    monkeypatch.setattr(host, "resolve", lambda path: host.root + path)
    mounted(monkeypatch, host, "/", flag)
    try:
        writable.refuse_unwritable(host, [path])
        found = ""
    except ValueError as error:
        found = str(error)
    assert ("/var/lib is mounted noexec" in found) is refused


def test_a_folder_without_the_right_to_write_is_refused(host, monkeypatch):
    monkeypatch.setattr(writable.os, "access", lambda place, mode: False)
    with pytest.raises(ValueError, match="cannot be written: /usr/local: Permission denied; set npu_affinity_library"):
        writable.refuse_unwritable(host, [USUAL])
