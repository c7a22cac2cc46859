# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects for Volcano, validated against the schemas of Kubernetes and of Volcano's published CRDs."""

import copy
import json
import pathlib

import jsonschema
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from planner_hosts import host

from ansible_collections.npu.affinity.plugins.filter.volcano import volcano
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.volcano import volcano_check

import kubernetes_validate

SCHEMAS = json.loads((pathlib.Path(__file__).parent / "volcano_schemas.json").read_text())
"""Of the CRDs nodeinfo.volcano.sh_numatopologies.yaml, with the allocations that newer exporters publish, and batch.volcano.sh_jobs.yaml,
without the pod's own schema, which is that of Kubernetes."""
A2 = host([6, 6, 4, 4, 0, 0, 2, 2])
STATIC = {"policy": "static", "topology_policy": "restricted", "default_cpus": "0-143,152-191", "reserved_cpus": "0-1"}
NODE = {**A2, "kubelet": {**STATIC, "exclusive": {"777870b5/container-1": "144-151"}}}
NODES = {"a2-01": NODE}
SMT = {**host([0, 1], nodes=2, cores=4, threads=2, numbering="far"), "kubelet": {"policy": "none", "reserved_millicpus": 1500}}


def kubernetes(document):
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def numa_aware(weight):
    return {"name": "numa-aware", "arguments": {"weight": weight}}


def test_the_scheduler_has_the_numa_aware_plugin_with_its_weight():
    made = volcano(NODES, weight=7)
    kubernetes(made["scheduler"])
    tiers = yaml.safe_load(made["scheduler"]["data"]["volcano-scheduler.conf"])["tiers"]
    assert numa_aware(7) in [plugin for tier in tiers for plugin in tier["plugins"]]
    assert not {"addon", "expert"} & made.keys()


# What the page "NUMA Affinity Scheduling" of Huawei Cloud CCE shows for Volcano before 1.7.1, and from then on.
OLD = """priority gang conformance
overcommit drf predicates nodeorder
cce-gpu-topology-predicate cce-gpu-topology-priority cce-gpu
nodelocalvolume nodeemptydirvolume nodeCSIscheduling networkresource numa-aware"""
NEW = """priority gang conformance
drf predicates nodeorder
cce-gpu-topology-predicate cce-gpu-topology-priority cce-gpu numa-aware
nodelocalvolume nodeemptydirvolume nodeCSIscheduling networkresource"""
VPC = {"name": "networkresource", "arguments": {"NetworkType": "vpc-router"}}


@pytest.mark.parametrize("old", [True, False], ids=["the config map", "the parameter"])
def test_the_scheduler_of_a_managed_cluster_is_that_of_its_page(old):
    made = volcano(NODES, cluster="cce")
    kubernetes(made["scheduler"])
    assert made["scheduler"]["metadata"] == {"name": "volcano-scheduler-configmap", "namespace": "kube-system"}
    configuration = yaml.safe_load(made["scheduler"]["data"]["default-scheduler.conf"]) if old else made["addon"]["default_scheduler_conf"]
    arguments = {"numa-aware": numa_aware(10), **({"networkresource": VPC} if old else {})}
    tiers = [[arguments.get(name, {"name": name}) for name in line.split()] for line in (OLD if old else NEW).splitlines()]
    assert configuration == {**configuration, "actions": "allocate, backfill, preempt", "tiers": [{"plugins": tier} for tier in tiers]}


def test_expert_mode_of_cce_switches_the_exporter_on_by_texts():
    expert = volcano(NODES, cluster="cce")["expert"]
    assert expert["resource_exporter_enable"] == "true" and expert["plugins"].keys() == {"eas_service"}
    assert set(map(type, expert["plugins"]["eas_service"].values())) == {str}
    assert expert["plugins"]["eas_service"]["secret_name"] == "eas-service-secret"


NETWORK = {"name": "networkresource", "arguments": {"NetworkType": "eni", "limits": [1, 2.5, True]}}
GANG, PRIORITY, NODEORDER = {"name": "gang", "enablePreemptable": False}, {"name": "priority"}, {"name": "nodeorder"}
TIERS = [
    ([["priority", GANG], {"plugins": ["nodeorder", NETWORK]}], [[PRIORITY, GANG], [NODEORDER, NETWORK, numa_aware(10)]]),
    ([["priority", "numa-aware"], ["nodeorder"]], [[PRIORITY, numa_aware(10)], [NODEORDER]]),
    ([[GANG, numa_aware(4)]], [[GANG, numa_aware(4)]]),
]


@pytest.mark.parametrize("plugins, tiers", TIERS, ids=["arguments and switches", "a place", "its own weight"])
def test_plugins_and_namespace_are_the_users(plugins, tiers):
    before, expected = copy.deepcopy(plugins), [{"plugins": tier} for tier in tiers]
    made = volcano(NODES, cluster="cce", namespace="scheduling", plugins=plugins)
    assert yaml.safe_load(made["scheduler"]["data"]["default-scheduler.conf"])["tiers"] == expected
    assert made["addon"]["default_scheduler_conf"]["tiers"] == expected and plugins == before
    assert volcano(NODES, cluster="cce", plugins=expected)["addon"]["default_scheduler_conf"]["tiers"] == expected
    alone = volcano(NODES, namespace="scheduling", plugins=plugins)["scheduler"]
    assert yaml.safe_load(alone["data"]["volcano-scheduler.conf"])["tiers"] == expected
    assert alone["metadata"]["namespace"] == "scheduling"


def test_the_samples_are_guaranteed_and_carry_the_policy():
    made = volcano(NODES, cpus=24, npus=2, policy="restricted", replicas=3, name="llm")
    kubernetes(made["deployment"])
    template = made["deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"volcano.sh/numa-topology-policy": "restricted"}
    (container,) = template["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {"cpu": "24", "memory": "1Gi", "huawei.com/Ascend910": "2"}
    jsonschema.validate(made["job"], SCHEMAS["jobs"])
    (task,) = made["job"]["spec"]["tasks"]
    assert (task["topologyPolicy"], task["replicas"], made["job"]["spec"]["minAvailable"]) == ("restricted", 3, 3)
    kubernetes({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm"}, "spec": task["template"]["spec"]})


VNPUS = [
    ("a2", "vir06_1c_16g", "Ascend910-6c.1cpu.16g"),
    ("a2", "vir10_3c_16g_nm", "Ascend910-10c.3cpu.16g.ndvpp"),
    ("a2", "vir10_4c_16g_m", "Ascend910-10c.4cpu.16g.dvpp"),
    ("a3", "vir05_1c_16g", "Ascend910-5c.1cpu.16g"),
    ("310p", "vir01", "Ascend310P-1c"),
    ("310p", "vir04_3c_ndvpp", "Ascend310P-4c.3cpu.ndvpp"),
]


@pytest.mark.parametrize("family, template, name", VNPUS)
def test_a_hard_vnpu_has_the_name_of_mindcluster(family, template, name):
    made = volcano({"n": host([0, 1], nodes=2, family=family)}, 2, 1, template=template)
    container = made["job"]["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", f"huawei.com/{name}": "1"}
    for npus, node, words in ((2, family, "a pod gets one hard vNPU"), (1, "a5", f"offers no vNPU '{template}' of the family a5")):
        with pytest.raises(AnsibleFilterError, match=words):
            volcano({"n": host([0, 1], nodes=2, family=node)}, 2, npus, template=template)


def test_the_numatopology_of_a_node():
    (made,) = volcano({"bare": A2, **NODES})["numatopologies"]
    jsonschema.validate(made, SCHEMAS["numatopologies"])
    assert made["metadata"] == {"name": "a2-01"}
    spec = made["spec"]
    assert spec["policies"] == {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"}
    assert (spec["numares"]["cpu"], spec["resReserved"]) == ({"allocatable": "0-143,152-191", "capacity": 192}, {"cpu": "2"})
    assert spec["cpuDetail"]["144"] == {"numa": 6, "socket": 6, "core": 144}, "without known sockets, every node is one"
    container = {"name": "container-1", "allocations": {"cpu": "144-151"}}
    assert spec["podAllocations"] == [{"uid": "777870b5", "containerAllocations": [container]}]
    (made,) = volcano({"smt": {**SMT, "cpus": {**SMT["cpus"], "sockets": ["0-15"]}}})["numatopologies"]
    jsonschema.validate(made, SCHEMAS["numatopologies"])
    assert made["spec"]["cpuDetail"]["13"] == {"numa": 1, "socket": 0, "core": 5}, "threads of a core share its number"
    assert made["spec"]["resReserved"] == {"cpu": "1500m"} and made["spec"]["numares"]["cpu"]["allocatable"] == "0-15"


def test_the_schemas_are_strict():
    made = volcano(NODES)
    made["job"]["spec"]["tasks"][0]["topologyPolcy"] = "restricted"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(made["job"], SCHEMAS["jobs"])
    made["deployment"]["spec"]["replica"] = 1
    with pytest.raises(Exception, match="replica"):
        kubernetes(made["deployment"])


def gang(**more):
    return {"plugins": [[{"name": "gang", **more}]]}


REFUSED = [
    (NODES, {"cpus": 0.5}, "volcano: cpus: expected a whole number of 1 or more"),
    (NODES, {"policy": "strict"}, "policy: expected one of none"),
    (NODES, {"name": "Big Job"}, "'Big Job' cannot be the name of a Deployment"),
    ({}, {"npus": 1}, "resource: the hosts have no NPUs"),
    ({"a": host([0], family=None)}, {"npus": 1}, "resource: the hosts have NPUs of an unknown family"),
    ({"a": NODE, "d": host([0], family="310p")}, {"npus": 1}, "offered as huawei.com/Ascend310P, huawei.com/Ascend910"),
    (NODES, {"cluster": "aks"}, "cluster: expected one of volcano, cce; got 'aks'"),
    (NODES, {"plugins": ["gang"]}, "plugins: expected a list of tiers, each a list of plugins, which are names or dictionaries"),
    (NODES, {"plugins": "gang"}, "plugins: expected a list of tiers, "),
    (NODES, {"plugins": []}, "there is a tier without plugins, or no tier"),
    (NODES, {"plugins": [["gang"], []]}, "there is a tier without plugins, or no tier"),
    (NODES, {"plugins": [["gang", 5]]}, "plugins: expected a name such as 'gang', or a dictionary with name; got 5"),
    (NODES, {"plugins": [[{"arguments": {}}]]}, "plugins: expected a name such as 'gang', or a dictionary with name"),
    (NODES, {"plugins": [["gang"], ["gang"]]}, "plugins: gang is named more than once"),
    (NODES, gang(weight=5), "plugins: gang has no 'weight'; it has name, arguments and switches"),
    (NODES, gang(enableJobOrder="no"), "enableJobOrder of gang is true or false; got 'no'"),
    (NODES, gang(arguments=["a"]), "the arguments of gang are a dictionary; got ['a']"),
    (NODES, gang(arguments={"a": None}), "as arguments of gang; got None"),
    (NODES, gang(arguments={1: 2}), "the names of the arguments of gang are texts; got 1"),
    (NODES, {"gpus": 1}, "unexpected keyword argument 'gpus'"),
    ({}, {"check": "text"}, "npu.affinity.volcano: "),
    ({}, {"check": {"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}}}, "npu.affinity.volcano: "),
]


@pytest.mark.parametrize("hosts, options, words", REFUSED)
def test_what_kubernetes_would_not_take(hosts, options, words):
    with pytest.raises(AnsibleFilterError) as refused:
        volcano(hosts, **options)
    assert words in str(refused.value)


def changed_sample(kind="deployment", **changes):
    """Return our sample with changes to the resources of its container, its policy or its scheduler."""
    sample = volcano(NODES, policy="restricted")[kind]
    template = sample["spec"]["template"] if kind == "deployment" else sample["spec"]["tasks"][0]["template"]
    (container,) = template["spec"]["containers"]
    container["resources"] = changes.get("resources", container["resources"])
    if "policy" in changes:
        template["metadata"]["annotations"] = {"volcano.sh/numa-topology-policy": changes["policy"]} if changes["policy"] else {}
    if "scheduler" in changes:
        template["spec"]["schedulerName"] = changes["scheduler"]
    return sample


def cpus(limit, request=None):
    return {"limits": {"cpu": limit, "memory": "1Gi"}, "requests": {"cpu": request or limit, "memory": "1024Mi"}}


POD = {"kind": "Pod", **changed_sample(policy="single-numa-node")["spec"]["template"]}
POD["metadata"]["name"] = "llm"
FINDINGS = [
    ("our Deployment", changed_sample(), []),
    ("our job", changed_sample("job"), []),
    ("limits without requests", changed_sample(resources={"limits": {"cpu": 2, "memory": "1Gi"}}), []),
    ("whole CPUs in thousandths", changed_sample(resources=cpus("2000m", "2")), []),
    ("another scheduler", changed_sample(scheduler="default-scheduler"), ["schedulerName is default-scheduler"]),
    ("no policy", changed_sample(policy=""), ["has no topology policy"]),
    ("an unknown policy", changed_sample(policy="strict"), ["topology policy 'strict' is not known; known are none"]),
    ("parts of CPUs", changed_sample(resources=cpus("1500m")), ["container sample: 1500m CPUs are not a whole number"]),
    ("a request below its limit", changed_sample(resources=cpus("4", "2")), ["cpu is requested as 2 and limited to 4"]),
    ("no memory", changed_sample(resources={"limits": {"cpu": "2"}}), ["limit for memory is not set"]),
    ("no resources", changed_sample("job", resources={}), ["task worker, container sample: limit for cpu is not set", "limit for memory"]),
    ("no quantity", changed_sample(resources=cpus("two")), ["limit for cpu is two"]),
    ("a policy of no node", POD, ["no node has it with the static CPU manager: a2-01 static and restricted."]),
]


@pytest.mark.parametrize("manifest, words", [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS])
def test_a_manifest_of_the_users_is_checked_with_the_nodes(manifest, words):
    nodes = {**NODES, "bare": A2}
    problems = volcano_check(manifest, nodes)
    assert len(problems) == len(words)
    assert all(word in sentence for word, sentence in zip(words, problems, strict=True))
    assert volcano(nodes, check=manifest)["problems"] == problems
    assert volcano_check(manifest) == (problems if manifest is not POD else [])
