# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of role plan and of all features for one host: complete, and converted to their types once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import specs, hosts, values
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.names import PREFIX
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.values import CHECKS, validated

Settings = dict[str, dict[str, Any]]
"""``{role: {setting: value}}``. A setting is named as its variable without ``npu_affinity_`` and without the name of the role."""
ROLES = ("plan", *FEATURES)
"""Whose settings make the desired state."""

GATHERING = {f"{PREFIX}{name}" for name in ("root", "npu_smi", "timeout", "services", "workloads", "vnpus")}
"""The variables that :func:`gathered_by` reads."""


def gathered_by(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of module topology_facts by the settings of role plan."""
    units = [entry["unit"] for entry in (*plan["services"], *plan["vnpus"]) if entry.get("unit")]
    units += [unit for workload in plan["workloads"] for unit in workload.get("units") or ()]
    asked = {name: plan[name] for name in ("root", "npu_smi", "timeout")}
    hard = [entry for entry in plan["vnpus"] if entry.get("template")]
    return {**asked, "units": units, "device_share": len(hard) < len(plan["vnpus"]), "vnpus": bool(hard)}


def of_playbooks(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that playbooks read besides those of roles, as :func:`of_features` returns those of a role; None for one that is
    not given and has no default."""
    found = dict(_defaults_of_playbooks())
    for name, option in specs.of_playbooks().items():
        if given.get(name) is not None:
            found[short("", name)] = converted(name, option, given[name])
    found[short("", hosts.SETTING)] = hosts.checked(found[short("", hosts.SETTING)], hosts.SETTING)
    return found


@functools.cache
def _defaults_of_playbooks() -> dict[str, Any]:
    return {
        short("", name): converted(name, option, option["default"]) if "default" in option else None
        for name, option in specs.of_playbooks().items()
    }


def names() -> set[str]:
    """Return the variables that :func:`of_features` reads of its roles by default."""
    return {name for role in ROLES for name in specs.options()[role]}


def of_features(given: Mapping[str, Any], roles: Sequence[str] = ROLES) -> Settings:
    """Return the settings of some roles by the values that somebody ``given``, and by the defaults of the argument specs otherwise.

    Raises ``ValueError`` with a sentence for a value of another type. A value of None counts as not given.
    """
    found = {role: dict(_defaults(role)) for role in roles}
    for role in roles:
        for name, option in specs.options()[role].items():
            if given.get(name) not in (None, option.get("default")):
                found[role][short(role, name)] = converted(name, option, given[name])
    return found


def short(role: str, name: str) -> str:
    return name.removeprefix(PREFIX).removeprefix(role + "_" if role else "")


@functools.cache
def _defaults(role: str) -> dict[str, Any]:
    return {short(role, name): converted(name, option, option.get("default")) for name, option in specs.options()[role].items()}


def converted(name: str, option: Mapping[str, Any], value: Any) -> Any:
    """Return the value of a setting in its type. Raises ``ValueError`` with a sentence if it has another, or one that no unit could use."""
    result = validated(name, option, {name: value})
    if result.error_messages:
        raise ValueError(f"{name}: {result.error_messages[0]}")
    if name in CHECKS and result.validated_parameters[name] is not None:
        CHECKS[name](result.validated_parameters[name], name)
    return values.placed(name, _given(result.validated_parameters[name]))


def _given(value: Any) -> Any:
    """Return a value without the keys that validation adds to dictionaries for what nobody set."""
    if isinstance(value, dict):
        return {key: _given(inner) for key, inner in value.items() if inner is not None}
    return [_given(inner) for inner in value] if isinstance(value, list) else value
