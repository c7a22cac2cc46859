# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of a site of simulated hosts in use, to place jobs on.

    python -m tests.simulator.site SITE.yml FOLDER

A simulated host of each machine is gathered by the code that gathers real ones; the hosts of a group are copies of these facts on which
different NPUs are busy and whose kubelets have given CPUs away. The facts lie in FOLDER/facts/<host>.json, and the labels of the hosts in
FOLDER/inventory.yml.

SITE is a mapping ``groups`` of name to {machine, hosts, per_switch, per_superpod, busy, kubelet, cpus_per_npu}. ``hosts`` is their number;
``busy`` are lists of NPUs and ``kubelet`` policies of the topology manager (null: no kubelet), taken in turns. A container holds
``cpus_per_npu`` CPUs for every busy NPU, on its NUMA node. Switches and SuperPods are numbered through all groups. ``product`` replaces
the product of the machine.
"""

from __future__ import annotations

import copy
import json
import pathlib
import sys
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of

from .generate import generate

RESERVED_PER_NODE = 2
"""CPUs that the kubelets keep for the system on the first NUMA node."""


def write(site: pathlib.Path, folder: pathlib.Path) -> None:
    folder = folder.absolute()
    (folder / "facts").mkdir(parents=True, exist_ok=True)
    for old in (folder / "facts").glob("*.json"):
        old.unlink()
    models: dict[str, dict[str, Any]] = {}
    inventory: dict[str, Any] = {}
    switches = superpods = 0
    for name, group in yaml.safe_load(site.read_text())["groups"].items():
        machine, labels = group["machine"], {}
        if machine not in models:
            generate(machine, folder / "machines" / machine)
            models[machine] = gather(Host(str(folder / "machines" / machine), timeout=30))
        for number in range(group["hosts"]):
            host = f"{name}-{number + 1:02}"
            made = {"npu_affinity_topology": facts(models[machine], group, number)}
            (folder / "facts" / f"{host}.json").write_text(json.dumps(made))
            own: dict[str, Any] = {}
            labels[host] = {"npu_affinity_labels": own}
            if group.get("per_switch"):
                place, position = divmod(number, group["per_switch"])
                own |= {"switch": f"switch-{switches + place}", "position": position}
            if group.get("per_superpod"):
                own["superpod"] = superpods + number // group["per_superpod"]
        switches += -(-group["hosts"] // group["per_switch"]) if group.get("per_switch") else 0
        superpods += -(-group["hosts"] // group["per_superpod"]) if group.get("per_superpod") else 0
        inventory[name] = {"hosts": labels}
    (folder / "inventory.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))


def facts(model: dict[str, Any], group: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the topology of a group's host."""
    topology = copy.deepcopy(model)
    busy = group["busy"][number % len(group["busy"])]
    policy = group["kubelet"][number % len(group["kubelet"])]
    for npu in topology["npus"]:
        npu["busy"] = npu["id"] in busy
    topology["machine"]["product"] = group.get("product", topology["machine"]["product"])
    if policy is None:
        return topology
    units = units_of(topology)
    reserved = mask(compress(expand(topology["numa"][0]["cpus"])[:RESERVED_PER_NODE]))
    shared = units.cpus
    exclusive = {}
    for npu in topology["npus"]:
        if npu["busy"]:
            given = allocate(units, shared, group["cpus_per_npu"], reserved=reserved, nodes=[npu["numa"]])
            shared &= ~given
            exclusive[f"job-{npu['id']}/worker"] = text_of(given)
    topology["kubelet"] = {
        "policy": "static",
        "topology_policy": policy,
        "default_cpus": text_of(shared),
        "reserved_cpus": text_of(reserved),
        "exclusive": exclusive,
        "warnings": [],
    }
    return topology


if __name__ == "__main__":
    write(*map(pathlib.Path, sys.argv[1:3]))
