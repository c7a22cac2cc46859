# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line in the journal of systemd, as journald receives it at its socket."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.log import SOCKET, log_change
from ansible_collections.npu.affinity.plugins.module_utils._base.version import VERSION
from tests.fakes.systemd import ModelledSystemd


@pytest.fixture
def journald(tmp_path):
    """A host and the socket that a journald of it would read."""
    host = ModelledSystemd(str(tmp_path / "m"))
    os.makedirs(os.path.dirname(host.path(SOCKET)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(host.path(SOCKET))
        receiver.setblocking(False)
        yield host, receiver


def test_a_line_has_fields(journald):
    host, receiver = journald
    run = {"id": "R1", "time": "2026-11-22T13:30:00Z", "inventory": "hosts.yml"}
    log_change(host, "bind", "alice", "2 changes", ["write /a", "start b"], reason="first nodes", history=7, run=run)
    datagram = receiver.recv(1 << 16)
    changes = b"write /a\nstart b"
    multiline = b"NPU_AFFINITY_CHANGES\n" + struct.pack("<Q", len(changes)) + changes + b"\n"
    assert multiline in datagram
    fields = dict(line.split("=", 1) for line in datagram.replace(multiline, b"").decode().splitlines())
    assert len(fields.pop("MESSAGE_ID")) == 32
    assert fields == {
        "MESSAGE": "bind by alice: 2 changes: first nodes",
        "PRIORITY": "5",
        "SYSLOG_IDENTIFIER": "npu-affinity",
        "NPU_AFFINITY_ACTION": "bind",
        "NPU_AFFINITY_AUTHOR": "alice",
        "NPU_AFFINITY_REASON": "first nodes",
        "NPU_AFFINITY_VERSION": VERSION,
        "NPU_AFFINITY_HISTORY": "7",
        "NPU_AFFINITY_RUN": "R1",
    }


def test_what_a_host_calls_itself_is_escaped(journald):
    host, receiver = journald
    log_change(host, "rebind", "\x1b]0;a\x07", "threads of \x1b[2J", ["thread of a\nPRIORITY=0\u202e"], reason="b\nc")
    datagram = receiver.recv(1 << 16).decode()
    assert "MESSAGE=rebind by \\x1b]0;a\\x07: threads of \\x1b[2J: b\\nc\n" in datagram
    assert "NPU_AFFINITY_CHANGES=thread of a\\nPRIORITY=0\\u202e\n" in datagram and "\x1b" not in datagram


def test_other_trees_write_no_log_and_a_missing_journald_is_fine(journald, tmp_path):
    host, receiver = journald
    log_change(Host(host.root), "bind", "alice", "2 changes")
    with pytest.raises(BlockingIOError):
        receiver.recv(1)
    log_change(ModelledSystemd(str(tmp_path / "n")), "bind", "alice", "2 changes")
