# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move interrupts, workqueues and threads to their CPUs as far as the kernel allows, and return the result of each.

What the kernel's refusals mean (Linux ``kernel/irq/manage.c``, and irqbalance's table of the same errors): EIO, it manages the
interrupt itself; ENOSPC, the CPU has no interrupt vectors left; EBUSY, EAGAIN, ERANGE, ENOMEM, try again. A thread that the kernel
has bound for good answers EINVAL.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Callable, Container, Iterable, Iterator, Mapping, Sequence, cast

from ..._base.cpulist import compress, expand
from ..._host.host import FORBIDDEN, GONE, Host
from ..._kernel.interrupts import KINDS, Interrupt, Target, Thread, Workqueue

if TYPE_CHECKING:
    from typing import Optional, TypedDict

    class Entry(TypedDict, total=False):
        """What a report has of an interrupt (``irq``), of several (``irqs``, as a cpulist), of a workqueue or of a thread."""

        irq: int
        irqs: str
        name: str
        before: Optional[str]
        wanted: str
        after: Optional[str]
        state: str
        text: str

    class Memory(TypedDict, total=False):
        """What a later check has to know: how often a pending interrupt came, or the result."""

        wanted: str
        count: Optional[int]
        after: Optional[str]
        state: str
        text: str


_KIND_OF = {Interrupt: "interrupts", Workqueue: "workqueues", Thread: "threads"}
_TRANSIENT = {errno.EBUSY, errno.EAGAIN, errno.ERANGE, errno.ENOMEM}


class Step:
    """One interrupt, workqueue or thread, and its planned place.

    ``choices`` are cpulists, best first; ``key`` identifies it within its PCI function at any time; ``memory`` is what :meth:`to_remember`
    returned after the last bind; ``settled``: whether there is nothing to write; ``effective`` are the CPUs of an interrupt that is stuck.
    """

    def __init__(self, target: Target, choices: list[str], key: str) -> None:
        self.target, self.choices, self.key = target, choices, key
        self.memory: Memory = {}
        self.settled = False
        self.before: str | None = None
        self.after: str | None = None
        self.online: set[int] = set()
        self.state, self.text = "bound", ""
        self.count: int | None = None
        self.effective: str | None = None
        self.why_left: Callable[[], str] = lambda: ""
        """Says why it is not restored when it was moved, or ''."""

    def look(self, host: Host, online: set[int]) -> None:
        """Read where it is. CPUs that are offline do not count."""
        self.online, self.state, self.text, self.settled = online, "bound", "", True
        self.before = self.after = self.target.read(host)
        first = self.choices[0]
        if self.before is None:
            self.state, self.text = "failed", "cannot be read at %s; bind again when the driver is loaded" % self.target.path
        elif self.before == first or set(expand(self.before)) & online == set(expand(first)):
            self._compare_effective(host, first)
        elif self.target.fixed(host):
            self._managed()
        else:
            self.text = self.why_left()
            self.state, self.settled = ("fought over", True) if self.text else ("bound", False)

    def _managed(self) -> None:
        self.state, self.text = "managed", "is placed by the kernel itself and stays on CPUs %s" % self.before

    def predict(self, again: bool) -> None:
        """Say what :meth:`take` would do: the kernel's refusals are known from the last bind only, and may be over with ``again``."""
        memory: Memory = {} if again else self.memory
        if memory.get("wanted") == self.choices[0] and self.before == memory.get("after"):
            self.state, self.text = memory["state"], memory["text"]
        else:
            self.state, self.after = "changed", self.choices[0]

    def take(self, host: Host) -> bool:
        """Write the first choice that the kernel accepts and return True, or return False when it asks to be tried again."""
        self.after, full = self.before, []
        for choice in self.choices:
            try:
                if choice != self.before:
                    self.target.write(host, choice)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    full.append(choice)
                    continue
                return self._refused(error, choice)
            self._taken(host, choice, full)
            return True
        self.state = "failed"
        self.text = "stays on CPUs %s: none of the CPUs %s has interrupt vectors left; plan more IRQ CPUs" % (self.before, ", ".join(full))
        return True

    def _taken(self, host: Host, choice: str, full: list[str]) -> None:
        self.after = self.target.read(host)
        self.state, self.text = "changed", ""
        if self.after is None or set(expand(self.after)) & self.online != set(expand(choice)) & self.online:
            self.state = "failed"
            self.text = "was moved to CPUs %s and is on %s: something else moves it, perhaps irqbalance" % (choice, self.after)
        elif full:
            self.state = "full"
            self.text = "is on CPU %s, because no interrupt vectors are left on CPU %s" % (choice, ", ".join(full))
        else:
            self._compare_effective(host, choice)

    def _compare_effective(self, host: Host, choice: str) -> None:
        effective = self.target.effective(host)
        if effective and not set(expand(effective)) <= set(expand(choice)):
            self.state, self.text = self.target.elsewhere(effective)

    def compare_count(self, host: Host, count: int | None) -> None:
        """Note how often a pending interrupt came; one that came since this was first noted, and is still elsewhere, follows no more."""
        noted = self.memory.get("count") if self.memory.get("wanted") == self.choices[0] else None
        self.count = count if noted is None or count is None or count < noted else noted
        if self.count is None or self.count == count:
            return
        self.state, self.text = "bound", ""
        self._compare_effective(host, self.choices[0])
        if self.state == "pending":
            self.state, self.effective = "stuck", self.target.effective(host)
            self.text = "arrived since it was moved to CPUs %s, and still arrives on CPUs %s" % (self.choices[0], self.effective)

    def _refused(self, error: OSError, choice: str) -> bool:
        if error.errno == errno.EIO or (error.errno == errno.EINVAL and isinstance(self.target, Thread)):
            self._managed()
            return True
        self.state, advice = "failed", "see the kernel log"
        if error.errno in _TRANSIENT:
            self.state, advice = "busy", "it was tried several times; bind again, or leave it to the timer"
        elif error.errno in FORBIDDEN:
            advice = "run as root on the machine itself; in containers /proc/irq and /sys are read-only"
        elif error.errno in GONE:
            advice = "its driver was unloaded meanwhile; bind again when it is loaded"
        self.text = "could not be moved to CPUs %s (%s: %s); %s" % (choice or "none", self.target.path, error.strerror or error, advice)
        return self.state != "busy"

    def entry(self) -> Entry:
        entry: Entry = {"name": self.target.name, "before": self.before, "wanted": self.choices[0], "after": self.after}
        entry.update({"state": self.state, "text": self.text})
        if self.target.irq is not None:
            entry["irq"] = self.target.irq
        return entry

    def to_remember(self, failures: bool = False) -> Memory:
        """Return what a later check has to know, nothing when a check can see everything itself; ``failures``: also of what failed."""
        if self.state in ("pending", "stuck"):
            return {"wanted": self.choices[0], "count": self.count}
        if self.state in ("managed", "full") or (failures and self.state == "failed"):
            return {"wanted": self.choices[0], "after": self.after, "state": self.state, "text": self.text}
        return {}


class Row:
    """The steps of one NPU, or of one PCI function, and what else is to be said of it.

    ``missing`` are the names, or in a row of a record the keys, of interrupts that its driver has not requested.
    """

    def __init__(self, pci: str, npu: int | None = None, title: str = "") -> None:
        self.id, self.pci = npu, pci
        self.title = title or (pci if npu is None else "NPU %s (%s)" % (npu, pci))
        self.device: int | None = None
        self.text = ""
        self.missing: list[str] = []
        self.steps: dict[str, list[Step]] = {kind: [] for kind in KINDS}

    def add(self, step: Step) -> None:
        self.steps[_KIND_OF[type(step.target)]].append(step)

    def all_steps(self) -> list[Step]:
        return [step for kind in KINDS for step in self.steps[kind]]

    def entries(self) -> dict[str, Any]:
        """Return ``{id, pci, device, text, interrupts, workqueues, threads}`` with a list of :meth:`Step.entry` of each kind."""
        entries = {kind: [step.entry() for step in self.steps[kind]] for kind in KINDS}
        return {"id": self.id, "pci": self.pci, "device": self.device, "text": self.text, **entries}


class Report:
    """The results for ``rows``: ``npus`` has the :meth:`Row.entries` of each; the lists besides are sentences.

    States of an entry: bound (was right), changed, pending (right, but the interrupt has to fire once), stuck (it did, and is still
    elsewhere), managed (the kernel refuses for good), full (on another CPU, since the wanted one has no interrupt vectors left), replaced
    (a workqueue whose CPUs are isolated), fought over (left where it is), busy and failed.
    """

    def __init__(self, rows: Sequence[Row], warnings: Iterable[str] = (), failed: Iterable[str] = ()) -> None:
        self.rows = rows
        self.npus = [row.entries() for row in rows]
        self.changed = any(step.before != step.after for row in rows for step in row.all_steps())
        self.unchangeable: list[str] = []
        self.warnings = list(warnings)
        self.failed = list(failed)
        lists = dict.fromkeys(("managed", "full", "pending", "replaced"), self.unchangeable)
        lists.update({"stuck": self.warnings, "fought over": self.warnings, "busy": self.failed, "failed": self.failed})
        for row, npu in zip(rows, self.npus):
            for state, sentence in sentences(row, npu):
                lists.get(state, []).append(sentence)


def sentences(row: Row, entries: Mapping[str, Sequence[Entry]]) -> Iterator[tuple[str, str]]:
    """Yield a state and a sentence for all entries of a row, by their kinds, of which the same is to be said."""
    for kind in KINDS:
        for group in grouped(entries[kind], ("name", "state", "text")):
            yield group["state"], "%s: %s %s" % (row.title, subject(kind, group), group["text"])


def subject(kind: str, entry: Entry) -> str:
    """Return how sentences call an entry of a kind, or a group of them."""
    if kind == "interrupts":
        numbers = entry.get("irqs", entry.get("irq"))
        return ("IRQ %s (%s):" if " " in entry["name"] else "IRQ %s %s") % (numbers, entry["name"])
    return "%s %s" % (kind[:-1], entry["name"])


def grouped(entries: Iterable[Entry], keys: Container[str] = ("name", "before", "wanted", "after", "state", "text")) -> list[Entry]:
    """Return the entries of one kind with those joined that are the same by some keys: ``irqs``, in the notation of cpulists."""
    groups: dict[tuple[object, ...], tuple[Entry, list[int]]] = {}
    for entry in entries:
        values = dict(entry, text=entry["text"].replace("/irq/%s/" % entry.get("irq"), "/irq/<n>/"))
        values = {key: value for key, value in values.items() if key in keys}
        group, numbers = groups.setdefault(tuple(values.values()), (cast("Entry", values), []))
        if "irq" in entry:
            numbers.append(entry["irq"])
            group["irqs"] = compress(numbers)
    return [group for group, _numbers in groups.values()]
