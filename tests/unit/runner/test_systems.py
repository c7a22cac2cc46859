# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of systems in docs/evidence.md comes from the logs of runs."""

from __future__ import annotations

import datetime
import json
import os

import pytest

from tests.lab.systems import HEAD, PAGE, SOAKS, rows, soaks, updated

DAY = datetime.datetime(2026, 11, 25, 12).timestamp()
MACHINE = "  ok  the machine: {} {}, systemd {} ({}.1-1), Python {}, merged /usr\n"
BIND, IRQ = "tests/lab/test_bind.py::test_bind[a3]", "tests/lab/test_irq.py::test_the_timer[a3]"
DRIVER = "tests/lab/test_irq.py::test_the_driver[a3]"
SUMMARY = "FAILED tests/lab/test_irq.py::test_the_timer[a3] - AssertionError\n===== 2 passed in 12.5s (0:00:12) =====\n"
LOGS = {
    "lab.log": MACHINE.format("6.1.0-56-cloud-amd64", "x86_64", 252, 252, "3.11.2")
    + f"\n{BIND} \n[gw0] [  1%] PASSED {BIND} \n[gw1] [  2%] RERUN {IRQ} \n[gw1] [  2%] PASSED {IRQ} \n{SUMMARY}",
    "lab-on-trixie.log": MACHINE.format("6.12.9-amd64", "x86_64", 257, 257, "3.13.5")
    + f"[gw0] [  1%] PASSED {BIND} \n[gw1] [  2%] RERUN {IRQ} \n[gw1] [  2%] FAILED {IRQ} \n{SUMMARY}",
    "lab-on-trixie-2.log": f"[gw0] [ 50%] PASSED {IRQ} \n[gw1] [100%] ERROR {DRIVER} \n{SUMMARY}",
    "lab-arm.log": MACHINE.format("6.1.0-56-cloud-arm64", "aarch64", 252, 252, "3.11.2")
    + f"{BIND} PASSED   [  8%]\n{IRQ} SKIPPED (not for aarch64)   [ 16%]\n{SUMMARY}",
    "lab-on-testing.log": f"[gw0] [100%] PASSED {BIND} \n{SUMMARY}",
    "lab-on-bookworm-2.log": f"[gw0] [100%] PASSED {BIND} \n{SUMMARY}",
    "lab-selinux.log": f"tests/lab/test_selinux.py::test_irqbalance PASSED   [100%]\n{SUMMARY}",
    "unit.log": "9 passed in 1.0s\n",
}
ROWS = [
    "| Debian 12 | aarch64 | 6.1.0 | 252 | 3.11 | 1 passed, 0 failed, 1 skipped | 2026-11-25 |",
    "| Debian 12 | x86_64 | 6.1.0 | 252 | 3.11 | 2 passed, 0 failed, 1 rerun | 2026-11-25 |",
    "| Debian 13 | x86_64 | 6.12.9 | 257 | 3.13 | 2 passed, 1 failed | 2026-11-25 |",
]


def test_each_system_whose_tests_ran_has_a_row(tmp_path):
    for number, (name, text) in enumerate(LOGS.items()):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (DAY + number, DAY + number))
    assert rows(tmp_path) == ROWS


def test_a_row_replaces_that_of_the_same_machine():
    older = ["| Debian 11 | x86_64 | 5.10.0 | 247 | 3.9 | 1 passed, 0 failed | 2026-11-01 |", ROWS[1].replace("2 passed", "1 passed")]
    page = "before\n\n" + HEAD + "".join(f"{row}\n" for row in older) + "\nafter\n"
    assert updated(page, ROWS) == "before\n\n" + HEAD + "".join(f"{row}\n" for row in [older[0], *ROWS]) + "\nafter\n"
    assert updated("before\n\n" + HEAD + "\nafter\n", []) == "before\n\n" + HEAD + "\nafter\n"


@pytest.mark.parametrize("image, release", [("lab", "Debian 13"), ("engines", "Debian 13, container engines")])
def test_each_record_of_a_soak_gives_a_row(tmp_path, image, release):
    record = {"image": image, "suite": "trixie", "architecture": "x86_64", "seed": 7, "minutes": 30, "operations": {"bind": 9, "verify": 4}}
    (tmp_path / "trixie-amd64.json").write_text(json.dumps({**record, "faults": {"clock step": 2}, "findings": ["3 bind: failed"]}))
    os.utime(tmp_path / "trixie-amd64.json", (DAY, DAY))
    assert soaks(tmp_path) == [f"| {release} | x86_64 | 7 | 30 | 13 | 2 | 1 | 2026-11-25 |"]
    assert rows(tmp_path) == []


def test_the_page_has_the_tables():
    page = PAGE.read_text()
    assert updated(updated(page, []), [], SOAKS) == page
