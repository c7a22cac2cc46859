# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run as Ansible runs them: in a process, arguments on standard input, one JSON result on standard output."""

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.fakes.bound import host_in, state_of
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


@pytest.fixture
def root(tmp_path):
    """A simulated host with two NPUs, on which every feature has what it needs."""
    return host_in(tmp_path)


@pytest.fixture
def topology(root):
    return gather(Host(str(root)))


@pytest.fixture
def act(run_module, root):
    """Run a module on the host."""
    return lambda module, **options: run_module(module, root=str(root), **options)


@pytest.fixture
def bind(act, topology):
    """Bind with some features switched off, and return what module host_files answers."""
    return lambda *off, **options: act("host_files", state=state_of(topology, *off), **options)
