# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of systems in docs/evidence.md comes from the logs of runs."""

from __future__ import annotations

import datetime
import json
import os
import re

import pytest

from tests.lab.proofs import proofs
from tests.lab.systems import HEAD, PAGE, SOAKS, days, last_shown, rows, soaks, updated, with_days
from tests.rota.proofs import register

DAY = datetime.datetime(2026, 11, 25, 12).timestamp()
HEADER = "lab: image {}, {}, {}, commit {}, 2026-11-{}\n"
MACHINE = "  ok  the machine: {} {}, systemd {} ({}.1-1), Python {}, merged /usr\n"
BIND, IRQ = "tests/lab/test_bind.py::test_bind[a3]", "tests/lab/test_irq.py::test_the_timer[a3]"
DRIVER, LABELS, SOAK = (
    f"tests/lab/test_{name}" for name in ("irq.py::test_the_driver[a3]", "selinux.py::test_labels", "soak.py::test_soak")
)
SUMMARY = "FAILED tests/lab/test_irq.py::test_the_timer[a3] - AssertionError\n===== 2 passed in 12.5s (0:00:12) =====\n"
LOGS = {
    "lab.log": HEADER.format("lab", "bookworm", "x86_64", "1a2b", 21)
    + MACHINE.format("6.1.0-56-cloud-amd64", "x86_64", 252, 252, "3.11.2")
    + f"\n{BIND} \n[gw0] [  1%] PASSED {BIND} \n[gw1] [  2%] RERUN {IRQ} \n[gw1] [  2%] PASSED {IRQ} \n{SUMMARY}",
    "rota.log": HEADER.format("lab", "trixie", "x86_64", "2b3c", 22)
    + MACHINE.format("6.12.9-amd64", "x86_64", 257, 257, "3.13.5")
    + f"[gw0] [  1%] PASSED {BIND} \n[gw1] [  2%] RERUN {IRQ} \n[gw1] [  2%] FAILED {IRQ} \n{SUMMARY}"
    + HEADER.format("selinux", "bookworm", "x86_64", "2b3c", 22)
    + f"{LABELS} PASSED   [100%]\n{SOAK} PASSED   [100%]\n{SUMMARY}",
    "rota-2.log": HEADER.format("lab", "trixie", "x86_64", "3c4d", 23)
    + f"[gw0] [ 50%] PASSED {IRQ} \n[gw1] [100%] ERROR {DRIVER} \n{SUMMARY}",
    "lab-arm.log": HEADER.format("lab", "bookworm", "aarch64", "3c4d", 24)
    + MACHINE.format("6.1.0-56-cloud-arm64", "aarch64", 252, 252, "3.11.2")
    + f"{BIND} PASSED   [  8%]\n{IRQ} SKIPPED (not for aarch64)   [ 16%]\n{SUMMARY}",
    "lab-on-testing.log": HEADER.format("lab", "testing", "x86_64", "3c4d", 24) + f"[gw0] [100%] FAILED {BIND} \n{SUMMARY}",
    "again.log": HEADER.format("lab", "bookworm", "x86_64", "4d5e", 25)
    + f"[gw0] [50%] PASSED {BIND} \n[gw0] [100%] PASSED {SOAK} \n{SUMMARY}",
    "unit.log": "9 passed in 1.0s\n",
}
ROWS = [
    "| Debian 12 | aarch64 | 6.1.0 | 252 | 3.11 | 1 passed, 0 failed, 1 skipped | 2026-11-24 |",
    "| Debian 12 | x86_64 | 6.1.0 | 252 | 3.11 | 2 passed, 0 failed, 1 rerun | 2026-11-25 |",
    "| Debian 13 | x86_64 | 6.12.9 | 257 | 3.13 | 2 passed, 1 failed | 2026-11-23 |",
]


@pytest.fixture
def logs(tmp_path):
    for number, (name, text) in enumerate(LOGS.items()):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (DAY + number, DAY + number))
    return tmp_path


def test_each_system_whose_tests_ran_has_a_row(logs):
    assert rows(logs) == ROWS


def test_each_test_was_shown_where_it_passed_last(logs):
    assert last_shown(logs.glob("*.log")) == {
        BIND: ("Debian 12", "2026-11-25", "4d5e"),
        IRQ: ("Debian 13", "2026-11-23", "3c4d"),
        LABELS: ("Debian 12, SELinux", "2026-11-22", "2b3c"),
        SOAK: ("Debian 12", "2026-11-25", "4d5e"),
    }


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


CLAIMS = """before
| claim | test | last shown |
|---|---|---|
| Binds | `test_bind.py::test_bind[a3]` | 2026-11-01 |
| Binds often | `test_bind.py` | 2026-11-01 |
| Follows | `test_irq.py::test_the_timer`, `test_the_driver` | 2026-11-01 |
| Is gone | `test_irq.py::test_not_run` | 2026-11-01 |
| Is small | `tests/unit/test_x.py::test_y` | 2026-11-01 |
| Alerts | `make metrics` | 2026-11-01 |

| claim | seen |
|---|---|
| Binds | `test_bind.py` |
"""
DATED = re.compile(r"^\|[^|]*\|[^|]*\| \d{4}-\d\d-\d\d \|$")
REMEMBERED = {"trixie:test_bind.py::test_bind[odd]": ["2026-11-30", "abc"], "metrics": ["2026-11-29", "abc"]}


def test_claims_have_the_day_on_which_they_were_last_shown(logs):
    page = with_days(CLAIMS, days(logs.glob("*.log"), REMEMBERED))
    shown = [line.split(" | ")[-1].strip(" |") for line in page.splitlines() if line.count(" | ") == 2]
    assert shown == ["last shown", "2026-11-25", "2026-11-30", "2026-11-23", "2026-11-01", "every run", "2026-11-29"]
    assert page.splitlines()[-1] == CLAIMS.splitlines()[-1]


def test_every_claim_is_shown_by_a_test_that_some_run_begins():
    names = {proof.name.partition(":")[2] or proof.name for proof in register()} | {proof.id.partition(":")[2] for proof in proofs()}
    page = with_days(PAGE.read_text(), dict.fromkeys(names, "begun"))
    assert [line for line in page.splitlines() if DATED.search(line) and "by hand" not in line] == []
