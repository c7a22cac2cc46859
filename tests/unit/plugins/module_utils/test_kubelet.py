# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

import json
import os

import pytest

from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet import facts, state_file
from ansible_collections.npu.affinity.plugins.module_utils._features.kubelet.settings import CONFIG, ROOT_FOLDER

STATE = ROOT_FOLDER + "/" + state_file.FILE


def state(policy="static", default="0-3", entries=None):
    return json.dumps(dict({"policyName": policy, "defaultCpuSet": default, "checksum": 0}, **({"entries": entries} if entries else {})))


OVERLAP = state(entries={"p": {"c": "4-6", "d": "6-7"}})
CHECKED = json.dumps({"policyName": "none", "defaultCpuSet": "0-7", "checksum": 2740534728})
STRICT = 'cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}\nreservedSystemCPUs: 0-1'
RESERVED, LENT = 'reservedSystemCPUs: "0"', state(default="2-7", entries={"p": {"c": "0-1"}})
SHARED = "shares CPUs 0-1, which strict-cpu-reservation keeps"
SEEN = {
    # story: configuration, state, policy, default CPUs, exclusive ones, words of each warning
    "a right checksum": (None, CHECKED, "none", "0-7", {}, []),
    "a wrong checksum": (None, CHECKED.replace("0-7", "0-6"), "none", "0-6", {}, ["has a wrong checksum"]),
    "no CPU manager": ("kind: KubeletConfiguration", state("none", ""), "none", "", {}, []),
    "version 1": (None, state(entries={"c0ffee": "4-7"}), "static", "0-3", {"c0ffee": "4-7"}, []),
    "version 2": (None, state(entries={"p": {"b": "6,7", "a": "4-5"}}), "static", "0-3", {"p/a": "4-5", "p/b": "6-7"}, []),
    "never started": ("cpuManagerPolicy: static # soon", None, "static", None, {}, []),
    "policies differ": ("cpuManagerPolicy: static", state("none", ""), "static", "", {}, ["static, but kubelet last ran with none"]),
    "not JSON": ("cpuManagerPolicy: 'static'", '{"policyName":', "static", None, {}, ["not a CPU manager state"]),
    "another JSON": (None, "[]", "none", None, {}, ["not a CPU manager state"]),
    "two versions at once": (None, state(entries={"a": "1", "b": {"c": "2"}}), "none", None, {}, ["entries mix versions 1 and 2"]),
    "a bad cpulist": (None, state(default="0-3,x"), "none", None, {}, ["'x'"]),
    "overlap with the shared pool": (None, state("static", "0-5", {"p": {"c": "4-7"}}), "static", "0-5", {"p/c": "4-7"}, ["4-5"]),
    "overlap of containers": (None, OVERLAP, "static", "0-3", {"p/c": "4-6", "p/d": "6-7"}, ["CPUs 6 "]),
    "lost CPUs": (None, state(entries={"p": {"c": "6-7"}}), "static", "0-3", {"p/c": "6-7"}, ["lost CPUs 4-5"]),
    "reserved CPUs": ("reservedSystemCPUs: 0-1", state(default="0-7"), "static", "0-7", {}, []),
    "strictly reserved CPUs": (STRICT, state(default="2-7"), "static", "2-7", {}, []),
    "strictly reserved CPUs in the shared pool": (STRICT, state(default="0-7"), "static", "0-7", {}, [SHARED]),
    "a container has reserved CPUs": (RESERVED, LENT, "static", "2-7", {"p/c": "0-1"}, ["gives reserved CPUs 0 to containers"]),
    "CPUs that are gone": (None, state(default="0-11"), "static", "0-11", {}, ["8-11, which are not online"]),
    "a bad reservation": ("reservedSystemCPUs: 4-", state(default="0-7"), "none", None, {}, ["reservedSystemCPUs"]),
}


@pytest.mark.parametrize("config, text, policy, default, exclusive, warnings", SEEN.values(), ids=SEEN)
def test_what_the_kubelet_holds_and_what_does_not_fit(tree, config, text, policy, default, exclusive, warnings):
    tree.write({path: words for path, words in ((CONFIG, config), (STATE, text)) if words is not None})
    kubelet = facts.kubelet(tree.host, set(range(8)))
    assert (kubelet["policy"], kubelet["default_cpus"], kubelet["exclusive"]) == (policy, default, exclusive)
    assert len(kubelet["warnings"]) == len(warnings)
    assert all(word in warning for word, warning in zip(warnings, kubelet["warnings"]))


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
    return {"/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs": "902", "/proc/902/cmdline": "\0".join(["/usr/bin/kubelet", *flags])}


KUBEADM = """[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/srv/kubelet.yaml"
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS \\
  $KUBELET_EXTRA_ARGS"""
FLAGS = ["--config=/srv/kubelet.yaml", "--config-dir", "/etc/kubelet.d", "--topology-manager-policy=best-effort"]
FLAGS += ["--reserved-cpus=0-1", "-v=2"]
BOTH = {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
SOURCES = ["/srv/kubelet.yaml", "/etc/kubelet.d/10-first.conf", "/etc/kubelet.d/20-last.conf", "flags"]
OF_MAIN = {"policy": "none", "options": {"full-pcpus-only": "true"}, "reserved_cpus": None, "reserved_millicpus": 2000}
OF_MAIN.update({"topology_policy": "single-numa-node", "topology_options": {"max-allowable-numa-nodes": "9"}})
OF_MAIN.update({"config_dir": None, "sources": [CONFIG]})
GATES = {"version": None, "fail_cgroup_v1": "false", "feature_gates": {"A": "true"}}
OF_UNIT = {
    "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet",
    "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM,
    "/etc/default/kubelet": '# extra\nKUBELET_EXTRA_ARGS="--config-dir=/etc/kubelet.d --topology-manager-scope pod"',
    "/srv/kubelet.yaml": '{"cpuManagerPolicyOptions": {"full-pcpus-only": true}, "reservedSystemCPUs": "0"}',
}


def with_policies(main, drop_in, *flags):
    return {CONFIG: main, "/etc/kubelet.d/50-npu-affinity.conf": drop_in, **running("--config-dir=/etc/kubelet.d", *flags)}


OURS, STATIC, NONE = "# Managed by npu.affinity\n", "cpuManagerPolicy: static", "cpuManagerPolicy: none"
ONLY_WITH_OURS, STATIC_ANYWAY = ({"policy": "static", "policy_without": without} for without in ("none", "static"))
SETTINGS = {
    # story: files, what they set
    "the main file alone": (
        {CONFIG: "topologyManagerPolicy: single-numa-node\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: 9}\n" + MAIN},
        OF_MAIN,
    ),
    "drop-ins extend the main file by name, and flags win": (
        {**DROP_INS, "/srv/kubelet.yaml": MAIN, **running(*FLAGS)},
        {"policy": "static", "options": BOTH, "topology_policy": "best-effort", "reserved_cpus": "0-1", "sources": SOURCES},
    ),
    "a kubelet that does not run is read from its unit": (
        {**DROP_INS, **OF_UNIT},
        {"config": "/srv/kubelet.yaml", "config_dir": "/etc/kubelet.d", "topology_scope": "pod", "options": BOTH, "reserved_cpus": "0"},
    ),
    "another root folder": ({"/data/kubelet/cpu_manager_state": state(), **running("--root-dir=/data/kubelet")}, {"default_cpus": "0-3"}),
    "gates and cgroups in YAML": ({CONFIG: 'failCgroupV1: false\nfeatureGates: {"A": true}'}, GATES),
    "gates and cgroups in JSON": ({CONFIG: '{"failCgroupV1": false, "featureGates": {"A": true}}'}, GATES),
    "a flag reserves": (running("--kube-reserved=cpu=250m,memory=1Gi"), {"reserved_millicpus": 250}),
    "our drop-in wins": (with_policies(NONE, OURS + STATIC), ONLY_WITH_OURS),
    "our drop-in sets": (with_policies("", OURS + STATIC), ONLY_WITH_OURS),
    "our drop-in repeats": (with_policies(STATIC, OURS + STATIC), STATIC_ANYWAY),
    "a drop-in of others sets": (with_policies(NONE, STATIC), STATIC_ANYWAY),
    "a flag sets": (with_policies("", OURS, "--cpu-manager-policy=static"), STATIC_ANYWAY),
    "the main file sets": (with_policies(STATIC, ""), STATIC_ANYWAY),
}


@pytest.mark.parametrize("files, expected", SETTINGS.values(), ids=SETTINGS)
def test_what_files_and_flags_set(tree, files, expected):
    kubelet = facts.kubelet(tree.write(files), {0, 1, 2, 3})
    assert {name: kubelet[name] for name in expected} == expected


PODS = {"pod1": {"container1": "5-6", "container2": "3-4"}}
DATA = '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},'
DATA += '"podEntries":{"pod":{"cpuSet":"4-10"}}}'
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
    parsed = state_file.parse(json.dumps(text))
    assert (parsed.version, parsed.policy, parsed.checksum, len(parsed.problems)) == (version, policy, checksum, problems)


def test_cpus_that_containers_of_a_pod_share_are_taken():
    parsed = state_file.parse(json.dumps({"data": DATA, "dataChecksum": 2328898362}))
    assert parsed.exclusive == {"pod/container1": "4-6", "pod/container2": "7-9", "pod": "10"}
    assert not list(state_file.against_machine(parsed, set(range(1, 11)), set()))


READABLE = [
    # a state, the version of the kubelet, words of the sentence
    (STATES[5][0], "1.35.4", "version 3, which kubelet 1.35.4 takes for corrupted and does not start with"),
    (STATES[7][0], "1.35.4", "version 3, which kubelet 1.35.4 takes for corrupted"),
    (STATES[5][0], "1.36.0", "version 3, which kubelets before 1.36 take for corrupted: for a downgrade drain the node"),
    (STATES[5][0], None, "version 3, which kubelets before 1.36"),
    (STATES[8][0], "1.36.1", "version 4, which kubelet 1.36.1 takes for corrupted"),
    (STATES[10][0], "1.29.0", None),  # next to version 2
    (STATES[4][0], "1.29.0", None),
]


@pytest.mark.parametrize("text, version, words", READABLE)
def test_a_state_against_the_version_of_its_kubelet(text, version, words):
    sentences = list(state_file.against_kubelet(state_file.parse(json.dumps(text)), version))
    assert len(sentences) == (words is not None) and all(words in sentence for sentence in sentences)


VERSIONS = [("echo Kubernetes v1.36.2", "1.36.2"), ("echo Kubernetes v1.37.0-rc.1+dirty", "1.37.0-rc.1+dirty"), ("exit 1", None)]


@pytest.mark.parametrize("script, version", VERSIONS)
def test_the_version_of_the_installed_kubelet(tree, script, version):
    host = tree.write({CONFIG: "", "/usr/bin/kubelet": "#!/bin/sh\n" + script})
    os.chmod(host.path("/usr/bin/kubelet"), 0o755)
    assert facts.kubelet(host, {0})["version"] == version
