# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a kubelet is configured to agree with a plan."""

from __future__ import annotations

import pytest
import yaml
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.drop_in import kubelet_drop_in
from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import settings
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan

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
    assert text.startswith("# Managed by npu.affinity")
    document = yaml.safe_load(text)
    assert document["kind"] == "KubeletConfiguration"
    assert document["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    irqs = {cpu for entry in made["npus"] for cpu in expand(entry["irq"])}
    assert set(expand(document["reservedSystemCPUs"])) == irqs | {0, 24, 48, 72, 96, 120, 144, 168, 190, 191}


def test_whole_cores_are_reserved():
    reserved = set(expand(yaml.safe_load(kubelet_drop_in(plan(SMT), SMT))["reservedSystemCPUs"]))
    assert reserved == {(cpu + 32) % 64 for cpu in reserved}


def test_host_code_reads_what_is_written():
    text = kubelet_drop_in(plan(A2), A2, topology_policy="restricted", options={"strict-cpu-reservation": "true"})
    document = {key: value for key, value in yaml.safe_load(text).items() if key not in ("apiVersion", "kind")}
    assert settings.read(text) == document


@pytest.mark.parametrize(
    ("topology", "options", "words"),
    [
        (GPUS, {}, "the static CPU manager needs at least one reserved CPU"),
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
    with pytest.raises(ValueError) as refused:
        kubelet_drop_in(plan(topology), topology, **options)
    assert words in str(refused.value)


def test_gpu_hosts_reserve_named_cpus_and_policy_none_no_cpus():
    assert yaml.safe_load(kubelet_drop_in(plan(GPUS), GPUS, reserved=[0, 1]))["reservedSystemCPUs"] == "0-1"
    assert "reservedSystemCPUs" not in kubelet_drop_in(plan(GPUS), GPUS, policy="none")


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
    ],
)
def test_options_have_the_feature_gates_that_their_kubelet_wants(version, options, gates):
    topology = {**A2, "kubelet": {"version": version}}
    assert yaml.safe_load(kubelet_drop_in(plan(topology), topology, options=options)).get("featureGates") == gates


def test_options_of_the_topology_manager_have_gates_of_their_own():
    topology = {**A2, "kubelet": {"version": "1.31.0"}}
    options = {"prefer-closest-numa-nodes": True, "max-allowable-numa-nodes": "9"}
    text = kubelet_drop_in(plan(topology), topology, topology_policy="restricted", options=options)
    assert yaml.safe_load(text)["featureGates"] == {"TopologyManagerPolicyAlphaOptions": True}
    assert settings.read(text)["featureGates"] == {"TopologyManagerPolicyAlphaOptions": "true"}
