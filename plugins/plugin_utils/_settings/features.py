# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of role plan, of all features and of playbooks for one host: complete, and converted to their types once; and those that say
what a bind makes of a host, which are in its archive and in the history."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import hosts, specs, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.specs import PREFIX, Values, flat
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.values import CHECKS, validated


class Service(TypedDict):
    unit: str
    npus: list[Any]
    engine: NotRequired[str]


class Workload(TypedDict):
    name: str
    npus: list[Any]
    units: NotRequired[list[str]]
    share: NotRequired[bool]
    roles: NotRequired[dict[str, Any]]
    engine: NotRequired[str]


class OfRole(TypedDict, total=False):
    """Settings by name: a variable without ``npu_affinity_`` and without the name of the role. A role has those of its argument spec, and
    a feature those that :mod:`_desired.state` adds: ``enabled``, ``kubelet_becomes`` and ``left_alone``."""

    enabled: bool
    root: str
    python: str
    library: str
    npu_smi: str
    timeout: int
    wait: int
    interval: str
    rebind_limit: int
    housekeeping_confine_holders: bool
    isolation: str
    replan: bool
    bound_by: str
    services: list[Service]
    workloads: list[Workload]
    vnpus: list[dict[str, Any]]
    vnpu_limiter: str
    vnpu_folder: str
    environment: dict[str, bool]
    fail_on: list[str]
    kubelet_becomes: str
    irqbalance: str
    irq_enabled: bool
    failure: str
    left_alone: list[tuple[str, list[str]]]
    nic: str
    adopt: str
    pods: bool
    move_memory: bool
    patterns: dict[str, list[str]]
    processes: list[dict[str, Any]]
    memory_limit: int
    tuning: dict[str, str]
    hugepages: dict[str, Any]
    npus: list[Any]
    ignore_busy: bool
    recover: str
    textfile: str
    folder: str
    files: list[dict[str, str]]
    restart: bool
    drain: list[str]
    uncordon: list[str]
    options: dict[str, str]
    topology_policy: str
    reserved: str


class Settings(TypedDict):
    """The settings of a host by role, named where others read them, with ``remarks`` on them, those ``applied``, the ``profile`` in a
    sentence, which settings are ``of_profile``, and which codes are ``muted``."""

    plan: OfRole
    adopt: OfRole
    device_share: OfRole
    kubelet: OfRole
    slices: OfRole
    threads: OfRole
    vnpu: OfRole
    remarks: NotRequired[list[str]]
    applied: NotRequired[dict[str, Any]]
    profile: NotRequired[str]
    of_profile: NotRequired[list[str]]
    muted: NotRequired[dict[str, str]]


ROLES = ("plan", *FEATURES)
"""Whose settings make the desired state."""

GATHERING = {f"{PREFIX}{name}" for name in ("root", "npu_smi", "timeout", "services", "workloads", "vnpus")}
"""The variables that :func:`gathered_by` reads."""
LEFT_OUT = {PREFIX + name for name in ("root", "profile", "kubelet_drain", "kubelet_uncordon")}
"""What means another machine than the host, or runs there. Settings of a profile are archived with the others."""
NOT_APPLIED = {PREFIX + name for name in ("root", "profile")}
"""Which tree a host is, and where settings come from, but not what the host becomes."""
SHOWN = (PREFIX + "isolation", "explain")
"""A value that only changes what a plan shows."""
_TEMPLATES = ("{{", "{%", "{#")


def gathered_by(plan: OfRole) -> dict[str, Any]:
    units = [entry["unit"] for entry in (*plan["services"], *plan["vnpus"]) if entry.get("unit")]
    units += [unit for workload in plan["workloads"] for unit in workload.get("units") or ()]
    asked = {name: plan[name] for name in ("root", "npu_smi", "timeout")}
    hard = [entry for entry in plan["vnpus"] if entry.get("template")]
    return {**asked, "units": units, "device_share": len(hard) < len(plan["vnpus"]), "vnpus": bool(hard)}


def of_playbooks(given: Values) -> dict[str, Any]:
    """Return the settings that playbooks read besides those of roles, as :func:`by_role` returns those of a role."""
    settings = by_role(given, ("playbooks",))["playbooks"]
    return {**settings, "batches": hosts.checked(settings["batches"], hosts.SETTING)}


def of_features(given: Values) -> Settings:
    """Return those of role plan and of all features, as :func:`by_role` does."""
    return cast("Settings", by_role(given, ROLES))


def by_role(given: Values, roles: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of some roles by the values that are ``given`` and not None, else by their defaults, of which some are None.

    Raises ``ValueError`` with a sentence for a value of another type.
    """
    settings = {role: dict(_defaults(role)) for role in roles}
    for role in roles:
        for name, option in specs.settings()[role].items():
            if given.get(name) not in (None, option.get("default")):
                settings[role][short(role, name)] = converted(name, option, given[name])
    return settings


def short(role: str, name: str) -> str:
    return name.removeprefix(PREFIX).removeprefix(f"{role}_")


@functools.cache
def _defaults(role: str) -> dict[str, Any]:
    return {short(role, name): converted(name, option, option.get("default")) for name, option in specs.settings()[role].items()}


def converted(name: str, option: specs.Option, value: Any) -> Any:
    """Return the value of a setting in its type. Raises ``ValueError`` with a sentence if it has another, or one that no unit could use."""
    result = validated(name, option, {name: value})
    if result.error_messages:
        raise ValueError(f"{name}: {result.error_messages[0]}")
    if name in CHECKS and result.validated_parameters[name] is not None:
        CHECKS[name](result.validated_parameters[name], name)
    return values.with_absolute_paths(name, _given(result.validated_parameters[name]))


def _given(value: Any) -> Any:
    """Return a value without the keys that validation adds to dictionaries for what nobody set."""
    if isinstance(value, dict):
        return {key: _given(inner) for key, inner in value.items() if inner is not None}
    return [_given(inner) for inner in value] if isinstance(value, list) else value


def of_planning(without: Container[str] = ()) -> dict[str, specs.Option]:
    """Return the options of role plan and of all features, ``without`` some."""
    return flat({role: specs.options()[role] for role in ROLES if role not in without})


def to_archive(given: Values) -> dict[str, Any]:
    """Return those of the settings that say how a host is planned and compared."""
    names = of_planning().keys() - LEFT_OUT
    return {name: value for name, value in sorted(given.items()) if name in names}


def from_archive(settings: Values) -> tuple[dict[str, Any], list[str]]:
    """Return the accepted settings of an archive, whose author is unknown, and a sentence for each other one."""
    taken = to_archive(settings)
    refused = [
        f"The setting {name} of the archive is not taken: no plan and no comparison reads it." for name in settings if name not in taken
    ]
    for name in [name for name, value in taken.items() if _has_template(value)]:
        del taken[name]
        refused.append(f"The setting {name} of the archive is not taken: it has a template in it.")
    return taken, refused


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_template, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return any(map(_has_template, value))
    return isinstance(value, str) and any(mark in value for mark in _TEMPLATES)


def non_default(given: Values, off: Container[str]) -> dict[str, Any]:
    """Return those that differ from their defaults, converted to their types. ``off``: the roles that are switched off."""
    changed = {}
    for name, option in of_planning(off).items():
        if name in given and name not in NOT_APPLIED:
            value, default = (validated(name, option, of).validated_parameters.get(name) for of in ({name: given[name]}, {}))
            if value != default and (name, value) != SHOWN:
                changed[name] = value
    return dict(sorted(changed.items()))
