# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one list of settings: the argument specs of the roles, and those of the playbooks (``playbooks/*.meta.yml``)."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
PLAYBOOKS = ROLES.parent / "playbooks"
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
def by_playbook() -> dict[str, Options]:
    """Return what each playbook reads besides the options of roles, its play argument spec: ``{playbook: {name: option}}``."""
    found = {path.name.partition(".")[0]: read(path)["argument_specs"] for path in sorted(PLAYBOOKS.glob("*.meta.yml"))}
    return {playbook: specs[playbook]["options"] for playbook, specs in found.items()}


@functools.cache
def of_playbooks() -> Options:
    """Return what all playbooks read besides the options of roles: ``{name: option}``."""
    found = {name: option for options in by_playbook().values() for name, option in options.items()}
    found["npu_affinity_features"]["choices"] = list(FEATURES)
    return found


def readers(name: str) -> Sequence[str] | None:
    """Return the playbooks that read a variable, None for one that all of them read."""
    if name in options()["report"]:
        return ("report", "inspect")
    found = [playbook for playbook, of_playbook in by_playbook().items() if name in of_playbook]
    return None if len(found) in (0, len(by_playbook())) else found


def settings() -> dict[str, Options]:
    """Return all of it, with the options of playbooks next to those of roles."""
    return options() | {"playbooks": of_playbooks()}


def read(path: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    return found
