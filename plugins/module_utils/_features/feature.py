# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a feature is to the rest of the host code: one :class:`Feature`, in ``feature.py`` of its package.

Those files import nothing of their package before a function is called: each program of a boot unit reads all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .._base.documents import AppliedState, FileEntry, Run
    from .._base.findings import Code
    from typing import Callable, Container, ContextManager, List, Mapping, Optional, Sequence, Tuple

    from .._host.host import Host
    from .._state.release import Release
    from .._state.step import LiveStep
    from .comparing import Comparing
    from .watching import Watching


class Choices(NamedTuple):
    """How a desired state is applied, besides what it says itself.

    ``action``, ``author``, ``reason`` and ``run`` go into the history and the journal; ``move_memory``: whether memory nodes of a unit with
    processes may change; ``kubelet_wait``: the seconds that the kubelet of a drained node may take to start; None where it is not drained,
    0 where it is to be drained before anything is applied; ``staged``: paths on this machine of files to be placed, by their SHA-256.
    """

    action: str = "bind"
    author: str = ""
    reason: str = ""
    run: Run | None = None
    move_memory: bool = False
    kubelet_wait: int | None = None
    staged: Mapping[str, str] = {}


class Feature(NamedTuple):
    """What one feature has on a host.

    ``live``: the shape of what it wants of the running host, as :func:`_base.outside.require_shape` takes it; ``settings``: the names of
    the kernel's settings where that is a value for each; ``owned``: shell patterns of the paths where its files lie; ``shared``: which of
    them other features have, too, each with the file that says whether this one needs it, where that is not its first one; ``sections``:
    what previous.json has of it, each with a function that raises ``ValueError`` (or what another shape raises by itself) where it could
    not be restored; ``programs``: patterns of its units that run a managed program; ``leftovers``: files that these programs write, and
    ``written(host, recorded)`` those that previous.json tells; ``restarted``: units of others, each with the files that it is restarted
    for.

    ``step(host, state, choices)`` returns what a transaction does of a desired state besides files and units, or None; ``first``: whether
    that comes before the files. ``release()`` returns the class that gives back what is neither a file nor a unit. ``program(argv)`` is
    what its units run, ``watch(host)`` its part of the watcher, ``meanwhile(host, paths, strict)`` a context in which a transaction changes
    files: with ``strict`` it raises ``ValueError`` where they cannot be changed now. ``undone_by_step``: whether its step takes off what an
    earlier bind did, too.

    ``compare(comparing)`` notes what of the running host is not as wanted; files and units are compared without it. ``compared``: its
    place, the lowest first, and in the order of the register where it is the same. ``codes()`` returns the codes of kinds and causes that
    no other feature has. ``placed(state)`` returns the files that its step places.
    """

    name: str
    live: Any = dict
    settings: Tuple[str, ...] = ()
    owned: Tuple[str, ...] = ()
    shared: Mapping[str, str] = {}
    sections: Mapping[str, Callable[[Any], None]] = {}
    programs: Tuple[str, ...] = ()
    leftovers: Tuple[str, ...] = ()
    written: Optional[Callable[[Host, Mapping[str, Any]], List[str]]] = None
    restarted: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()
    step: Optional[Callable[[Host, AppliedState, Choices], Optional[LiveStep]]] = None
    first: bool = False
    release: Optional[Callable[[], Callable[..., Release]]] = None
    program: Optional[Callable[[Sequence[str]], int]] = None
    watch: Optional[Callable[[Host], Watching]] = None
    meanwhile: Optional[Callable[[Host, Container[str], bool], ContextManager[None]]] = None
    undone_by_step: bool = False
    compare: Optional[Callable[[Comparing], None]] = None
    compared: int = 0
    codes: Optional[Callable[[], Mapping[str, Code]]] = None
    placed: Optional[Callable[[AppliedState], List[FileEntry]]] = None
