# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is predicted for pods with NPUs before there is one: hints of device plugins, and what the kubelet makes of them."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.forecast import forecast, hints, remarks

NUMA = [{"id": 0, "cpus": "0-23"}, {"id": 2, "cpus": "24-47,72-95"}, {"id": 250, "cpus": ""}]
KUBELET = {"version": "1.34.1", "policy": "static", "topology_policy": "single-numa-node", "warnings": []}


def topology(*npus, cgroup="v2", **kubelet):
    listed = [{"kind": "npu", "id": number, "affinity": affinity, "numa": numa} for number, (affinity, numa) in enumerate(npus)]
    return {"machine": {"cgroup": cgroup}, "numa": NUMA, "npus": listed, "kubelet": {**KUBELET, **kubelet}}


PLAN = {"npus": []}
POOLS = [(0, "0-23", "0-1"), (1, "24-47", "24-25")]
OWN = [("0-23", 0), ("24-47,72-95", 2)]


def test_hints_follow_the_cpulist_text_then_the_pci_function():
    host = topology(("0-23", 0), ("24-47,72-95", 0), ("24-47", 2), ("0-23,24-47", None), (None, None), (None, 0))
    assert hints(host) == {0: 0, 1: 2, 2: 2, 3: None, 4: None, 5: 0}


@pytest.mark.parametrize(
    "npus, kubelet, words",
    [
        (OWN, {}, "which hints at the NUMA node of the NPU, the kubelet takes a pod's CPUs from that node alone, and refuses pods"),
        (OWN, {"topology_policy": "restricted"}, "takes a pod's CPUs from that node, and refuses pods for which it has too few left"),
        (OWN, {"topology_policy": "best-effort"}, "where enough are free, else from others (best-effort); HAMi's hints at nothing"),
        (OWN, {"topology_policy": "none"}, "without a look at its NPUs (topology manager none)"),
        (OWN, {"policy": "none"}, "Pods have no CPUs of their own on this node (CPU manager none)"),
        ([("0-23", 0), ("0-23,24-47", None)], {}, "hints at the NUMA node of the NPU, but nothing for NPU 1, the kubelet"),
        ([("0-23", 2), ("24-47", 2), (None, None)], {}, "but node 0 for NPU 0, which sysfs has on node 2, nothing for NPU 2, the kubelet"),
        ([("0-23,24-47", None)], {}, "which hints at nothing here, the kubelet"),
    ],
)
def test_one_sentence_says_what_becomes_of_hints(npus, kubelet, words):
    (sentence,) = remarks(topology(*npus, **kubelet), PLAN)
    assert words in sentence and sentence.endswith(".")


@pytest.mark.parametrize(
    "cgroup, kubelet, said",
    [
        ("v1", {"version": "1.35.0"}, "Kubelet 1.35.0 does not start on this host, which has cgroup v1"),
        ("hybrid", {"version": "1.37.2"}, "which has cgroup hybrid"),
        ("v1", {"version": "1.34.9"}, None),
        ("v1", {"version": None}, None),
        ("v1", {"version": "1.36.0", "fail_cgroup_v1": "false"}, None),
        ("v2", {"version": "1.36.0"}, None),
    ],
)
def test_a_kubelet_that_does_not_start_on_cgroup_v1(cgroup, kubelet, said):
    told = [sentence for sentence in remarks(topology(*OWN, cgroup=cgroup, **kubelet), PLAN) if "cgroup" in sentence]
    assert len(told) == (said is not None) and all(said in sentence and "failCgroupV1: false" in sentence for sentence in told)


def test_what_is_wrong_with_the_kubelets_files_is_said_too():
    assert remarks(topology(*OWN, warnings=["/var/lib/kubelet/cpu_manager_state has lost CPUs 4-5"]), PLAN)[0].endswith(
        "has lost CPUs 4-5."
    )


def test_no_kubelet_and_no_npu_have_no_forecast():
    assert remarks({**topology(*OWN), "kubelet": None}, PLAN) == [] and forecast({**topology(*OWN), "kubelet": None}) == []
    assert remarks(topology(), PLAN) == remarks({**topology(), "npus": [{"kind": "gpu", "id": 0, "numa": 0}]}, PLAN) == []


@pytest.mark.parametrize(
    "hinted, kubelet, words",
    [
        ([("0-23", 0), ("0-23", 0)], {}, "are refused once these are taken (single-numa-node): 24 of 44 on node 0 for NPU 0 and NPU 1."),
        ([("0-23", 0), ("0-23", 0)], {"topology_policy": "best-effort"}, "get the rest from other nodes (best-effort): 24 of 44 on node 0"),
        (OWN, {"reserved_cpus": "0-5"}, "18 of 22 on node 0 for NPU 0."),
        (OWN, {"reserved_cpus": "0-1"}, None),
        ([("0-23", 0), ("0-23", 0)], {"topology_policy": "none"}, None),
        ([("0-23", 0), ("0-23", 0)], {"policy": "none"}, None),
        ([(None, None), (None, None)], {}, None),
    ],
)
def test_nodes_with_too_few_cpus_for_the_pods_of_their_npus(hinted, kubelet, words):
    made = {"npus": [{"id": number, "pool": pool, "irq": irq, "slice": f"npu-{number}.slice"} for number, pool, irq in POOLS]}
    told = [sentence for sentence in remarks(topology(*hinted, **kubelet), made) if "pods that ask for as many" in sentence]
    assert len(told) == (words is not None) and all(words in sentence for sentence in told)
