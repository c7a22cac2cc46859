# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How ``make test`` runs its parts and sums them up, and what targets pass to ansible-playbook, in a checkout whose path has a blank."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests.documents import REPOSITORY
from tests.parts import summary

TARGETS = r"""
passes: ; @echo '=== 3 passed, 1 skipped, 2 warnings in 0.10s ==='
fails: ; @seq -f 'line %g' 100; echo '2 failed, 3 passed, 1 error in 0.10s'; exit 1
silent: ; @:
broken: ; @echo no QEMU; exit 3
waits: ; @sleep 2
hangs: ; @echo begins; sleep 300
interrupted: ; @trap 'echo tidied up; exit 1' INT; echo begins; sleep 300
busy: ; @ulimit -t 60; python3 -c "exec('while True: pass')"
busy-daemon: ; @ulimit -t 60; setsid --fork python3 -c "exec('while True: pass')" $$PLACE & sleep 300
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
        given = {"ONE_CORE": parts, "ALL_CORES": alone, "LOGS": tmp_path / "logs", **variables}
        command = ["make", "--old-file=setup-test", "test", *(f"{name}={value}" for name, value in given.items())]
        environment = {**inherited, "MAKEFILES": str(tmp_path / "targets"), "PLACE": str(tmp_path)}
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, timeout=120, check=False, **output)
        return done.returncode, done.stdout.splitlines()

    return run


def row(lines, part):
    """The word and the counts of a part in the table."""
    (found,) = (line for line in lines if re.match(rf"{part} +\w+.* CPU\b", line))
    return re.fullmatch(rf"{part} +([A-Za-z ]+?) +\d+ s +\d+ s of CPU *(.*)", found).groups()


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


@pytest.mark.parametrize("part, said", [("hangs", "begins"), ("interrupted", "tidied up"), ("busy", None), ("busy-daemon", None)])
def test_a_part_that_exceeds_a_limit_is_stopped(make_test, part, said):
    begun = time.monotonic()
    status, lines = make_test(f"{part} passes", **{f"LIMIT_{part}": 1})
    assert time.monotonic() - begun < 250
    assert status != 0 and (said is None or said in lines)
    assert row(lines, part) == ("STOPPED", "")
    assert row(lines, "passes")[0] == "passed"


def test_the_limit_counts_the_cpu_and_not_the_clock(make_test):
    """A part that waits twice as long as its limit passes; one that computes as long does not."""
    status, lines = make_test("waits passes", "silent", LIMIT_waits=1)
    assert (status, row(lines, "waits")[0], lines[-1]) == (0, "passed", "5 passed, 0 failed, 1 skipped")


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
    "log, found",
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


def dry_run(*words):
    command = ["make", "--dry-run", *words]
    environment = {**os.environ, "MAKEFLAGS": ""}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def test_parts_are_targets():
    shown = dry_run("--print-data-base", "help", "SHARED=a")
    lists = re.findall(r"^(?:\S+: )?(?:ONE_CORE|ALL_CORES|CORE_ONLY) := (.*)$", shown, re.MULTILINE)
    parts = " ".join(lists).replace("$(if $(SHARED),conformance)", "conformance").split()
    targets = set(re.findall(r"^([a-z-]+):", shown, re.MULTILINE))
    assert {"lab-core", "headline", "integration", "ansible-lint"} <= set(parts)
    assert sorted(set(parts) - targets) == [] and all(len(set(each.split())) == len(each.split()) for each in lists)


def test_what_every_submission_shows():
    """``make test-core`` and ``make test-all`` run all parts of ``make test``, with all tests of playbooks instead of headline ones."""
    targets = ("test", "test-core", "test-all")
    parts = {target: set(re.search("^echo (.*) >", dry_run(target, "UNAFFECTED="), re.MULTILINE)[1].split()) for target in targets}
    assert parts["test"] - parts["test-core"] == {"headline"}
    assert parts["test-core"] - parts["test"] == {"integration", "ansible-lint", "package", "sanity-changed"}
    assert parts["test-core"] < parts["test-all"]


PLAYBOOK = f"""#!{os.path.realpath(sys.executable)} -IS
import json, os, sys
print(json.dumps({{"arguments": sys.argv[1:], "config": os.environ["ANSIBLE_CONFIG"]}}))
"""


@pytest.fixture
def make(tmp_path):
    """Runs a target, and returns what ansible-playbook gets: its arguments, and the variables of ``-e`` in one mapping."""
    checkout = tmp_path / "a checkout"
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / "tests").mkdir()
    (checkout / ".venv/bin/ansible-playbook").write_text(PLAYBOOK)
    (checkout / ".venv/bin/ansible-playbook").chmod(0o755)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    shutil.copy(REPOSITORY / "Makefile", checkout)
    (checkout / "tests/find-python").symlink_to(REPOSITORY / "tests/find-python")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MAKE", "MFLAGS"))}

    def run(target, **variables):
        command = ["make", "--silent", *(f"--old-file={name}" for name in (".venv/run.stamp", "fleet", "site")), target]
        command += [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        arguments = found["arguments"]
        given = [value for option, value in zip(arguments, arguments[1:], strict=False) if option == "-e"]
        extra = {name: value for text in given for name, value in json.loads(text).items()}
        return checkout, found, extra

    return run


FILES = [
    ("verify", {"reports": "build/reports"}),
    ("report", {"report": "build/report.html", "measures": "build/measures"}),
    ("collect", {"archives": "build/archives"}),
    ("inspect", {"archives": "build/archives", "report": "build/inspect.html"}),
    ("measure", {"measures": "build/measures"}),
    ("place", {"placement_file": "build/placement.json"}),
]


@pytest.mark.parametrize(("target", "places"), FILES, ids=[target for target, _places in FILES])
def test_files_lie_in_a_checkout_whose_path_has_a_blank(make, target, places):
    inventory = "an inventory/hosts.yml"
    checkout, found, extra = make(target, INVENTORY=inventory)
    assert {name: value for name, value in extra.items() if name != "npu_affinity_request"} == {
        f"npu_affinity_{name}": f"{checkout}/{place}" for name, place in places.items()
    }
    assert found["arguments"][found["arguments"].index("-i") + 1] == inventory
    assert found["arguments"][-1] == f"playbooks/{target}.yml"


def test_paths_with_blanks_are_passed_and_settings_found(make, tmp_path):
    checkout, _found, extra = make("place", FACTS="../the facts")
    assert extra["npu_affinity_facts"] == f"{checkout.parent}/the facts"
    assert make("place")[2]["npu_affinity_facts"] == f"{checkout}/build/site/facts"
    assert make("inspect", ARCHIVE="/an archive")[2]["npu_affinity_archives"] == "/an archive"
    (tmp_path / "the site").mkdir()
    (tmp_path / "the site/ansible.cfg").write_text("")
    for inventory in ("../the site/hosts.yml", "../the site/", f"{tmp_path}/the site/hosts.yml"):
        assert make("report", INVENTORY=inventory)[1]["config"] == f"{tmp_path}/the site/ansible.cfg", "the one next to an inventory first"
