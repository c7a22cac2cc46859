# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which entry of a history is meant, and in what two states differ."""

from __future__ import annotations

import os
import tempfile

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._state.history import difference, entries
from ansible_collections.npu.affinity.plugins.module_utils._state.history.entries import FOLDER, Entry, readable
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host

RUN = {"id": "20261120T090000-7f3a", "time": "2026-11-20T09:00:00Z", "inventory": ""}
ENTRIES = [Entry(number, RUN["time"], "0.1.0", "bind", "", "", RUN, {}) for number in (3, 4, 6)]


@pytest.mark.parametrize(("number", "chosen"), [(-1, 4), (-2, 3), (3, 3), (6, 6)])
def test_the_entry_that_is_meant(number, chosen):
    assert entries.chosen(ENTRIES, number).id == chosen


@pytest.mark.parametrize("number", [-3, 0, 5])
def test_an_entry_that_there_is_not(number):
    with pytest.raises(ValueError, match="there is no entry %d in the history; this host has entries 3, 4, 6" % number):
        entries.chosen(ENTRIES, number)


def state(files=(), features=None, npus=(), strategy="topo_affinity"):
    plan = {"strategy": strategy, "npus": [{"id": number, "pci": pci, "pool": pool} for number, pci, pool in npus]}
    return {"files": [{"path": path, "content": text} for path, text in files], "features": features or {}, "live": {}, "plan": plan}


DIFFERENCES = [
    (
        state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:c2:00.0", "4-7"), (2, "0000:81:00.0", "8-11"), (3, "0000:82:00.0", "12-15")]),
        state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:81:00.0", "8-11"), (2, "0000:82:00.0", "12-13"), (3, "0000:01:00.0", "14-15")]),
        [
            "NPU 1 (0000:81:00.0): id 2 -> 1",
            "NPU 2 (0000:82:00.0): CPUs 12-15 -> 12-13, id 3 -> 2",
            "NPU 3 (0000:01:00.0): added, CPUs 14-15",
            "NPU 1 (0000:c2:00.0): removed, CPUs 4-7",
        ],
    ),
    (
        state(npus=[(0, "0000:c1:00.0", "0-3"), (1, "0000:01:00.0", "4-7")]),
        state(npus=[(0, "0000:c1:00.0", "0-5")], strategy="even_split"),
        [
            "strategy topo_affinity -> even_split",
            "NPU 0 (0000:c1:00.0): CPUs 0-3 -> 0-5",
            "NPU 1 (0000:01:00.0): removed, CPUs 4-7",
        ],
    ),
    (
        state(files=[("/a", "1"), ("/b", "1")], features={"irq": "present"}),
        state(files=[("/b", "2"), ("/c", "1")], features={"irq": "absent"}),
        ["feature irq: present -> absent", "file /a: removed", "file /b: changed", "file /c: added"],
    ),
    ({**state(), "plan": None}, {**state(), "plan": None, "hardware": {"cpus": "0-7"}}, ["only settings of the run"]),
    ({**state(), "plan": None}, {**state(), "plan": None}, []),
    (state(), state(files=[(f"/etc/a/{number}", "") for number in range(6)]), ["6 files in /etc/a: added"]),
]


@pytest.mark.parametrize(("before", "after", "lines"), DIFFERENCES)
def test_the_difference_of_two_states(before, after, lines):
    assert difference.difference(after, before) == lines


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_read_the_history_is_told_so():
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        os.makedirs(root + FOLDER)
        os.chmod(root + FOLDER, 0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(ValueError, match="/etc/npu-affinity/history cannot be read; run as root"):
                readable(Host(root))
        finally:
            os.seteuid(0)


def test_the_first_entry_of_a_history_has_what_it_adds():
    first = Entry(1, RUN["time"], "1.0.0", "bind", "", "", RUN, state(files=[("/a", "1")], npus=[(0, "0000:c1:00.0", "0-3")]))
    again = first._replace(id=2)
    assert [row["difference"] for row in difference.rows([first, again])] == [["only settings of the run"], ["1 NPU, 1 file"]]
