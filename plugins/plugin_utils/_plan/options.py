# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a plan: what they may be, and sentences for what they may not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.workers import BOUND_BY, HOST, Version, version_of

SMT = ("cores", "threads")
FOLLOW = "follow"
WIDE, STRICT, NONE = "wide", "strict", "none"
"""Where memory may lie: on the nodes of the socket, on the nearest nodes, anywhere."""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class RoleSizes(NamedTuple):
    """How many CPUs of a pool each role has; main has the others, and always one. Threads without a role of their own are main's."""

    irq: int = 2
    acl: int = 1
    release: int = 1
    kv: int = 0

    def __str__(self) -> str:
        return f"irq {self.irq}, acl {self.acl}, release {self.release}" + (f", kv {self.kv}" if self.kv else "")

    def record(self) -> dict[str, int]:
        return {name: size for name, size in self._asdict().items() if size}


PUBLISHED = RoleSizes()
_RECORDED = ("strategy", "cpus", "housekeeping", "npus", "smt", "min_cpus", "repair", "roles", "exclude_isolated", "memory", "visible_npus")
"""The options that a plan records in any case."""


class OfWorkload(NamedTuple):
    """A workload with its NPUs, which it names as settings do, and the sizes that it wants for them, None for those of the host."""

    name: str
    npus: tuple[Any, ...]
    roles: RoleSizes | None


class Options(NamedTuple):
    """The arguments of a plan, checked. ``housekeeping`` is a cpulist or a number of cores, and ``follow`` whether the system gets more
    while no workload runs; ``npus`` None means all of the host."""

    strategy: str
    cpus: str
    housekeeping: str | int
    npus: tuple[int, ...] | None
    smt: str
    min_cpus: int
    repair: bool
    replan: bool
    roles: RoleSizes = PUBLISHED
    exclude_isolated: bool = False
    bound_by: str = HOST
    visible_npus: tuple[int, ...] | None = None
    workloads: tuple[OfWorkload, ...] = ()
    memory: str = WIDE
    engine_version: Version | None = None
    follow: bool = False

    @property
    def sizes(self) -> tuple[RoleSizes, ...]:
        return self.roles, *(workload.roles for workload in self.workloads if workload.roles)

    def record(self) -> dict[str, Any]:
        """Return the arguments that shape a plan, as the plan records them."""
        sized = {name: [list(npus), roles.record()] for name, npus, roles in self.workloads if roles}
        arguments = {name: getattr(self, name) for name in _RECORDED}
        return {
            **{name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()},
            "roles": self.roles.record(),
            **({"engine_version": str(self.engine_version)} if self.engine_version else {}),
            **({"workloads": sized} if sized else {}),
        }

    def differences(self, recorded: Mapping[str, object]) -> list[str]:
        """Return the names of recorded arguments that differ from these and shape pools."""
        now = self.record()
        names = [name for name in now if name in recorded and name not in ("npus", "memory")]
        if "workloads" in now or "workloads" in recorded:
            names.append("workloads")
        return [name for name in dict.fromkeys(names) if _comparable(recorded.get(name)) != _comparable(now.get(name))]


def _comparable(value: object) -> str:
    if isinstance(value, Mapping):
        value = sorted((str(name), str(part)) for name, part in value.items())
    return "" if value is None or value == 0 and not isinstance(value, bool) else str(value)


class Given(NamedTuple):
    """The arguments of a plan as its caller gives them, in the order of the filter ``plan``, with their defaults."""

    strategy: object = "auto"
    cpus: object = None
    housekeeping: object = ""
    npus: object = None
    smt: object = "cores"
    min_cpus: object = 5
    repair: object = True
    replan: object = False
    roles: object = None
    exclude_isolated: object = False
    bound_by: object = HOST
    visible_npus: object = None
    workloads: object = None
    memory: object = WIDE
    engine_version: object = ""


def checked(strategies: Iterable[str], given: Given) -> Options:
    """Return the options in one form; ``ValueError`` names the variable, what was found and what is expected."""
    roles = _roles("npu_affinity_roles", given.roles)
    housekeeping, follow = _following(given.housekeeping)
    options = Options(
        strategy=_choice("npu_affinity_strategy", given.strategy, ["auto", *sorted(strategies)]),
        cpus="" if given.cpus is None else as_cpulist(given.cpus, "npu_affinity_cpus"),
        housekeeping=_housekeeping(housekeeping),
        follow=follow,
        npus=None if given.npus is None else _ids("npu_affinity_npus", given.npus),
        smt=_choice("npu_affinity_smt", given.smt, SMT),
        min_cpus=_number("npu_affinity_min_cpus", given.min_cpus, 1),
        repair=flag("npu_affinity_repair", given.repair),
        replan=flag("npu_affinity_replan", given.replan),
        roles=roles,
        exclude_isolated=flag("exclude_isolated", given.exclude_isolated),
        bound_by=_choice("npu_affinity_bound_by", given.bound_by, BOUND_BY),
        visible_npus=None if given.visible_npus is None else _ids("npu_affinity_visible_npus", given.visible_npus),
        workloads=_of_workloads(given.workloads, roles),
        memory=_choice("npu_affinity_memory", given.memory, (WIDE, STRICT, NONE)),
        engine_version=version_of(given.engine_version),
    )
    if not options.repair and (other := next((sizes for sizes in options.sizes if sizes != PUBLISHED), None)):
        raise ValueError(
            f"npu_affinity_roles: {other} is not what is published, which is {PUBLISHED}, and npu_affinity_repair: false gives what is "
            "published; leave npu_affinity_roles out or use npu_affinity_repair: true"
        )
    return options


def _roles(option: str, value: object, others: RoleSizes = PUBLISHED) -> RoleSizes:
    if value is None:
        return others
    if not isinstance(value, Mapping):
        raise ValueError(f"{option}: expected numbers of CPUs such as {{irq: 2, acl: 1, release: 1}}; got {value!r}")
    if unknown := [str(name) for name in value if name not in RoleSizes._fields]:
        raise ValueError(
            f"{option}: {', '.join(unknown)} cannot be sized, only irq, acl, release and kv; main has what they leave of a pool"
        )
    given = {name: number for name, number in value.items() if number is not None}
    return others._replace(**{name: _number(f"{option}.{name}", number, 0 if name == "kv" else 1) for name, number in given.items()})


def _of_workloads(value: object, others: RoleSizes) -> tuple[OfWorkload, ...]:
    """Return the workloads; what one leaves out of its roles is as on the host."""
    if value is None:
        return ()
    if not isinstance(value, Iterable) or isinstance(value, str | Mapping) or not all(isinstance(entry, Mapping) for entry in value):
        raise ValueError(f"npu_affinity_workloads: expected a list of workloads; got {value!r}")
    return tuple(
        OfWorkload(
            str(entry.get("name")),
            tuple(npus) if isinstance(npus := entry.get("npus"), Iterable) else (),
            _roles(f"npu_affinity_workloads: {entry.get('name')}: roles", roles, others) if (roles := entry.get("roles")) else None,
        )
        for entry in value
    )


def _choice(name: str, value: object, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}; got {value!r}")
    return str(value)


def _number(name: str, value: object, least: int) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name}: expected a whole number of {least} or more; got {value!r}")
    return number


def flag(name: str, value: object) -> bool:
    """Return a switch, which settings may have as text. ``ValueError`` for what is none."""
    switch = _WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise ValueError(f"{name}: expected true or false; got {value!r}")
    return switch


def _following(value: object) -> tuple[object, bool]:
    """Return what is kept for the system at any time, and whether it gets more while no workload runs: ``follow`` or ``follow:2``."""
    word, colon, cores = str(value).strip().partition(":")
    if not isinstance(value, str) or word.strip() != FOLLOW:
        return value, False
    return _number(f"npu_affinity_housekeeping: cores after {FOLLOW}", cores.strip(), 1) if colon else 1, True


def _housekeeping(value: object) -> str | int:
    """Return a cpulist or a number of cores. The text ``0`` is the CPU 0: as a number of cores it would ask for nothing."""
    if value is None or value == "":
        return ""
    if isinstance(value, int) or isinstance(value, str) and value.strip().isdecimal() and int(value):
        return _number("npu_affinity_housekeeping", value, 0) or ""
    try:
        return as_cpulist(value, "npu_affinity_housekeeping")
    except ValueError as error:
        more = f", or a number of cores per NUMA node, such as 2, or {FOLLOW}" if str(error).endswith("0-3,8") else ""
        raise ValueError(f"{error}{more}") from None


def _ids(name: str, value: object) -> tuple[int, ...]:
    ids = expand(value, name) if isinstance(value, str) else value
    if isinstance(ids, Mapping) or not isinstance(ids, Iterable):
        raise ValueError(f"{name}: expected a list of logic ids such as [0, 1]; got {value!r}")
    return tuple(sorted({_number(name, number, 0) for number in ids}))
