# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans on hosts with a static CPU manager: the same whatever pods hold, and a refusal that names them."""

from __future__ import annotations

import json

import pytest
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import facts
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.binding import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.remarks import remarks
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.state import desired_state
from ansible_collections.npu.affinity.plugins.plugin_utils._desired.named import Named
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.features import of_features

FIRST, SECOND = "777870b5-c64f-42f5-9296-688b9dc212ba", "fb15e10a-b6a5-4aaa-8fcd-76c1aa64e6fd"
PUBLISHED = {
    "policyName": "static",
    "defaultCpuSet": "0,10-15,25-31",
    "entries": {FIRST: {"container-1": "16-24"}, SECOND: {"container-1": "1-9"}},
    "checksum": 318470969,
}
"""The example of the CCE page "NUMA Affinity Scheduling"."""
NODE = host([0, 0, 1, 1], nodes=2, cores=16, machine={"architecture": "aarch64", "cgroup": "v2", "systemd": 255})
HELD = (
    f"CPUs for interrupts that the kubelet gave to containers: 16-17,24 of {FIRST}/container-1 (which holds 16-24), 1,8-9 of "
    f"{SECOND}/container-1 (which holds 1-9). Let the kubelet reserve these CPUs"
)


def refusals(topology, **options):
    return desired_state(topology, of_features({"npu_affinity_irq_enabled": False}), **options)["refusals"]


def with_kubelet(exclusive, policy="static", **more):
    return {**NODE, "kubelet": {"policy": policy, "exclusive": exclusive, "warnings": []}, **more}


def test_the_published_cpu_manager_state_has_a_plan(tmp_path):
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/cpu_manager_state").write_text(json.dumps(PUBLISHED))
    found = facts.kubelet(Host(str(tmp_path)), set(range(32)))
    assert (found["default_cpus"], found["warnings"]) == ("0,10-15,25-31", [])
    topology = {**NODE, "kubelet": found}
    made = plan(topology)
    assert made == plan(NODE)
    assert [entry["pool"] for entry in made["npus"]] == ["0-7", "8-15", "16-23", "24-31"]
    assert binding(topology, made, Named())["method"] == "none"
    (refusal,) = refusals(topology)
    assert refusals(topology, shown=True) == []
    assert refusal.startswith(f"The plan would take {HELD}")
    assert any(remark.startswith(f"The plan needs {HELD}") for remark in remarks(topology, made, Named()))


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
    found = refusals(topology)
    assert [words in sentence for sentence in found] == ([True] if words else [])
    assert any("that the kubelet gave to containers" in remark for remark in remarks(topology, made, Named())) == bool(words)


def test_pods_on_cpus_of_the_plan_in_force_are_only_reported():
    made = plan(with_kubelet({}))
    topology = with_kubelet({"p/c": "8-9"}, applied=json.loads(json.dumps(made)))
    again = plan(topology)
    assert again == made
    assert refusals(topology) == []
    assert remarks(topology, again, Named())[0].startswith(
        "The plan needs CPUs for interrupts that the kubelet gave to containers: 8-9 of p/c"
    )
