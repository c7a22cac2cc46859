# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAMi needs of a cluster and a node, and what it does there, as manifests from the facts of a host.

Project-HAMi/HAMi@4707fb02 ``pkg/device/ascend`` and its chart, Project-HAMi/ascend-device-plugin@ed35e1c4 ``docs/hami.md``,
``internal/server/device_share.go``, ``internal/vnpu.go``, ``internal/manager.go`` (``index`` is the NPU ID of npu-smi, so both dies of a
card are hidden) and ``register.go`` (the others are numbered from 0, and a ring is four of these numbers).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress
from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Npu, Plan, Topology
from ansible_collections.npu.affinity.plugins.module_utils._smi.tool import OLDEST_DRIVER, is_older
from ansible_collections.npu.affinity.plugins.plugin_utils import _entries
from ansible_collections.npu.affinity.plugins.plugin_utils._placement.product import npus_of
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import fit, vnpus
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import HARD, MODES, SOFT, Chip, chip_of, requested

Manifest = dict[str, Any]
"""A document of Kubernetes, or a part of it."""

MODE = "huawei.com/vnpu-mode"
LIMITER = "/hami-vnpu-core/limiter"
"""Where containers have the limiter of the published layout, whose directory the device plugin mounts."""
_PROGRAM = re.compile(r"(/[A-Za-z0-9_.-]+)+\Z")
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
SCHEDULERS = ("hami", "volcano")
CONFIG = "hami-scheduler-device"
"""The ConfigMap of chips and their templates."""
_POD = ("name", "count", "memory_mib", "core")
RINGS = ("910", "a2")
"""Families whose chips are linked in rings of :data:`RING`."""
RING = 4


def share_calls(npus: Iterable[Npu]) -> list[str]:
    """Return the npu-smi calls by which the plugin switches device share on when it starts, on a node with soft mode.

    It gives up at the first one that fails, and never switches off. A call for a chip that is on already succeeds even while a container
    holds it.
    """
    chips = dict.fromkeys((npu["card"], npu["chip"] or 0) for npu in npus)
    return [f"npu-smi set -t device-share -i {card} -c {chip} -d 1" for card, chip in chips]


def hami_manifests(
    topology: Topology,
    node: str,
    requests: Sequence[_entries.Entry] = (),
    mode: str = SOFT,
    namespace: str = "kube-system",
    image: str = "IMAGE",
    vdevice_count: int = 0,
    uuids: Mapping[int | str, str] | None = None,
    limiter: str = "",
    services: Sequence[_entries.Entry] = (),
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
    if soft and (obstacle := _cannot_split(topology)):
        raise ValueError(f"mode: {SOFT} cannot work on node {node}: {obstacle}; use mode: {HARD}")
    if limiter and not soft:
        raise ValueError(f"limiter: mode {HARD} has none, because the driver itself limits its parts; leave it empty")
    if limiter and not _PROGRAM.match(limiter):
        raise ValueError(f"limiter: '{limiter}' is not the path of a program in the container, such as {LIMITER}")
    if scheduler not in SCHEDULERS:
        raise ValueError(f"scheduler: expected one of {' or '.join(SCHEDULERS)}; got {scheduler!r}")
    hidden = _cards_of(topology, services, plan)
    shown = cast("Topology", {**topology, "npus": [npu for npu in topology["npus"] if npu.get("card") not in hidden]})
    if not fit.devices_of(topology):
        raise ValueError(f"node {node} has no NPU that HAMi knows")
    devices = fit.devices_of(shown, soft, int(vdevice_count))
    chips = list(dict.fromkeys(chip_of(device["type"]) for device in devices))
    if not chips:
        raise ValueError(f"services: they hold all NPUs of node {node}, which leaves none for HAMi; leave the node to them")
    script = f"export RUST_LOG=info\n{limiter} > /tmp/limiter_manager.log 2>&1 &"
    hook = {"postStart": {"exec": {"command": ["/bin/sh", "-c", script]}}}  # HAMi v2.9.0, device.go, adds it to every pod without one
    container = {"image": image, **({"lifecycle": hook} if limiter else {})}
    spec = {"runtimeClassName": "ascend", **({"schedulerName": scheduler} if scheduler == "volcano" else {})}
    pods, annotations = _pods(
        chips[0], devices, requests, soft, container, spec, {f"npu-{number}": uuid for number, uuid in (uuids or {}).items()}
    )
    per_node: Manifest = {"name": str(node), "hami-vnpu-core": soft}
    per_node |= {"vDeviceCount": int(vdevice_count)} if int(vdevice_count) else {}
    per_node |= {"filterDevices": {"index": hidden}} if hidden else {}
    device_config = {"vnpus": {"hamiVnpuCore": False, "configs": list(map(_chip_config, chips))}}
    metadata = {"name": node, "labels": {"ascend": "on"}, "annotations": {"hami-vnpu-core": "true" if soft else "false"}}
    path, words = "/spec/template/spec/containers/0/args/-", ("--node_config_file", "/node-config.yaml")
    deviceshare = {  # Volcano's plugin for HAMi's shares (volcano-sh/volcano@ed72c7c8 docs/user-guide/how_to_use_vnpu.md)
        "deviceshare.AscendHAMiVNPUEnable": True,
        "deviceshare.SchedulePolicy": "binpack",
        "deviceshare.KnownGeometriesCMNamespace": str(namespace),
        "deviceshare.KnownGeometriesCMName": CONFIG,
    }
    return {
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": metadata},
        "device_config": _config_map(CONFIG, namespace, "device-config.yaml", device_config),
        "node_config": _config_map("hami-device-node-config", namespace, "node-config.yaml", {"nodes": [per_node]}),
        "values": {"devices": {"ascend": {"enabled": True}}},
        "pods": pods,
        "annotations": annotations,
        "plugin_patch": [{"op": "add", "path": path, "value": word} for word in words],
        "volcano": {"name": "deviceshare", "arguments": deviceshare},
        "monitor": {"port": 9395, "path": "/metrics"} if soft else None,
        "warnings": [*(_inconsistencies(shown, node) if soft else ()), *(_effects_of_hiding(topology, node, hidden) if hidden else ())],
        "plugin_calls": share_calls(npu for npu in npus_of(shown) if npu.get("card") is not None) if soft else [],
    }


def _cards_of(topology: Topology, services: Sequence[_entries.Entry], plan: Plan | None) -> list[int]:
    """Return the cards (NPU IDs) of which a service holds an NPU. ``services`` are ``npu_affinity_services``, named as in ``plan``.

    Raises ``ValueError`` for names that stand for no NPU, and NPUs whose card is not known.
    """
    npus = npus_of(topology)
    applied: _entries.Entry = plan or topology.get("applied") or {}
    entries = applied.get("npus") or [{**npu, "slice": f"npu-{npu['id']}.slice"} for npu in npus]
    by_function: dict[object, _entries.Entry] = {(npu.get("pci"), npu.get("chip") or 0): npu for npu in npus}
    cards = set()
    for service in services:
        if not isinstance(service, Mapping) or "npus" not in service:
            raise ValueError(f"services: expected a list like npu_affinity_services, each with unit and npus; got {service!r}")
        title = service.get("unit") or service.get("name") or "a service"
        members, unknown = _entries.members({"npus": entries}, service["npus"])
        if unknown:
            raise ValueError(f"services: {title} has {', '.join(unknown)}, which the host does not have; name an NPU of its plan")
        for entry in members:
            npu = by_function.get((entry.get("pci"), entry.get("chip") or 0), entry)
            if npu.get("card") is None:
                raise ValueError(f"services: the card of NPU {npu['id']} of {title} is not known; gather the host while npu-smi lists it")
            cards.add(int(npu["card"]))
    return sorted(cards)


def _effects_of_hiding(topology: Topology, node: str, hidden: Sequence[int]) -> Iterator[str]:
    """Yield what has to be done so that cards are hidden, and what else it changes."""
    yield (
        f"{node}: HAMi's device plugin hides NPU IDs {compress(hidden)} only if it reads node-config.yaml: apply plugin_patch to its "
        "DaemonSet, which has no such argument by default. It reads the file when it starts; restart its pod on the node after each change."
    )
    dies, others = ([npu for npu in npus_of(topology) if (npu.get("card") in hidden) is is_hidden] for is_hidden in (True, False))
    if any((npu.get("chip") or 0) > 0 for npu in dies):
        yield (
            f"{node}: index hides whole cards, so NPUs {compress(npu['id'] for npu in dies)} are hidden. To hide one die only, replace "
            "index by uuid with its VDIE."
        )
    numbers = sorted(npu["id"] for npu in others if npu.get("family") in RINGS or str(npu.get("name")).startswith("910"))
    rings = {(place // RING, number // RING) for place, number in enumerate(numbers)}  # after and before NPUs are renumbered
    if len(rings) > len({new for new, _old in rings}) or len(rings) > len({old for _new, old in rings}):
        yield (
            f"{node}: HAMi renumbers NPUs {compress(npu['id'] for npu in others)} and takes each four of them for a ring, which is wrong "
            "here. Give services whole rings (NPU 0-3 or 4-7), or use HAMi for pods with one NPU only."
        )
    if any(npu.get("device_share") for npu in dies):
        yield f"{node}: HAMi leaves device share of hidden NPUs as it is; it is on for some of them."


def _cannot_split(topology: Topology) -> str:
    """Return why soft split cannot work on a host, or ''."""
    if obstacle := vnpus.unsupported(topology):
        return obstacle
    version = (topology.get("driver") or {}).get("version")
    if version and is_older(version, OLDEST_DRIVER):
        return f"its Ascend driver is {version}, and {OLDEST_DRIVER} or newer is required"
    if without := list(filter(vnpus.without_share, npus_of(topology))):
        return f"the driver of {without[0].get('name') or 'its chips'} has no device share, which the device plugin switches on"
    return ""


def _inconsistencies(topology: Topology, node: str) -> Iterator[str]:
    """Yield what may keep soft split from working on a host."""
    if not (topology.get("driver") or {}).get("version"):
        yield f"{node}: the version of the Ascend driver is not known, and soft split needs {OLDEST_DRIVER} or newer."
    for state, words in ((False, "is off"), (None, "is not known")):
        if ids := [npu["id"] for npu in npus_of(topology) if npu.get("device_share") is state]:
            yield (
                f"{node}: device share of NPU {compress(ids)} {words}. HAMi's device plugin switches it on when it starts and gives up at "
                "the first chip that a container holds; npu_affinity_device_share_enabled: true switches it on before."
            )


def _config_map(name: str, namespace: str, key: str, content: Manifest) -> Manifest:
    labels = {f"app.kubernetes.io/{label}": "hami" for label in ("name", "instance")} | {"app.kubernetes.io/component": "hami-scheduler"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: yaml.safe_dump(content, sort_keys=False)}}


def _chip_config(chip: Chip) -> Manifest:
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
        **({} if chip.ai_cpu is None else {"aiCPU": chip.ai_cpu}),
        **({"superPod": True} if chip.pairs else {}),
        "templates": [
            {"name": part.name, "memory": part.memory, "aiCore": part.ai_core, **({} if part.ai_cpu is None else {"aiCPU": part.ai_cpu})}
            for part in chip.templates
        ],
    }


def _pods(
    chip: Chip,
    devices: Sequence[fit.Device],
    requests: Sequence[_entries.Entry],
    soft: bool,
    container: Manifest,
    spec: Manifest,
    uuids: Mapping[str, str],
) -> tuple[list[Manifest], list[dict[str, str]]]:
    """Return sample pods with a container each, and the annotation that HAMi's scheduler will put on each."""
    admitted = []
    for request in requests:
        name = str(request.get("name", ""))
        if not _NAME.match(name):
            raise ValueError(f"requests: '{name}' cannot be a pod's name; give one of lower-case letters, digits, '-' and '.'")
        if unknown := sorted(set(request) - set(_POD)):
            raise ValueError(f"requests: {name} has unknown settings {', '.join(unknown)}; there are {', '.join(_POD)}")
        asked = request.get("count", 1), request.get("memory_mib"), request.get("core")
        try:
            admitted.append(requested(chip, *asked, mode=SOFT if soft else HARD))
        except ValueError as error:
            raise ValueError(f"requests: {name}: {error}") from error
    rules = fit.Rules(soft=soft, node_soft=soft, word=chip.word)
    pods, annotations = [], []
    for request, demand, fitted in zip(requests, admitted, fit.fit_all(devices, admitted, rules), strict=True):
        if fitted.reason:
            raise ValueError(f"requests: {request['name']} does not fit on the node together with those named before it: {fitted.reason}")
        limits = {chip.resource: str(demand["cards"]), chip.memory_resource: str(demand["memory_mb"])}
        limits |= {chip.core_resource: str(demand["core"])} if demand["core"] else {}
        containers = [{"name": str(request["name"]).replace(".", "-"), **container, "resources": {"limits": limits}}]
        metadata = {"name": request["name"], **({"annotations": {MODE: SOFT}} if soft else {})}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": containers}})
        annotations.append({chip.resource: json.dumps([_granted(part, uuids) for part in fitted.taken], separators=(",", ":"))})
    return pods, annotations


def _granted(part: fit.Part, uuids: Mapping[str, str]) -> dict[str, str | int]:
    """Return what the annotation says of one card; values that are empty or 0 are left out, as HAMi does."""
    values = {"UUID": uuids.get(part["id"], part["id"]), "temp": part["template"], "memory": part["memory_mb"], "core": part["core"]}
    return {key: value for key, value in values.items() if value}
