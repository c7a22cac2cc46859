# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils import _kubelet


def state(policy="static", default="0-3", entries=None):
    return json.dumps(dict({"policyName": policy, "defaultCpuSet": default, "checksum": 1}, **({"entries": entries} if entries else {})))


@pytest.mark.parametrize(
    "story, config, text, policy, default, exclusive, warnings",
    [
        ("no CPU manager", "kind: KubeletConfiguration", state("none", ""), "none", "", {}, []),
        ("version 1", None, state(default="0-3", entries={"c0ffee": "4-7"}), "static", "0-3", {"c0ffee": "4-7"}, []),
        (
            "version 2",
            None,
            state(default="0-3", entries={"p": {"b": "6,7", "a": "4-5"}}),
            "static",
            "0-3",
            {"p/a": "4-5", "p/b": "6-7"},
            [],
        ),
        ("never started", "cpuManagerPolicy: static # soon", None, "static", None, {}, []),
        ("policies differ", "cpuManagerPolicy: static", state("none", ""), "static", "", {}, ["static, but kubelet last ran with none"]),
        ("not JSON", "cpuManagerPolicy: 'static'", '{"policyName":', "static", None, {}, ["no CPU manager state"]),
        ("another JSON", None, "[]", "none", None, {}, ["no CPU manager state"]),
        ("a bad cpulist", None, state(default="0-3,x"), "none", None, {}, ["'x'"]),
        ("overlap with the shared pool", None, state(default="0-5", entries={"p": {"c": "4-7"}}), "static", "0-5", {"p/c": "4-7"}, ["4-5"]),
        (
            "overlap of containers",
            None,
            state(entries={"p": {"c": "4-6", "d": "6-7"}}),
            "static",
            "0-3",
            {"p/c": "4-6", "p/d": "6-7"},
            ["CPUs 6 "],
        ),
        ("lost CPUs", None, state(entries={"p": {"c": "6-7"}}), "static", "0-3", {"p/c": "6-7"}, ["lost CPUs 4-5"]),
        ("strictly reserved CPUs", 'reservedSystemCPUs: "4-7"', state(), "static", "0-3", {}, []),
        ("CPUs that are gone", None, state(default="0-11"), "static", "0-11", {}, ["8-11, which are not online"]),
        ("a bad reservation", "reservedSystemCPUs: 4-", state(default="0-7"), "none", None, {}, ["reservedSystemCPUs"]),
    ],
)
def test_kubelet(tree, story, config, text, policy, default, exclusive, warnings):
    tree.write({path: words for path, words in ((_kubelet.CONFIG, config), (_kubelet.STATE, text)) if words is not None})
    found = _kubelet.kubelet(tree.host, set(range(8)))
    assert (found["policy"], found["default_cpus"], found["exclusive"]) == (policy, default, exclusive), story
    assert len(found["warnings"]) == len(warnings)
    assert all(word in warning for word, warning in zip(warnings, found["warnings"]))


def test_topology_manager_policy(tree):
    tree.write({_kubelet.CONFIG: "topologyManagerPolicy: single-numa-node\nother:\n  topologyManagerPolicy: none"})
    assert _kubelet.kubelet(tree.host, {0})["topology_policy"] == "single-numa-node"
