# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings in the archive of a host, so it is planned and compared elsewhere with the same result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.names import PREFIX, Specs

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
