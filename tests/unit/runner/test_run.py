# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program behind ``make test``: what it makes of parts that pass, fail, skip, lack time or lack the machine for them."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests import green, parts, run
from tests.parts import Part, Row, counts, table

PASSES = "echo '3 passed, 1 warning in 0.10s'"
FAILS = "echo '2 failed, 3 passed in 0.10s'; exit 1"
TREE = "a tree"


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(green, "tree", lambda: TREE)


@pytest.fixture
def results(tmp_path):
    def run_parts(*given, minutes=float("inf"), cores=2):
        rows = [Row(part) for part in given]
        run.Runner(rows, time.monotonic() + 60 * minutes, cores, make=("sh", "-c"), logs=tmp_path / "logs").run()
        return rows

    return run_parts


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("....\n12 passed in 3.20s\n", {"passed": 12}),
        ("=== 2547 passed, 3 skipped, 2 warnings in 100.22s (0:01:40) ===", {"passed": 2547, "skipped": 3}),
        ("1 failed, 4 passed, 7 deselected in 0.5s\n1 passed, 4 errors in 2s", {"failed": 1, "passed": 5, "errors": 4}),
        ("no tests ran in 0.01s", {}),
        ("of which 3 passed in 1s", {}),
    ],
)
def test_counts_of_summaries(log, found):
    assert counts(log) == found


def test_a_failed_part_does_not_stop_the_others(results, capsys):
    first, second = results(Part("unit", (f"echo the reason; {FAILS}",), alone=True), Part("package", (PASSES,)))
    assert (first.good, first.tests, second.good, second.tests, second.result) == (False, 5, True, 3, "passed")
    assert re.fullmatch("FAILED, see .*logs/unit.log", first.result)
    assert "the reason" in capsys.readouterr().out
    assert not green.passed("unit", TREE)
    assert green.passed("package", TREE)


@pytest.mark.parametrize(("alone", "cores", "both"), [(False, 2, True), (False, 1, False), (True, 2, False)])
def test_parts_of_one_core_run_beside_each_other(results, tmp_path, alone, cores, both):
    tries = 100 if both else 3
    meet = f"cd {tmp_path}; touch $0; for try in $(seq {tries}); do sleep 0.1; if [ -e one -a -e two ]; then exit; fi; done; rm $0; exit 1"
    found = results(Part("one", (meet, "one"), alone), Part("two", (meet, "two")), cores=cores)
    assert [row.good for row in found] == [both, both]


def test_a_long_part_of_one_core_is_begun_first_and_runs_beside_all(results, tmp_path, capsys):
    waits = f"for try in $(seq 100); do sleep 0.1; if [ -e {tmp_path}/two ]; then exit; fi; done; exit 1"
    touch = f"touch {tmp_path}/$0"
    rows = results(Part("one", (touch, "one"), alone=True), Part("two", (touch, "two"), alone=True), Part("long", (waits,), beside=True))
    assert [row.good for row in rows] == [True] * 3
    assert re.findall(r"^(\w+) \.\.\.$", capsys.readouterr().out, re.MULTILINE) == ["long", "one", "two"]


def test_parts_of_all_cores_keep_the_others_off_beside_a_long_one(results, tmp_path):
    waits = f"for try in $(seq 100); do sleep 0.1; if [ -e {tmp_path}/small ]; then exit; fi; done; exit 1"
    alone = f"sleep 0.5; [ ! -e {tmp_path}/small ]"
    rows = results(Part("unit", (alone,), alone=True), Part("small", (f"touch {tmp_path}/small",)), Part("long", (waits,), beside=True))
    assert [row.good for row in rows] == [True] * 3


def test_a_part_says_how_much_cpu_its_processes_took(results):
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    (row,) = results(Part("unit", (f"{sys.executable} -c '{busy}'; true",)))
    assert 0.5 <= row.cpu < 2


def test_what_failed_is_run_once_more_where_the_machine_may_be_at_fault(results):
    again = "echo '2 passed in 0.1s'"
    lab, unit = results(Part("lab", (FAILS,), retry=(again,)), Part("unit", (FAILS,)))
    assert (lab.good, lab.tests, lab.result) == (True, 5, "passed, 2 retried")
    assert unit.result.startswith("FAILED")


def test_what_fails_once_more_has_failed(results):
    (lab,) = results(Part("lab", (FAILS,), retry=("echo '1 failed, 1 passed in 0.1s'; exit 1",)))
    assert lab.result.startswith("FAILED") and lab.result.endswith(", 2 retried")
    assert lab.tests == 5


def test_what_was_broken_before_any_test_is_not_run_once_more(results):
    (lab,) = results(Part("lab", ("echo no QEMU; exit 1",), retry=(PASSES,)))
    assert lab.result.startswith("FAILED") and "retried" not in lab.result


SKIPS = "echo '3 passed, 2 skipped in 1.00s'"


def test_skipped_tests_are_counted(results):
    (matrix,) = results(Part("matrix", (SKIPS,)))
    assert (matrix.good, matrix.tests, matrix.result) == (True, 3, "passed, 2 skipped")


LACKS = "echo 'incomplete: 2 tests not run: test_a.py::one, test_a.py::two'; echo '3 passed, 2 skipped in 1.00s'; exit 1"


def test_tests_that_a_part_had_no_time_for_make_it_incomplete(results):
    (lab,) = results(Part("lab", (LACKS,)))
    assert not lab.good and lab.result.startswith("incomplete: 2 tests not run, see ")


def test_they_do_so_too_where_what_failed_passes_once_more(results):
    (lab,) = results(Part("lab", (LACKS.replace("3 passed", "1 failed, 3 passed"),), retry=(PASSES,)))
    assert not lab.good and lab.result.startswith("incomplete: 2 tests not run, see ")


def test_a_part_that_fails_and_lacks_tests_has_failed(results):
    (lab,) = results(Part("lab", (LACKS.replace("3 passed", "1 failed, 3 passed"),)))
    assert lab.result.startswith("FAILED, see ")


def test_without_time_a_run_is_incomplete(results):
    unit, lab = results(Part("unit", (PASSES,)), Part("lab", (PASSES,), kept=20), minutes=0.01)
    assert [unit.result, lab.result] == ["incomplete: no time was left for it"] * 2
    assert not unit.good and not lab.good


def test_what_passed_on_the_same_tree_before_may_lack_time(results):
    green.record("unit", TREE)
    (unit,) = results(Part("unit", (PASSES,)), minutes=0)
    assert (unit.good, unit.result) == (True, "passed on this tree before; no time was left for it")


def test_a_part_is_stopped_when_time_is_over(results):
    (unit,) = results(Part("unit", ("exec sleep 300",)), minutes=0.02)
    assert unit.result.startswith("incomplete: stopped after ")
    assert unit.seconds < 200, "a busy machine takes long to stop it, but no part ends by itself"


def test_the_part_that_comes_last_gets_what_is_left(results, tmp_path):
    lab, unit = results(Part("lab", (f"echo $0 > {tmp_path}/asked",), kept=20), Part("unit", (PASSES,)), minutes=30)
    assert lab.good and unit.good
    assert (tmp_path / "asked").read_text() == "LAB_MINUTES=24\n"


def test_what_has_not_passed_on_this_tree_goes_first_when_time_is_short(results, tmp_path):
    green.record("one", TREE)
    results(*(Part(name, (f"echo {name} >> {tmp_path}/order",), alone=True) for name in ("one", "two", "three")), minutes=10)
    assert (tmp_path / "order").read_text().split() == ["two", "three", "one"]


def test_a_part_that_the_machine_cannot_run_says_why_and_is_not_begun(tmp_path, capsys):
    setup = tmp_path / "setup"
    setup.write_text("#!/bin/sh\necho apt-get says no; echo 'The lab needs root.' >&2; exit 1\n")
    setup.chmod(0o755)
    rows = [Row(Part("lab", ("false",), setup=(str(setup),))), Row(Part("unit", (PASSES,)))]
    run.prepare(rows)
    assert [row.result for row in rows] == ["not run: The lab needs root.", ""]
    assert "apt-get says no" in capsys.readouterr().out
    run.Runner(rows, make=("sh", "-c"), logs=tmp_path / "logs").run()
    assert [row.good for row in rows] == [False, True]
    assert parts.verdict(rows) == "incomplete: lab"


def test_the_table():
    rows = [
        Row(Part("unit", ()), "passed", True, 2547, 61.4, 110.2),
        Row(Part("lab", ()), "FAILED, see build/logs/lab.log", False, 0, 5, 1),
        Row(Part("browser", ()), "incomplete: no time was left for it"),
    ]
    assert table(rows, 70).splitlines() == [
        "part      tests  seconds  CPU seconds  result",
        "-" * 74,
        "unit       2547       61          110  passed",
        "lab           -        5            1  FAILED, see build/logs/lab.log",
        "browser       -        0            0  incomplete: no time was left for it",
        "together   2547       70          111  FAILED: lab, browser",
    ]
    assert parts.verdict(rows[:1]) == "passed"


def test_every_part_is_a_target_of_the_makefile():
    targets = set(re.findall(r"^([a-z][a-z -]*):", (green.REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    names = {name for words in targets for name in words.split()}
    for part in (*parts.TEST, *parts.REST, parts.conformance("shared")):
        assert part.target[0] in names
        assert not part.setup or Path(green.REPOSITORY, part.setup[0]).is_file()
    assert len({part.log for part in (*parts.TEST, *parts.REST)}) == len(parts.TEST) + len(parts.REST)


def test_the_status_of_a_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "TEST", (Part("unit", ("help",)),))
    assert run.main(["test"]) == 0
    assert re.search(r"^together +0 +\d+ +\d+  passed$", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(run, "TEST", (Part("unit", ("no-such-target",)),))
    assert run.main(["test"]) == 1


def test_the_end_of_what_a_failed_part_printed_comes_after_the_table(monkeypatch, tmp_path, capsys):
    broken = Part("whole sanity", (f"seq 20; {FAILS}",))
    silent = Part("site", ("false",))
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "TEST", (broken, Part("unit", (PASSES,)), silent))
    monkeypatch.setattr(run.Runner.__init__, "__defaults__", (float("inf"), 0, ("sh", "-c"), None))
    assert run.main(["test"]) == 1
    end = capsys.readouterr().out.rpartition("FAILED: whole sanity, site\n")[2]
    assert end.splitlines() == [
        *("", "whole sanity ended with:", *(f"  {number}" for number in range(14, 21)), "  2 failed, 3 passed in 0.10s"),
        *("", "site ended with:", "  (it printed nothing)"),
    ]
