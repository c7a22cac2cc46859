# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set how many huge pages NUMA nodes have, as far as the kernel grants them, and never below what is in use.

The kernel looks for free memory when the number is written, and silently stops where it finds none. It therefore gets the number in parts,
and only as many are requested as leave a node the memory that everything else needs. Where it stops, the number is written again for
some seconds: memory that it moves or writes out meanwhile is free then (openshift-kni/performance-addon-operators issue 279).
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence

from ..._host.host import Host
from ..._kernel.cpus import NODE_FOLDER, memory_mib
from ..._kernel.hugepages import GIGANTIC, Pages, kept_free, pages, path_of, reserved, size_text
from ..._kernel.memory import room_of_nodes
from ..._base.outside import json_of
from ..._state import previous
from ..._state.files import MARKER, atomic_write, make_folder
from .places import GRANTED, SECTION

ABOUT = MARKER + ": the huge pages that are set at boot. Changes are overwritten."
_PART = 1 << 20
"""KiB of pages in one request to the kernel."""
SECONDS = 120
AGAIN, PAUSE = 3.0, 0.2
"""Seconds for which a short number is written again, and between two writes."""

Counts = Dict[int, Dict[int, int]]
"""``{size in KiB: {node: pages}}``."""


class Goal(NamedTuple):
    """The huge pages of a size on a node: how many are ``wanted``, how many there are, and how many there are to be.

    ``final``: whether the kernel gave all that it has, which is False where time ran out; ``refused``: why the number cannot be written.
    """

    size: int
    node: int
    wanted: int
    before: int
    after: int
    final: bool = True
    refused: str = ""

    @property
    def changes(self) -> bool:
        return self.before != self.after

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
    """Return what differs from what is wanted: what can be changed, and more pages than wanted that are in use.

    A node that a former bind set and that is not wanted any more goes back to what it had before. A node for which the kernel has granted
    less since the boot is left out, unless ``again``. Those of a gigantic size are only compared.
    """
    asked = {(size, node): count for size, counts in counts_of(wanted).items() for node, count in counts.items() if size < GIGANTIC}
    tried = {} if again else granted(host)
    found = []
    for (size, node), count in sorted({**asked, **dropped(host, wanted)}.items()):
        now = pages(host, size, node)
        if now and not (now.pool < count and tried.get((size, node)) == (count, now.pool)):
            found.append(goal_of(host, size, node, count, now))
    return lowering_first(goal for goal in found if goal.changes or goal.after > goal.wanted)


def dropped(host: Host, wanted: Mapping[str, Any]) -> dict[tuple[int, int], int]:
    """Return ``{(size, node): pages}`` as it was before the first bind, of the recorded nodes that are not wanted any more."""
    asked = counts_of(wanted)
    recorded = members(previous.recorded(host).get(SECTION, {}))
    return {(size, node): count for size, node, count in recorded if node not in asked.get(size, {})}


def goal_of(host: Host, size: int, node: int, count: int, now: Pages) -> Goal:
    """Return the goal by which a node gets a number of pages, as far as those in use allow."""
    return Goal(size, node, count, now.pool, max(count, lowest(host, size, now)))


def lowest(host: Host, size: int, now: Pages) -> int:
    """Return the fewest pages that a node can have now: those that processes use, or were promised and have not used yet."""
    return min(now.pool, now.used + min(now.free, reserved(host, size)))


def lowering_first(todo: Iterable[Goal]) -> list[Goal]:
    """Return goals in the order in which the memory of pages that go can become pages of another size."""
    return sorted(todo, key=lambda goal: goal.after > goal.before)


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
    before = {(goal.size, goal.node): goal.before for goal in todo if goal.changes}
    if before:
        previous.record(host, SECTION, _document(before))
    done = change(host, todo, seconds)
    known = granted(host)
    known.update(((goal.size, goal.node), (goal.wanted, goal.after)) for goal in done if goal.final and not goal.refused)
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


def predicted(host: Host, todo: Sequence[Goal]) -> list[Goal]:
    """Return goals with what memory allows in the place of what there is to be. Fragmented memory shows only in a change."""
    done: list[Goal] = []
    for goal in todo:
        freed = sum((other.before - other.after) * other.size << 10 for other in done if other.node == goal.node)
        room = max(0, _room(host, goal, freed)) if goal.after > goal.before else 0
        done.append(goal._replace(after=min(goal.after, goal.before + room)))
    return done


def take_back(host: Host, done: Sequence[Goal]) -> list[str]:
    """Give nodes the numbers that they had before, and return a sentence for every one that does not get it."""
    sentences = []
    for goal in reversed(done):
        now = pages(host, goal.size, goal.node)
        if now:
            (back,) = change(host, [goal_of(host, goal.size, goal.node, goal.before, now)])
            sentences += unreached(back, "this run")
    return sentences


def unreached(goal: Goal, since: str = "") -> list[str]:
    """Return a sentence where a node has, or would have, another number of pages than is wanted: the one before ``since``, if given."""
    if goal.refused or goal.after == goal.wanted:
        return [goal.refused] if goal.refused else []
    which = "{:,} huge pages of {}".format(goal.after, size_text(goal.size))
    if goal.after > goal.wanted:
        number = ("had {:,} before %s" % since if since else "{:,} are wanted").format(goal.wanted)
        return ["node %d keeps %s, because processes use them, and %s; stop these processes and run again" % (goal.node, which, number)]
    return [
        "node {} has {} of the {:,} that it had before {}; the rest of its memory is in use, fragmented, or kept free for other "
        "programs; stop what uses the memory, or reboot, and run again".format(goal.node, which, goal.wanted, since)
    ]


def unsettled(host: Host, wanted: Mapping[str, Any], known: Sequence[Goal]) -> list[str]:
    """Return a sentence for each node that keeps more pages than wanted, or is not wanted any more and has not what it had.

    ``known`` are the goals of this run.
    """
    former, found = dropped(host, wanted), {(goal.size, goal.node): goal for goal in known}
    for (size, node), count in former.items():
        now = pages(host, size, node)
        if now:
            found.setdefault((size, node), Goal(size, node, count, now.pool, now.pool))
    sentences = []
    for key, goal in sorted(found.items()):
        if key in former or goal.after > goal.wanted:
            sentences += unreached(goal, "the first bind" if key in former else "")
    return sentences


def forget_given_back(host: Host, wanted: Mapping[str, Any]) -> None:
    """Forget what nodes had that are not wanted any more and have it again: from then on their numbers are not managed."""
    recorded = {(size, node): count for size, node, count in members(previous.recorded(host).get(SECTION, {}))}
    for (size, node), count in dropped(host, wanted).items():
        now = pages(host, size, node)
        if now and now.pool == count:
            del recorded[size, node]
    previous.replace(host, SECTION, _document(recorded) or None)


def _document(counts: Mapping[tuple[int, int], Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (size, node), value in sorted(counts.items()):
        found.setdefault(str(size), {})[str(node)] = value
    return found


def _set(host: Host, goal: Goal, end: float) -> Goal:
    """Set a number in parts until ``end``, and return what was reached."""
    now, until = goal.before, 0.0
    if goal.after < now:
        return goal._replace(after=_write(host, goal, goal.after))
    while now < goal.after:
        if time.monotonic() >= end:
            return goal._replace(after=now, final=False)
        part = min(goal.after - now, max(1, _PART // goal.size), _room(host, goal))
        if part < 1:
            break
        asked = now + part
        now = _write(host, goal, asked)
        if now >= asked:
            until = 0.0
            continue
        until = until or time.monotonic() + AGAIN
        if time.monotonic() >= until:
            break
        time.sleep(PAUSE)
    return goal._replace(after=now)


def _room(host: Host, goal: Goal, freed: int = 0) -> int:
    """Return how many more pages a node can hold so that enough memory is left for everything else; ``freed`` bytes come before."""
    room = room_of_nodes(host).get(goal.node)
    if room is None:
        return goal.after
    memory = memory_mib(host, "%s/node%d/meminfo" % (NODE_FOLDER, goal.node)) or 0
    return (room + freed - kept_free(memory << 20)) // (goal.size << 10)


def _write(host: Host, goal: Goal, count: int) -> int:
    """Write a number and return the one that the kernel then has."""
    path = path_of(goal.size, goal.node)
    try:
        host.set_attribute(path, str(count))
    except OSError as error:
        raise ValueError("%s does not take %d: %s" % (path, count, error.strerror or error))
    now = pages(host, goal.size, goal.node)
    return now.pool if now else 0
