# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the tests of the planner, and an independent look at its plans, with plain sets and none of its code."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import compress, expand


def host(cards, nodes=8, cores=24, threads=1, numbering="adjacent", family="a2", affinity="node", nodes_per_socket=2, caches=None, **more):
    """Return a topology of ``nodes`` NUMA nodes with ``cores`` cores each.

    ``cards`` lists the nodes of the NPUs by logic id, None where the kernel knows none; ``nodes`` is a number or a list of ids, and
    ``cores`` a number or a list. Siblings are neighbours by number (adjacent) or as far apart as possible (far). ``affinity`` is
    ``node`` or a list of what npu-smi prints. ``caches`` is a number of cores.
    """
    ids = list(range(nodes)) if isinstance(nodes, int) else list(nodes)
    sizes = [cores] * len(ids) if isinstance(cores, int) else list(cores)
    total = sum(sizes)
    cores_of, first = {}, 0
    for node, size in zip(ids, sizes, strict=True):
        numbers = range(first, first + size)
        first += size
        if numbering == "adjacent":
            cores_of[node] = [[core * threads + thread for thread in range(threads)] for core in numbers]
        else:
            cores_of[node] = [[core + thread * total for thread in range(threads)] for core in numbers]
    cpulists = {node: compress(cpu for core in members for cpu in core) for node, members in cores_of.items()}
    shared = caches or max(sizes) or 1
    return {
        "schema": 1,
        "machine": {"architecture": "aarch64"},
        "cpus": {
            "online": compress(range(total * threads)),
            "offline": "",
            "isolated": "",
            "siblings": [compress(core) for members in cores_of.values() for core in members if threads > 1],
            "caches": [
                compress(cpu for core in members[start : start + shared] for cpu in core)
                for members in cores_of.values()
                for start in range(0, len(members), shared)
            ],
        },
        "numa": [
            {
                "id": node,
                "cpus": cpulists[node],
                "memory_mib": 65536,
                "distances": {str(other): distance(place, elsewhere, nodes_per_socket) for elsewhere, other in enumerate(ids)},
            }
            for place, node in enumerate(ids)
        ],
        "npus": [
            {
                "kind": "gpu" if family == "gpu" else "npu",
                "id": number,
                "card": number,
                "chip": 0,
                "family": family,
                "pci": f"0000:{number + 1:02x}:00.0",
                "numa": node,
                "affinity": (cpulists.get(node) or None) if affinity == "node" else affinity[number],
            }
            for number, node in enumerate(cards)
        ],
        "kubelet": None,
        "applied": None,
        "problems": [],
        **more,
    }


def distance(place, elsewhere, nodes_per_socket):
    return 10 if place == elsewhere else 12 if place // nodes_per_socket == elsewhere // nodes_per_socket else 20


def pools(plan):
    return {entry["id"]: entry["pool"] for entry in plan["npus"]}


def cpus(text):
    return set(expand(text))


def cores_of(topology):
    """Return the core of every CPU as a frozen set of threads."""
    cores = {cpu: frozenset([cpu]) for cpu in cpus(topology["cpus"]["online"])}
    for text in topology["cpus"]["siblings"]:
        core = frozenset(cpus(text))
        cores.update(dict.fromkeys(core, core))
    return cores


def set_aside(topology, housekeeping, smt):
    """Return the CPUs that ``housekeeping`` keeps for the system."""
    online, cores = cpus(topology["cpus"]["online"]), cores_of(topology)
    if isinstance(housekeeping, int):
        kept = set()
        for node in topology["numa"]:
            of_node = sorted({cores[cpu] for cpu in cpus(node["cpus"]) & online}, key=min)
            for core in of_node[:housekeeping]:
                kept |= core
        return kept & online
    kept = cpus(housekeeping) & online
    return {cpu for one in kept for cpu in cores[one]} & online if smt == "cores" else kept


def defects(topology, plan, cpulist=None, housekeeping="", smt="cores", min_cpus=5, **_):
    """Return what a repaired plan of all cards breaks, in words."""
    found = []
    online, cores = cpus(topology["cpus"]["online"]), cores_of(topology)
    usable = online & cpus(cpulist) if cpulist else set(online)
    usable -= set_aside(topology, housekeeping, smt)
    for pods in ((topology["kubelet"] or {}).get("exclusive") or {}).values():
        usable -= cpus(pods)
    entries = plan["npus"]
    pool = {entry["slice"]: cpus(entry["pool"]) for entry in entries}
    everybody = [f"{npu['kind']}-{npu['id']}.slice" for npu in topology["npus"]]
    if sorted(pool) != sorted(everybody):
        found.append(f"slices {sorted(pool)} for cards {sorted(everybody)}")
    if [entry["id"] for entry in entries] != sorted(entry["id"] for entry in entries):
        found.append("entries are not ascending")
    for name, members in pool.items():
        if members - usable:
            found.append(f"{name} has {compress(members - usable)}, which must not be used")
        if len(members) < min_cpus:
            found.append(f"{name} has {len(members)} CPUs")
    union = set().union(*pool.values())
    if sum(map(len, pool.values())) != len(union):
        found.append("pools overlap")
    touched = {name: {cores.get(cpu, cpu) for cpu in members} for name, members in pool.items()}
    if smt == "cores" and sum(map(len, touched.values())) != len(set().union(*touched.values())):
        found.append("a core is in two pools")
    known = {node["id"] for node in topology["numa"]}
    for node in known:
        group = [f"{npu['kind']}-{npu['id']}.slice" for npu in topology["npus"] if npu["numa"] == node]
        sizes = [len(touched[name]) if smt == "cores" else len(pool[name]) for name in group if name in pool]
        if sizes and max(sizes) - min(sizes) > 1:
            found.append(f"cards of node {node} have {sizes} cores")
    family = {f"{npu['kind']}-{npu['id']}.slice": npu["family"] for npu in topology["npus"]}
    with_memory = {node["id"] for node in topology["numa"] if node["memory_mib"]}
    for entry in entries:
        roles = {role: expand(entry[role]) for role in ("irq", "main", "acl", "release")}
        members = pool[entry["slice"]]
        if family.get(entry["slice"]) in ("gpu", "a5"):
            if set(roles["main"]) != members or roles["irq"] or roles["acl"] or roles["release"]:
                found.append(f"{entry['slice']} has roles")
        elif set().union(*roles.values()) != members and len(members) >= 5:
            found.append(f"roles of {entry['slice']} do not fill its pool")
        elif len(members) >= 5 and [len(roles[role]) for role in roles] != [2, len(members) - 4, 1, 1]:
            found.append(f"roles of {entry['slice']} share CPUs")
        elif not all(roles.values()):
            found.append(f"{entry['slice']} lacks a role")
        if not set(expand(entry["mems"])) <= with_memory or with_memory and topology["numa"] and not entry["mems"]:
            found.append(f"{entry['slice']} has memory nodes '{entry['mems']}'")
    sizes = [len(members) for members in pool.values()]
    quality = plan["quality"]
    if not quality["disjoint"] or quality["balance"] != max(sizes, default=0) - min(sizes, default=0):
        found.append(f"quality {quality} of pools of {sizes}")
    if entries and (cpus(quality["idle"]) != usable - union or cpus(plan["cpus"]) != usable):
        found.append(f"idle {quality['idle']} of {plan['cpus']}")
    if not 0 <= quality["local"] <= 1 or plan["violations"]:
        found.append(f"local {quality['local']}, violations {plan['violations']}")
    return found
