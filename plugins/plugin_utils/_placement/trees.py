# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a job gets in a network tree of any depth, with the fewest fragments.

Source: Ascend/mind-cluster@22bb3d98, ``internal/npu/policy/multilevelscheduling``, ``plugin/factory.go`` and the document "Multi-Level
Scheduling". A host has a path: its groups from the highest level down to level 1, then its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LABEL = "huawei.com/topotree"
"""The label of a node that names its tree."""
DEFAULT = "default"
Path = tuple[str, ...]
Level = tuple[str, int]


class Tree(NamedTuple):
    """``labels`` are the labels of its groups from the highest level down; ``reserve`` hosts stay free in each group of level 1."""

    labels: tuple[str, ...]
    reserve: int


def trees(config: object) -> dict[str, Tree]:
    """Return the trees of ``resource-level-config``, JSON or a dictionary, by name. Trees whose levels have a gap are left out."""
    if config is None:
        raise ValueError("resource-level-config doesn't exist; give the trees as in volcano.yaml")
    try:
        given = json.loads(config) if isinstance(config, str) else config
    except ValueError as error:
        raise ValueError(f"ummarshal config failed: resource-level-config is not valid JSON ({error})") from error
    if not isinstance(given, Mapping) or not all(isinstance(levels, Mapping) for levels in given.values()):
        raise ValueError(f"ummarshal config failed: expected {{tree: {{level1: {{label}}}}}}; got {given!r}")
    valid = {str(name): tree for name, levels in given.items() if (tree := _tree(str(name), levels))}
    if not valid:
        raise ValueError("no valid resource config exist: a tree needs level1, level2 and so on without a gap, each with a label")
    return valid


def _tree(name: str, levels: Mapping[str, object]) -> Tree | None:
    rows = [levels.get(f"level{number}") for number in range(1, len(levels) + 1)]
    labels = [str(row["label"]) for row in rows if isinstance(row, Mapping) and row.get("label")]
    if not rows or len(labels) < len(rows):
        return None
    reserve = rows[0].get("reservedNode") if isinstance(rows[0], Mapping) else 0
    if not str(reserve or 0).isdecimal():
        raise ValueError(f"tree {name}: reservedNode: expected a number of hosts; got {reserve!r}")
    return Tree(tuple(labels[::-1]), int(reserve or 0))


def levels_of(affinity_config: str, replicas: int) -> list[Level]:
    """Return the hosts of a block on each level of a job by its annotation, such as ``level1=2,level2=4``, from the job down to a host."""
    given: dict[str, int] = {}
    for pair in affinity_config.split(","):
        name, separator, value = (word.strip() for word in pair.partition("="))
        if not name or not separator:
            raise ValueError(f"config pair is not correct: expected level1=2,level2=4; got {affinity_config!r}")
        if not value.isdecimal() or not int(value):
            raise ValueError(f"value of pair is not integer: expected 1 or more; got {pair.strip()!r}")
        given[name] = int(value)
    names = [f"level{number}" for number in range(1, len(given) + 1)]
    if missing := next((name for name in names if name not in given), None):
        raise ValueError(f"affinity block {missing} is not exist, please check if level numbers are continuous; got {affinity_config!r}")
    levels = [("job", replicas), *((name, given[name]) for name in reversed(names)), ("node", 1)]
    for (_upper, whole), (name, part) in reversed([*zip(levels, levels[1:], strict=False)]):
        if whole % part:
            raise ValueError(f"affinity block {name}'s value {part} can not be divided by upper level's value {whole}")
    return levels


def place(paths: Sequence[Path], levels: Sequence[Level], reserve: int = 0) -> list[Path]:
    """Return the hosts of a job. ``paths`` are those of all hosts that can take a task, the best first.

    Levels of the tree above those of the job do not count, except that a job with level 1 only stays below one group of level 2 if it
    can. The reserve is used only if the job has no place without it. Raises ``ValueError`` where it has none at all.
    """
    sizes = [size for _name, size in levels]
    depth = min((len(path) for path in paths), default=len(levels)) - 1
    if depth < len(sizes) - 2:
        raise ValueError(f"number of levels does not match the number of task levels: the tree has {depth}, the job {len(sizes) - 2}")
    inside_one = _Job([sizes[0], *sizes], reserve).place(paths) if len(sizes) == 3 and depth > 1 else None
    hosts = inside_one or _Job(sizes, reserve).place(paths)
    if hosts is None:
        blocks = ", ".join(f"{name} {size}" for name, size in levels[1:-1])
        raise ValueError(f"failed to schedule tasks: {len(paths)} hosts can take one, but not {sizes[0]} of them in blocks of {blocks}")
    return hosts


@dataclass(eq=False)
class _Group:
    """A group or a host. ``tasks`` and ``score`` are the blocks that fit and what they leave over; ``done`` are blocks taken below it."""

    parent: _Group | None
    path: Path
    children: dict[Path, _Group] = field(default_factory=dict)
    reserved: bool = False
    seen: bool = False
    tasks: int = 1
    score: int = 0
    done: list[list[Path]] = field(default_factory=list)

    def open(self) -> list[_Group]:
        return [child for child in self.children.values() if not child.reserved]


class _Job:
    """``sizes`` are the hosts of the job, of a block of each level, and of a task, which is 1."""

    def __init__(self, sizes: Sequence[int], reserve: int) -> None:
        self.sizes = sizes
        self.ratios = [upper // lower for upper, lower in zip(sizes, sizes[1:], strict=False)]
        self.reserve = reserve

    def place(self, paths: Iterable[Path]) -> list[Path] | None:
        root = _Group(None, ())
        for path in paths:
            group = root
            for level in reversed(range(len(self.ratios))):
                key = path[: len(path) - level]
                group = group.children.setdefault(key, _Group(group, key))
        self._rate(root, 0)
        return self._take(root, 0, 1) or self._take_rest(root)

    def _rate(self, group: _Group, depth: int) -> None:
        """Count what groups hold without the reserve. A group that is smaller than its reserve is reserved as a whole."""
        if depth == len(self.ratios):
            return
        children = list(group.children.values())
        for child in children:
            self._rate(child, depth + 1)
        if depth == len(self.ratios) - 1 and self.reserve:
            group.reserved = len(children) < self.reserve
            for child in children[-self.reserve :]:
                child.reserved = True
        group.tasks, rest = divmod(sum(child.tasks for child in group.open()), self.ratios[depth])
        group.score = rest * self.sizes[depth + 1] + 10 * sum(child.score for child in group.open())

    def _take(self, group: _Group, depth: int, blocks: int) -> list[Path] | None:
        """Take blocks of a group; return the hosts of the job as soon as it is complete."""
        if depth == len(self.ratios):
            return self._taken(group)
        wanted = blocks * self.ratios[depth]
        siblings = [child for child in group.open() if child.tasks]
        for whole in (True, False):
            for child in sorted(siblings, key=lambda child: (child.score, child.tasks) if whole else (child.tasks, child.score)):
                if child.seen or whole and child.tasks > wanted:
                    continue
                child.seen = True
                part = min(wanted, child.tasks)
                if hosts := self._take(child, depth + 1, part):
                    return hosts
                wanted -= part
                if not wanted:
                    return None
        return None

    def _taken(self, host: _Group) -> list[Path] | None:
        host.seen = True
        group, block, depth = host, [host.path], len(self.ratios)
        while group.parent is not None:
            group, depth = group.parent, depth - 1
            group.done.append(block)
            if len(group.done) < self.ratios[depth]:
                return None
            block = [path for part in group.done for path in part]
            group.done = []
        return block

    def _take_rest(self, root: _Group) -> list[Path] | None:
        """Take the other hosts, those first that leave the most of a group's reserve."""
        groups = [root]
        for _level in self.ratios[1:]:
            groups = [child for group in groups for child in group.children.values()]
        batches: dict[int, list[_Group]] = {}
        for group in groups:
            unseen = [child for child in group.children.values() if not child.seen]
            reserve = [child for child in unseen if child.reserved]
            for number, child in enumerate(reserve, 1):
                batches.setdefault(number, []).append(child)
            batches.setdefault(len(reserve), []).extend(child for child in unseen if not child.reserved)
        in_order = (host for number in sorted(batches, reverse=True) for host in batches[number])
        return next(filter(None, map(self._taken, in_order)), None)
