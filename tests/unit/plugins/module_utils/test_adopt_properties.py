# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adoption of any work by any sequence of plans: inside its pool or as before, and as before after unbind."""

from __future__ import annotations

import tempfile

import pytest

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.workers import npu

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._transaction.unbind import unbind
from tests.fakes.work import DOCKER, ID, SERVICE, SESSION, adopt, all_cpus, user, warnings, working

CPUS = st.sets(st.integers(0, 7), min_size=1).map(compress)
THREADS = st.lists(st.none() | CPUS, min_size=1, max_size=3)
WORK = st.fixed_dictionaries(dict.fromkeys((SERVICE, DOCKER, SESSION), THREADS))
PLANS = st.lists(st.tuples(CPUS, CPUS), min_size=1, max_size=3)


@settings(max_examples=9, deadline=None)
@given(work=WORK, pools=PLANS, keeps=st.booleans(), around=CPUS, own=st.just("") | CPUS)
def test_work_is_inside_its_pool_or_as_it_was(work, pools, keeps, around, own):
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as monkeypatch:
        machine = working(root, monkeypatch, keeps)
        machine.engines = {ID: own}
        machine.confine("/system.slice", around)
        for pid, (group, threads) in zip((100, 200, 300), work.items()):
            machine.process(pid, group, threads)
        if own:
            machine.confine(DOCKER, own)
        before = all_cpus(machine)
        for first, second in pools:
            plan = {"npus": [npu(0, 0, pool=first), npu(1, 0, pool=second)]}
            now = all_cpus(machine)
            found = adopt(machine, [user(machine, SERVICE, 0), user(machine, DOCKER, 1), user(machine, SESSION, 0, 1)], plan)
            after = all_cpus(machine)
            for target in found.targets:
                tids = [tid for tid, (pid, _group) in machine.groups.items() if pid in target.pids(machine)]
                if target.state in ("refused", "failed"):
                    assert {tid: after[tid] for tid in tids} == {tid: now[tid] for tid in tids}
                else:
                    assert all(set(expand(after[tid])) <= target.wanted for tid in tids)
            assert not adopt(
                machine, [user(machine, SERVICE, 0), user(machine, DOCKER, 1), user(machine, SESSION, 0, 1)], plan
            ).work.adopted
        report = unbind(machine)
        assert not report.failed and not warnings(report)
        assert all_cpus(machine) == before
        assert not machine.exists(previous.PATH)
