# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAMi needs of a cluster and a node, and what it does there, as manifests from the facts of a host.

Project-HAMi/HAMi@4707fb02 ``pkg/device/ascend`` and its chart, Project-HAMi/ascend-device-plugin@ed35e1c4 ``docs/hami.md`` and
``internal/server/device_share.go``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import fit, held, vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import HARD, MODES, SOFT, Chip, chip_of, requested

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology

MODE = "huawei.com/vnpu-mode"
LIMITER = "/hami-vnpu-core/limiter"
"""Where containers have the limiter of the published layout, whose directory the device plugin mounts."""
_PROGRAM = re.compile(r"(/[A-Za-z0-9_.-]+)+\Z")
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
SCHEDULERS = ("hami", "volcano")
CONFIG = "hami-scheduler-device"
"""The ConfigMap of chips and their templates."""
_POD = ("name", "count", "memory_mib", "core")


def share_calls(npus: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the npu-smi calls by which the plugin switches device share on when it starts, on a node with soft mode.

    It gives up at the first one that fails, and never switches off. A call for a chip that is on already succeeds even while a container
    holds it.
    """
    chips = dict.fromkeys((npu["card"], npu["chip"] or 0) for npu in npus)
    return [f"npu-smi set -t device-share -i {card} -c {chip} -d 1" for card, chip in chips]


def hami_manifests(
    topology: Topology,
    node: str,
    requests: Sequence[Mapping[str, Any]] = (),
    mode: str = SOFT,
    namespace: str = "kube-system",
    image: str = "IMAGE",
    vdevice_count: int = 0,
    uuids: Mapping[int, str] | None = None,
    limiter: str = "",
    services: Sequence[Mapping[str, Any]] = (),
    plan: Plan | None = None,
    scheduler: str = "hami",
) -> dict[str, Any]:
    """Return what HAMi's chart, its device plugin and its users need for one node; the documentation of the filter has options and result.

    Requests are fitted one after another on the unused node. ``ValueError`` where the node has no chip that HAMi knows, and in HAMi's words
    where a request is refused.
    """
    if mode not in MODES:
        raise ValueError(f"mode: expected one of {' or '.join(MODES)}; got {mode!r}")
    if not _NAME.match(node):
        raise ValueError(f"node: '{node}' is not the name of a node; kubectl get nodes lists them")
    soft = mode == SOFT
    if soft and (why := _cannot_split(topology)):
        raise ValueError(f"mode: {SOFT} cannot work on node {node}: {why}; use mode: {HARD}")
    if limiter and not soft:
        raise ValueError(f"limiter: mode {HARD} has none, because the driver itself limits its parts; leave it empty")
    if limiter and not _PROGRAM.match(limiter):
        raise ValueError(f"limiter: '{limiter}' is not the path of a program in the container, such as {LIMITER}")
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler: expected one of {' or '.join(SCHEDULERS)}; got {scheduler!r}")
    hidden = held.cards(topology, services, plan)
    shown = (
        cast("Topology", {**topology, "npus": [npu for npu in topology["npus"] if npu.get("card") not in hidden]}) if hidden else topology
    )
    if not fit.devices_of(topology):
        raise ValueError(f"node {node} has no NPU that HAMi knows")
    devices = fit.devices_of(shown, soft, vdevice_count)
    chips = list(dict.fromkeys(chip_of(device["type"]) for device in devices))
    if not chips:
        raise ValueError(f"services: they hold all NPUs of node {node}, which leaves none for HAMi; leave the node to them")
    pods, annotations = _pods(chips[0], devices, requests, soft, image, uuids or {})
    for container in (container for pod in pods for container in pod["spec"]["containers"] if limiter):
        container["lifecycle"] = _start_of(limiter)
    per_node: dict[str, Any] = {"name": str(node), "hami-vnpu-core": soft}
    per_node |= {"vDeviceCount": int(vdevice_count)} if vdevice_count else {}
    per_node |= {"filterDevices": {"index": hidden}} if hidden else {}
    for pod in pods if scheduler == "volcano" else ():
        pod["spec"]["schedulerName"] = "volcano"
    return {
        "node": {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "labels": {"ascend": "on"}, "annotations": {"hami-vnpu-core": "true" if soft else "false"}},
        },
        "device_config": _config_map(
            CONFIG,
            namespace,
            "device-config.yaml",
            {"vnpus": {"hamiVnpuCore": False, "configs": [_chip_config(chip) for chip in chips]}},
        ),
        "node_config": _config_map("hami-device-node-config", namespace, "node-config.yaml", {"nodes": [per_node]}),
        "values": {"devices": {"ascend": {"enabled": True}}},
        "pods": pods,
        "annotations": annotations,
        "plugin_patch": [dict(step) for step in held.PATCH],
        "volcano": _deviceshare(namespace),
        "monitor": {"port": 9395, "path": "/metrics"} if soft else None,
        "warnings": [*(_inconsistencies(shown, node) if soft else ()), *held.doubts(topology, node, hidden)],
        "plugin_calls": share_calls(npu for npu in held.npus_of(shown) if npu.get("card") is not None) if soft else [],
    }


def _deviceshare(namespace: str) -> dict[str, Any]:
    """Return Volcano's plugin for HAMi's shares (volcano-sh/volcano@ed72c7c8 ``docs/user-guide/how_to_use_vnpu.md``)."""
    arguments = {
        "AscendHAMiVNPUEnable": True,
        "SchedulePolicy": "binpack",
        "KnownGeometriesCMNamespace": str(namespace),
        "KnownGeometriesCMName": CONFIG,
    }
    return {"name": "deviceshare", "arguments": {f"deviceshare.{name}": value for name, value in arguments.items()}}


def _cannot_split(topology: Topology) -> str:
    """Return why soft split cannot work on a host, or ''."""
    if why := vnpus.unsupported(topology):
        return why
    version = (topology.get("driver") or {}).get("version")
    if version and is_older(version, OLDEST_DRIVER):
        return f"its Ascend driver is {version}, and {OLDEST_DRIVER} or newer is required"
    if without := list(filter(vnpus.without_share, held.npus_of(topology))):
        return f"the driver of {without[0].get('name') or 'its chips'} has no device share, which the device plugin switches on"
    return ""


def _inconsistencies(topology: Topology, node: str) -> Iterator[str]:
    """Yield what may keep soft split from working on a host."""
    if not (topology.get("driver") or {}).get("version"):
        yield f"{node}: the version of the Ascend driver is not known, and soft split needs {OLDEST_DRIVER} or newer."
    npus = held.npus_of(topology)
    for state, found in ((False, "is off"), (None, "is not known")):
        if ids := [npu["id"] for npu in npus if npu.get("device_share") is state]:
            yield (
                f"{node}: device share of NPU {compress(ids)} {found}. HAMi's device plugin switches it on when it starts and gives up at "
                "the first chip that a container holds; npu_affinity_device_share_enabled: true switches it on before."
            )


def _config_map(name: str, namespace: str, key: str, content: Mapping[str, Any]) -> dict[str, Any]:
    labels = {
        f"app.kubernetes.io/{label}": value for label, value in (("component", "hami-scheduler"), ("name", "hami"), ("instance", "hami"))
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: yaml.safe_dump(content, sort_keys=False)}}


def _chip_config(chip: Chip) -> dict[str, Any]:
    cpus = {} if chip.ai_cpu is None else {"aiCPU": chip.ai_cpu}
    return {
        "chipName": chip.name,
        "commonWord": chip.word,
        "resourceName": chip.resource,
        "resourceMemoryName": chip.memory_resource,
        "resourceCoreName": chip.core_resource,
        "memoryAllocatable": chip.allocatable,
        "memoryCapacity": chip.capacity,
        "memoryFactor": chip.memory_factor,
        "aiCore": chip.ai_core,
        **cpus,
        **({"superPod": True} if chip.pairs else {}),
        "templates": [
            {"name": part.name, "memory": part.memory, "aiCore": part.ai_core, **({} if part.ai_cpu is None else {"aiCPU": part.ai_cpu})}
            for part in chip.templates
        ],
    }


def _pods(
    chip: Chip,
    devices: Sequence[Mapping[str, Any]],
    requests: Sequence[Mapping[str, Any]],
    soft: bool,
    image: str,
    uuids: Mapping[int, str],
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return sample pods, and the annotation that HAMi's scheduler will put on each."""
    admitted = []
    for request in requests:
        name = str(request.get("name", ""))
        if not _NAME.match(name):
            raise ValueError(f"requests: '{name}' cannot be a pod's name; give one of lower-case letters, digits, '-' and '.'")
        if unknown := sorted(set(request) - set(_POD)):
            raise ValueError(f"requests: {name} has unknown settings {', '.join(unknown)}; there are {', '.join(_POD)}")
        mode = SOFT if soft else HARD
        try:
            admitted.append(requested(chip, request.get("count", 1), request.get("memory_mib"), request.get("core"), mode))
        except ValueError as error:
            raise ValueError(f"requests: {name}: {error}") from error
    rules = fit.Rules(soft=soft, node_soft=soft, word=chip.word)
    pods, annotations = [], []
    for request, asked, fitted in zip(requests, admitted, fit.fit_all(devices, admitted, rules), strict=True):
        if fitted.reason:
            raise ValueError(f"requests: {request['name']} does not fit on the node together with those named before it: {fitted.reason}")
        limits = {chip.resource: str(asked["cards"]), chip.memory_resource: str(asked["memory_mb"])}
        limits |= {chip.core_resource: str(asked["core"])} if asked["core"] else {}
        container = {"name": str(request["name"]).replace(".", "-"), "image": image, "resources": {"limits": limits}}
        metadata = {"name": request["name"], **({"annotations": {MODE: SOFT}} if soft else {})}
        spec = {"runtimeClassName": "ascend", "containers": [container]}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        annotations.append({chip.resource: json.dumps([_granted(part, uuids) for part in fitted.taken], separators=(",", ":"))})
    return pods, annotations


def _start_of(limiter: str) -> dict[str, Any]:
    """Return the hook of the published design, which starts the limiter next to the workload; the library waits a minute for it.

    HAMi v2.9.0, ``pkg/device/ascend/device.go``, put it into every pod that had none; later releases do not.
    """
    script = f"export RUST_LOG=info\n{limiter} > /tmp/limiter_manager.log 2>&1 &"
    return {"postStart": {"exec": {"command": ["/bin/sh", "-c", script]}}}


def _granted(part: Mapping[str, Any], uuids: Mapping[int, str]) -> dict[str, Any]:
    """Return what the annotation says of one card; values that are empty or 0 are left out, as HAMi does."""
    number = int(part["id"].removeprefix("npu-"))
    values = {"UUID": uuids.get(number, part["id"]), "temp": part["template"], "memory": part["memory_mb"], "core": part["core"]}
    return {key: value for key, value in values.items() if value}
