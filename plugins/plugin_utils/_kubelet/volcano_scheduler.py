# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Volcano's scheduler with the numa-aware plugin.

Sources: volcano-sh/volcano@ed72c7c8, ``installer`` and ``pkg/scheduler/conf/scheduler_conf.go`` (what a plugin takes); Huawei Cloud CCE,
"NUMA Affinity Scheduling" (2025-02-18), which has a ConfigMap for add-ons before 1.7.1 and a parameter with other tiers from there on.
Before 1.7.1, the expert mode of the add-on's settings switches the resource exporter on.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

NUMA_AWARE = "numa-aware"
_SWITCH = re.compile(r"enable[A-Z][A-Za-z]*\Z")
_EXPECTED = "a list of tiers, each a list of plugins, which are names or dictionaries of name, arguments and enable switches"

Object = dict[str, Any]


class Cluster(NamedTuple):
    """Where a cluster keeps the configuration of Volcano's scheduler, and with what it starts; ``addon`` are the tiers of an add-on."""

    namespace: str
    key: str
    actions: str
    tiers: Sequence[Sequence[str | Mapping[str, Any]]]
    addon: Sequence[Sequence[str]] = ()


CLUSTERS = {
    "volcano": Cluster(
        "volcano-system",
        "volcano-scheduler.conf",
        "enqueue, allocate, backfill",
        (("priority", "gang", "conformance"), ("drf", "predicates", "proportion", "nodeorder", NUMA_AWARE)),
    ),
    "cce": Cluster(
        "kube-system",
        "default-scheduler.conf",
        "allocate, backfill, preempt",
        (
            ("priority", "gang", "conformance"),
            ("overcommit", "drf", "predicates", "nodeorder"),
            ("cce-gpu-topology-predicate", "cce-gpu-topology-priority", "cce-gpu"),
            (
                "nodelocalvolume",
                "nodeemptydirvolume",
                "nodeCSIscheduling",
                {"name": "networkresource", "arguments": {"NetworkType": "vpc-router"}},
                NUMA_AWARE,
            ),
        ),
        (
            ("priority", "gang", "conformance"),
            ("drf", "predicates", "nodeorder"),
            ("cce-gpu-topology-predicate", "cce-gpu-topology-priority", "cce-gpu", NUMA_AWARE),
            ("nodelocalvolume", "nodeemptydirvolume", "nodeCSIscheduling", "networkresource"),
        ),
    ),
}


EXPERT = {
    "plugins": {
        "eas_service": {
            "availability_zone_id": "",
            "driver_id": "",
            "enable": "false",
            "endpoint": "",
            "flavor_id": "",
            "network_type": "",
            "network_virtual_subnet_id": "",
            "pool_id": "",
            "project_id": "",
            "secret_name": "eas-service-secret",
        }
    },
    "resource_exporter_enable": "true",
}
"""What CCE's expert mode takes (Settings, Scheduling, Volcano); its values are texts."""


def objects(cluster: str, namespace: str, plugins: object, weight: int) -> Object:
    """Return ``scheduler``, the ConfigMap, and for a cluster with an add-on its parameter ``addon`` and ``expert``, its expert mode.

    ``plugins`` take the place of the cluster's own tiers. Raises ``ValueError`` for an unknown cluster, and plugins of another shape.
    """
    if cluster not in CLUSTERS:
        raise ValueError(f"cluster: expected one of {', '.join(CLUSTERS)}; got {cluster!r}")
    kept = CLUSTERS[cluster]
    configuration = {"actions": kept.actions, "tiers": tiers(kept.tiers if plugins is None else plugins, weight)}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "volcano-scheduler-configmap", "namespace": str(namespace or kept.namespace)},
        "data": {kept.key: yaml.safe_dump(configuration, sort_keys=False)},
    }
    if not kept.addon:
        return {"scheduler": config_map}
    parameter = {"actions": kept.actions, "tiers": tiers(kept.addon if plugins is None else plugins, weight)}
    return {"scheduler": config_map, "addon": {"default_scheduler_conf": parameter}, "expert": copy.deepcopy(EXPERT)}


def tiers(given: object, weight: int) -> list[Object]:
    """Return tiers as the scheduler reads them. The numa-aware plugin has its weight, and joins the last tier where none names it."""
    found = [[_plugin(plugin) for plugin in _items(tier, given)] for tier in _items(given, given)]
    names = [plugin["name"] for tier in found for plugin in tier]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"plugins: {', '.join(twice)} is named more than once; name each plugin in one tier")
    if NUMA_AWARE not in names:
        found[-1].append({"name": NUMA_AWARE})
    for plugin in (plugin for tier in found for plugin in tier if plugin["name"] == NUMA_AWARE):
        plugin["arguments"] = {"weight": weight, **plugin.get("arguments", {})}
    return [{"plugins": tier} for tier in found]


def _items(given: object, plugins: object) -> list[Any]:
    if isinstance(given, Mapping) and set(given) == {"plugins"}:
        given = given["plugins"]
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise ValueError(f"plugins: expected {_EXPECTED}; got {plugins!r}")
    items = list(given)
    if not items:
        raise ValueError(f"plugins: there is a tier without plugins, or no tier; expected {_EXPECTED}; got {plugins!r}")
    return items


def _plugin(given: object) -> Object:
    """Return a plugin as plain data. Raises ``ValueError`` for a name, an argument or a switch that the scheduler does not read."""
    plugin = {"name": given} if isinstance(given, str) else given
    if not isinstance(plugin, Mapping) or not isinstance(plugin.get("name"), str) or not plugin["name"].strip():
        raise ValueError(f"plugins: expected a name such as 'gang', or a dictionary with name; got {given!r}")
    found: Object = {"name": str(plugin["name"])}
    for key, value in plugin.items():
        if key == "arguments":
            if not isinstance(value, Mapping):
                raise ValueError(f"plugins: the arguments of {found['name']} are a dictionary; got {value!r}")
            found["arguments"] = _plain(value, found["name"])
        elif isinstance(key, str) and _SWITCH.match(key):
            if not isinstance(value, bool):
                raise ValueError(f"plugins: {key} of {found['name']} is true or false; got {value!r}")
            found[str(key)] = value
        elif key != "name":
            raise ValueError(f"plugins: {found['name']} has no {key!r}; it has name, arguments and switches such as enablePreemptable")
    return found


def _plain(value: object, name: str) -> Any:
    """Return an argument as data that YAML can hold, whatever Ansible made of it."""
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"plugins: the names of the arguments of {name} are texts; got {wrong[0]!r}")
        return {str(key): _plain(one, name) for key, one in value.items()}
    if isinstance(value, bool):
        return bool(value)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Sequence):
        return [_plain(one, name) for one in value]
    raise ValueError(f"plugins: expected text, numbers, switches, lists and dictionaries as arguments of {name}; got {value!r}")
