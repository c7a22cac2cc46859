# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo lets the threads go that role threads placed."""

from __future__ import annotations

import functools
import json

import pytest
from tests.fakes.workers import Files, allowed, npu, process

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import PROGRESS
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import SETTINGS, place
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.machine import Killed, Steps

PLAN = {"about": "Managed by npu.affinity", "npus": [npu(0, 0)]}
OURS = {"about": "Managed by npu.affinity: changes are overwritten.", "patterns": {}, "processes": []}


@pytest.fixture
def host(tree):
    return bound(tree)


def bound(tree):
    tree.write({"/sys/devices/system/cpu/online": "0-15", "/etc/npu-affinity/plan.json": json.dumps(PLAN), SETTINGS: json.dumps(OURS)})
    tree.write({PROGRESS: "{}", "/etc/npu-affinity/previous.json": json.dumps({"about": "Managed by npu.affinity", "folders": []})})
    process(tree, 100, "/npu.slice/npu-0.slice", ["worker", "acl_thread"], "0-7", granted="0-7")
    place(tree.host, PLAN)
    return tree.host


def test_threads_get_all_their_cgroup_grants_and_files_vanish(tree, host):
    predicted = unbind(host, check=True)
    assert predicted.of("threads").changed and allowed(tree, 100) == {"worker": "2-5", "acl_thread": "6"}
    done = unbind(host)
    assert done.changed and not done.failed and not done.warnings
    assert allowed(tree, 100) == {"worker": "0-7", "acl_thread": "0-7"}
    assert not host.exists(SETTINGS) and not host.exists(PROGRESS)
    again = unbind(host)
    assert (again.bound, again.changed, again.of("threads")) == (False, False, None)


def killable(steps, host, path, value):
    if steps.root:
        steps.step()
    Host.set_attribute(host, path, value)


def test_a_killed_unbind_releases_threads_when_repeated(tmp_path, monkeypatch):
    steps = Steps(monkeypatch)

    def twin(number):
        (tmp_path / str(number)).mkdir()
        host = bound(Files(tmp_path / str(number)))
        host.set_attribute = functools.partial(killable, steps, host)
        return host

    for last, host in steps.endings(twin, Killed(), unbind):
        assert not unbind(host).failed
        assert allowed(host, 100) == {"worker": "0-7", "acl_thread": "0-7"}, last
        assert not host.exists("/etc/npu-affinity"), last


@pytest.mark.parametrize(
    "text", ["[]", "{", json.dumps({"about": "Managed by npu.affinity", "processes": [{"npus": [9]}], "patterns": {}})]
)
def test_useless_settings_are_a_warning_and_the_rest_is_undone(tree, host, text):
    tree.write({SETTINGS: text})
    done = unbind(host)
    assert "threads stay where they were placed until their processes end: " in done.warnings[0]
    assert not host.exists("/etc/npu-affinity/plan.json")
