# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators' reports through the playbooks. All hosts of all reports are one fleet, over which each playbook runs once."""

from __future__ import annotations

import functools

import pytest
from played import play
from reports import reports

from tests.integration import controller


@functools.cache
def _reports(shared):
    folder = shared / "cases/reports" if shared else None
    return {report.folder.name: report for report in reports(folder)} if folder and folder.is_dir() else {}


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", _reports(metafunc.config.getoption("--shared")))


@pytest.fixture(scope="module")
def played(request, tmp_path_factory):
    found = _reports(request.config.getoption("--shared")).values()
    yield play(tmp_path_factory.mktemp("reports"), {name: host for report in found for name, host in report.hosts.items()})
    controller.close()


def test_report(name, played, request):
    report = _reports(request.config.getoption("--shared"))[name]
    if report.skip:
        pytest.skip(report.skip)
    report.check(played)
    refused = {host for host in report.hosts if played.bound.summary["hosts"][host]["state"] in ("refused", "nothing to bind")}
    changed = {name for name, host in report.hosts.items() if host.happens}
    for host in report.hosts.keys() - refused - changed:
        assert played.verified.summary["hosts"][host]["state"] in ("as bound", "bound, workloads not")
        assert played.again.summary["hosts"][host]["state"] == "unchanged" and not played.again.changed(host)
