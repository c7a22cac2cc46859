# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods have of a plan's CPUs, hints of device plugins, and what the kubelet makes of them."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from planner_hosts import host
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import facts, settings
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.method import Work
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import pods
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.drop_in import kubelet_drop_in
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand

FIRST, SECOND = "777870b5-c64f-42f5-9296-688b9dc212ba", "fb15e10a-b6a5-4aaa-8fcd-76c1aa64e6fd"
PUBLISHED = {
    "policyName": "static",
    "defaultCpuSet": "0,10-15,25-31",
    "entries": {FIRST: {"container-1": "16-24"}, SECOND: {"container-1": "1-9"}},
    "checksum": 318470969,
}
"""The example of the CCE page "NUMA Affinity Scheduling"."""
NODE = host([0, 0, 1, 1], nodes=2, cores=16, machine={"architecture": "aarch64", "cgroup": "v2", "systemd": 255})
HELD = f"CPUs for interrupts that the kubelet gave to containers: 16-17,24 of {FIRST}/container-1 (which holds 16-24), 1,8-9 of "
HELD += f"{SECOND}/container-1 (which holds 1-9). Let the kubelet reserve these CPUs"


def refusals(topology, **options):
    return desired_state(topology, of_features({"npu_affinity_irq_enabled": False}), **options)["refusals"]


def with_kubelet(exclusive, policy="static", **more):
    return {**NODE, "kubelet": {"policy": policy, "exclusive": exclusive, "warnings": []}, **more}


def test_the_published_cpu_manager_state_has_a_plan(tmp_path):
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/cpu_manager_state").write_text(json.dumps(PUBLISHED))
    kubelet = facts.kubelet(Host(str(tmp_path)), set(range(32)))
    assert (kubelet["default_cpus"], kubelet["warnings"]) == ("0,10-15,25-31", [])
    topology = {**NODE, "kubelet": kubelet}
    made = plan(topology)
    assert made == plan(NODE) and [entry["pool"] for entry in made["npus"]] == ["0-7", "8-15", "16-23", "24-31"]
    assert binding(topology, made, Work())["method"] == "none"
    (refusal,) = refusals(topology)
    assert refusals(topology, shown=True) == []
    assert refusal.startswith(f"The plan would take {HELD}")
    assert any(remark.startswith(f"The plan needs {HELD}") for remark in remarks(topology, made, Work()))


@pytest.mark.parametrize(
    "exclusive, policy, words",
    [
        ({}, "static", None),
        ({"p/c": "2-5,10-14"}, "static", None),
        ({"p/c": "2-8"}, "static", "interrupts that the kubelet gave to containers: 8 of p/c (which holds 2-8)"),
        ({"c0ffee": "9"}, "static", ": 9 of c0ffee (which holds 9)"),
        ({"p": {"a": "8", "b": "24"}}, "static", ": 8 of p/a (which holds 8), 24 of p/b (which holds 24)"),
        ({"p/c": "2-5"}, "none", "for pools and the system that the kubelet gave to containers: 2-5 of p/c (which holds 2-5)"),
    ],
)
def test_a_refusal_names_the_pods_and_what_they_hold(exclusive, policy, words):
    topology = with_kubelet(exclusive, policy)
    made = plan(topology)
    sentences = refusals(topology)
    assert [words in sentence for sentence in sentences] == ([True] if words else [])
    assert any("that the kubelet gave to containers" in remark for remark in remarks(topology, made, Work())) == bool(words)


def test_pods_on_cpus_of_the_plan_in_force_are_only_reported():
    made = plan(with_kubelet({}))
    topology = with_kubelet({"p/c": "8-9"}, applied=json.loads(json.dumps(made)))
    again = plan(topology)
    assert again == made and refusals(topology) == []
    words = "The plan needs CPUs for interrupts that the kubelet gave to containers: 8-9 of p/c"
    assert remarks(topology, again, Work())[0].startswith(words)


NUMA = [{"id": 0, "cpus": "0-23"}, {"id": 2, "cpus": "24-47,72-95"}, {"id": 250, "cpus": ""}]
PLAN = {"npus": []}
POOLS = [(0, "0-23", "0-1"), (1, "24-47", "24-25")]
OWN = [("0-23", 0), ("24-47,72-95", 2)]
KUBELET = {"version": "1.34.1", "policy": "static", "topology_policy": "single-numa-node", "warnings": []}


def topology(*npus, cgroup="v2", **kubelet):
    listed = [{"kind": "npu", "id": number, "affinity": affinity, "numa": numa} for number, (affinity, numa) in enumerate(npus)]
    return {"machine": {"cgroup": cgroup}, "numa": NUMA, "npus": listed, "kubelet": {**KUBELET, **kubelet}}


def test_hints_follow_the_cpulist_text_then_the_pci_function():
    host = topology(("0-23", 0), ("24-47,72-95", 0), ("24-47", 2), ("0-23,24-47", None), (None, None), (None, 0))
    assert pods.hints(host) == {0: 0, 1: 2, 2: 2, 3: None, 4: None, 5: 0}


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
    (sentence,) = pods.remarks(topology(*npus, **kubelet), PLAN)
    assert words in sentence and sentence.endswith(".")


@pytest.mark.parametrize(
    "cgroup, kubelet, words",
    [
        ("v1", {"version": "1.35.0"}, "Kubelet 1.35.0 does not start on this host, which has cgroup v1"),
        ("hybrid", {"version": "1.37.2"}, "which has cgroup hybrid"),
        ("v1", {"version": "1.34.9"}, None),
        ("v1", {"version": None}, None),
        ("v1", {"version": "1.36.0", "fail_cgroup_v1": "false"}, None),
        ("v2", {"version": "1.36.0"}, None),
    ],
)
def test_a_kubelet_that_does_not_start_on_cgroup_v1(cgroup, kubelet, words):
    sentences = [sentence for sentence in pods.remarks(topology(*OWN, cgroup=cgroup, **kubelet), PLAN) if "cgroup" in sentence]
    assert len(sentences) == (words is not None) and all(words in sentence and "failCgroupV1: false" in sentence for sentence in sentences)


def test_hosts_without_a_kubelet_or_an_npu_have_no_forecast():
    lost = "/var/lib/kubelet/cpu_manager_state has lost CPUs 4-5"
    assert f"{lost}." in pods.remarks(topology(*OWN, warnings=[lost]), PLAN)
    assert pods.remarks({**topology(*OWN), "kubelet": None}, PLAN) == [] and pods.forecast({**topology(*OWN), "kubelet": None}) == []
    assert pods.remarks(topology(), PLAN) == pods.remarks({**topology(), "npus": [{"kind": "gpu", "id": 0, "numa": 0}]}, PLAN) == []


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
    sentences = [sentence for sentence in pods.remarks(topology(*hinted, **kubelet), made) if "pods that ask for as many" in sentence]
    assert len(sentences) == (words is not None) and all(words in sentence for sentence in sentences)


A2 = host([6, 6, 4, 4, 0, 0, 2, 2])
SMT = host([0, 0, 1, 1], nodes=2, cores=16, threads=2, numbering="far")
GPUS = host([0, 1], nodes=2, cores=8, family="gpu")
OLD = {**A2, "kubelet": {"version": "1.30.4"}}
WITHOUT_BETA = {**A2, "kubelet": {"version": "1.34.0", "feature_gates": {"CPUManagerPolicyBetaOptions": "false"}}}
NOT_AT_ONCE = "full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"
GATE_IS_OFF = "is beta in Kubernetes 1.34.0, and the kubelet's configuration switches feature gate CPUManagerPolicyBetaOptions off"
IS_OLD = "came with Kubernetes 1.31, and the kubelet is 1.30.4, which would not"


def test_the_cpus_of_interrupts_and_housekeeping_are_reserved():
    made = plan(A2, housekeeping=1)
    text = kubelet_drop_in(made, A2, options={"full-pcpus-only": True}, topology_policy="single-numa-node", reserved="190-191")
    document = yaml.safe_load(text)
    assert text.startswith("# Managed by npu.affinity") and document["kind"] == "KubeletConfiguration"
    assert document["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    irqs = {cpu for entry in made["npus"] for cpu in expand(entry["irq"])}
    assert set(expand(document["reservedSystemCPUs"])) == irqs | {0, 24, 48, 72, 96, 120, 144, 168, 190, 191}


def test_whole_cores_or_named_cpus_are_reserved():
    reserved = set(expand(yaml.safe_load(kubelet_drop_in(plan(SMT), SMT))["reservedSystemCPUs"]))
    assert reserved == {(cpu + 32) % 64 for cpu in reserved}
    assert yaml.safe_load(kubelet_drop_in(plan(GPUS), GPUS, reserved=[0, 1]))["reservedSystemCPUs"] == "0-1"
    assert "reservedSystemCPUs" not in kubelet_drop_in(plan(GPUS), GPUS, policy="none")


def test_host_code_reads_what_is_written():
    text = kubelet_drop_in(plan(A2), A2, topology_policy="restricted", options={"strict-cpu-reservation": "true"})
    document = {key: value for key, value in yaml.safe_load(text).items() if key not in ("apiVersion", "kind")}
    assert settings.read(text) == document


@pytest.mark.parametrize(
    ("topology", "options", "words"),
    [
        (GPUS, {}, "reserved CPU, and the plan has none for interrupts or housekeeping; set npu_affinity_housekeeping, or name"),
        (A2, {"reserved": "0-191"}, "are all CPUs of the host"),
        (A2, {"policy": "shared"}, "policy: expected one of none, static"),
        (A2, {"topology_policy": "strict"}, "topology_policy: expected one of none, best-effort"),
        (A2, {"options": {"pinning": True}}, "options: pinning is not known; known are full-pcpus-only"),
        (A2, {"options": "full-pcpus-only"}, "options: expected a dictionary"),
        (A2, {"options": {"align-by-socket": "true"}, "topology_policy": "single-numa-node"}, "exclude each other"),
        (A2, {"options": {"full-pcpus-only": True, "distribute-cpus-across-cores": True}}, NOT_AT_ONCE),
        (OLD, {"options": {"distribute-cpus-across-cores": True}}, IS_OLD),
        (WITHOUT_BETA, {"options": {"strict-cpu-reservation": True}}, GATE_IS_OFF),
        (host([0] * 4, nodes=9), {"topology_policy": "restricted"}, "9 NUMA nodes needs options {max-allowable-numa-nodes: '9'}"),
        (A2, {"options": {"full-pcpus-only": "on"}}, "options: full-pcpus-only takes true or false; got 'on'"),
        (A2, {"options": {"max-allowable-numa-nodes": 4}}, "options: max-allowable-numa-nodes takes a whole number from 8 on; got '4'"),
        (A2, {"reserved": "0,999"}, "reserved: the host has no CPUs 999; it has 0-191"),
        (A2, {"reserved": "0-x"}, "reserved: '0-x' in '0-x' is not a CPU number"),
    ],
)
def test_settings_with_which_no_kubelet_starts(topology, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        kubelet_drop_in(plan(topology), topology, **options)


ALPHA = "CPUManagerPolicyAlphaOptions"


@pytest.mark.parametrize(
    "version, options, gates",
    [
        ("1.36.1", {"distribute-cpus-across-cores": True}, {ALPHA: True}),
        ("1.34.0", {"align-by-socket": True}, {ALPHA: True}),
        (None, {"align-by-socket": "false"}, {ALPHA: True}),  # the kubelet looks at the name alone
        ("1.32.9", {"strict-cpu-reservation": True}, {ALPHA: True}),
        ("1.33.0", {"strict-cpu-reservation": True}, None),
        ("1.35.0", {"full-pcpus-only": True, "prefer-align-cpus-by-uncorecache": True}, None),
        ("1.33.2", {"prefer-align-cpus-by-uncorecache": True}, {ALPHA: True}),
        ("1.32.0", {"distribute-cpus-across-numa": True}, {ALPHA: True}),
        (None, {"distribute-cpus-across-numa": True, "full-pcpus-only": True}, None),
        ("1.31.0", {"prefer-closest-numa-nodes": True, "max-allowable-numa-nodes": "9"}, {"TopologyManagerPolicyAlphaOptions": True}),
    ],
)
def test_options_have_the_feature_gates_that_their_kubelet_wants(version, options, gates):
    topology = {**A2, "kubelet": {"version": version}}
    text = kubelet_drop_in(plan(topology), topology, topology_policy="restricted", options=options)
    assert yaml.safe_load(text).get("featureGates") == gates
    assert settings.read(text).get("featureGates") == (gates and dict.fromkeys(gates, "true"))
