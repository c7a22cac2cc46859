# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run as Ansible runs them: in a process, arguments on standard input, one JSON result on standard output."""

from __future__ import annotations

import json

import pytest

from tests.fakes.programs import run_main


@pytest.fixture(scope="session")
def run_module():
    def run(name, **arguments):
        text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
        process = run_main("ansible_collections.npu.affinity.plugins.modules." + name, text=text)
        assert process.stdout, process.stderr
        result = json.loads(process.stdout)
        assert bool(result.get("failed")) is bool(process.returncode)
        result["warnings"] = [given if isinstance(given, str) else given["event"]["msg"] for given in result.get("warnings", [])]
        return result

    return run
