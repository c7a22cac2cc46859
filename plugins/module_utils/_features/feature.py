# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a feature is to the rest of the host code: one :class:`Feature`, in ``feature.py`` of its package.

Those files import nothing of their package before a function is called: each program of a boot unit reads all of them.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from .._base.findings import Code
from .._host.installed import UNIT_FOLDER
from .._state.value_kind import Setting, Values

if TYPE_CHECKING:
    from typing import Callable, Collection, Container, ContextManager, List, Optional, Sequence, Set, Tuple

    from .._base.documents import AppliedState, FileEntry, Live, Plan, Run, Topology, UnitSets
    from .._base.findings import Device, Findings
    from .._host.host import Host
    from .._state.step import LiveStep, Options, Outcome, Restore
    from .watching import Watching


class Wanted(NamedTuple):
    """What a host is compared with: mostly what its state in force has of the same names. By default its plan alone."""

    files: Sequence[FileEntry] = ()
    """All files, ``owned`` as :class:`_transaction.request.Request` has it."""
    owned: Sequence[str] = ()
    enabled: Sequence[str] = ()
    started: Sequence[str] = ()
    stopped: Sequence[str] = ()
    expected: Sequence[UnitSets] = ()
    programs: Sequence[str] = ()
    features: Mapping[str, str] = {"irq": "present"}
    live: Live = {}
    soft_split: str = ""
    pending: Mapping[str, Any] = {}
    npu_smi: str | None = None
    topology: Topology | None = None
    """What is known of the NPUs that are there."""
    must_be_bound: bool = False
    """Whether a host without a plan is drift."""


class Comparing(NamedTuple):
    """A comparison under way: ``online`` CPUs, empty where nothing tells, and NPUs that are ``there``.

    ``idle`` are units that are known not to run, ``edited`` those whose files are not as expected.
    """

    findings: Findings
    host: Host
    plan: Plan
    wanted: Wanted
    online: Set[int]
    there: Collection[Device]
    idle: Collection[str]
    edited: Collection[str] = ()

    @property
    def tolerant(self) -> bool:
        """Whether interrupts that cannot be bound are no drift."""
        return self.wanted.live.get("irq") == "warn"

    @property
    def host_binds(self) -> bool:
        """Whether engines are not meant to bind themselves."""
        slices = self.wanted.live.get("slices")
        return not slices or slices.get("bound_by", "host") == "host"


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

    ``effect``: what it does to a host, as a clause. ``live``: the shape of what it wants of the running host, as
    :func:`_base.outside.require_shape` takes it; ``settings``: the names of the kernel's settings where that is a value for each;
    ``owned``: shell patterns of the paths where its files lie; ``shared``: which of them other features have, too, each with the file
    that says whether this one needs it, where that is not its first one; ``sections``: what previous.json has of it, each with a
    function that raises ``ValueError`` (or what another shape raises by itself) where it could not be restored; ``programs``: patterns
    of its units that run a managed program; ``leftovers``: files that these programs write, and ``written(host, recorded)`` those that
    previous.json tells; ``restarted``: units of others, each with the files that it is restarted for.

    ``step(host, state, choices)`` returns what a transaction does of a desired state besides files and units, or None; ``first``: whether
    that comes before the files. ``restore(host, outcome, options)`` gives back what is neither a file nor a unit. ``program(argv)`` is what
    its units run, ``watch(host)`` its part of the watcher, ``meanwhile(host, paths, strict)`` a context in which a transaction changes
    files: with ``strict`` it raises ``ValueError`` where they cannot be changed now. ``undone_by_step``: whether its step takes off what an
    earlier bind did, too.

    ``compare(comparing)`` notes what of the running host is not as wanted; files and units are compared without it. ``compared``: its
    place, the lowest first, and in the order of the register where it is the same. ``codes``: those of kinds and causes that no
    other feature has. ``placed(state)`` returns the files that its step places.
    """

    name: str
    effect: str = ""
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
    restore: Optional[Callable[[Host, Outcome, Options], Restore]] = None
    program: Optional[Callable[[Sequence[str]], int]] = None
    watch: Optional[Callable[[Host], Watching]] = None
    meanwhile: Optional[Callable[[Host, Container[str], bool], ContextManager[None]]] = None
    undone_by_step: bool = False
    compare: Optional[Callable[[Comparing], None]] = None
    compared: int = 0
    codes: Mapping[str, Code] = {}
    placed: Optional[Callable[[AppliedState], List[FileEntry]]] = None


def later(place: str) -> Callable[..., Any]:
    """Return what calls ``<feature>.<file>:<name>``, whose file is imported then. The register imports it for those who pack the code."""
    return functools.partial(_call, place)


def _call(place: str, *arguments: Any) -> Any:
    file, _colon, name = place.partition(":")
    return getattr(importlib.import_module("%s.%s" % (__name__.rpartition(".")[0], file)), name)(*arguments)


def where_wanted(name: str, place: str) -> Callable[..., Optional[LiveStep]]:
    """Return ``Feature.step`` that calls ``place`` of :func:`later` with host, what is wanted and state, if anything is wanted."""

    def step(host: Host, state: AppliedState, choices: Choices) -> LiveStep | None:
        live: Any = state["live"]
        return None if live.get(name) is None else _call(place, host, live[name], state)

    return step


def compared_where_wanted(name: str, place: str) -> Callable[[Comparing], None]:
    """Return ``Feature.compare`` that calls ``place`` of :func:`later` with what is wanted, if anything is wanted."""

    def compare(comparing: Comparing) -> None:
        live: Any = comparing.wanted.live
        if live.get(name):
            _call(place, comparing, live[name])

    return compare


def value_feature(
    name: str,
    settings: Mapping[str, Setting] | None = None,
    meaning: str = "",
    by_whom: str = "",
    kind: Callable[[], Values] | None = None,
    sections: Mapping[str, Callable[[Any], None]] | None = None,
    codes: Mapping[str, Code] | None = None,
    **more: Any,
) -> Feature:
    """Return a feature that sets files of the kernel, or other values that ``kind()`` returns.

    ``meaning``: of drift, which ``by_whom`` explains; ``sections`` and ``codes``: those besides its own; ``more``: what differs of
    :class:`Feature`.
    """
    values = kind or functools.partial(Values, name, settings or {})

    def step(host: Host, state: AppliedState, choices: Choices) -> LiveStep | None:
        from .._state.values import Step

        if name not in state["live"]:
            return None
        kind_of_values = values()
        live = kind_of_values.of_state(state)
        return None if live is None else Step(host, kind_of_values, live)

    def restore(host: Host, outcome: Outcome, options: Options) -> Restore:
        from .._state.values import Restore

        return Restore(values(), host, outcome, options)

    def program(argv: Sequence[str]) -> int:
        from .._state.values import main

        return main(values(), argv)

    def compare(comparing: Comparing) -> None:
        live: Any = comparing.wanted.live
        if live.get(name):
            from .._state.values import compare

            compare(comparing.findings, comparing.host, values(), live[name], by_whom)

    defaults: dict[str, Any] = {
        "settings": tuple(settings or ()),
        "owned": ("/etc/npu-affinity/%s.json" % name, "%s/%s" % (UNIT_FOLDER, service(name))),
        "sections": {name: lambda recorded: values().check(recorded), **(sections or {})},
        "programs": (service(name).replace(".service", "*"),),
        "restore": restore,
        "compare": compare,
        "compared": -1,
        "codes": {**({"NPU_%s_CHANGED" % name.upper(): Code(meaning, kinds=[name])} if meaning else {}), **(codes or {})},
        "step": step,
        "program": program,
    }
    return Feature(name, **{**defaults, **more})


def service(name: str) -> str:
    """Return the unit that sets the values of a feature at boot."""
    return "npu-affinity-%s.service" % name.replace("_", "-")
