# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a directory of case files and captures through the real filters and parsers, one test per case.

``pytest tests/conformance --shared=DIR``. DIR holds ``cases/*.json``, ``captures/expected.json`` with its captures and, optionally,
``sysfs/*.json`` with its trees, ``npu-smi-runs/index.json`` with its texts, and ``cases/reports`` with machines (``test_reports.py``).
``adaptors/table.py`` names the check of every family of cases; a file that it does not know is a skip that names it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from adaptors import table

OUTCOMES = ("passed", "failed", "skipped")


def pytest_addoption(parser):
    parser.addoption("--shared", type=Path, default=None, help="directory with cases/ and captures/")


def _sources(shared):
    """Yield ``(file, adaptor names)`` for everything that the directory holds."""
    for file in sorted((shared / "cases").glob("*.json")):
        yield file, [file.stem]
    for folder, names in (("captures", ["expected"]), ("npu-smi-runs", ["index", "npu_smi_runs"])):
        for file in sorted((shared / folder).glob(f"{names[0]}.json")):
            yield file, names
    for file in sorted((shared / "sysfs").glob("*.json")):
        yield file, ["sysfs"]


def _not_covered(name):
    def check():
        pytest.skip(f"the table of families does not cover {name} yet")

    return check


def pytest_generate_tests(metafunc):
    if "conformance_case" not in metafunc.fixturenames:
        return
    shared = metafunc.config.getoption("--shared")
    found = []
    for file, names in _sources(shared) if shared else ():
        document = json.loads(file.read_text())
        for name in names:
            label = f"{file.parent.name}/{file.stem}" + ("" if name in (file.stem, "sysfs") else f"-{name}")
            cases = table.cases(name, document, file.parent)
            if cases is None:
                found.append((label, _not_covered(f"{file.parent.name}/{file.name}")))
            else:
                found += [(f"{label}: {case_id}", check) for case_id, check in cases]
    metafunc.parametrize("conformance_case", [check for case_id, check in found], ids=[case_id for case_id, check in found])


def pytest_unconfigure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        counts = {outcome: len(reporter.stats.get(outcome, ())) for outcome in OUTCOMES}
        counts["failed"] += len(reporter.stats.get("error", ()))
        print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES))
