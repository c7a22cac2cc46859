# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms of filter launch: those of a host, which its command npu-affinity has, too, and those for Kubernetes.

The latter are pods of the class Guaranteed, their claims and policies, and a part of the configuration of a kubelet.

Exclusive CPUs of the kubelet go to pods with whole CPUs, and with requests equal to limits for CPUs and memory (Kubernetes, "Control CPU
Management Policies on the Node"). Which CPUs, it alone decides. Never AllowedCPUs= on kubepods.slice or below, and never a change of the
CPU manager's state file (kubernetes issues 104147, 84333).

Form ``dra``, CPUs: kubernetes-sigs/dra-driver-cpu v0.2.0 (7f95568), ``docs/user/opaque-cpuset-overrides.md``. With ``groupBy: machine`` a
claim gets the CPUs of the ``cpuset`` in the opaque configuration of its allocation: as many as its capacity, online, not reserved, in no
other claim. One configuration has one request. The scheduler copies the configurations of a claim into its allocation. "Workload
Configuration Requirements": the container asks for as many CPUs, and no other has the claim. In individual mode a claim has a result for
every CPU, 32 at most, and no cpuset (issue 290).

NPUs: Ascend/mind-cluster (22bb3d98), ``component/ascend-dynamic-resource-allocation``. Driver and class are ``npu.huawei.com``; attribute
``physicId`` is the N of ``/dev/davinciN``. It fails on a claim with results of other drivers (``state.go``, ``prepareDevices``), so that
there are two. All NPUs of a claim come together. On A2 and A3 it publishes nothing: a name such as ``Ascend910-0`` is no DNS label.

One claim (``one_claim``): from Kubernetes 1.37 on, ``derivedAttributes`` (KEP-6080, alpha) give each NPU the NUMA node of the topology, and
``matchAttribute`` a share of the CPUs of this node, not the pool. dra-driver-cpu publishes the attribute after v0.2.0, by ``groupBy:
numanode``.

Form ``balloons``: containers/nri-plugins@0705acc8, ``docs/resource-policy/policy/balloons.md`` and
``cmd/plugins/balloons/policy/balloons-policy.go`` (pull requests 720 and 722). With ``preferCloseToDevices: [podresourceapi:RESOURCE]`` a
new balloon takes its CPUs from the NUMA nodes of the devices that the kubelet gave to its container. ``irqClaim`` moves interrupts, by
name, to the CPUs of all balloons of a type; every other interrupt then goes to all CPUs, unless ``controllableInterrupts`` leaves it out.
The balloon ``reserved`` takes the reserved CPUs only where ``minCPUs`` asks for as many.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._launch import forms, launching
from ansible_collections.npu.affinity.plugins.module_utils._launch.filling import Block, file
from ansible_collections.npu.affinity.plugins.module_utils._launch.forms import Form
from ansible_collections.npu.affinity.plugins.plugin_utils._launch.pods import PodFacts

_OF_PODS = ("image", "command", "devices", "memory", "resource", "engine")
_NO_CARDS = "{title} names no NPU or GPU, so their number is unknown; give npus, or devices=false{cards:!}"
_ELSEWHERE = (
    "Give topology, or resource: the device plugin names it by the family of the NPU; kubectl describe node shows it.{offered:!}",
    "{offered} is the name that the device plugin gives it; kubectl describe node shows it.",
)
_ALONE = (
    "{title}: the kubelet of this host has the static CPU manager, and %s must be alone in giving CPUs to pods; set cpuManagerPolicy to "
    "none (npu_affinity_kubelet_enabled: false){is_static:?}"
)
_NO_MANAGER = "The kubelet of the node must have cpuManagerPolicy: none, or it gives the same CPUs away as %s.{kubelet:!}"
_BALLOONS = (
    "It needs nri-plugins of August 2026 or newer (pull requests 720 and 722). A node has one policy, and applying it moves containers "
    "that run."
)
_HINTS = "The device plugin must tell the NUMA nodes of its devices, which HAMi's does not."


def _pod(by_plugin: str, metadata: str = "", claims: str = "") -> tuple[str, ...]:
    """Return a pod; ``by_plugin`` is there where the device plugin gives the devices."""
    return (
        """\
apiVersion: v1
kind: Pod
metadata:
  name: {pod_name:yaml}
%sspec:
  containers:
  - name: {pod_name:yaml}
    image: {image:yaml}
    command:{command:?}
    - {command:pod}
    env:{env:?}"""
        % metadata,
        Block("    - name: {env.name}\n      value: {env.value:yaml}"),
        """\
    resources:
      requests:
        cpu: '{size}'
        memory: {memory:yaml}
        {resource_or_unknown:yaml}: '{count}'%s
      limits:
        cpu: '{size}'
        memory: {memory:yaml}
        {resource_or_unknown:yaml}: '{count}'%s
%s"""
        % (by_plugin, by_plugin, claims),
    )


_ON_NODE = """\
  nodeSelector:
    kubernetes.io/hostname: {node:yaml}
"""
_POLICY = """\
apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata:
  name: node.{node}
  namespace: kube-system
spec:
  agent:
    podResourceAPI: true
  reservedResources:
    cpu: cpuset:{reserved}
  controllableInterrupts:{interrupts:?}
  - {interrupts:yaml}
  balloonTypes:
  - name: reserved
    minCPUs: {reserved_size}
    irqClaim:{interrupts:?}
    - {interrupts:yaml}
  - name: {kind}
    preferNewBalloons: true
    preferSpreadingPods: true
    preferCloseToDevices:
    - podresourceapi:{resource_or_unknown}
---
"""
_CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: {pod_name:yaml}
spec:
  devices:
    requests:"""
_CPUS = """
    - name: %s
      exactly:
        deviceClassName: dra.cpu
        capacity:
          requests:
            dra.cpu/cpu: '%s'"""
_NPUS = """
    - name: npus
      exactly:
        deviceClassName: npu.huawei.com
        count: {selected.count}
        selectors:
        - cel:
            expression: {selected.by:yaml}"""
_ONE_CLAIM = """
        derivedAttributes:
        - name: resource.kubernetes.io/numaNode
          expression: {selected.node:yaml}%s
    constraints:
    - requests:
      - npus
      - cpus
      matchAttribute: resource.kubernetes.io/numaNode
---{one_claim:?}"""
_EXACTLY = """\
    - requests:
      - {requests.name}
      opaque:
        driver: dra.cpu
        parameters:
          apiVersion: v1alpha1
          cpuConfig:
            cpuset: {requests.cpus:yaml}"""
_KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  {options_of_manager}: 'true'
reservedSystemCPUs: {whole_pool:yaml}
topologyManagerPolicy: single-numa-node{near:?}
topologyManagerPolicy: restricted{near:!}
featureGates:{gates:?}
  {gates}: true
"""

FORMS = {
    **forms.FORMS,
    "kubernetes": Form(
        file,
        _pod("{gives_devices:?}"),
        _OF_PODS,
        (
            "The kubelet picks the CPUs: this is the number of CPUs, not their set.",
            *(text + "{gives_devices:?}" for text in _ELSEWHERE),
            "The kubelet must have {reserved} in reservedSystemCPUs, and the CPUs for interrupts of all other NPUs.",
            "{forecast}",
        ),
        (_NO_CARDS + "{gives_devices:?}",),
        PodFacts,
        for_pods=True,
    ),
    "kubelet": Form(
        file,
        (_KUBELET,),
        (),
        (
            "Merge it into /var/lib/kubelet/config.yaml. Add to reservedSystemCPUs what every other slice outside Kubernetes has, the CPUs "
            "for interrupts of all NPUs, and housekeeping.",
            "In this order: drain the node, stop kubelet, change the file, remove /var/lib/kubelet/cpu_manager_state (and "
            "memory_manager_state), start kubelet, uncordon.",
            "strict-cpu-reservation came with Kubernetes 1.32, behind a feature gate until 1.33: leave it out before.{version:!}",
        ),
        (),
        PodFacts,
        starts=False,
        for_pods=True,
    ),
    "balloons": Form(
        file,
        (_POLICY, *_pod("", "  annotations:\n    balloon.balloons.resource-policy.nri.io/pod: {kind}\n"), _ON_NODE),
        (*(option for option in _OF_PODS if option != "devices"), "node", "plan"),
        (
            f"{_BALLOONS}{{plan:?}}",
            f"{_BALLOONS} reservedResources must have the CPUs for interrupts of all other NPUs, too: give plan.{{plan:!}}",
            "The pod gets {size} CPUs close to its NPU, not the set of the plan.",
            _NO_MANAGER % "the balloons policy",
            f"{_HINTS}{{is_gpu:!}}{{unhinted:!}}",
            f"{_HINTS} MindCluster's has none for NPU {{unhinted}}.{{is_gpu:!}}",
            *_ELSEWHERE,
            "The policy moves the interrupts of all NPUs to CPUs {reserved}, as it finds them when it starts: restart it after a driver "
            "load, and set npu_affinity_irq_enabled: false for this host, or leave irqClaim and controllableInterrupts out.{interrupts:?}",
        ),
        (
            "{title} names no NPU, and balloons lie close to NPUs; give npus{cards:!}",
            _ALONE % "the balloons policy",
            "{title}: the policy needs reserved CPUs, and the plan has none for interrupts; plan with "
            "npu_affinity_housekeeping{reserved:!}",
        ),
        PodFacts,
        for_pods=True,
    ),
    "dra": Form(
        file,
        (
            Block(_CLAIM + _NPUS + _ONE_CLAIM % _CPUS % ("cpus", "{size}")),
            Block(_CLAIM + "{one_claim:!}"),
            Block(_CPUS[1:] % ("{requests.name}", "{requests.size}")),
            "    config:{one_claim:!}",
            Block(_EXACTLY),
            "---{one_claim:!}",
            Block(_CLAIM.replace("{pod_name:yaml}", "{pod_name}-npus") + _NPUS + "\n---{one_claim:!}"),
            *_pod("{from_plugin:?}", claims="      claims:\n      - name: {claims.name}\n"),
            _ON_NODE + "  resourceClaims:",
            Block("  - name: {claims.name}\n    resourceClaimName: {claims.of:yaml}"),
        ),
        (*_OF_PODS, "node", "plan", "one_claim"),
        (
            "Kubernetes 1.37 or newer with feature gates DRAConsumableCapacity and DRADerivedAttributes (alpha), a dra-driver-cpu after "
            "v0.2.0 with --group-by=numanode --reserved-cpus={reserved:none}, and an Ascend driver that skips results of other "
            "drivers.{one_claim:?}",
            "The container gets a share of the NUMA node of its NPUs, not the CPUs of the plan.{one_claim:?}",
            "dra-driver-cpu v0.2.0 must run on the node with --cpu-device-mode=grouped --group-by=machine "
            "--reserved-cpus={reserved:none}.{one_claim:!}",
            "--reserved-cpus must have the CPUs for interrupts of all other NPUs, too: give plan.{plan:!}{one_claim:!}",
            "Kubernetes 1.34 or newer with feature gate DRAConsumableCapacity. Memory nodes are not bound: the driver gives CPUs only."
            "{one_claim:!}",
            _NO_MANAGER % "the driver",
            *(text + "{from_plugin:?}" for text in _ELSEWHERE),
            "The CPUs are those of {title}; which NPU the pod gets, the device plugin decides.{from_plugin:?}",
            "Ascend's DRA driver must run on the node in place of the device plugin, with a runtime that has CDI 0.8 (containerd 2.0, "
            "CRI-O 1.32).{claimed:?}",
            "As of August 2026, that driver publishes the NPUs of Ascend 950 alone, and this workload has {unserved}: for the device "
            "plugin, pass resource.{claimed:?}",
        ),
        (
            _ALONE % "the driver",
            "one_claim: {title} has no NPU whose device file is known; give topology, or leave out one_claim{one_claim:?}{of_host:!}",
            _NO_CARDS + "{from_plugin:?}",
        ),
        PodFacts,
        for_pods=True,
    ),
}


def launch(entry: Any, form: str, **options: Any) -> str:
    return launching.launch(entry, form, forms=FORMS, **options)
