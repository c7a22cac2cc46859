# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one list of settings: the argument specs of the roles, and what playbooks read besides, in the same form."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
PLAYS = pathlib.Path(__file__).with_name("plays.yml")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Options = dict[str, dict[str, Any]]


@functools.cache
def options() -> dict[str, Options]:
    """Return the options of each role's argument specs: ``{role: {name: option}}``. They are read once in a process and its forks."""
    found = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        specs = read(path)["argument_specs"]
        found[path.parts[-3]] = {name: option for spec in specs.values() for name, option in spec["options"].items()}
    return found


@functools.cache
def of_playbooks() -> Options:
    """Return what playbooks read besides the options of roles: ``{name: option}``."""
    found = read(PLAYS)
    found["npu_affinity_features"]["choices"] = list(FEATURES)
    return found


def readers(name: str) -> Sequence[str] | None:
    """Return the playbooks that read a variable, None for one that all of them read."""
    if name in options()["report"]:
        return ("report", "inspect")
    found: Sequence[str] | None = of_playbooks().get(name, {}).get("playbooks")
    return found


def settings() -> dict[str, Options]:
    """Return all of it, with the options of playbooks next to those of roles."""
    return options() | {"playbooks": of_playbooks()}


def read(path: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    return found
