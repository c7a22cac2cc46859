# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd makes of all files of a unit, by systemd.unit(5)."""

from __future__ import annotations


import pytest

from ansible_collections.npu.affinity.plugins.module_utils._state.unit_files import differences, drop_ins, fragment, values
from tests.fakes.unit_files import ETC, OURS, RUN, UNIT, USR, host_with

WANTED = {"CPUAffinity": "4-7", "NUMAPolicy": "bind", "NUMAMask": "1"}
TEXT = "[Service]\nCPUAffinity=\nCPUAffinity=4-7\nNUMAPolicy=bind\nNUMAMask=\nNUMAMask=1\n"


def test_drop_ins_are_read_by_name_and_the_first_folder_counts(tmp_path):
    expected = [
        ETC + "service.d/05-all.conf",
        RUN + "a-.service.d/10-prefix.conf",
        ETC + "a-b@.service.d/20-template.conf",
        "/etc/systemd/system.control/" + UNIT + ".d/50-CPUAffinity.conf",
        OURS,
        ETC + UNIT + ".d/60-same.conf",
    ]
    others = [RUN + UNIT + ".d/60-same.conf", USR + "a-b@.service.d/60-same.conf", ETC + UNIT + ".d/not.txt", ETC + "b.service.d/70.conf"]
    assert drop_ins(host_with(tmp_path, dict.fromkeys(expected + others, "")), UNIT) == expected


@pytest.mark.parametrize("path", [ETC + UNIT, USR + "a-b@.service", "/run/systemd/generator/" + UNIT])
def test_a_unit_exists_by_its_own_file_or_that_of_its_template(tmp_path, path):
    assert fragment(host_with(tmp_path, {OURS: TEXT, USR + "a-b.service": ""}), UNIT) is None
    assert fragment(host_with(tmp_path, {path: ""}), UNIT) == path


JOINED = {
    "ours resets what was read before": ({USR + "a-b@.service": "CPUAffinity=0-9\nNUMAMask=0-1\nNUMAPolicy=local\n"}, []),
    "a later drop-in extends it": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=0 1\n"}, [("CPUAffinity", "4-7 0 1", ".d/60.conf")]),
    "one that repeats a part of our files changes nothing": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=5\n"}, []),
    "a later drop-in resets it": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=\n"}, [("CPUAffinity", "", None)]),
    "in two lines": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=0 \\\n1\n"}, [("CPUAffinity", "4-7 0  1", ".d/60.conf")]),
    "not in numbers": ({ETC + UNIT + ".d/60.conf": "CPUAffinity=numa\n"}, [("CPUAffinity", "4-7 numa", ".d/60.conf")]),
    "a later policy wins": ({ETC + UNIT + ".d/60.conf": "NUMAPolicy=local\n"}, [("NUMAPolicy", "local", ".d/60.conf")]),
    "a comment says nothing": ({ETC + UNIT + ".d/60.conf": "#CPUAffinity=0\n; NUMAMask=0\n"}, []),
}


@pytest.mark.parametrize("files, expected", list(JOINED.values()), ids=list(JOINED))
def test_what_all_files_say_together(tmp_path, files, expected):
    found = list(differences(host_with(tmp_path, {OURS: TEXT, **files}), UNIT, WANTED))
    assert [(row[0], row[2]) for row in found] == [row[:2] for row in expected]
    assert [row[-1] and row[-1][len(ETC + UNIT) :] for row in found] == [row[-1] for row in expected]


def test_without_the_reset_the_lists_of_a_service_stay(tmp_path):
    host = host_with(tmp_path, {USR + "a-b@.service": "CPUAffinity=0-9\n", OURS: "CPUAffinity=4-7\n"})
    assert values(host, UNIT)["CPUAffinity"] == [(USR + "a-b@.service", "0-9"), (OURS, "4-7")]
    assert list(differences(host, UNIT, {"CPUAffinity": "4-7"})) == [("CPUAffinity", "4-7", "0-9 4-7", USR + "a-b@.service")]
