# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import facts, state_file
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.settings import CONFIG, ROOT_FOLDER

STATE = ROOT_FOLDER + "/" + state_file.FILE


def state(policy="static", default="0-3", entries=None):
    return json.dumps(dict({"policyName": policy, "defaultCpuSet": default, "checksum": 0}, **({"entries": entries} if entries else {})))


OVERLAP = state(entries={"p": {"c": "4-6", "d": "6-7"}})
SEEN = [
    ("no CPU manager", "kind: KubeletConfiguration", state("none", ""), "none", "", {}, []),
    ("version 1", None, state(entries={"c0ffee": "4-7"}), "static", "0-3", {"c0ffee": "4-7"}, []),
    ("version 2", None, state(entries={"p": {"b": "6,7", "a": "4-5"}}), "static", "0-3", {"p/a": "4-5", "p/b": "6-7"}, []),
    ("never started", "cpuManagerPolicy: static # soon", None, "static", None, {}, []),
    ("policies differ", "cpuManagerPolicy: static", state("none", ""), "static", "", {}, ["static, but kubelet last ran with none"]),
    ("not JSON", "cpuManagerPolicy: 'static'", '{"policyName":', "static", None, {}, ["no CPU manager state"]),
    ("another JSON", None, "[]", "none", None, {}, ["no CPU manager state"]),
    ("a bad cpulist", None, state(default="0-3,x"), "none", None, {}, ["'x'"]),
    ("overlap with the shared pool", None, state(default="0-5", entries={"p": {"c": "4-7"}}), "static", "0-5", {"p/c": "4-7"}, ["4-5"]),
    ("overlap of containers", None, OVERLAP, "static", "0-3", {"p/c": "4-6", "p/d": "6-7"}, ["CPUs 6 "]),
    ("lost CPUs", None, state(entries={"p": {"c": "6-7"}}), "static", "0-3", {"p/c": "6-7"}, ["lost CPUs 4-5"]),
    ("strictly reserved CPUs", 'reservedSystemCPUs: "4-7"', state(), "static", "0-3", {}, []),
    ("CPUs that are gone", None, state(default="0-11"), "static", "0-11", {}, ["8-11, which are not online"]),
    ("a bad reservation", "reservedSystemCPUs: 4-", state(default="0-7"), "none", None, {}, ["reservedSystemCPUs"]),
]


@pytest.mark.parametrize("story, config, text, policy, default, exclusive, warnings", SEEN)
def test_kubelet(tree, story, config, text, policy, default, exclusive, warnings):
    tree.write({path: words for path, words in ((CONFIG, config), (STATE, text)) if words is not None})
    found = facts.kubelet(tree.host, set(range(8)))
    assert (found["policy"], found["default_cpus"], found["exclusive"]) == (policy, default, exclusive), story
    assert len(found["warnings"]) == len(warnings)
    assert all(word in warning for word, warning in zip(warnings, found["warnings"]))


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
    found = facts.kubelet(tree.write({CONFIG: "topologyManagerPolicy: single-numa-node\n" + MAIN}), {0})
    assert (found["policy"], found["options"], found["reserved_cpus"]) == ("none", {"full-pcpus-only": "true"}, None)
    assert (found["reserved_millicpus"], found["topology_policy"]) == (2000, "single-numa-node")
    assert (found["config_dir"], found["sources"]) == (None, [CONFIG])


def test_drop_ins_extend_the_main_file_by_name_and_flags_win(tree):
    folders = ("--config=/srv/kubelet.yaml", "--config-dir", "/etc/kubelet.d")
    flags = running(*folders, "--topology-manager-policy=best-effort", "--reserved-cpus=0-1", "-v=2")
    host = tree.write(dict(DROP_INS, **{"/srv/kubelet.yaml": MAIN}, **flags))
    found = facts.kubelet(host, {0, 1, 2})
    assert found["policy"] == "static"
    assert found["options"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    assert (found["topology_policy"], found["reserved_cpus"]) == ("best-effort", "0-1")
    assert found["sources"] == ["/srv/kubelet.yaml", "/etc/kubelet.d/10-first.conf", "/etc/kubelet.d/20-last.conf", "flags"]


OURS = "# Managed by npu.affinity\n"


@pytest.mark.parametrize(
    "main, drop_in, flags, policies",
    [
        ("cpuManagerPolicy: none", OURS + "cpuManagerPolicy: static", [], ("static", "none")),
        ("", OURS + "cpuManagerPolicy: static", [], ("static", "none")),
        ("cpuManagerPolicy: static", OURS + "cpuManagerPolicy: static", [], ("static", "static")),
        ("cpuManagerPolicy: none", "cpuManagerPolicy: static", [], ("static", "static")),
        ("", OURS, ["--cpu-manager-policy=static"], ("static", "static")),
        ("cpuManagerPolicy: static", "", [], ("static", "static")),
    ],
)
def test_the_policy_without_the_drop_in(tree, main, drop_in, flags, policies):
    files = {CONFIG: main, "/etc/kubelet.d/50-npu-affinity.conf": drop_in, **running("--config-dir=/etc/kubelet.d", *flags)}
    found = facts.kubelet(tree.write(files), {0})
    assert (found["policy"], found["policy_without"]) == policies


KUBEADM = """[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/srv/kubelet.yaml"
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS \\
  $KUBELET_EXTRA_ARGS"""


def test_a_kubelet_that_does_not_run_is_read_from_its_unit(tree):
    files = {
        "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet",
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM,
        "/etc/default/kubelet": '# extra\nKUBELET_EXTRA_ARGS="--config-dir=/etc/kubelet.d --topology-manager-scope pod"',
        "/srv/kubelet.yaml": '{"cpuManagerPolicyOptions": {"full-pcpus-only": true}, "reservedSystemCPUs": "0"}',
    }
    found = facts.kubelet(tree.write({**DROP_INS, **files}), {0, 1})
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
    assert "has a wrong checksum" in warning


PODS = {"pod1": {"container1": "5-6", "container2": "3-4"}}
DATA = (
    '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},'
    '"podEntries":{"pod":{"cpuSet":"4-10"}}}'
)
OF_PODS = {"policyName": "static", "defaultCPUSet": "1-2", "entries": PODS}
WITHOUT_PODS = {"policyName": "static", "defaultCPUSet": "7-9", "entries": {"pod": {"container1": "4-6", "container2": "1-3"}}}
STATES = [
    ({"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}, None, "none", True, 0),
    ({"policyName": "static", "defaultCpuSet": "0-1,6-17", "entries": {"c1": "2-5"}, "checksum": 1}, 1, "static", False, 1),
    ({"policyName": "static", "defaultCPUSet": "7-9", "entries": {"c1": "4-6", "c2": "1-3"}, "checksum": 0}, 1, "static", None, 0),
    ({"policyName": "static", "defaultCpuSet": "", "checksum": 0}, None, "static", None, 1),
    ({**OF_PODS, "checksum": 0}, 2, "static", None, 0),
    ({**OF_PODS, "podEntries": {"pod2": {"cpuSet": "7-9"}}, "checksum": 2284712151}, 3, "static", True, 0),
    ({**OF_PODS, "podEntries": {"pod2": {"cpuSet": "7-8"}}, "checksum": 2284712151}, 3, "static", False, 1),
    ({**WITHOUT_PODS, "checksum": 1942532442}, 3, "static", True, 0),  # only the checksum tells version 3
    ({"data": '{"policyName":"none","defaultCPUSet":"4-6"}', "dataChecksum": 657950972}, 4, "none", True, 0),
    ({"data": '{"policyName":"none","defaultCPUSet":"4-7"}', "dataChecksum": 657950972}, 4, "none", False, 1),
    ({"policyName": "none", "defaultCpuSet": "", "checksum": 0, "data": DATA, "dataChecksum": 2328898362}, 4, "static", True, 0),
]
"""Most are those of Kubernetes' own tests, with their checksums."""


@pytest.mark.parametrize("text, version, policy, checksum, problems", STATES)
def test_states_of_all_versions(text, version, policy, checksum, problems):
    found = state_file.parse(json.dumps(text))
    assert (found.version, found.policy, found.checksum, len(found.problems)) == (version, policy, checksum, problems)


def test_cpus_that_containers_of_a_pod_share_are_taken():
    found = state_file.parse(json.dumps({"data": DATA, "dataChecksum": 2328898362}))
    assert found.exclusive == {"pod/container1": "4-6", "pod/container2": "7-9", "pod": "10"}
    assert not list(state_file.against_machine(found, set(range(1, 11)), set()))


@pytest.mark.parametrize(
    "text, version, words",
    [
        (STATES[5][0], "1.35.4", "version 3, which kubelet 1.35.4 takes for corrupted and does not start with"),
        (STATES[7][0], "1.35.4", "version 3, which kubelet 1.35.4 takes for corrupted"),
        (STATES[5][0], "1.36.0", "version 3, which kubelets before 1.36 take for corrupted: for a downgrade drain the node"),
        (STATES[5][0], None, "version 3, which kubelets before 1.36"),
        (STATES[8][0], "1.36.1", "version 4, which kubelet 1.36.1 takes for corrupted"),
        (STATES[10][0], "1.29.0", None),  # next to version 2
        (STATES[4][0], "1.29.0", None),
    ],
)
def test_a_state_against_the_version_of_its_kubelet(text, version, words):
    told = list(state_file.against_kubelet(state_file.parse(json.dumps(text)), version))
    assert len(told) == (words is not None) and all(words in sentence for sentence in told)


@pytest.mark.parametrize(
    "script, version",
    [("echo Kubernetes v1.36.2", "1.36.2"), ("echo Kubernetes v1.37.0-rc.1+dirty", "1.37.0-rc.1+dirty"), ("exit 1", None)],
)
def test_the_version_of_the_installed_kubelet(tree, script, version):
    host = tree.write({CONFIG: "", "/usr/bin/kubelet": "#!/bin/sh\n" + script})
    os.chmod(host.path("/usr/bin/kubelet"), 0o755)
    assert facts.kubelet(host, {0})["version"] == version


@pytest.mark.parametrize(
    "text", ['failCgroupV1: false\nfeatureGates: {"A": true}', '{"failCgroupV1": false, "featureGates": {"A": true}}'], ids=["YAML", "JSON"]
)
def test_gates_and_cgroups_of_a_configuration(tree, text):
    found = facts.kubelet(tree.write({CONFIG: text}), {0})
    assert (found["version"], found["fail_cgroup_v1"], found["feature_gates"]) == (None, "false", {"A": "true"})


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
