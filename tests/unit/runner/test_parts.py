# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How ``make test`` runs its parts and sums them up, with targets of the tests' own."""

from __future__ import annotations

import os
import re
import subprocess
import time

import pytest

from tests.parts import summary
from tests.documents import REPOSITORY

TARGETS = r"""
passes: ; @echo '=== 3 passed, 1 skipped, 2 warnings in 0.10s ==='
fails: ; @seq -f 'line %g' 100; echo '2 failed, 3 passed, 1 error in 0.10s'; exit 1
silent: ; @:
broken: ; @echo no QEMU; exit 3
waits: ; @sleep 2
hangs: ; @echo begins; sleep 300
interrupted: ; @trap 'echo tidied up; exit 1' INT; echo begins; sleep 300
busy: ; @python3 -c "exec('while True: pass')"
busy-daemon: ; @setsid --fork python3 -c "exec('while True: pass')" $$PLACE & sleep 300
leaves: ; @setsid --fork sleep 299 </dev/null >/dev/null 2>&1; echo $$(pgrep --full --newest 'sleep 299') > $$PLACE/left
one two: ; @touch $$PLACE/$@; for try in $$(seq 100); do sleep 0.1; if [ -e $$PLACE/one -a -e $$PLACE/two ]; then exit; fi; done; exit 1
late: ; @sleep 0.2; [ ! -e $$PLACE/alone-began ]
alone: ; @touch $$PLACE/alone-began; sleep 0.5; [ ! -e $$PLACE/other-began ]; touch $$PLACE/alone-ended
other: ; @touch $$PLACE/other-began; [ -e $$PLACE/alone-ended ]
"""


@pytest.fixture
def make_test(tmp_path):
    """Runs ``make test`` with given parts, and returns its status and the lines of its output."""
    (tmp_path / "targets").write_text(TARGETS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def run(parts, alone="", **variables):
        words = [
            f"{name}={value}" for name, value in {"ONE_CORE": parts, "ALL_CORES": alone, "LOGS": tmp_path / "logs", **variables}.items()
        ]
        environment = {**inherited, "MAKEFILES": str(tmp_path / "targets"), "PLACE": str(tmp_path)}
        command = ["make", "--old-file=setup-test", "test", *words]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout.splitlines()

    return run


def row(lines, part):
    """The word and the counts of a part in the table."""
    (found,) = (
        re.fullmatch(rf"{part} +([A-Za-z ]+?) +\d+ s +\d+ s of CPU *(.*)", line)
        for line in lines
        if re.match(rf"{part} +\w+.* CPU\b", line)
    )
    return found.groups()


def test_every_part_runs_and_one_summary_ends_the_run(make_test):
    status, lines = make_test("passes fails silent", "broken passes-not")
    assert status != 0
    assert row(lines, "passes") == ("passed", "3 passed, 0 failed, 1 skipped")
    assert row(lines, "fails") == ("FAILED", "3 passed, 3 failed")
    assert row(lines, "silent") == ("passed", "")
    assert row(lines, "broken") == row(lines, "passes-not") == ("FAILED", "")
    assert [line for line in lines if re.match(r"\d+ passed", line)] == ["7 passed, 5 failed, 1 skipped"]
    assert not any(line.startswith("help ") for line in lines), "no parts are not the default target"
    shown = lines.index("=== fails: FAILED; its log ends with")
    assert lines[shown + 1 : shown + 3] == ["line 43", "line 44"]
    assert shown < lines.index("no QEMU") < next(number for number, line in enumerate(lines) if line.startswith("passes  "))
    assert lines[-2] == "7 passed, 5 failed, 1 skipped" and lines[-1].startswith("make: ***")


def test_a_run_in_which_all_parts_pass_ends_with_zero(make_test):
    status, lines = make_test("passes", "silent")
    assert (status, lines[-1]) == (0, "4 passed, 0 failed, 1 skipped")


@pytest.mark.parametrize(
    ("part", "said"),
    [("hangs", "begins"), ("interrupted", "tidied up"), ("busy", None), ("busy-daemon", None)],
)
def test_a_part_that_exceeds_a_limit_is_stopped(make_test, part, said):
    begun = time.monotonic()
    status, lines = make_test(f"{part} passes", **{f"LIMIT_{part}": 1})
    assert time.monotonic() - begun < 250
    assert status != 0 and (said is None or said in lines)
    assert row(lines, part) == ("STOPPED", "")
    assert row(lines, "passes")[0] == "passed"


def test_the_limit_counts_the_cpu_and_not_the_clock(make_test):
    """A part that waits twice as long as its limit passes; one that computes as long does not."""
    status, lines = make_test("waits passes", LIMIT_waits=1)
    assert status == 0 and row(lines, "waits")[0] == "passed"


def test_no_process_outlives_its_part(make_test, tmp_path):
    assert make_test("leaves")[0] == 0
    assert not os.path.exists(f"/proc/{(tmp_path / 'left').read_text().strip()}")


def test_parts_of_one_core_run_side_by_side(make_test):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    assert make_test("one two")[0] == 0


def test_parts_of_all_cores_run_alone_and_last(make_test):
    assert make_test("late silent", "alone other")[0] == 0


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("....\n12 passed in 3.20s\n", {"passed": 12}),
        ("=== 2547 passed, 3 skipped, 2 warnings in 100.22s (0:01:40) ===", {"passed": 2547, "skipped": 3}),
        ("1 failed, 4 passed, 7 deselected in 0.5s\n1 passed, 4 errors, 1 rerun in 2s", {"failed": 5, "passed": 5, "rerun": 1}),
        ("no tests ran in 0.01s", {}),
        ("of which 3 passed in 1s", {}),
    ],
)
def test_counts_of_summaries(log, found):
    assert summary.counts(log) == found


def test_parts_are_targets():
    shown = subprocess.run(
        ["make", "--dry-run", "--print-data-base", "help", "SHARED=a"],
        cwd=REPOSITORY,
        env={**os.environ, "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    lists = re.findall(r"^(?:ONE_CORE|ALL_CORES|CORE_ONLY) := (.*)$", shown, re.MULTILINE)
    parts = " ".join(lists).replace("$(if $(SHARED),conformance)", "conformance").split()
    targets = set(re.findall(r"^([a-z-]+):", shown, re.MULTILINE))
    assert len(lists) == 3 and "lab-core" in parts
    assert sorted(set(parts) - targets) == [] and len(set(parts)) == len(parts)
