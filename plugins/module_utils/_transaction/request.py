# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host should have: its files and units, how its files differ from that, and what a run tells about it."""

from __future__ import annotations

import fnmatch
import posixpath
from typing import TYPE_CHECKING, Callable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from .._host.host import Host
from .._host.installed import COMMAND, COMPLETION, is_archive
from .._state.files import FileState, States, is_file, is_managed, leftovers
from .._state.history import Applied
from .._state.plan_file import PATH as PLAN
from .._state.systemd import UNIT_FOLDER, Systemd, unit_of

if TYPE_CHECKING:
    from .._base.documents import Restarted, UnitSets

_QUIET = (PLAN, COMMAND, COMPLETION)
"""Files that disturb no workload, besides those of the host code: only our own programs read them, and are restarted with them."""


class Request(NamedTuple):
    """What a host should have. All paths are absolute paths of the machine.

    ``files``: by path, in the order in which they are written; ``owned``: shell patterns of paths where a managed file that is not in
    ``files`` is removed; ``enabled``, ``started``, ``stopped``: unit names; ``released``: units that go back to what they were where an
    earlier run stopped them; ``restarted``: list of ``{unit, files}``, a unit restarted when one of those files changed; ``expected``: list
    of ``{unit, cpus, mems}``, cpulists that the kernel must grant ('' = not checked); ``move_memory``: whether memory nodes of a unit with
    processes may change, where its memory fits; ``tolerant``: whether a unit that cannot be restarted is left for the next run, instead of
    failing this one; ``applied``: returns what goes into the history when something changed, after all steps have looked, if anything.
    """

    files: Mapping[str, FileState] = {}
    owned: Sequence[str] = ()
    enabled: Sequence[str] = ()
    started: Sequence[str] = ()
    stopped: Sequence[str] = ()
    released: Sequence[str] = ()
    restarted: Sequence[Restarted] = ()
    expected: Sequence[UnitSets] = ()
    move_memory: bool = False
    tolerant: bool = False
    applied: Optional[Callable[[], Applied]] = None

    def concerns(self, path: str) -> bool:
        return path in self.files or any(fnmatch.fnmatchcase(path, pattern) for pattern in self.owned)

    def text_of(self, systemd: Systemd, unit: str) -> str | None:
        """Return the text of a unit's file, as it is after the run."""
        state = self.files.get("%s/%s" % (UNIT_FOLDER, unit))
        return state.text if state else systemd.text(unit)


class Report:
    """What was (or in check mode would be) done; ``changes`` maps a path to its :class:`FileState` before and after.

    ``restart_needed``: running units that follow only at their next start; ``slices_left``: slices without a file that live on because of
    them. Sentences: ``unfinished`` on what the next run tries again (units that the kernel still confines, or that do not restart),
    ``not_started`` on units that an earlier run had stopped, ``untried`` on programs of units that only another machine can run, and
    ``warnings``. ``history``: the id of the entry that the run made, or None; ``failed_units``: managed units whose last run failed, which
    :func:`_transaction.programs.run_again` starts when the lock is released.
    """

    def __init__(self) -> None:
        self.changes: dict[str, States] = {}
        self.actions: list[str] = []
        self.restart_needed: list[str] = []
        self.slices_left: list[str] = []
        self.unfinished: list[str] = []
        self.not_started: list[str] = []
        self.untried: list[str] = []
        self.warnings: list[str] = []
        self.history: int | None = None
        self.failed_units: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self.changes or self.actions)

    @property
    def disruptive(self) -> bool:
        """Whether what was done can disturb workloads: more than an upgrade of the host code, or other sentences in the plan."""
        files = (path for path in self.changes if path not in _QUIET and not is_archive(path))
        return any(files) or any(not action.startswith("restart ") for action in self.actions)


def _stale(host: Host, request: Request) -> Iterator[str]:
    """Yield the paths of our own files that the request no longer has, and of temporary files that a killed run left next to them."""
    for folder in sorted(set(map(posixpath.dirname, request.files))):
        yield from leftovers(host, folder)
    for path in owned(host, request.owned):
        text = FileState.of(host, path).text if path not in request.files and is_file(host, path) else None
        if text is not None and is_managed(text):
            yield path


def owned(host: Host, patterns: Iterable[str]) -> Iterator[str]:
    """Yield the paths of everything that is where files of the collection lie, by their shell patterns."""
    names: dict[str, list[str]] = {}
    for pattern in patterns:
        folder, name = posixpath.split(pattern)
        parent, inner = posixpath.split(folder)
        for place in ["%s/%s" % (parent, child) for child in host.names(parent, inner)] if "*" in inner else [folder]:
            if place not in names:
                names[place] = host.names(place)
            yield from ("%s/%s" % (place, child) for child in fnmatch.filter(names[place], name))


def compare(host: Host, request: Request) -> dict[str, States]:
    """Return ``{path: (before, after)}`` of the files that differ, those to be written in the given order, those to be removed last."""
    changes = {}
    for path, after in request.files.items():
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError("file path '%s' must be absolute and without '..'" % path)
        if (unit_of(path) or "").startswith("kubepods"):
            raise ValueError("%s is refused: nothing may be set on kubepods, its CPU sets belong to the kubelet" % path)
        before = FileState.of(host, path)
        if before != after:
            changes[path] = (before, after)
    for path in _stale(host, request):
        changes[path] = (FileState.of(host, path), FileState(None, None))
    return changes
