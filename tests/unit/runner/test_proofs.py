# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each test of the lab is a proof on every release that it applies to, has its turn, and can be run by its id; what was shown is in
docs/evidence.md; and what is skipped is skipped one by one."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.documents import REPOSITORY
from tests.lab import proofs
from tests.lab.image import HERE
from tests.lab.systems import PAGE, SOAKS, updated, with_days
from tests.rota.changes import AREAS, EVERYTHING, area, touched
from tests.rota.proofs import TURNS, register

IDS = [
    *(f"{suite}:test_undo.py::test_two_binds_at_once" for suite in proofs.SUITES),
    *(f"{suite}:test_cgroups.py::test_services_without_cpusets[v1]" for suite in ("bullseye", "bookworm", "arm64")),
    *(f"{suite}:test_soak.py::test_soak" for suite in (*proofs.SUITES, "engines")),
    "arm64:test_systems.py::test_from_bind_to_unbind",
    "engines-v1:test_adopt.py::test_running_work_is_adopted_and_given_back[engines-v1]",
]
ABSENT = [
    "trixie:test_cgroups.py::test_services_without_cpusets[v1]",
    "bookworm:test_engines.py::test_after_a_reboot",
    "arm64:test_soak.py::test_soak",
]


@pytest.fixture(scope="module")
def by_id():
    return {proof.id: proof for proof in proofs.proofs()}


def test_each_test_is_a_proof_where_it_applies(by_id):
    defined = {name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert {name.rpartition("::")[2].partition("[")[0] for name in by_id} == defined
    assert set(IDS) <= by_id.keys() and not by_id.keys() & set(ABSENT)
    assert len({proof.id for proof in by_id.values() if proof.core}) == 12


def test_each_time_that_was_measured_is_of_a_proof(by_id):
    assert proofs.SECONDS.keys() <= {proof.arguments[0].removeprefix("tests/lab/") for proof in by_id.values()}
    assert proofs.STARTS.keys() - {"image"} <= {proof.shape for proof in by_id.values()}


def test_chosen_proofs_run_together_where_they_can(by_id, monkeypatch):
    runs = []

    def run(command, env=None, **_options):
        if "pytest" in command:
            variables = {name: env[name] for name in ("LAB_SUITE", "LAB_IMAGE", "LAB_ARCH", "SOAK_MINUTES") if name in env}
            runs.append((variables, "-n" in command, [word for word in command if "::" in word]))
        return subprocess.CompletedProcess(command, 1 if "LAB_IMAGE" in (env or {}) else 0, stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("LAB_SUITE", "testing")
    chosen = ["trixie:test_undo.py::test_unbind", "selinux:test_selinux.py::test_irqbalance_that_may_run_no_script"]
    chosen += ["trixie:test_soak.py::test_soak", "trixie:test_bind.py::test_bind[a2]"]
    assert proofs.run([by_id[name] for name in chosen]) == 1
    assert sorted(runs, key=str) == [
        ({"LAB_IMAGE": "selinux"}, False, ["tests/lab/test_selinux.py::test_irqbalance_that_may_run_no_script"]),
        ({"LAB_SUITE": "trixie", "SOAK_MINUTES": "5"}, False, ["tests/lab/test_soak.py::test_soak"]),
        ({"LAB_SUITE": "trixie"}, True, ["tests/lab/test_undo.py::test_unbind", "tests/lab/test_bind.py::test_bind[a2]"]),
    ]
    assert proofs.cost([by_id[chosen[0]]]) == proofs.STARTS["image"] + proofs.STARTS.get("duo", proofs.USUAL) + by_id[chosen[0]].seconds


def test_an_unknown_proof_is_refused(by_id, capsys):
    assert proofs.main(["--run", "bookworm:test_undo.py::test_other"]) == 2
    assert "no such proof: bookworm:test_undo.py::test_other" in capsys.readouterr().err


def test_each_proof_has_a_turn_and_a_name_of_its_own():
    found = register()
    assert len({proof.name for proof in found}) == len(found)
    assert {proof.turn for proof in found} == set(range(TURNS))
    assert all(bool(proof.command) != bool(proof.guest) and proof.seconds > 0 for proof in found)


def test_areas_name_parts_and_proofs_that_exist():
    shown = subprocess.run(
        ["make", "--dry-run", "--print-data-base", "help", "SHARED=a"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    names = [proof.name for proof in register()]
    for patterns, parts, _proofs in AREAS:
        assert parts == EVERYTHING or all(f"\n{part}:" in shown for part in parts.split()), patterns
        path = patterns.split()[0].replace("test_*", "test_irq.py").replace("*", "x")
        assert not area(path)[1] or touched(names, [path]), patterns


def test_the_page_has_the_tables():
    page = PAGE.read_text()
    assert updated(updated(page, []), [], SOAKS) == page


DATED = re.compile(r"^\|[^|]*\|[^|]*\| \d{4}-\d\d-\d\d \|$")


def test_every_claim_is_shown_by_a_test_that_some_run_begins():
    names = {proof.name.partition(":")[2] or proof.name for proof in register()} | {proof.id.partition(":")[2] for proof in proofs.proofs()}
    page = with_days(PAGE.read_text(), dict.fromkeys(names, "begun"))
    assert [line for line in page.splitlines() if DATED.search(line) and "by hand" not in line] == []


WHOLE_FILES = {"tests/unit/plugins/module_utils/test_topology_of_simulated_hosts.py"}
"""Every test of these needs the simulator, and so Python 3.11."""


@pytest.mark.parametrize(("call", "allowed"), [("pytest.importorskip" + "(", set()), ("allow_module_level" + "=True", WHOLE_FILES)])
def test_whole_files_are_skipped_only_where_they_are_listed(call, allowed):
    texts = {str(path.relative_to(REPOSITORY)): path.read_text() for path in REPOSITORY.glob("tests/**/*.py")}
    assert len(texts) > 200
    assert {name for name, text in texts.items() if re.search(re.escape(call), text)} == allowed
