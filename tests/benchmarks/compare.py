# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How different rules divide the CPUs of different machines over their NPUs: the summary in ``docs/strategies.md``, and ``comparison.md``.

    python -m tests.benchmarks.compare            # print them
    python -m tests.benchmarks.compare --write    # put them into docs/strategies.md and tests/benchmarks/comparison.md

From a checkout, with ``PYTHONPATH=build`` and its virtual environment. Machines are simulated hosts, measured by the filter ``quality``.
hwloc-distrib is the real tool (``apt-get install hwloc``); where it is missing its rows say so. The other rows need nothing but this
repository, and a unit test checks that they are those of the documents.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._cpulist import expand, to_mask
from ansible_collections.npu.affinity.plugins.module_utils._host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask, mask_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus as kubelet
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import MEASURES, shortened
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.measures import machine_of, measure
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.simulator import generate, machine

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/strategies.md"
DETAILS = pathlib.Path(__file__).with_name("comparison.md")
TITLE = "# Pools of nine rules on twelve simulated machines"
BEGIN = "<!-- comparison: begin; written by python -m tests.benchmarks.compare --write -->"
END = "<!-- comparison: end -->"
HWLOC = "hwloc-distrib"
COLUMNS = {
    "overlap": "overlap",
    "split cores": "split cores",
    "local": "local share",
    "distance": "mean distance",
    "balance": "largest − smallest pool",
    "idle": "idle CPUs",
}
SUMMARY = ["divides", "disjoint", "whole cores", "pools of one size", "all local", "local share", "mean distance", "idle CPUs"]


class Subject(NamedTuple):
    """A machine to divide: its topology, its tree, and what a kubelet knows of it."""

    topology: dict[str, Any]
    machine: Machine
    tree: pathlib.Path
    units: kubelet.Units


class Outcome(NamedTuple):
    """What a rule gives: pools as masks. ``used`` names the strategy where it is not the one asked for, after a colon."""

    pools: Mapping[Card, int]
    used: str = ""


def variant(base: str, about: str, **change: Any) -> dict[str, Any]:
    """Return a description of the simulator with other values. ``nodes`` replaces all of that section, whose keys exclude each other."""
    description = generate.merge(generate.load(base), {"about": about, **change})
    return {**description, "nodes": change.get("nodes", description["nodes"])}


def on_nodes(*nodes: int) -> dict[str, Any]:
    """Return eight A2 cards on these NUMA nodes, in the order of their logic ids."""
    cards = [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": node} for number, node in enumerate(nodes)]
    return {"family": "a2", "name": "910B3", "memory_mib": 65536, "cards": cards}


MACHINES: dict[str, Callable[[], dict[str, Any]]] = {
    "A2, 8 nodes × 24": lambda: generate.load("a2_8x24"),
    "A2, 4 nodes × 48": lambda: generate.load("a2_4x48"),
    "A2, ring of 4 nodes × 64": lambda: variant(
        "a2_4x48", "pairs on every node in turn", cpus={"per_node": 64}, npus=on_nodes(0, 0, 1, 1, 2, 2, 3, 3)
    ),
    "A2, 2 sockets × 56 cores with SMT": lambda: variant(
        "a2_910b2c_16", "x86, siblings c and c+112", cpus={"per_node": 112}, npus=on_nodes(0, 0, 0, 0, 1, 1, 1, 1)
    ),
    "910B2C, 16 NPUs": lambda: generate.load("a2_910b2c_16"),
    "A3, 640 CPUs, siblings 2k and 2k+1": lambda: generate.load("a3_640_adjacent"),
    "A3, 640 CPUs, siblings c and c+320": lambda: generate.load("a3_640_split"),
    "A3, 320 CPUs without SMT": lambda: variant("a3_640_adjacent", "a core has one thread", cpus={"per_node": 40, "smt": "none"}),
    "300I Duo, 4 cards": lambda: generate.load("duo"),
    "8 × L40S": lambda: generate.load("l40s_384"),
    "A2, node ids 0, 2, 4, 6": lambda: variant(
        "a2_4x48",
        "sparse node ids",
        nodes={"ids": [0, 2, 4, 6], "memory_mib": 262144, "distances": {"other": 20}},
        npus=on_nodes(6, 6, 4, 4, 0, 0, 2, 2),
    ),
    "A2, nodes without CPUs, nodes without memory": lambda: variant(
        "a2_8x24",
        "nodes 4 and 5 have memory only, nodes 1 and 3 CPUs only; two NPUs are on node 4",
        cpus={"per_node": 32, "packages": 2},
        nodes={
            "ids": [0, 1, 2, 3, 4, 5],
            "without_cpus": [4, 5],
            "memory_mib": {0: 131072, 2: 131072, 4: 65536, 5: 65536},
            "distances": [
                [10, 12, 20, 20, 14, 24],
                [12, 10, 20, 20, 14, 24],
                [20, 20, 10, 12, 24, 14],
                [20, 20, 12, 10, 24, 14],
                [14, 14, 24, 24, 10, 28],
                [24, 24, 14, 14, 28, 10],
            ],
        },
        npus=on_nodes(0, 0, 1, 1, 4, 4, 2, 2),
    ),
}


def subject(description: dict[str, Any], tree: pathlib.Path) -> Subject:
    generate.generate(description, tree)
    topology = gather(Host(str(tree)))
    return Subject(topology, machine_of(topology), tree, units(machine.resolve(description)))


def units(described: machine.Machine) -> kubelet.Units:
    """Return what a kubelet reads from a machine, sockets included, which a topology does not need and does not have."""
    sockets: dict[int, int] = {}
    caches: dict[int, int] = {}
    cores = {}
    for core in described.cores:
        threads = [cpu for cpu in core.threads if cpu not in described.offline]
        if threads:
            cores[threads[0]] = mask_of(threads)
            sockets[core.package] = sockets.get(core.package, 0) | mask_of(threads)
            caches[core.cache] = caches.get(core.cache, 0) | mask_of(threads)
    return kubelet.Units({node: mask(cpus) for node, cpus in described.node_lists.items()}, sockets, caches, cores)


def by_plan(host: Subject, strategy: str, repair: bool) -> Outcome:
    made = plan(host.topology, strategy=strategy, repair=repair)
    if not made["npus"]:
        raise ValueError(made["warnings"][-1])
    cards = {card.slice: card for card in host.machine.cards}
    used = "" if made["strategy"] == strategy else f": {made['strategy']}"
    return Outcome({cards[entry["slice"]]: mask(entry["pool"]) for entry in made["npus"]}, used)


def by_kubelet(host: Subject, options: kubelet.PolicyOptions, aligned: bool = False) -> Outcome:
    """Give every card a container of its own, one after the other, with as many whole cores as all can have."""
    threads = host.units.threads_per_core
    each = host.machine.usable.bit_count() // len(host.machine.cards) // threads * threads
    shared = host.machine.usable
    pools = {}
    for card in host.machine.cards:
        nodes = [card.numa] if aligned and card.numa is not None else None
        pools[card] = kubelet.allocate(host.units, shared, each, options, nodes=nodes)
        shared &= ~pools[card]
    return Outcome(pools)


def by_hwloc(host: Subject, tool: str | None) -> Outcome:
    """Give the n-th set of hwloc-distrib to the n-th card; it knows nothing of cards."""
    if tool is None:
        raise ValueError("not measured: hwloc-distrib is not installed (apt-get install hwloc)")
    _write_masks(host.tree)
    command = [tool, "--input", str(host.tree), "--if", "fsroot", "--taskset", str(len(host.machine.cards))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    sets = done.stdout.split()
    if done.returncode or len(sets) != len(host.machine.cards):
        raise ValueError(f"hwloc-distrib failed: {done.stderr.strip() or done.stdout.strip()}")
    return Outcome({card: int(cpus, 16) for card, cpus in zip(host.machine.cards, sets, strict=True)})


def _write_masks(tree: pathlib.Path) -> None:
    """Add the CPU masks of which hwloc reads what the collection reads from the lists beside them."""
    cpus = tree / "sys/devices/system/cpu"
    for found in [*cpus.glob("cpu*/topology/*_cpus_list"), *cpus.glob("cpu*/cache/index*/shared_cpu_list")]:
        name = "shared_cpu_map" if found.name == "shared_cpu_list" else found.name.removesuffix("_list")
        found.with_name(name).write_text(to_mask(expand(found.read_text())) + "\n")


def rules(tool: str | None, version: str = "") -> dict[str, Callable[[Subject], Outcome]]:
    whole_cores = kubelet.PolicyOptions(full_pcpus_only=True)
    across_numa = kubelet.PolicyOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)
    return {
        "global_slice, published": lambda host: by_plan(host, "global_slice", False),
        "topo_affinity, published": lambda host: by_plan(host, "topo_affinity", False),
        f"{HWLOC}{version}": lambda host: by_hwloc(host, tool),
        "kubelet, packed": lambda host: by_kubelet(host, whole_cores),
        "kubelet, packed, aligned": lambda host: by_kubelet(host, whole_cores, aligned=True),
        "kubelet, distributed": lambda host: by_kubelet(host, across_numa),
        "even_split": lambda host: by_plan(host, "even_split", False),
        "npu.affinity, auto": lambda host: by_plan(host, "auto", True),
        "npu.affinity, topo_affinity": lambda host: by_plan(host, "topo_affinity", True),
    }


def hwloc() -> tuple[str | None, str]:
    """Return the tool and its version, with a blank before it."""
    tool = shutil.which(HWLOC)
    if tool is None:
        return None, ""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    return tool, f" {version[-1]}"


def compared(tool: str | None, version: str = "") -> tuple[list[str], list[str]]:
    """Return the lines of the summary, and those of ``comparison.md``: a table for every machine."""
    every = rules(tool, version)
    found: dict[str, list[dict[str, Any] | None]] = {rule: [] for rule in every}
    details = [TITLE]
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, describe) in enumerate(MACHINES.items()):
            host = subject(describe(), pathlib.Path(folder, str(number)))
            groups = Groups(host.machine)
            cards, cpus = len(host.machine.cards), host.machine.usable.bit_count()
            details += ["", f"**{name}** ({cards} cards, {cpus} CPUs)", "", *_head(COLUMNS.values())]
            for rule, divide in every.items():
                try:
                    outcome = divide(host)
                    quality = {**measure(groups, outcome.pools), "of": cpus}
                    details.append(_row(rule + outcome.used, *(MEASURES[column](quality) for column in COLUMNS)))
                except ValueError as refusal:
                    quality = None
                    details.append(_row(rule, f"refuses: {shortened(str(refusal))}", *["–"] * (len(COLUMNS) - 1)))
                found[rule].append(quality)
    return [*_head(SUMMARY), *(_row(rule, *_summary(measured)) for rule, measured in found.items())], details


def _summary(measured: list[dict[str, Any] | None]) -> list[str]:
    """Return on how many machines a rule has which virtue, and its means over those that it divides."""
    divided = [quality for quality in measured if quality]
    if not divided:
        return ["0", *["–"] * (len(SUMMARY) - 1)]
    return [
        f"{len(divided)} of {len(measured)}",
        str(sum(quality["disjoint"] for quality in divided)),
        str(sum(quality["whole_cores"] for quality in divided)),
        str(sum(quality["balance"] == 0 for quality in divided)),
        str(sum(quality["local"] == 1 for quality in divided)),
        f"{statistics.mean(quality['local'] for quality in divided):.0%}",
        f"{statistics.mean(quality['distance'] for quality in divided):.1f}",
        f"{statistics.mean(mask(quality['idle']).bit_count() / quality['of'] for quality in divided):.0%}",
    ]


def _head(headings) -> list[str]:
    names = list(headings)
    return [_row("rule", *names), "|---" * (len(names) + 1) + "|"]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def parts(document: str) -> tuple[str, list[str], str]:
    """Return the document up to its first marker, the lines that this script writes, and the rest. ``ValueError``: a marker is missing."""
    head, begin, rest = document.partition(BEGIN)
    body, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} lacks a marker, {BEGIN} or {END}")
    return head, body.strip().splitlines(), tail


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables into docs/strategies.md and tests/benchmarks/comparison.md")
    write = parser.parse_args(arguments).write
    summary, details = compared(*hwloc())
    if not write:
        print("\n".join([*summary, "", *details]))
        return
    head, _table, tail = parts(DOCUMENT.read_text())
    DOCUMENT.write_text("\n".join((head + BEGIN, "", *summary, "", END + tail)))
    DETAILS.write_text("\n".join((*details, "")))


if __name__ == "__main__":
    main(sys.argv[1:])
