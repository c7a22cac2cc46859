# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run as Ansible runs them: in a process of their own, arguments on standard input, one JSON result on standard output."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("ansible.module_utils.basic", reason="modules need ansible-core")


@pytest.fixture(scope="session")
def run_module():
    def run(name, **arguments):
        command = [sys.executable, "-m", "ansible_collections.npu.affinity.plugins.modules." + name]
        text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
        process = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert process.stdout, process.stderr
        result = json.loads(process.stdout)
        assert bool(result.get("failed")) is bool(process.returncode)
        return result

    return run
