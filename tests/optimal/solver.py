# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The best possible division of a host, by a solver of constraints (CP-SAT of OR-Tools) that shares no code with the planner.

Numbers of cores by NPU, NUMA node and size of core are its variables: cores of one node and size can be exchanged for each other.
"""

from __future__ import annotations

from typing import NamedTuple

from ortools.sat.python import cp_model
from planner_checks import cpu_set

UNKNOWN_DISTANCE = 255


class Best(NamedTuple):
    """The best smallest pool, as far as the published rule has one as large, and the fewest remote CPUs, weighted by distance, with it.

    Both are limits that no division exceeds. ``feasible`` says that a division was found, ``proved`` that it reaches the limits, or that
    there is none.
    """

    feasible: bool
    proved: bool
    smallest: int
    cost: int


def distances(seen):
    """Return the distance from a remote NUMA node for every card and node, 0 where the CPUs of the node are local."""
    nodes = {node["id"]: {int(other): value for other, value in node.get("distances", {}).items()} for node in seen.topology["numa"]}
    homes = {card["numa"] for card in seen.cards.values()}
    found = {}
    for name, card in seen.cards.items():
        for node, told in nodes.items():
            reach = {home: told.get(home, UNKNOWN_DISTANCE) for home in homes}
            local = node == card["numa"] or node not in homes and reach[card["numa"]] == min(reach.values())
            found[name, node] = 0 if local else nodes[card["numa"]].get(node, UNKNOWN_DISTANCE)
    return found


def cost(seen, pools):
    """Return the remote CPUs of pools, each weighted by its distance, and their number."""
    far = distances(seen)
    nodes = {node["id"]: cpu_set(node["cpus"]) for node in seen.topology["numa"]}
    counts = {(name, node): len(pool & cpus) for name, pool in pools.items() for node, cpus in nodes.items() if far[name, node]}
    return sum(count * far[key] for key, count in counts.items()), sum(counts.values())


class Division(NamedTuple):
    """A model of the divisions of a host: CPUs by card, and by card and node, and what a card has at least."""

    model: cp_model.CpModel
    cpus: dict
    on_node: dict
    smallest: cp_model.IntVar


def divisions(seen):
    """Return the model of all divisions that hold the invariants."""
    model = cp_model.CpModel()
    supplies = {}
    for node in seen.topology["numa"]:
        for unit in seen.units(cpu_set(node["cpus"]) & seen.usable):
            size = len(unit & seen.usable) if seen.smt == "cores" else 1
            supplies[node["id"], size] = supplies.get((node["id"], size), 0) + 1
    taken = {}
    for (node, size), count in supplies.items():
        taken |= {(name, node, size): model.new_int_var(0, count, f"{name} {node} {size}") for name in seen.cards}
        model.add(sum(taken[name, node, size] for name in seen.cards) <= count)
    threads = max((len(core) for core in seen.cores.values()), default=1) if seen.smt == "cores" else 1
    cores, cpus = {}, {}
    smallest = model.new_int_var(0, len(seen.usable), "smallest")
    for name, card in seen.cards.items():
        cores[name] = sum(taken[name, node, size] for node, size in supplies)
        cpus[name] = sum(size * taken[name, node, size] for node, size in supplies)
        model.add(cpus[name] >= seen.least(card))
        model.add(cpus[name] >= smallest)
        model.add(cores[name] >= -(-seen.least(card) // threads))
    model.add(sum(cores.values()) <= sum(supplies.values()))
    for number, group in enumerate(seen.groups()):
        least_cores = model.new_int_var(0, sum(supplies.values()), f"cores {number}")
        least_cpus = model.new_int_var(0, len(seen.usable), f"CPUs {number}")
        for name in group:
            model.add_linear_constraint(cores[name] - least_cores, 0, 1)
            model.add_linear_constraint(cpus[name] - least_cpus, 0, threads)
    places = [(name, node) for name in seen.cards for node in {node for node, _size in supplies}]
    on_node = {(name, node): sum(size * taken[name, node, size] for other, size in supplies if other == node) for name, node in places}
    return Division(model, cpus, on_node, smallest)


def solved(model, effort):
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    return solver, solver.solve(model)


def best(seen, floor, effort=10.0):
    """Return the :class:`Best` of a host. ``floor`` is the smallest pool of the published rule, ``effort`` the
    solver's limit in its own seconds, which do not depend on the load of the machine.
    """
    model, _cpus, on_node, smallest = divisions(seen)
    model.add(smallest <= floor)
    far = distances(seen)
    remote = sum(far[key] * count for key, count in on_node.items())
    weight = 1 + UNKNOWN_DISTANCE * len(seen.usable)
    model.minimize(remote - weight * smallest)
    solver, status = solved(model, effort)
    if status in (cp_model.INFEASIBLE, cp_model.UNKNOWN):
        return Best(False, status == cp_model.INFEASIBLE, 0, 0)
    bound = round(solver.best_objective_bound)
    least = -(bound // weight)
    return Best(True, status == cp_model.OPTIMAL, least, bound + weight * least)


class Reached(NamedTuple):
    """What a division reaches of the goals, in their order; all are better when they are smaller."""

    shortfall: int
    remote: int
    small: int
    idle: int
    uneven: int


def reached(seen, pools, floor):
    """Return what pools reach. ``floor`` is the smallest pool of the published rule."""
    far = distances(seen)
    nodes = {node["id"]: cpu_set(node["cpus"]) & seen.usable for node in seen.topology["numa"]}
    smallest = min(map(len, pools.values()))
    near = {node for (_name, node), distance in far.items() if not distance}
    idle = set().union(*(nodes[node] for node in near)).difference(*pools.values())
    uneven = sum(max(sizes) - min(sizes) for group in seen.groups() if (sizes := [len(pools[name]) for name in group]))
    return Reached(max(0, floor - smallest), cost(seen, pools)[0], -smallest, len(idle), uneven)


def better(seen, has, floor, effort=10.0):
    """Return whether a division is better than what another one has reached by the goals in their order; None where that is not known."""
    model, cpus, on_node, smallest = divisions(seen)
    far = distances(seen)
    usable = len(seen.usable)
    short = model.new_int_var(0, floor, "short")
    model.add(short >= floor - smallest)
    near = {node for (_name, node), distance in far.items() if not distance}
    local = sum(len(cpu_set(node["cpus"]) & seen.usable) for node in seen.topology["numa"] if node["id"] in near)
    idle = local - sum(count for (_name, node), count in on_node.items() if node in near)
    uneven = 0
    for number, group in enumerate(seen.groups()):
        least, most = (model.new_int_var(0, usable, f"{what} {number}") for what in ("least", "most"))
        for name in group:
            model.add(cpus[name] >= least)
            model.add(cpus[name] <= most)
        uneven += most - least
    remote = sum(far[key] * count for key, count in on_node.items())
    found = Reached(short, remote, -smallest, idle, uneven)
    total, weight = 0, 1
    value = 0
    for goal, held in reversed(list(zip(found, has, strict=True))):
        total, value = total + weight * goal, value + weight * held
        weight *= (UNKNOWN_DISTANCE if goal is remote else 2) * (usable + 1)
    model.add(total <= value - 1)
    _solver, status = solved(model, effort)
    return None if status == cp_model.UNKNOWN else status != cp_model.INFEASIBLE
