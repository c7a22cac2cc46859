# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests for HAMi: valid by the schemas of Kubernetes, and true by HAMi's own rules."""

import json

import kubernetes_validate
import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter.hami_manifests import hami_manifests
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import CHIPS

A = {"name": "infer-a", "memory_mib": 28672, "core": 20}
B = {"name": "infer-b", "memory_mib": 28672, "core": 40}


def host(name="910B3", count=2, chips=1):
    npus = [{"kind": "npu", "id": number, "card": number // chips, "chip": number % chips, "name": name} for number in range(count)]
    return {"npus": npus + [{"kind": "gpu", "id": 0, "card": None, "chip": None, "name": "L40S"}]}


def valid(found):
    for part in (found["node"], found["device_config"], found["node_config"], *found["pods"]):
        kubernetes_validate.validate(part, "1.34", strict=True)


class Text(str):
    """As Ansible has texts."""


class Number(int):
    """As Ansible has numbers."""


def test_two_containers_share_a_card_and_pods_will_show_it():
    found = hami_manifests(host(), Text("node7"), [A, B], image="vllm-ascend", uuids={1: "4A6F-01"})
    valid(found)
    assert found["node"]["metadata"] == {"name": "node7", "labels": {"ascend": "on"}, "annotations": {"hami-vnpu-core": "true"}}
    labels = {"app.kubernetes.io/component": "hami-scheduler", **{f"app.kubernetes.io/{name}": "hami" for name in ("name", "instance")}}
    for document, name in {"device_config": "hami-scheduler-device", "node_config": "hami-device-node-config"}.items():
        assert found[document]["metadata"] == {"name": name, "namespace": "kube-system", "labels": labels}
    assert yaml.safe_load(found["node_config"]["data"]["node-config.yaml"]) == {"nodes": [{"name": "node7", "hami-vnpu-core": True}]}
    pod = found["pods"][1]
    assert pod["metadata"]["annotations"] == {"huawei.com/vnpu-mode": "hami-core"}
    limits = {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "28672", "huawei.com/Ascend910B3-core": "40"}
    assert pod["spec"]["containers"][0]["resources"]["limits"] == limits
    shares = [json.loads(entry["huawei.com/Ascend910B3"]) for entry in found["annotations"]]
    assert shares == [[{"UUID": "4A6F-01", "memory": 28672, "core": core}] for core in (20, 40)]
    assert found["plugin_calls"][0] == "npu-smi set -t device-share -i 0 -c 0 -d 1"
    assert found["values"] == {"devices": {"ascend": {"enabled": True}}} and found["monitor"] == {"port": 9395, "path": "/metrics"}


HARD = {"name": "quarter", "memory_mib": 9000}
LIMITER = ["/bin/sh", "-c", "export RUST_LOG=info\n/hami-vnpu-core/limiter > /tmp/limiter_manager.log 2>&1 &"]
OPTIONS = {  # what else a request can ask for: its shares and options, a document, and lines of it
    "numbers of Ansible": ([A], {"vdevice_count": Number(4)}, "node_config", ["vDeviceCount: 4"]),
    "numbers by text": ([A], {"vdevice_count": "4"}, "node_config", ["vDeviceCount: 4"]),
    "ids by text, as JSON has them": ([A], {"uuids": {"1": "4A6F-01"}}, "annotations", ["4A6F-01"]),
    "a limiter": ([A], {"limiter": "/hami-vnpu-core/limiter"}, "pods", ["postStart", json.dumps(LIMITER)]),
    "hard split": ([HARD], {"mode": "hard"}, "node", ['"hami-vnpu-core": "false"']),
    "hard split of a card": ([HARD], {"mode": "hard"}, "annotations", ["vir05_1c_16g", "16384"]),
    "hard split without device share": ([HARD], {"mode": "hard"}, "plugin_calls", ["[]"]),
    "hard split without a monitor": ([HARD], {"mode": "hard"}, "monitor", ["null"]),
    "Volcano": ([A], {"scheduler": "volcano", "namespace": "hami"}, "pods", ['"schedulerName": "volcano"']),
    "a namespace": ([A], {"namespace": Text("hami")}, "volcano", ['VNPUEnable": true', '"deviceshare.KnownGeometriesCMNamespace": "hami"']),
}


@pytest.mark.parametrize("shares, options, document, lines", OPTIONS.values(), ids=OPTIONS)
def test_options_of_manifests(shares, options, document, lines):
    found = hami_manifests(host(), "node7", shares, **options)
    valid(found)
    text = json.dumps(found[document])
    assert [line for line in lines if line not in text] == [], text


CANNOT_SPLIT = [
    ({"driver": {"version": "25.3.rc1"}}, "its Ascend driver is 25.3.rc1, and 25.5 or newer is required"),
    ({"machine": {"architecture": "x86_64"}}, "hami-vnpu-core, which there is for Arm only, and this host is x86_64"),
    (host("910A"), "the driver of 910A has no device share, which the device plugin switches on"),
]


@pytest.mark.parametrize("parts, sentence", CANNOT_SPLIT)
def test_soft_split_is_refused_where_it_cannot_work(parts, sentence):
    with pytest.raises(AnsibleFilterError, match=f"hami-core cannot work on node node7: .*{sentence}; use mode: hard"):
        hami_manifests({**host(), **parts}, "node7", [A])
    assert hami_manifests({**host(), **parts}, "node7", mode="hard")["warnings"] == []


def test_what_may_keep_soft_split_from_working_is_said():
    silent = {**host(), "driver": {"version": "25.5.1"}}
    shares = [{**npu, "device_share": state} for npu, state in zip(silent["npus"], (True, False), strict=False)]
    assert hami_manifests({**silent, "npus": shares[:1]}, "node7", [A])["warnings"] == []
    (off,) = hami_manifests({**silent, "npus": shares}, "node7", [A])["warnings"]
    assert off.startswith("node7: device share of NPU 1 is off. HAMi's device plugin switches it on when it starts and gives up")
    version, unknown = hami_manifests(host(), "node7", [A])["warnings"]
    assert "version of the Ascend driver is not known" in version and "device share of NPU 0-1 is not known" in unknown


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_every_chips_configuration_is_what_the_scheduler_reads(chip):
    mode = "hard" if chip.name == "910A" else "hami-core"
    node = host(chip.name, count=4, chips=2 if chip.pairs else 1)
    found = hami_manifests(node, "node-1.example", [{"name": "all"}], mode=mode, vdevice_count=10)
    valid(found)
    (config,) = yaml.safe_load(found["device_config"]["data"]["device-config.yaml"])["vnpus"]["configs"]
    assert (config["chipName"], config["commonWord"], config["memoryAllocatable"]) == (chip.name, chip.word, chip.allocatable)
    assert [template["memory"] for template in config["templates"]] == [template.memory for template in chip.templates]
    assert yaml.safe_load(found["node_config"]["data"]["node-config.yaml"])["nodes"][0]["vDeviceCount"] == 10
    assert len(json.loads(found["annotations"][0][chip.resource])) == (2 if chip.pairs else 1)


def held(npus, chips=1, services=None, of_npus=(), **more):
    """Return what the filter makes of 8 NPUs, so many on a card, of which a service has some."""
    topology = host("910B3", 8, chips)
    topology["npus"] = [{**npu, "family": "a2", "pci": f"0000:0{npu['card']}:00.0", **dict(of_npus)} for npu in topology["npus"][:8]]
    topology["driver"] = {"version": "25.5.1"}
    return hami_manifests(topology, "node7", [A], services=services or [{"unit": "llm.service", "npus": npus}], **more)


# NPUs of a service, NPUs on a card, hidden cards, and whether others get wrong rings
HELD = [([0, 1, 2, 3], 1, [0, 1, 2, 3], False), ([0], 1, [0], True), ([3, 4], 1, [3, 4], True), ([3], 2, [1], True)]


@pytest.mark.parametrize("npus, chips, cards, moved", HELD)
def test_npus_of_host_services_are_hidden_from_hami(npus, chips, cards, moved):
    found = held(npus, chips)
    valid(found)
    (node,) = yaml.safe_load(found["node_config"]["data"]["node-config.yaml"])["nodes"]
    assert node["filterDevices"] == {"index": cards}
    assert not [call for call in found["plugin_calls"] for card in cards if f"-i {card} " in call] and found["plugin_calls"]
    assert not set(npus) & {int(json.loads(text)[0]["UUID"][4:]) for entry in found["annotations"] for text in entry.values()}
    assert any("apply plugin_patch to its DaemonSet" in warning and "restart its pod" in warning for warning in found["warnings"])
    assert any("takes each four of them for a ring" in warning for warning in found["warnings"]) == moved
    assert any(warning.startswith("node7: index hides whole cards, so NPUs 2-3 are hidden") for warning in found["warnings"]) == (chips > 1)
    arguments = [step["value"] for step in found["plugin_patch"] if step["path"].endswith("/args/-")]
    assert arguments == ["--node_config_file", "/node-config.yaml"]


def test_services_name_npus_as_in_their_plan():
    plan = {"npus": [{"id": 0, "slice": "npu-5.slice", "pci": "0000:02:00.0", "chip": 0, "card": 2}]}
    (node,) = yaml.safe_load(held([5], plan=plan)["node_config"]["data"]["node-config.yaml"])["nodes"]
    assert node["filterDevices"] == {"index": [2]}
    assert "HAMi leaves device share of hidden NPUs as it is" in held([0], of_npus={"device_share": True})["warnings"][-1]


CANNOT_HIDE = [
    ({"npus": [9]}, "services: llm.service has 9, which the host does not have"),
    ({"npus": [*range(8)]}, "services: they hold all NPUs of node node7"),
    ({"npus": [0], "of_npus": {"card": None}}, "services: the card of NPU 0 of llm.service is not known; gather the host while"),
    ({"npus": [], "services": ["llm"]}, "services: expected a list like npu_affinity_services, each with unit and npus; got 'llm'"),
]


@pytest.mark.parametrize("arguments, sentence", CANNOT_HIDE)
def test_npus_that_cannot_be_hidden_are_refused(arguments, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence):
        held(**arguments)


NODE = (host(), "node7")
REFUSED = [
    ((*NODE, [A, {**B, "core": 90}, {**B, "name": "c", "core": 90}]), "c does not fit on the node together with those named before it"),
    ((*NODE, [A], "hard"), "infer-a: huawei.com/Ascend910B3-core is only supported in hami-core"),
    ((*NODE, [{**A, "memory_mib": "28Gi"}]), "infer-a: memory: 28Gi is"),
    ((*NODE, [{**A, "memory": 5}]), "infer-a has unknown settings memory; there are name, count, memory_mib, core"),
    ((*NODE, [{"name": "A B"}]), "'A B' cannot be a pod's name"),
    ((host(), "Node 7"), "'Node 7' is not the name of a node"),
    ((host("Ascend950DT"), "node7"), "node node7 has no NPU that HAMi knows"),
    ((*NODE, [], "hard", "n", "i", 0, {}, "/limiter"), "limiter: mode hard has none"),
    ((*NODE, [], "hami-core", "n", "i", 0, {}, "limiter; rm"), "'limiter; rm' is not the path of a program in the container"),
    ((*NODE, [], "soft"), "mode: expected one of hard or hami-core; got 'soft'"),
    ((*NODE, [], "hard", "n", "i", 0, {}, "", [], None, "kube"), "scheduler: expected one of hami or volcano; got 'kube'"),
]


@pytest.mark.parametrize("arguments, sentence", REFUSED)
def test_what_hami_would_refuse_is_refused_here(arguments, sentence):
    with pytest.raises(AnsibleFilterError, match="npu.affinity.hami_manifests: .*" + sentence):
        hami_manifests(*arguments)
