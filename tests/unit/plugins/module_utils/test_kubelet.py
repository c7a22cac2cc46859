# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._kubelet import facts, state_file
from ansible_collections.npu.affinity.plugins.module_utils._kubelet.settings import CONFIG, ROOT_FOLDER

STATE = ROOT_FOLDER + "/" + state_file.FILE


def state(policy="static", default="0-3", entries=None):
    return json.dumps(dict({"policyName": policy, "defaultCpuSet": default, "checksum": 0}, **({"entries": entries} if entries else {})))


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
    tree.write({path: words for path, words in ((CONFIG, config), (STATE, text)) if words is not None})
    found = facts.kubelet(tree.host, set(range(8)))
    assert (found["policy"], found["default_cpus"], found["exclusive"]) == (policy, default, exclusive), story
    assert len(found["warnings"]) == len(warnings)
    assert all(word in warning for word, warning in zip(warnings, found["warnings"]))


def test_topology_manager_policy(tree):
    tree.write({CONFIG: "topologyManagerPolicy: single-numa-node\nother:\n  topologyManagerPolicy: none"})
    assert facts.kubelet(tree.host, {0})["topology_policy"] == "single-numa-node"


MAIN = """# kubeadm wrote this
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
cpuManagerPolicy: none
cpuManagerPolicyOptions:
  full-pcpus-only: "true"   # whole cores
  # nothing else yet
kubeReserved: {cpu: 500m, memory: "1Gi"}
systemReserved:
  cpu: "1.5"
reservedSystemCPUs: ""
featureGates:
  cpuManagerPolicy: deep
"""
DROP_INS = {
    "/etc/kubelet.d/10-first.conf": "cpuManagerPolicy: static\ntopologyManagerPolicy: restricted",
    "/etc/kubelet.d/20-last.conf": 'topologyManagerPolicy: "single-numa-node"\ncpuManagerPolicyOptions: {strict-cpu-reservation: "true"}',
    "/etc/kubelet.d/30-ignored.yaml": "topologyManagerPolicy: none",
}


def running(*flags):
    return {
        "/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs": "902",
        "/proc/902/cmdline": "\0".join(("/usr/bin/kubelet",) + flags),
    }


def test_the_main_file_alone(tree):
    found = facts.kubelet(tree.write({CONFIG: MAIN}), {0})
    assert (found["policy"], found["options"], found["reserved_cpus"]) == ("none", {"full-pcpus-only": "true"}, None)
    assert found["reserved_millicpus"] == 2000
    assert (found["config_dir"], found["sources"]) == (None, [CONFIG])


def test_drop_ins_are_laid_over_the_main_file_by_name_and_flags_win(tree):
    flags = (
        "--config=/srv/kubelet.yaml",
        "--config-dir",
        "/etc/kubelet.d",
        "--topology-manager-policy=best-effort",
        "--reserved-cpus=0-1",
        "-v=2",
    )
    host = tree.write(dict(DROP_INS, **{"/srv/kubelet.yaml": MAIN}, **running(*flags)))
    found = facts.kubelet(host, {0, 1, 2})
    assert found["policy"] == "static"
    assert found["options"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    assert (found["topology_policy"], found["reserved_cpus"]) == ("best-effort", "0-1")
    assert found["sources"] == ["/srv/kubelet.yaml", "/etc/kubelet.d/10-first.conf", "/etc/kubelet.d/20-last.conf", "flags"]


KUBEADM = """[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/srv/kubelet.yaml"
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS \\
  $KUBELET_EXTRA_ARGS"""


def test_a_kubelet_that_does_not_run_is_read_from_its_unit(tree):
    host = tree.write(
        dict(
            DROP_INS,
            **{
                "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet",
                "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM,
                "/etc/default/kubelet": '# extra\nKUBELET_EXTRA_ARGS="--config-dir=/etc/kubelet.d --topology-manager-scope pod"',
                "/srv/kubelet.yaml": '{"cpuManagerPolicyOptions": {"full-pcpus-only": true}, "reservedSystemCPUs": "0"}',
            },
        )
    )
    found = facts.kubelet(host, {0, 1})
    assert (found["config"], found["config_dir"], found["topology_scope"]) == ("/srv/kubelet.yaml", "/etc/kubelet.d", "pod")
    assert (found["policy"], found["reserved_cpus"]) == ("static", "0")
    assert found["options"]["full-pcpus-only"] == "true"


def test_another_root_folder_has_another_state(tree):
    host = tree.write(dict({"/data/kubelet/cpu_manager_state": state(default="0-3")}, **running("--root-dir=/data/kubelet")))
    assert facts.kubelet(host, {0, 1, 2, 3})["default_cpus"] == "0-3"


def test_a_wrong_checksum_is_told_and_a_right_one_is_not(tree):
    text = json.dumps({"policyName": "none", "defaultCpuSet": "0-7", "checksum": 2740534728})
    assert facts.kubelet(tree.write({STATE: text}), set(range(8)))["warnings"] == []
    (warning,) = facts.kubelet(tree.write({STATE: text.replace("0-7", "0-6")}), set(range(7)))["warnings"]
    assert "does not have the checksum of what it says" in warning


@pytest.mark.parametrize(
    "text, policy, checksum, problems",
    [
        ({"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}, "none", True, 0),
        ({"policyName": "static", "defaultCpuSet": "0-1,6-17", "entries": {"c1": "2-5"}, "checksum": 1}, "static", False, 1),
        ({"policyName": "static", "defaultCpuSet": "", "checksum": 0}, "static", None, 1),
        ({"policyName": "static", "defaultCpuSet": "0", "podEntries": {"p": {}}, "checksum": 5}, "static", None, 0),
        ({"data": '{"policyName":"none","defaultCPUSet":"4-6"}', "dataChecksum": 657950972}, "none", True, 0),
        ({"data": '{"policyName":"none","defaultCPUSet":"4-7"}', "dataChecksum": 657950972}, "none", False, 1),
    ],
)
def test_states_of_all_versions(text, policy, checksum, problems):
    found = state_file.parse(json.dumps(text))
    assert (found.policy, found.checksum, len(found.problems)) == (policy, checksum, problems)


def test_entries_of_two_versions_at_once_are_no_state():
    with pytest.raises(ValueError, match="entries mix versions 1 and 2"):
        state_file.parse(json.dumps({"policyName": "static", "defaultCpuSet": "0", "entries": {"a": "1", "b": {"c": "2"}}}))


@pytest.mark.parametrize(
    "default, exclusive, reserved, strict, words",
    [
        ("0-7", {}, "0-1", False, []),
        ("2-7", {}, "0-1", True, []),
        ("0-7", {}, "0-1", True, ["shares CPUs 0-1, which strict-cpu-reservation keeps"]),
        ("2-7", {"p/c": "0-1"}, "0", False, ["gives reserved CPUs 0 to containers"]),
        ("0-5", {}, "", False, ["has lost CPUs 6-7"]),
        ("0-8", {}, "", False, ["names CPUs 8, which are not online"]),
    ],
)
def test_a_state_against_its_machine(default, exclusive, reserved, strict, words):
    state = state_file.State("static", default, exclusive, 2, None, [])
    told = list(state_file.against_machine(state, set(range(8)), set(expand(reserved)), strict))
    assert len(told) == len(words) and all(word in sentence for word, sentence in zip(words, told))
