# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of ``machines.yml`` on which rules are compared, and each as rules see it: its topology, and the CPUs to divide."""

from __future__ import annotations

import hashlib
import json
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import Units
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.topology_manager import units_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.comparison import machine_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.groups import Groups
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card, Machine
from tests.simulator import generate

MEMORY = pathlib.Path("/dev/shm")
FILE = pathlib.Path(__file__).with_suffix(".yml")


class Shape(NamedTuple):
    """A machine: its description for the simulator, and the options of a plan (``cpus``, ``housekeeping``) that every rule is given."""

    family: str
    name: str
    description: dict[str, Any]
    options: Mapping[str, str]

    @property
    def title(self) -> str:
        return f"{self.family}: {self.name}"


def shapes() -> list[Shape]:
    families = yaml.safe_load(FILE.read_text())
    return [_shape(family, name, **entry) for family, machines in families.items() for name, entry in machines.items()]


def _shape(family: str, name: str, machine: str, **entry: Any) -> Shape:
    """A GPU that has dropped off the bus is not there; an NPU is known to be lost."""
    change = entry.pop("change", {})
    description = generate.merge(generate.load(machine), change)
    description["nodes"] = change.get("nodes", description["nodes"])
    section = description["gpus" if "gpus" in description else "npus"]
    section.pop("processes", None)
    if "cards" in entry:
        new = enumerate(entry.pop("cards"))
        section["cards"] = [{"npu": number, "bdf": f"0000:{number + 1:02x}:00.0", "node": node} for number, node in new]
    cards, lost = section["cards"], entry.pop("lost", ())
    for card, node in zip(cards, entry.pop("on", [card["node"] for card in cards]), strict=True):
        card["node"] = node
    if "gpus" in description:
        section["cards"] = [card for number, card in enumerate(cards) if number not in lost]
    else:
        section["cards"] = [{**card, "lost": True} if number in lost else card for number, card in enumerate(cards)]
    return Shape(family, name, description, entry)


class Subject(NamedTuple):
    """A machine to divide. ``digest`` changes with everything that a rule can see of it."""

    shape: Shape
    topology: dict[str, Any]
    machine: Machine
    groups: Groups
    units: Units
    tree: pathlib.Path
    digest: str

    @property
    def cards(self) -> list[Card]:
        return self.machine.cards

    @property
    def share(self) -> int:
        """The CPUs that each card gets where all get the same number of whole cores."""
        threads = self.machine.threads_per_core
        return self.machine.usable.bit_count() // len(self.cards) // threads * threads

    def near(self, card: Card) -> int:
        """Return the online CPUs of a card's NUMA node as a mask, none where it is not known or has none."""
        node = None if card.numa is None else self.machine.nodes.get(card.numa)
        return node.cpus if node else 0


@contextmanager
def subjects(shapes: list[Shape]) -> Iterator[list[Subject]]:
    """Yield the machines. Shapes that differ in options only share a tree, which is there until the context ends."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        gathered: dict[str, tuple[pathlib.Path, dict[str, Any]]] = {}
        yield [_subject(shape, pathlib.Path(folder), gathered) for shape in shapes]


def _subject(shape: Shape, folder: pathlib.Path, gathered: dict[str, tuple[pathlib.Path, dict[str, Any]]]) -> Subject:
    key = json.dumps(shape.description, sort_keys=True, default=str)
    if key not in gathered:
        tree = folder / str(len(gathered))
        generate.generate(shape.description, tree)
        gathered[key] = tree, gather(Host(str(tree)))
    tree, topology = gathered[key]
    machine = machine_of(topology, **shape.options)
    return Subject(shape, topology, machine, Groups(machine), units_of(topology), tree, _digest(topology, shape.options))


def _digest(topology: Mapping[str, Any], options: Mapping[str, str]) -> str:
    seen = [topology["cpus"], topology["numa"], [(npu["id"], npu["numa"]) for npu in topology["npus"]], dict(options)]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]
