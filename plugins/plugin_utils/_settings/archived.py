# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings say what a bind makes of a host: those in its archive, and those that a state is applied with."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.names import PREFIX, Specs
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.values import validated

ROLES = ("plan", *FEATURES)
LEFT_OUT = {PREFIX + name for name in ("root", "profile", "kubelet_drain", "kubelet_uncordon")}
"""What means another machine than the host, or runs there. Settings of a profile are archived with the others."""
_TEMPLATES = ("{{", "{%", "{#")


def kept(given: Mapping[str, Any], specs: Specs) -> dict[str, Any]:
    """Return those of the settings that say how a host is planned and compared."""
    known = {name for role in ROLES for name in specs[role]} - LEFT_OUT
    return {name: value for name, value in sorted(given.items()) if name in known}


def accepted(settings: Mapping[str, Any], specs: Specs) -> tuple[dict[str, Any], list[str]]:
    """Return the accepted settings of an archive, whose author is unknown, and a sentence for each other one."""
    found = kept(settings, specs)
    refused = [
        f"The setting {name} of the archive is not taken: no plan and no comparison reads it." for name in settings if name not in found
    ]
    for name in [name for name, value in found.items() if _has_template(value)]:
        del found[name]
        refused.append(f"The setting {name} of the archive is not taken: it has a template in it.")
    return found, refused


def _has_template(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_template, [*value, *value.values()]))
    if isinstance(value, list | tuple):
        return any(map(_has_template, value))
    return isinstance(value, str) and any(mark in value for mark in _TEMPLATES)


NOT_APPLIED = {PREFIX + name for name in ("root", "profile")}
"""Which tree a host is, and where settings come from, but not what the host becomes."""
SHOWN = (PREFIX + "isolation", "explain")
"""A value that only changes what a plan shows."""


def applied(given: Mapping[str, Any], off: Container[str], specs: Specs) -> dict[str, Any]:
    """Return ``{name: value}`` of those that differ from their defaults, converted to their types: ``'yes'`` and ``true`` are one value.

    ``given`` are templated values, ``off`` the roles that are switched off.
    """
    on = [specs[role] for role in ("plan", *FEATURES) if role not in off]
    found = {}
    for name, option in {name: option for options in on for name, option in options.items()}.items():
        if name in given and name not in NOT_APPLIED:
            value, default = (validated(name, option, of).validated_parameters.get(name) for of in ({name: given[name]}, {}))
            if value != default and (name, value) != SHOWN:
                found[name] = value
    return dict(sorted(found.items()))
