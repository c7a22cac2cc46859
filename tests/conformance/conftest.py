# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a directory of case files and captures through the real filters and parsers, one test per case.

``pytest tests/conformance --shared=DIR``. DIR holds ``cases/*.json``, ``captures/expected.json`` with its captures and, optionally,
``sysfs/*.json`` with its trees, ``npu-smi-runs/index.json`` with its texts, and ``cases/reports`` with machines (``test_reports.py``).
``adaptors/table.py`` names the check of every family of cases; a file that it does not know is a skip that names it.
"""

import json
from pathlib import Path

import pytest
from adaptors import table

OUTCOMES = ("passed", "failed", "skipped")
SOURCES = {
    "cases/*.json": [],
    "captures/expected.json": [],
    "npu-smi-runs/index.json": ["index", "npu_smi_runs"],
    "sysfs/*.json": ["sysfs"],
}
"""The files of the directory, and the rows of the table that each has, where it has others than its name."""


def pytest_addoption(parser):
    parser.addoption("--shared", type=Path, default=None, help="directory with cases/ and captures/")


def pytest_generate_tests(metafunc):
    if "conformance_case" not in metafunc.fixturenames:
        return
    shared, found = metafunc.config.getoption("--shared"), []
    for pattern, names in SOURCES.items() if shared else ():
        for file in sorted(shared.glob(pattern)):
            document = json.loads(file.read_text())
            for name in names or [file.stem]:
                label = f"{file.parent.name}/{file.stem}" + ("" if name in (file.stem, "sysfs") else f"-{name}")
                found += [pytest.param(check, id=f"{label}: {case}") for case, check in table.cases(name, document, file.parent)]
    metafunc.parametrize("conformance_case", found)


def pytest_unconfigure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        counts = {outcome: len(reporter.stats.get(outcome, ())) for outcome in OUTCOMES}
        counts["failed"] += len(reporter.stats.get("error", ()))
        print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES))
