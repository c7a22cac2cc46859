# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that change what a bind does: all options of the roles that plan and bind, as far as they are on."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.names import PREFIX, Specs
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.values import validated

LEFT_OUT = {PREFIX + name for name in ("root", "profile")}
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
        if name in given and name not in LEFT_OUT:
            value, default = (validated(name, option, of).validated_parameters.get(name) for of in ({name: given[name]}, {}))
            if value != default and (name, value) != SHOWN:
                found[name] = value
    return dict(sorted(found.items()))
