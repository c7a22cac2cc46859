# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans drawn as SVG: the CPUs of a machine in their NUMA nodes, coloured by the NPU that they are planned for.

A picture holds no ids, scripts, fonts or references, so any number of them can stand in one HTML page. Its colours follow
``prefers-color-scheme``; the hues are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), and whatever a colour says is
written or marked as well.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import compress, expand
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import noun
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.quality import percent
from ansible_collections.npu.affinity.plugins.plugin_utils._report import svg
from ansible_collections.npu.affinity.plugins.plugin_utils._report.scene import (
    HOUSEKEEPING,
    IDLE,
    LEFT_OUT,
    LOST,
    OFFLINE,
    SHARED,
    STATES,
    Frame,
    Npu,
    Owner,
    frames_of,
    indexes,
    npus_of,
    owners_of,
)

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Nic, Plan, Topology

CELL_WIDTH, CELL_HEIGHT = 28, 25
CORE_GAP, LINE_GAP, GROUP_GAP = 3, 5, 10
NODES_PER_ROW = 4
WIDEST_PAGE, NARROWEST_PAGE = 1180, 760
MARGIN, PADDING, GAP = 20, 12, 12
NPU_WIDTH = 200
LINE = 15
NO_BREAK = "\u00a0"

MARKED_ROLES = ("irq", "kv", "acl", "release")
MARKS = {
    "irq": "m22 7h0",
    HOUSEKEEPING: "m3 9l6-6m2 0l-6 6m5 0l6-6m2 0l-6 6m5 0l6-6",
    OFFLINE: "m10 3l7 7m0-7l-7 7",
    SHARED: "m1 1h26v23h-26z",
    LOST: "m1 1h26v23h-26z",
}
"""What is drawn on a cell, from its top left corner."""
LEGEND = {
    "pool": "pool",
    "main": "main",
    "irq": "IRQ",
    "kv": "KV",
    "acl": "ACL",
    "release": "release",
    HOUSEKEEPING: "housekeeping",
    IDLE: "idle (in no pool)",
    LEFT_OUT: "not divided",
    OFFLINE: "offline",
    SHARED: "in more than one pool",
    LOST: "kept for a lost NPU",
}
"""What a CPU can be, in the words and the order of the legend."""


@dataclass(frozen=True)
class _Cell:
    """A CPU at its place; ``start`` is what is written on it as the first of a run of one owner."""

    text: str
    x: int
    y: int
    start: str = ""


def plan_svg(plan: Plan, topology: Topology, title: str = "") -> str:
    """Return the picture of a plan as one SVG element.

    ``plan`` and ``topology`` are the facts ``npu_affinity_plan`` and ``npu_affinity_topology``, ``title`` names the host.
    Raises ``ValueError`` naming the cpulist that is none.
    """
    npus = list(npus_of(plan, topology))
    owners = owners_of(plan, topology, npus)
    picture = _Picture(npus, owners, list(frames_of(topology, npus, owners)))
    bottom = picture.header(plan, topology, title)
    bottom = picture.nodes(bottom + GAP)
    bottom = picture.legend(bottom + 2 * GAP, _bare_nodes(topology, picture.frames))
    width, height = picture.grid.page, bottom + MARGIN
    label = svg.clean(f"Plan of {title}" if title else "Plan")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="npu-plan" role="img" aria-label={quoteattr(label)} '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"{svg.title(label)}<desc>{escape(svg.clean(_quality(plan)))}</desc><style>{svg.STYLE}</style>"
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>{"".join(picture.painted())}</svg>\n'
    )


class _Grid:
    """Where things are: frames of equal width, with as many cores side by side as makes whole groups or full lines."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        rows = max(1, -(-len(frames) // NODES_PER_ROW))
        self.per_row = max(1, -(-len(frames) // rows))
        self.pitch = CELL_WIDTH + CORE_GAP
        self.threads = max((len(core) for frame in frames for cores in frame.groups.values() for core in cores), default=1)
        self.line_height = self.threads * CELL_HEIGHT + (CORE_GAP if self.threads == 1 else LINE_GAP)
        nodes = [frame for frame in frames if frame.id is not None]
        most = (self._inner(WIDEST_PAGE) + CORE_GAP) // self.pitch
        largest = max((len(cores) for frame in nodes for cores in frame.groups.values()), default=most)
        if largest <= most:
            self.slot = largest
            self.columns = largest * min(most // largest, max((len(frame.groups) for frame in nodes), default=1))
        else:
            self.slot = self.columns = next((count for count in range(most, most * 2 // 3, -1) if largest % count == 0), most)
        cells = self.columns * self.pitch - CORE_GAP + (self.columns // self.slot - 1) * GROUP_GAP
        self.inner = max(cells, self._inner(NARROWEST_PAGE))
        self.page = 2 * MARGIN + self.per_row * (self.inner + 2 * PADDING + GAP) - GAP

    def _inner(self, page: int) -> int:
        return (page - 2 * MARGIN + GAP) // self.per_row - GAP - 2 * PADDING

    def left(self, column: int) -> int:
        return MARGIN + PADDING + column * (self.inner + 2 * PADDING + GAP)

    def place(self, frame: Frame, x: int, y: int) -> tuple[dict[int, tuple[int, int]], list[str], int]:
        """Return the places of a frame's CPUs, the first one at x, y; outlines of its caches; where it ends."""
        places: dict[int, tuple[int, int]] = {}
        outlines = []
        column, end = 0, y
        for cache, cores in frame.groups.items():
            per_line = self.slot if len(cores) <= self.slot else self.columns
            if column and column + per_line > self.columns:
                column, y = 0, end + GROUP_GAP
            left = x + column * self.pitch + column // self.slot * GROUP_GAP
            for number, core in enumerate(cores):
                line, place = divmod(number, per_line)
                for thread, cpu in enumerate(core):
                    places[cpu] = (left + place * self.pitch, y + line * self.line_height + thread * CELL_HEIGHT)
            height = -(-len(cores) // per_line) * self.line_height - (self.line_height - self.threads * CELL_HEIGHT)
            if cache and len(frame.groups) > 1:
                width = min(len(cores), per_line) * self.pitch - CORE_GAP
                outlines.append(svg.rect("group", left - 3, y - 3, width + 6, height + 6, 5))
            end = max(end, y + height)
            column += per_line
        return places, outlines, end


class _Picture:
    """What is painted where: frames lie on the ground; the box and the cells of one NPU go together, above it."""

    def __init__(self, npus: Sequence[Npu], owners: Mapping[int, Owner], frames: Sequence[Frame]) -> None:
        self.npus, self.owners, self.frames = npus, owners, frames
        self.grid = _Grid(frames)
        self.roles = [
            {cpu: role for role in MARKED_ROLES for cpu in expand(npu.roles.get(role, ""), f"{role} of {npu.label}")} for npu in npus
        ]
        self.colours = colours_of(npus, owners, frames, self.grid.per_row)
        self.ground: list[str] = []
        self.outlines: list[str] = []
        self.adapters: list[str] = []
        self.boxes = [""] * len(npus)
        self.cells: dict[Owner, dict[str, list[_Cell]]] = {}

    def header(self, plan: Plan, topology: Topology, title: str) -> int:
        """Write title, machine, strategy and quality; return where they end."""
        violations = plan.get("violations") or ()
        y = MARGIN + 18
        self.ground.append(svg.text(MARGIN, y, "title", title or "Plan"))
        sentences = [
            ("quiet", _machine(topology, self.npus, len(self.owners))),
            ("", f"strategy: {plan['strategy']} (requested: {plan['requested']}). {plan['reason']}"),
            ("", _quality(plan)),
            ("alarm", f"{_count(len(violations), 'broken invariant')}: {violations[0]}" if violations else ""),
        ]
        for kind, sentence in sentences:
            for line in textwrap.wrap(svg.clean(sentence), int((self.grid.page - 2 * MARGIN) / svg.TEXT)):
                y += LINE + 3
                self.ground.append(svg.text(MARGIN, y, kind, line))
        return y

    def nodes(self, top: int) -> int:
        """Draw the NUMA nodes row by row; return where they end."""
        grid = self.grid
        for start in range(0, len(self.frames), grid.per_row):
            row = self.frames[start : start + grid.per_row]
            below_label = top + PADDING + LINE + 6
            below_npus = max(self._attached(frame, grid.left(column), below_label) for column, frame in enumerate(row))
            end = max([below_npus] + [self._cpus(frame, grid.left(column), below_npus + 4) for column, frame in enumerate(row)]) + PADDING
            for column, frame in enumerate(row):
                left = grid.left(column)
                room = grid.inner - int(len(frame.label) * svg.BOLD) - 8
                self.ground += [
                    svg.rect("frame", left - PADDING, top, grid.inner + 2 * PADDING, end - top, 8),
                    svg.text(left, top + PADDING + 11, "bold", frame.label),
                    svg.text(left + grid.inner, top + PADDING + 11, "mono quiet end", svg.fit(frame.note, room, svg.MONO)),
                ]
            top = end + GAP
        return top - GAP

    def _attached(self, frame: Frame, left: int, top: int) -> int:
        """Draw the boxes of a node's NPUs and name the NPUs of other nodes that use its CPUs; return where they end."""
        inner = self.grid.inner
        columns = max(1, min((inner + 8) // (NPU_WIDTH + 8), max(len(other.npus) for other in self.frames)))
        width = (inner - (columns - 1) * 8) // columns
        for start in range(0, len(frame.npus), columns):
            row = [(index, _lines(self.npus[index], width)) for index in frame.npus[start : start + columns]]
            height = 29 + LINE * max(len(lines) for index, lines in row)
            for column, (index, lines) in enumerate(row):
                self.boxes[index] += _box(self.npus[index], lines, left + column * (width + 8), top, width, height)
            top += height + 6
        guests = sorted({index for cpu in frame.cpus for index in indexes(self.owners[cpu])} - set(frame.npus))
        for index in guests if frame.id is not None else ():
            npu = self.npus[index]
            home = "node unknown" if npu.node is None else f"attached to node {npu.node}"
            badge, width = _chip(npu, left, top, 17)
            self.boxes[index] += badge + svg.text(left + width + 7, top + 13, "quiet", f"{npu.label}, {home}")
            top += 22
        if frame.nics:
            names = svg.fit(f"Network: {', '.join(nic['name'] or nic['pci'] for nic in frame.nics)}", inner, svg.TEXT)
            self.adapters.append(svg.group("nics", svg.title("; ".join(map(_nic, frame.nics))) + svg.text(left, top + 13, "quiet", names)))
            top += 22
        return top + 2

    def _cpus(self, frame: Frame, left: int, top: int) -> int:
        """Note a cell for every CPU of a frame and draw the outlines of its groups; return where they end."""
        places, outlines, end = self.grid.place(frame, left, top)
        self.outlines += outlines
        by_line = sorted((y, x, cpu) for cpu, (x, y) in places.items())
        for _start, line in groupby(by_line, key=lambda place: place[0]):
            previous: Owner | None = None
            for y, x, cpu in line:
                owner = self.owners[cpu]
                start = "" if owner == previous else self._badge(owner)
                self.cells.setdefault(owner, {}).setdefault(self._kind(cpu, owner), []).append(_Cell(str(cpu), x, y, start))
                previous = owner
        return end

    def _badge(self, owner: Owner) -> str:
        if isinstance(owner, str):
            return ""
        badges = "+".join(self.npus[index].badge for index in owner)
        return badges if len(badges) < 5 else f"{len(owner)}×"

    def _kind(self, cpu: int, owner: Owner) -> str:
        """Return what a CPU is, as a key of LEGEND."""
        if isinstance(owner, str):
            return owner
        if len(owner) > 1:
            return SHARED
        if self.colours[owner[0]] is None:
            return LOST
        return self.roles[owner[0]].get(cpu) or ("main" if self.roles[owner[0]] else "pool")

    def legend(self, top: int, bare: str) -> int:
        """Explain what occurs in this picture, and only that; return where the legend ends."""
        kinds = {kind for cells in self.cells.values() for kind in cells}
        numbered = next((index for index, colour in enumerate(self.colours) if colour is not None), None)
        colour = f"c{0 if numbered is None else self.colours[numbered]}"
        samples = []
        if numbered is not None:
            npu, kind = self.npus[numbered], "main" if "main" in kinds else "pool"
            words = f"number of the {npu.label.split()[0]}, where its CPUs start"
            samples.append((svg.group(colour, _cells(kind, [_Cell("", 0, 0, npu.badge)])), words))
        for kind in LEGEND:
            if kind in kinds:
                sample = _cells(kind, [_Cell("", 0, 0)])
                samples.append((svg.group(f"state {kind}" if kind in STATES else colour, sample), LEGEND[kind]))
        if self.outlines:
            samples.append((svg.rect("group", 2, 2, CELL_WIDTH - 4, CELL_HEIGHT - 4, 5), "CPUs that share a cache"))
        if self.grid.threads > 1:
            samples.append(("", "The threads of a core stand above each other."))
        if bare:
            samples.append(("", bare))
        x, y = MARGIN, top
        for sample, words in samples:
            width = (CELL_WIDTH + 7 if sample else 0) + int(len(words) * svg.TEXT) + 18
            if x > MARGIN and x + width > self.grid.page - MARGIN:
                x, y = MARGIN, y + CELL_HEIGHT + 8
            if sample:
                self.ground.append(f'<g transform="translate({x} {y})">{sample}</g>')
            self.ground.append(svg.text(x + (CELL_WIDTH + 7 if sample else 0), y + 17, "", words))
            x += width
        return y + CELL_HEIGHT

    def painted(self) -> Iterator[str]:
        """Yield everything in the order in which it is painted; every NPU is one group with its own title."""
        yield from self.ground + self.outlines + self.adapters
        for index, npu in enumerate(self.npus):
            colour = self.colours[index]
            own = "".join(_cells(kind, cells) for kind, cells in self.cells.pop((index,), {}).items())
            look = f"state {LOST}" if colour is None else f"c{colour}"
            yield svg.group(look, svg.title(npu.description) + self.boxes[index] + own)
        for owner, kinds in self.cells.items():
            names = f" ({', '.join(self.npus[index].label for index in indexes(owner))})" if indexes(owner) else ""
            for kind, cells in kinds.items():
                title = f"{LEGEND[kind]}{names}: {compress(int(cell.text) for cell in cells)}"
                yield svg.group(f"state {kind}", svg.title(title) + _cells(kind, cells))


def colours_of(npus: Sequence[Npu], owners: Mapping[int, Owner], frames: Sequence[Frame], per_row: int) -> list[int | None]:
    """Return a number below svg.LOOKS for every NPU with a pool of its own; those with CPUs on the same or on touching frames differ.

    Where there are too few for that, the look is taken that is rarest near the NPU.
    """
    here = [list(dict.fromkeys(index for cpu in frame.cpus for index in indexes(owners[cpu]))) for frame in frames]
    colours: dict[int, int] = {}
    for index in dict.fromkeys([*chain.from_iterable(here), *range(len(npus))]):
        homes = [number for number, members in enumerate(here) if index in members]
        touched = {number + step for number in homes for step in (0, 1, -1, per_row, -per_row)}
        mates = chain.from_iterable(members for number, members in enumerate(here) if number in touched)
        near = Counter(colours[mate] for mate in mates if mate in colours)
        used = Counter(colours.values())
        hues = Counter({hue: near[hue] + near[hue + len(svg.PALETTE)] for hue in range(len(svg.PALETTE))})
        colours[index] = min(range(svg.LOOKS), key=lambda look: (near[look], used[look], hues[look % len(svg.PALETTE)], look))
    return [colours[index] if npu.roles and not npu.lost else None for index, npu in enumerate(npus)]


def _cells(kind: str, cells: Sequence[_Cell]) -> str:
    """Return cells of one owner that are all of one kind: one path for them, then marks and numbers."""
    letter = {"kv": "K", "acl": "A", "release": "R"}.get(kind)
    parts = [f'<path class="cell" d="{"".join(f"M{cell.x + 2} {cell.y + 2}h24v21h-24z" for cell in cells)}"/>']
    if kind in MARKS:
        parts.append(f'<path class="line" d="{"".join(f"M{cell.x} {cell.y}{MARKS[kind]}" for cell in cells)}"/>')
    for cell in cells:
        parts.append(svg.text(cell.x + 14, cell.y + 21, "long" if len(cell.text) > 3 else "", cell.text) if cell.text else "")
        parts.append(svg.text(cell.x + 3, cell.y + 10, "start", cell.start) if cell.start else "")
        parts.append(svg.text(cell.x + 25, cell.y + 10, "end bold", letter) if letter else "")
    look = "cells irq role" if kind == "irq" else "cells role" if kind in MARKED_ROLES else "cells"
    return svg.group(look, "".join(parts))


def _lines(npu: Npu, width: int) -> list[tuple[str, str]]:
    """Return the lines below the heading of an NPU's box, each with its class."""
    pool = f"pool {npu.roles['pool']}" if npu.roles.get("pool") else "no pool"
    broken = re.findall(rf".{{1,{int((width - 52) / svg.MONO)}}}(?:,|$)", svg.clean(pool))
    lines = [("mono", line) for line in broken] if npu.roles else []
    return lines + ([("quiet", npu.remark)] if npu.remark else [])


def _chip(npu: Npu, x: int, y: int, height: int) -> tuple[str, int]:
    """Return the coloured number of an NPU, and how wide it is."""
    width = max(24, 10 + 8 * len(npu.badge))
    return svg.rect("chip", x, y, width, height, 4) + svg.text(x + width // 2, y + height // 2 + 5, "badge", npu.badge), width


def _machine(topology: Topology, npus: Sequence[Npu], cpus: int) -> str:
    kinds = Counter(npu.label.split()[0] for npu in npus if not npu.lost) or {"accelerator": 0}
    parts = [
        str((topology.get("machine") or {}).get("product") or ""),
        *(_count(number, kind) for kind, number in kinds.items()),
        _count(cpus, "CPU"),
        _count(len(topology.get("numa") or ()), "NUMA node"),
    ]
    return ", ".join(part for part in parts if part)


def _bare_nodes(topology: Topology, frames: Sequence[Frame]) -> str:
    bare = {node["id"] for node in topology.get("numa") or ()} - {frame.id for frame in frames}
    return f"Without CPUs: NUMA {'node' if len(bare) == 1 else 'nodes'} {compress(bare)}." if bare else ""


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _nic(nic: Nic) -> str:
    """Describe a network adapter with the NUMA distances between it and the NPUs."""
    distances = ", ".join(f"{distance} to NPU {ids}" for distance, ids in nic["distances"].items())
    known = f"{nic['name'] or nic['pci']} ({', '.join(part for part in (nic['driver'], nic['pci'] if nic['name'] else '') if part)})"
    return f"{known}, NUMA distance {distances}" if distances else known


def _quality(plan: Plan) -> str:
    quality, of = plan["quality"], noun(plan["npus"])
    parts = [
        f"CPUs divided: {plan['cpus'] or 'none'}",
        f"housekeeping: {plan['housekeeping'] or 'none'}",
        f"idle: {quality['idle'] or 'none'}",
        f"local to their {of}: {percent(quality['local'])}",
        f"on its own NUMA node: {percent(quality['own_node'])}",
        f"smallest pool: {quality['smallest']}",
        f"largest minus smallest pool: {quality['balance']}",
        "pools disjoint" if quality["disjoint"] else "pools OVERLAP",
        "cores whole" if quality["whole_cores"] else f"cores SPLIT between {of}s",
    ]
    parts += [_count(len(of), thing) for of, thing in ((plan["repaired"], "repair"), (plan["warnings"], "warning")) if of]
    return " · ".join(part.replace(" ", NO_BREAK) for part in parts)


def _box(npu: Npu, lines: Sequence[tuple[str, str]], x: int, y: int, width: int, height: int) -> str:
    chip, indent = _chip(npu, x + 5, y + 5, 20)
    indent += 12
    room = width - indent - int(len(npu.label) * svg.BOLD + len(npu.pci) * svg.MONO) - 20
    parts = [
        svg.rect("box" if npu.roles else "box absent", x, y, width, height, 6),
        chip,
        f'<text x="{x + indent}" y="{y + 19}"><tspan class="bold">{escape(npu.label)}</tspan>',
        f'<tspan class="mono quiet" dx="6">{escape(svg.clean(svg.fit(npu.name, room, svg.MONO)))}</tspan></text>',
        svg.text(x + width - 8, y + 19, "mono quiet end", npu.pci),
    ]
    parts += [svg.text(x + indent, y + 20 + LINE * number, kind, line) for number, (kind, line) in enumerate(lines, 1)]
    return "".join(parts)
