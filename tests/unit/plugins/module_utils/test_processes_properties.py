# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a plan, a machine and the cpusets on it look like: threads end up in the pools of their NPUs, or where they were."""

from __future__ import annotations

import tempfile

from tests.fakes.workers import Files, npu, process

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import place

NAMES = ["worker", "acl_thread", "release_thread", "uvb_poll_window", "pt_data"]
cpus = st.sets(st.integers(0, 15), min_size=1).map(frozenset)


@st.composite
def entries(draw, number):
    pool = draw(cpus)
    role = st.sets(st.sampled_from(sorted(pool))).map(compress)
    return npu(number, 0, pool=compress(pool), irq=draw(role), main=draw(role), acl=draw(role), release=draw(role), kv=draw(role))


@settings(max_examples=20, deadline=None)
@given(
    npus=st.tuples(entries(0), entries(1)),
    online=cpus,
    granted=st.one_of(st.none(), cpus),
    both=st.booleans(),
    names=st.sets(st.sampled_from(NAMES), min_size=1),
)
def test_threads_reach_their_pool_or_stay_and_reruns_do_nothing(npus, online, granted, both, names):
    with tempfile.TemporaryDirectory() as folder:
        tree = Files(folder)
        tree.write({"/sys/devices/system/cpu/online": compress(online)})
        process(tree, 10, "/npu.slice/npu-0.slice/a.scope", sorted(names), "0-15", granted and compress(granted))
        process(tree, 20, "/npu.slice/npu-9.slice", sorted(names), "0-15")
        wanted = [{"npus": [0, 1] if both else [0], "slice": "npu-0.slice"}]
        pool = {cpu for entry in npus[: 1 + both] for cpu in expand(entry["pool"])}
        report = place(tree.host, {"npus": list(npus)}, wanted)
        there = pool & online & (granted or online)
        (row,) = report.processes
        for entry in row["threads"]:
            after = set(expand(entry["after"]))
            if entry["role"] == "leave":
                assert entry["state"] == "left" and entry["before"] == entry["after"]
            elif there:
                assert entry["state"] in ("moved", "placed") and after & online and after & online <= there
            else:
                assert entry["state"] == "refused" and entry["before"] == entry["after"] and report.failed
        assert not place(tree.host, {"npus": list(npus)}, wanted).changed
