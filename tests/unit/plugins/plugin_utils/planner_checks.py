# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An independent look at plans: what a plan must hold, with plain sets and none of the planner's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand

PUBLISHED = {"irq": 2, "acl": 1, "release": 1}
PYTHON = re.compile(r"invalid literal|Error\b|Traceback|NoneType|\bobject\b|not subscriptable|unpack|0x[0-9a-f]{6}|<[a-z_]+>|out of range")
"""What only Python says; a sentence for a user has none of it."""


@lru_cache(maxsize=4096)
def cpu_set(text):
    return frozenset(expand(text))


def slice_of(card):
    return f"{card['kind']}-{card['id']}.slice"


@lru_cache(maxsize=4)
def cores_of(online, siblings):
    """Return the core of every CPU as a frozen set of threads."""
    cores = {cpu: frozenset([cpu]) for cpu in cpu_set(online)}
    for text in siblings:
        core = cpu_set(text)
        cores.update(dict.fromkeys(core, core))
    return cores


def set_aside(topology, cores, allowed, housekeeping, smt):
    """Return the CPUs that ``housekeeping`` keeps for the system, of those that it may keep."""
    if isinstance(housekeeping, int):
        kept = frozenset()
        for node in topology["numa"]:
            of_node = sorted({cores[cpu] for cpu in cpu_set(node["cpus"]) & allowed}, key=min)
            kept = kept.union(*of_node[:housekeeping])
        return kept & allowed
    kept = cpu_set(housekeeping) & allowed
    return kept.union(*(cores[cpu] for cpu in kept)) & allowed if smt == "cores" else kept


@dataclass
class Look:
    """A host and the options of a plan, and what follows from them."""

    topology: dict
    smt: str
    min_cpus: int
    sizes: dict
    usable: frozenset
    cores: dict

    @cached_property
    def cards(self):
        return {slice_of(card): card for card in self.topology["npus"]}

    @property
    def nodes(self):
        return sum(bool(node["cpus"]) for node in self.topology["numa"])

    def knows(self, card):
        """Return whether something tells the node of a card: the kernel, npu-smi, or that there is only one."""
        nodes = {node["id"] for node in self.topology["numa"]}
        printed = cpu_set(card["affinity"] or "") & cpu_set(self.topology["cpus"]["online"])
        return card["numa"] in nodes or printed and printed != cpu_set(self.topology["cpus"]["online"]) or self.nodes == 1

    def has_roles(self, card):
        return card["kind"] == "npu" and card["family"] != "a5"

    def least(self, card):
        """Return the size of the smallest pool that a card may have."""
        return max(self.min_cpus, sum(self.sizes.values()) + 1) if self.has_roles(card) and self.sizes != PUBLISHED else self.min_cpus

    def units(self, cpus):
        """Return what is never split of CPUs: cores, or single threads."""
        return {self.cores[cpu] for cpu in cpus} if self.smt == "cores" else set(cpus)

    def groups(self):
        """Yield the cards that must be treated alike: those of a NUMA node, and those of which only the same affinity is known."""
        nodes = {node["id"] for node in self.topology["numa"]}
        groups = {}
        for name, card in self.cards.items():
            groups.setdefault(("node", card["numa"]) if card["numa"] in nodes else ("affinity", card["affinity"]), []).append(name)
        return groups.values()


def look(topology, cpus=None, housekeeping="", smt="cores", min_cpus=5, roles=None, exclude_isolated=False, **_):
    online = cpu_set(topology["cpus"]["online"])
    allowed = online - cpu_set(topology["cpus"]["isolated"]) if exclude_isolated else online
    usable = allowed & cpu_set(cpus) if cpus else allowed
    cores = cores_of(topology["cpus"]["online"], tuple(topology["cpus"]["siblings"]))
    usable -= set_aside(topology, cores, allowed, housekeeping, smt)
    sizes = {role: size for role, size in {**PUBLISHED, **(roles or {})}.items() if size}
    return Look(topology, smt, min_cpus, sizes, usable, cores)


def defects(topology, plan, **options):
    """Return in words what a repaired plan of all cards breaks."""
    seen = look(topology, **options)
    pools = {entry["slice"]: cpu_set(entry["pool"]) for entry in plan["npus"]}
    return [*wrong_pools(seen, pools), *wrong_roles(seen, plan), *wrong_memory(seen, plan), *wrong_report(seen, plan, pools)]


def wrong_pools(seen, pools):
    """Yield what pools break of the invariants, whoever made them."""
    if sorted(pools) != sorted(seen.cards):
        yield f"slices {sorted(pools)} for cards {sorted(seen.cards)}"
    for name, members in pools.items():
        if members - seen.usable:
            yield f"{name} has {compress(members - seen.usable)}, which must not be used"
        if name in seen.cards and len(members) < seen.least(seen.cards[name]):
            yield f"{name} has {len(members)} CPUs"
    if sum(map(len, pools.values())) != len(set().union(*pools.values())):
        yield "pools overlap"
    touched = {name: seen.units(members & seen.cores.keys()) for name, members in pools.items()}
    if sum(map(len, touched.values())) != len(set().union(*touched.values())):
        yield "a core is in two pools"
    for group in seen.groups():
        sizes = [len(touched[name]) for name in group if name in touched]
        if sizes and max(sizes) - min(sizes) > 1:
            yield f"{group} have {sizes} cores"


def wrong_roles(seen, plan):
    if [entry["id"] for entry in plan["npus"]] != sorted(entry["id"] for entry in plan["npus"]):
        yield "entries are not ascending"
    for entry in plan["npus"]:
        name, pool = entry["slice"], cpu_set(entry["pool"])
        roles = {role: expand(entry[role]) for role in ("main", *seen.sizes)}
        if "kv" in entry and "kv" not in seen.sizes:
            yield f"{name} has a role that was not asked for"
        ends = [cpu for role in seen.sizes for cpu in roles[role]]
        if name in seen.cards and not seen.has_roles(seen.cards[name]):
            if set(roles["main"]) != pool or ends:
                yield f"{name} has roles"
            continue
        if set().union(*roles.values()) != pool:
            yield f"roles of {name} do not fill its pool"
        if not all(roles[role] for role in ("main", *PUBLISHED)):
            yield f"{name} lacks a role"
        if len(pool) <= sum(seen.sizes.values()):
            continue
        if len(ends) + len(roles["main"]) != len(pool):
            yield f"roles of {name} share CPUs"
        if {role: len(roles[role]) for role in seen.sizes} != seen.sizes:
            yield f"roles of {name} have other sizes than {seen.sizes}"
        if seen.smt == "cores":
            yield from shared_cores(seen, name, pool, roles)


def shared_cores(seen, name, pool, roles):
    """Yield which roles but main are on cores that they share although there are enough to keep them apart."""
    cores = {seen.cores[cpu] for cpu in pool & seen.cores.keys()}
    ends = [cpu for role in seen.sizes for cpu in roles[role]]
    of_role = {role: {seen.cores[cpu] for cpu in roles[role]} for role in seen.sizes}
    apart = sum(map(len, of_role.values())) == len(set().union(*of_role.values()))
    least_threads = min(len(core & pool) for core in cores)
    if len(cores) >= len(ends):
        if len({seen.cores[cpu] for cpu in ends}) != len(ends):
            yield f"{name} has {len(cores)} cores for the {len(ends)} CPUs of its roles, and some share one"
    elif not apart and sum(-(-len(roles[role]) // least_threads) for role in seen.sizes) <= len(cores):
        yield f"{name} has enough cores to keep its roles apart, and they share one"


def wrong_memory(seen, plan):
    nodes = {node["id"]: cpu_set(node["cpus"]) for node in seen.topology["numa"]}
    with_memory = {node["id"] for node in seen.topology["numa"] if node["memory_mib"]}
    for entry in plan["npus"]:
        near = {number for number in with_memory if not nodes[number].isdisjoint(cpu_set(entry["pool"]))}
        mems = cpu_set(entry["mems"])
        if mems != near if near else not mems <= with_memory or bool(mems) != bool(with_memory and nodes):
            yield f"{entry['slice']} has memory nodes '{entry['mems']}'"
        allowed = cpu_set(entry["memory_nodes"])
        if not allowed <= with_memory or not mems <= allowed and seen.knows(seen.cards[entry["slice"]]):
            yield f"{entry['slice']} may use memory nodes '{entry['memory_nodes']}'"


def wrong_report(seen, plan, pools):
    """Yield where a plan reports something else than it has."""
    quality, sizes, union = plan["quality"], list(map(len, pools.values())), set().union(*pools.values())
    if quality["disjoint"] is not True or quality["balance"] != max(sizes, default=0) - min(sizes, default=0):
        yield f"quality {quality} of pools of {sizes}"
    whole = all(core & seen.usable <= pool for pool in pools.values() for core in {seen.cores[cpu] for cpu in pool & seen.cores.keys()})
    if quality["whole_cores"] is not whole:
        yield f"whole cores: {quality['whole_cores']}"
    if plan["npus"] and (cpu_set(quality["idle"]) != seen.usable - union or cpu_set(plan["cpus"]) != seen.usable):
        yield f"idle {quality['idle']} of {plan['cpus']}"
    if quality["smallest"] != min(sizes, default=0):
        yield f"smallest {quality['smallest']} of {sizes}"
    if seen.nodes > 1 and not any(card["numa"] in {node["id"] for node in seen.topology["numa"]} for card in seen.cards.values()):
        if (quality["local"], quality["own_node"], quality["remote"], quality["optimal"]) != (None,) * 4:
            yield f"unknown nodes have values: {quality}"
    elif (near := shares(seen, pools)) and (quality["local"], quality["own_node"]) != near:
        yield f"local and own_node {quality['local']}, {quality['own_node']}; they are {near}"
    if plan["violations"]:
        yield f"violations {plan['violations']}"
    yield from (problem for key in ("repaired", "warnings") for sentence in plan[key] for problem in wrong_sentence(sentence))
    if not all(sentence.endswith(".") for key in ("repaired", "warnings") for sentence in plan[key]):
        yield "a sentence without its full stop"


def shares(seen, pools):
    """Return the shares of local CPUs and of those on the card's own node; None where the node of a card is not known."""
    nodes = {node["id"]: cpu_set(node["cpus"]) for node in seen.topology["numa"]}
    with_cards = {card["numa"] for card in seen.cards.values()}
    if not pools or not pools.keys() <= seen.cards.keys() or not with_cards <= nodes.keys():
        return None
    local = {home: set(nodes[home]) for home in with_cards}
    for node in seen.topology["numa"]:
        if node["id"] not in with_cards:
            known_distances = {int(other): far for other, far in node.get("distances", {}).items()}
            distances = {home: known_distances.get(home, 255) for home in with_cards}
            for home in with_cards:
                if distances[home] == min(distances.values()):
                    local[home] |= nodes[node["id"]]
    total = sum(map(len, pools.values()))
    near = [sum(len(members & of[seen.cards[name]["numa"]]) for name, members in pools.items()) for of in (local, nodes)]
    return round(near[0] / total, 3), round(near[1] / total, 3)


def wrong_sentence(sentence) -> Iterator[str]:
    """Yield what is wrong with something told to a user."""
    if len(sentence.split()) < 5 or PYTHON.search(sentence) or "  " in sentence or not sentence[0].isalnum():
        yield f"no sentence: {sentence!r}"


def must_be_planned(seen):
    """Return whether cores are plenty: each card has its share on its own node, of cores with the fewest threads of the node."""
    nodes = {node["id"]: cpu_set(node["cpus"]) & seen.usable for node in seen.topology["numa"]}
    cards = {}
    for card in seen.topology["npus"]:
        if not nodes.get(card["numa"]):
            return False
        cards.setdefault(card["numa"], []).append(card)
    for number, members in cards.items():
        units = seen.units(nodes[number])
        least = min(len(core & seen.usable) for core in units) if seen.smt == "cores" else 1
        if len(units) // len(members) * least < max(map(seen.least, members)):
            return False
    return True
