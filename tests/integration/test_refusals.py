# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a bind refuses before it touches anything: each host says why, and all others are bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.fakes.changes import SHARED
from tests.fakes.small_host import MACHINE, NODE, THREADS, read_drop_ins, slices, write
from tests.simulator.faults import set_faults
from tests.simulator.generate import merge

VNPUS = [{"name": "a", "npu": 0, "memory_mib": 28672, "core": 20}, {"name": "b", "npu": 0, "memory_mib": 28672, "core": 40}]
HELD = {"policy": "static", "default_cpus": "0-15,20-31", "exclusive": {"0f2a4c1e": {"worker": "16-19"}}}
HOLDER = merge(MACHINE, {"npus": {"processes": [{"npu": 0, "pid": 4711, "comm": "python"}]}})
KUBELET = {"npu_affinity_kubelet_enabled": True}


class Refused(NamedTuple):
    """What a host says (``sentences``), its variables, and how it differs from the others."""

    sentences: list
    variables: dict = {}
    machine: str | dict = MACHINE
    prepare: Callable = lambda tree: None


REFUSED = {
    "broken": Refused(["-8005"], machine="a2_broken"),
    "hanging": Refused(["did not answer within 1 s"], {"npu_affinity_timeout": 1}, prepare=lambda tree: set_faults(tree, sleep=30)),
    "overlapping": Refused(["share CPUs"], {"npu_affinity_repair": False}, "a2_4x48"),
    "unknown": Refused(["a.service wants NPU 77"], {"npu_affinity_services": [{"unit": "a.service", "npus": [77]}]}),
    "not-installed": Refused(
        ["vlm@0.service (did you mean vllm@.service?) is not installed"],
        {"npu_affinity_services": [{"unit": "vlm@0.service", "npus": [0]}], "npu_affinity_fail_on": ["drift", "services"]},
        prepare=lambda tree: write(tree, "/usr/lib/systemd/system/vllm@.service", "[Service]\nExecStart=/usr/bin/vllm\n"),
    ),
    "misspelled": Refused(
        ["the variable npu_affinity_strategey is not a setting of npu.affinity; did you mean"], {"npu_affinity_strategey": "even_split"}
    ),
    "holder": Refused(
        [
            "python.service in system.slice (process 4711 python; /dev/davinci0)",
            "to CPUs 0,16",
            "npu_affinity_housekeeping_confine_holders: true",
        ],
        {"npu_affinity_housekeeping": "1"},
        HOLDER,
    ),
    "container": Refused(
        ["This is a container: PID 1 is python3, not systemd"], prepare=lambda tree: write(tree, "/proc/1/comm", "python3\n")
    ),
    "threads": Refused(
        ["with npu_affinity_bound_by=workers the workers do it themselves"], {**THREADS, "npu_affinity_bound_by": "workers"}
    ),
    "no-drop-ins": Refused(
        ["The kubelet reads no folder of drop-ins. Start it with --config-dir=/etc/kubernetes/kubelet.conf.d"], KUBELET, NODE
    ),
    "greedy": Refused(["are all CPUs of the host"], {**KUBELET, "npu_affinity_kubelet_reserved": "0-31"}, NODE, read_drop_ins),
    "held": Refused(
        ["gave to containers: 16-17 of 0f2a4c1e/worker (which holds 16-19)"], KUBELET, {**MACHINE, "kubelet": HELD}, read_drop_ins
    ),
    "too-much": Refused(["b wants 28672 MiB and 81 % of NPU 0"], {**SHARED, "npu_affinity_vnpus": [VNPUS[0], {**VNPUS[1], "core": 81}]}),
    "no-such-npu": Refused(
        ["b wants NPU 5, but the plan of this host has NPU 0, 1"], {**SHARED, "npu_affinity_vnpus": [{**VNPUS[1], "npu": 5}]}
    ),
    "not-shared": Refused(["device share of NPU 0 is off and stays off"], {"npu_affinity_vnpus": VNPUS}),
    "no-file": Refused(
        ["/usr/local/hami-vnpu-core/ld.so.preload is not on the host (a file that names"], {**SHARED, "npu_affinity_vnpus": VNPUS}
    ),
    "no-limiter": Refused(
        ["containers of vNPUs would run without any limit. Place it"],
        {**SHARED, "npu_affinity_vnpus": VNPUS, "npu_affinity_vnpu_limiter": ""},
    ),
}


@pytest.mark.headline
def test_refused_hosts_say_why_and_stay_and_others_are_bound(fleet):
    hosts = fleet(**{host: refused.machine for host, refused in REFUSED.items()}, good="i310_pro", v1={**HOLDER, "cgroup": "v1"})
    for host, refused in REFUSED.items():
        refused.prepare(hosts.tree(host))
    hosts.give({host: refused.variables for host, refused in REFUSED.items()} | {"v1": REFUSED["holder"].variables})
    with hosts.untouched(*REFUSED):
        run = hosts.play("bind", npu_affinity_batches=["100%"])
    assert run.status != 0
    failed = ["no-file", "no-limiter"]  # only the transaction sees the files of the host
    states = {"changed": ["good", "v1"], "failed": failed, "refused": sorted(REFUSED.keys() - set(failed))}
    assert run.summary["states"] == states, "cgroup v1 has no housekeeping"
    assert {host: said for host, refused in REFUSED.items() for said in refused.sentences if said not in run.failure(host)} == {}
    assert slices(hosts.tree("good"))
