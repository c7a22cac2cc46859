# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Affinities as values of a feature: those of interrupts, and of a driver's workqueues and threads.

The key of each is its PCI function with what identifies it there whatever numbers the kernel gives: ``0000:c1:00.0 1 cq_update_irq``,
``0000:c1:00.0 workqueue dev0_sq_send_wq``. They exist while their driver is loaded, and the kernel can refuse to move them
(:mod:`irq.affinity`): what it does not take is reported, and tried again by the next bind and by units.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..._base.cpulist import expand
from ..._base.outside import json_of, require_shape
from ..._host.host import Host
from ..._kernel.cpus import CPU_FOLDER, read_list
from ..._kernel.interrupts import Interrupt, Target, Thread, Vector, Workqueue
from ..._kernel.interrupts import base_name, interrupt_counts, interrupt_names, kernel_threads, requested
from ..._kernel.pci import DEVICE_FOLDER
from ..._state.log import log_change
from ..._state.value_kind import Change, Values
from .affinity import Report, Row, Step, sentences
from .feature import UNCHANGEABLE
from .rebinds import CHECK, DRIVER, Rebinds, add_to_totals, forget

if TYPE_CHECKING:
    import argparse

    from ..._base.documents import AppliedState
    from .affinity import Memory

UNREADABLE = "unknown"
WORKQUEUE, THREAD = "workqueue ", "thread "
_KEY = re.compile(r"(host|[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.[0-7]) (\d+ \S+|(workqueue|thread) [^/]+)\Z")
_PAUSES = (0.1, 0.3, 0.6, 0)
_PATIENCE = 3.0
"""Seconds between the tries of an object for which the kernel is busy, and of all in a run."""


class Affinities(Values):
    """Affinities of which ``rows`` report; ``warned`` and ``refused`` are sentences besides.

    ``tolerant``: what fails is a warning, and remembered, so a later check expects no better; ``pci``: only those of this function;
    ``rebinds``: counts what is restored, and names what is left where another program moves it.
    """

    tolerant = False
    pci: str | None = None
    rebinds: Rebinds | None = None
    key = ""
    part = "interrupts"
    late = True
    noun = ""
    """What restored interrupts are called instead of their own names."""
    pause = 0.2

    def __init__(self, name: str, title: str) -> None:
        Values.__init__(self, name, {}, title)
        self.rows: list[Row] = []
        self.warned: list[str] = []
        self.refused: list[str] = []
        self._functions: set[str] = set()
        self._steps: dict[str, Step] = {}
        self._patience, self._again, self._searched = _PATIENCE, False, False
        self._limit, self._trigger = 0, ""

    def of_state(self, state: AppliedState) -> Any:
        self.tolerant = state["live"].get("irq") == "warn"
        return Values.of_state(self, state)

    def survey(self, host: Host, live: Mapping[str, Any]) -> list[Row]:
        """Return a row with steps for each NPU or function, or for ``pci`` only. Raises ``ValueError`` for what is not wanted of a host."""
        raise NotImplementedError

    def awaited(self, live: Mapping[str, Any]) -> Iterable[str]:
        """Return the functions for whose interrupts a unit waits."""
        raise NotImplementedError

    def counted(self, host: Host, pci: str, names: dict[int, str], before: int) -> tuple[int, bool]:
        """Return how many interrupts a function has, and whether these are all; ``before``: how many it had at the last look."""
        raise NotImplementedError

    def key_of(self, vector: Vector) -> str:
        """Return what identifies a vector within its function, whatever its number is."""
        return "%d %s" % (vector.ordinal, vector.name)

    def title_of(self, host: Host, pci: str) -> str:
        return pci

    def report(self) -> Report:
        return Report(self.rows, self.warned, self.refused)

    def wanted(self, host: Host, live: Mapping[str, Any]) -> dict[str, str]:
        self._steps, self._searched, self.warned, self.refused = {}, False, [], []
        if self._limit:
            self.rebinds = Rebinds(host, self._limit)
        self.rows = self.survey(host, live)
        self._functions = {row.pci for row in self.rows}
        self._look(host, self.rows)
        return {key: step.choices[0] for key, step in self._steps.items()}

    def _look(self, host: Host, rows: Iterable[Row]) -> None:
        online, memory = read_list(host, CPU_FOLDER + "/online"), _remembered(host)
        for row in rows:
            for step in row.all_steps():
                self._steps["%s %s" % (row.pci, step.key)] = step
                step.memory = memory.get(row.pci, {}).get(step.key, {})
                if self.rebinds:
                    step.why_left = functools.partial(self.rebinds.why_left, row.pci, step.key)
                step.look(host, online)
        self._count(host)

    def _count(self, host: Host) -> None:
        """Note how often interrupts came that have yet to follow."""
        pending = {step.target.irq: step for step in self._steps.values() if step.state == "pending" and step.target.irq is not None}
        counts = interrupt_counts(host, pending) if pending else {}
        for irq, step in pending.items():
            step.compare_count(host, sum(counts[irq].values()) if irq in counts else None)

    def check_value(self, key: str, values: Sequence[str]) -> None:
        if not _KEY.match(key):
            raise ValueError("'%s' is nothing that has an affinity" % key)
        for cpus in values:
            expand(cpus, key)

    def read(self, host: Host, key: str) -> str | None:
        if key not in self._steps and not self._searched:
            self._search(host)
        step = self._steps.get(key)
        return (step.target.read(host) or UNREADABLE) if step else None

    def _search(self, host: Host) -> None:
        """Add rows for what is recorded of functions of which nothing is wanted. What is no longer there needs nothing."""
        from ..._state.values import entries

        self._searched = True
        functions: dict[str, dict[str, str]] = {}
        for key, entry in sorted(entries(host, self).items()):
            pci, _blank, rest = key.partition(" ")
            if self.is_over(key):
                functions.setdefault(pci, {})[rest] = entry["original"]
        names, online = interrupt_names(host), read_list(host, CPU_FOLDER + "/online")
        keys = [key for recorded in functions.values() for key in recorded if key.startswith(THREAD)]
        threads = kernel_threads(host, {base_name(key[len(THREAD) :]) for key in keys})
        rows = []
        for pci, recorded in functions.items():
            row = Row(pci, title=self.title_of(host, pci))
            rows.append(row)
            targets: dict[str, Target] = {
                self.key_of(vector): Interrupt(vector.irq, self.noun or vector.name) for vector in requested(host, pci, names)
            }
            targets.update((THREAD + name, Thread(name, pid)) for name, pid in threads.items())
            queues = [Workqueue(key[len(WORKQUEUE) :]) for key in recorded if key.startswith(WORKQUEUE)]
            targets.update((WORKQUEUE + queue.name, queue) for queue in queues if host.exists(queue.path))
            for key, target in targets.items():
                if key in recorded:
                    row.add(Step(target, [target.restored(host, recorded[key], online)], key))
            row.missing = [key for key in recorded if key not in targets]
        self.rows += rows
        self._look(host, rows)

    def original(self, host: Host, key: str, value: str) -> str:
        return self._steps[key].target.to_record(host, value)

    def is_over(self, key: str) -> bool:
        """Whether nothing is wanted of the function. Of one whose driver has not requested all, the rest is left alone."""
        return self.pci is None and key.partition(" ")[0] not in self._functions

    def keeps(self, host: Host, key: str, original: str) -> bool:
        if not self.is_over(key):
            return True
        now = self.read(host, key)
        return now is None or now not in (original, self._steps[key].choices[0])

    def retry(self, boot: bool = False) -> None:
        self._again, self._patience = True, _PATIENCE

    def possible(self, host: Host, key: str, before: str, wanted: str) -> str:
        step = self._steps[key]
        goal = step.target.restored(host, wanted, step.online)
        if step.choices[0] not in (wanted, goal):  # what was done is taken back
            step.choices, step.why_left = [goal], lambda: ""
            step.look(host, step.online)
        if not step.settled:
            step.predict(self._again)
        return step.after or before

    def write(self, host: Host, key: str, value: str) -> str:
        step = self._steps[key]
        for pause in _PAUSES:
            if step.take(host) or self._patience <= 0:
                break
            time.sleep(pause)
            self._patience -= pause
        return step.after or step.before or value

    def writable(self, host: Host, key: str) -> bool:
        """Whether anything is known against it: the kernel tells more than the mode of a file."""
        return True

    def done(self, host: Host, changes: Sequence[Change], undone: bool = False) -> None:
        self._count(host)
        self._remember(host, undone)
        if self.rebinds and not undone:
            self.rebinds.note(self.rows)
            stopped, lines = self.rebinds.stopped, []
            for row in self.rows:
                steps = {kind: [step.entry() for step in steps if (row.pci, step.key) in stopped] for kind, steps in row.steps.items()}
                lines += [sentence for _state, sentence in sentences(row, steps)]
            if lines:
                text = "%d objects are no longer restored" % len(stopped)
                log_change(host, "stop", "npu_affinity " + self.name, text, lines, self.rebinds.who)
        else:
            forget(host, {row.pci for row in self.rows})
        moved = sum(step.before != step.after for row in self.rows for step in row.steps["interrupts"])
        if self._trigger and moved:
            add_to_totals(host, self._trigger, moved)

    def _remember(self, host: Host, undone: bool) -> None:
        before, functions = _remembered(host), {row.pci for row in self.rows}
        after = {pci: memory for pci, memory in before.items() if pci not in functions}
        for row in self.rows if not undone else ():
            for step in row.all_steps():
                memory = step.to_remember(self.tolerant)
                if memory:
                    after.setdefault(row.pci, {})[step.key] = memory
        if after != before:
            from ..._state.files import write_note  # seldom needed, and what it imports costs a third of a start

            write_note(host, UNCHANGEABLE, after)

    def unreached(self, key: str, original: str, value: str, since: str) -> list[str]:
        step, pci = self._steps[key], key.partition(" ")[0]
        text = step.text.replace("/irq/%s/" % step.target.irq, "/irq/<n>/")
        return ["%s: %s %s" % (pci, step.target.name, text)] if step.state in ("failed", "busy") else []

    def failures(self) -> list[str]:
        return [] if self.tolerant else self.report().failed

    def warnings(self, host: Host, live: Mapping[str, Any]) -> list[str]:
        report = self.report()
        return self.lost(host) + report.warnings + (report.failed if self.tolerant else [])

    def unsettled(self) -> list[str]:
        pending = [(row, step) for row in self.rows for step in row.all_steps() if step.state == "pending"]
        return ["%s of %s follows at its next interrupt" % (step.target.name, row.pci) for row, step in pending]

    def result(self, changes: Sequence[Change]) -> Any:
        return None

    def lines(self, host: Host, changes: Iterable[Change]) -> list[str]:
        from ..._state import diffs

        return diffs.affinities([row.entries() for row in self.rows])

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pci", type=str.lower, help="only this PCI function, e.g. 0000:c1:00.0")
        parser.add_argument("--wait", type=float, default=0, help="seconds to wait for interrupts that a loading driver requests late")
        parser.add_argument("--rebind-limit", type=int, default=0, help="how often to place an object again within an hour (0: always)")
        parser.add_argument("--failure", choices=("fail", "warn"), default="fail", help="what to do when not everything could be placed")

    def begin(self, host: Host, options: argparse.Namespace) -> None:
        self.retry()
        self.pci, self.tolerant = options.pci, options.failure == "warn"
        self._limit, self._trigger = 0 if self.pci else options.rebind_limit, DRIVER if self.pci else CHECK
        live = self.applied(host) if options.wait else None
        if live is not None:
            self._await(host, {pci for pci in self.awaited(live) if self.pci in (None, pci)}, options.wait)

    def _await(self, host: Host, functions: Iterable[str], seconds: float) -> None:
        """Wait until drivers have requested the interrupts of functions, at most so many seconds: they request them late."""
        deadline, pause = time.monotonic() + seconds, self.pause
        waiting = {pci: 0 for pci in functions if host.exists("%s/%s" % (DEVICE_FOLDER, pci))}
        while waiting:
            names = interrupt_names(host)
            counted = {pci: self.counted(host, pci, names, before) for pci, before in waiting.items()}
            waiting = {pci: number for pci, (number, complete) in counted.items() if not complete}
            remaining = deadline - time.monotonic()
            if not waiting or remaining <= 0:
                return
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, 2)


def predict(host: Host, values: Affinities, live: Mapping[str, Any], rebinds: Rebinds | None = None) -> Report:
    """Return the :class:`Report` of what a bind would do now."""
    from ..._state.values import look

    values.rebinds = rebinds
    look(host, values, values.wanted(host, live), check=True)
    return values.report()


def _remembered(host: Host) -> dict[str, dict[str, Memory]]:
    """Return the contents of :data:`UNCHANGEABLE`, or nothing if the file is not managed, because the next bind writes it again."""
    with contextlib.suppress(ValueError):
        remembered: dict[str, dict[str, Memory]] = json_of(host.read(UNCHANGEABLE) or "{}")
        require_shape(remembered, {str: {str: {"wanted": str, "count?": int, "after?": str, "state?": str, "text?": str}}}, "it")
        memories = [memory for function in remembered.values() for memory in function.values()]
        if all("count" in memory or memory.keys() == {"wanted", "after", "state", "text"} for memory in memories):
            return remembered
    return {}
