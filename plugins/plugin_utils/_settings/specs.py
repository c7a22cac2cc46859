# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The argument specs of the roles, which are the one list of their settings.

This module is private to the collection.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import yaml

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"


@functools.cache
def options() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the options of each role's argument specs: ``{role: {name: option}}``. They are read once in a process and its forks."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        specs = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)["argument_specs"]
        found[path.parts[-3]] = {name: option for spec in specs.values() for name, option in spec["options"].items()}
    return found
