# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set how many huge pages NUMA nodes have, as far as the kernel grants them, and never below what is in use.

The kernel looks for free memory when the number is written, and silently stops where it finds none. It therefore gets the number in parts,
and only as many are requested as leave a node the memory that everything else needs.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Container, Dict, Iterator, Mapping, NamedTuple, Sequence

from ..._host.host import Host
from ..._kernel.cpus import NODE_FOLDER, memory_mib
from ..._kernel.hugepages import GIGANTIC, Pages, kept_free, pages, path_of, reserved, size_text
from ..._kernel.memory import room_of_nodes
from ..._base.outside import json_of
from ..._state import previous
from ..._state.files import MARKER, atomic_write, make_folder
from .feature import GRANTED, SECTION

ABOUT = MARKER + ": the huge pages that are set at boot. Changes are overwritten."
_PART = 1 << 20
"""KiB of pages in one request to the kernel."""
SECONDS = 120

Counts = Dict[int, Dict[int, int]]
"""``{size in KiB: {node: pages}}``."""


class Goal(NamedTuple):
    """The huge pages of a size on a node: how many there are, and how many there are to be.

    ``final``: whether the kernel gave all that it has, which is False where time ran out; ``refused``: why the number cannot be written.
    """

    size: int
    node: int
    before: int
    after: int
    final: bool = True
    refused: str = ""

    @property
    def line(self) -> str:
        return "~ node %d: %d -> %d huge pages of %s" % (self.node, self.before, self.after, size_text(self.size))


def text(wanted: Mapping[str, Any]) -> str:
    """Return the text of the feature's file for what a desired state wants."""
    return previous.dump(ABOUT, wanted)


def counts_of(wanted: Mapping[str, Any]) -> Counts:
    """Return what a desired state, or the feature's file, wants. Raises ``ValueError`` for another shape."""
    try:
        counts = {int(node): int(count) for node, count in wanted["nodes"].items()}
        size = int(wanted["size"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("the requested huge pages have an unexpected form (%s: %s)" % (type(error).__name__, error))
    if size < 1 or any(number < 0 for number in [*counts, *counts.values()]):
        raise ValueError("the requested huge pages have a negative number")
    return {size: counts}


def goals(host: Host, wanted: Mapping[str, Any], again: bool = False) -> list[Goal]:
    """Return what differs from what is wanted, and can be changed.

    A node that a former bind set and that is not wanted any more goes back to what it had before. A node for which the kernel has granted
    less since the boot is left out, unless ``again``. Those of a gigantic size are only compared.
    """
    asked = {(size, node): count for size, counts in counts_of(wanted).items() for node, count in counts.items() if size < GIGANTIC}
    recorded = {(size, node): count for size, node, count in members(previous.recorded(host).get(SECTION, {}))}
    tried = {} if again else granted(host)
    found = []
    for (size, node), count in sorted({**recorded, **asked}.items()):
        now = pages(host, size, node)
        if now and tried.get((size, node)) != (count, now.pool):
            found += differing(host, size, node, count, now)
    return found


def differing(host: Host, size: int, node: int, count: int, now: Pages) -> list[Goal]:
    """Return the goal by which a node gets a number of pages, as far as those in use allow; none where nothing changes."""
    lowest = min(now.pool, now.used + min(now.free, reserved(host, size)))
    reached = max(count, lowest) if count < now.pool else count
    return [] if reached == now.pool else [Goal(size, node, now.pool, reached)]


def members(counts: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, int, Any]]:
    """Yield ``(size, node, value)`` of a document that has them as texts."""
    for size, of_nodes in counts.items():
        for node, value in of_nodes.items():
            yield int(size), int(node), value


def granted(host: Host) -> dict[tuple[int, int], tuple[int, int]]:
    """Return ``{(size, node): (wanted, granted)}`` of this boot."""
    try:
        found = json_of(host.read(GRANTED) or "{}")
        return {(size, node): (int(value[0]), int(value[1])) for size, node, value in members(found)}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return {}


def carry_out(host: Host, todo: Sequence[Goal], seconds: int = SECONDS) -> list[Goal]:
    """Record what was there before, change it as :func:`change` does, and keep until the next boot what the kernel granted.

    Without that note, which a full ``/run`` prevents, the next bind tries again.
    """
    if not todo:
        return []
    previous.record(host, SECTION, _document({(goal.size, goal.node): goal.before for goal in todo}))
    done = change(host, todo, seconds)
    known = granted(host)
    known.update(
        ((goal.size, goal.node), (goal.after, reached.after)) for goal, reached in zip(todo, done) if reached.final and not reached.refused
    )
    with contextlib.suppress(OSError):
        make_folder(host, GRANTED.rpartition("/")[0], 0o755)
        atomic_write(host, GRANTED, json.dumps(_document(known), indent=1, sort_keys=True) + "\n")
    return done


def change(host: Host, todo: Sequence[Goal], seconds: int = SECONDS) -> list[Goal]:
    """Change numbers of pages, and return what was reached."""
    done = []
    end = time.monotonic() + seconds
    for goal in todo:
        try:
            done.append(_set(host, goal, end))
        except ValueError as error:
            done.append(found(host, goal)._replace(refused=str(error)))
    return done


def found(host: Host, goal: Goal) -> Goal:
    """Return a goal with what there is now in the place of what there is to be."""
    now = pages(host, goal.size, goal.node)
    return goal._replace(after=now.pool if now else 0)


def predicted(host: Host, goal: Goal) -> Goal:
    """Return a goal with what memory allows in the place of what there is to be. Fragmented memory shows only in a change."""
    return goal if goal.after < goal.before else goal._replace(after=min(goal.after, goal.before + max(0, _room(host, goal))))


def take_back(host: Host, done: Sequence[Goal]) -> list[str]:
    """Give nodes the numbers that they had before, and return a sentence for every one that does not get it."""
    sentences = []
    for goal in reversed(done):
        now = pages(host, goal.size, goal.node)
        if now:
            back = change(host, differing(host, goal.size, goal.node, goal.before, now))
            reached = back[0] if back else goal._replace(after=now.pool)
            sentences += unreached(reached, goal.before, "this run")
    return sentences


def unreached(goal: Goal, count: int, since: str) -> list[str]:
    """Return a sentence where a node has, or would have, another number of pages than the ``count`` before ``since``."""
    if goal.refused or goal.after == count:
        return [goal.refused] if goal.refused else []
    which = "{:,} huge pages of {}".format(goal.after, size_text(goal.size))
    if goal.after > count:
        return [
            "node {} keeps {}, because processes use them, and had {:,} before {}; stop these processes and run again".format(
                goal.node, which, count, since
            )
        ]
    return [
        "node {} has {} of the {:,} that it had before {}; the rest of its memory is in use, fragmented, or kept free for other "
        "programs; stop what uses the memory, or reboot, and run again".format(goal.node, which, count, since)
    ]


def not_given_back(host: Host, wanted: Mapping[str, Any], planned: Container[tuple[int, int]]) -> list[str]:
    """Return a sentence for each node that is not wanted any more, has not what it had, and is not about to get it (``planned``)."""
    asked, sentences = counts_of(wanted), []
    for size, node, count in members(previous.recorded(host).get(SECTION, {})):
        now = pages(host, size, node)
        if now and node not in asked.get(size, {}) and (size, node) not in planned:
            sentences += unreached(Goal(size, node, now.pool, now.pool), count, "the first bind")
    return sentences


def _document(counts: Mapping[tuple[int, int], Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (size, node), value in sorted(counts.items()):
        found.setdefault(str(size), {})[str(node)] = value
    return found


def _set(host: Host, goal: Goal, end: float) -> Goal:
    """Set a number in parts until ``end``, and return what was reached."""
    now = goal.before
    if goal.after < now:
        return goal._replace(after=_write(host, goal, goal.after))
    while now < goal.after:
        if time.monotonic() >= end:
            return goal._replace(after=now, final=False)
        part = min(goal.after - now, max(1, _PART // goal.size), _room(host, goal))
        if part < 1:
            break
        asked, before = now + part, now
        now = _write(host, goal, asked)
        if now < asked or now <= before:
            break
    return goal._replace(after=now)


def _room(host: Host, goal: Goal) -> int:
    """Return how many more pages a node can hold so that enough memory is left for everything else."""
    room = room_of_nodes(host).get(goal.node)
    if room is None:
        return goal.after
    memory = memory_mib(host, "%s/node%d/meminfo" % (NODE_FOLDER, goal.node)) or 0
    return (room - kept_free(memory << 20)) // (goal.size << 10)


def _write(host: Host, goal: Goal, count: int) -> int:
    """Write a number and return the one that the kernel then has."""
    path = path_of(goal.size, goal.node)
    try:
        host.set_attribute(path, str(count))
    except OSError as error:
        raise ValueError("%s does not take %d: %s" % (path, count, error.strerror or error))
    now = pages(host, goal.size, goal.node)
    return now.pool if now else 0
