# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that would be ignored in silence: names that nothing reads, and settings of roles that are off."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._features.nic.places import NEAR
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark

PREFIX = "npu_affinity_"
FACTS = frozenset(PREFIX + name for name in ("plan", "state", "summary", "topology"))
"""What roles and playbooks set."""
TRUE = {"true", "yes", "on", "1", "y", "t"}
ALSO_OFF = {PREFIX + name for name in ("kubelet_restart", "kubelet_drain", "kubelet_uncordon")}
"""What a bind reads of a role that is off, to remove what it did before."""
CHANGING = {"nic": (NEAR,), "adopt": ("now", "always")}
"""Values with which a role without a switch changes something."""

NEEDS = {f"{PREFIX}housekeeping_confine_holders": f"{PREFIX}housekeeping", f"{PREFIX}vnpu_limiter": f"{PREFIX}vnpus"}
"""Settings that say how to do what another setting asks for, and that other."""

Specs = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""The options of each role's argument specs, and of the playbooks: ``{role: {name: option}}``."""


def refusals(names: Iterable[str], specs: Specs) -> list[str]:
    """Return one sentence for each variable that has the prefix of the collection and that nothing reads."""
    known = FACTS | {name for options in specs.values() for name in options}
    bare = {name.removeprefix(PREFIX): name for name in known - FACTS}
    sentences = []
    for name in sorted(name for name in set(names) - known if name.startswith(PREFIX)):
        short = name.removeprefix(PREFIX)
        near = difflib.get_close_matches(short, bare, n=1, cutoff=0.7)
        advice = f"leave it out, or call a variable of your own something that does not start with {PREFIX}."
        if near:
            advice = f"did you mean {bare[near[0]]}?"
        sentences.append(f"the variable {name} is not a setting of npu.affinity; {advice}")
    return sentences


def cut_off(rest: str) -> list[str]:
    """Return a sentence where values of ``-e`` were cut at a blank; ``rest`` is what Ansible kept of them as ``_raw_params``."""
    if not rest:
        return []
    advice = """write -e "name='two words'", or -e '{"name": "two words"}'."""
    return [f"of an option -e, '{rest}' was not taken, because a value without quotes of its own ends at a blank; {advice}"]


def switches(specs: Specs) -> dict[str, str]:
    """Return the variable that switches each role, by role. Role plan only gathers, and is never off in this sense."""
    found = {role: f"{PREFIX}{role}_enabled" for role in specs if role != "plan"}
    return {role: switch for role, switch in found.items() if switch in specs[role]}


def off(given: Mapping[str, Any], specs: Specs) -> list[str]:
    """Return the roles that are switched off."""
    return [role for role, switch in switches(specs).items() if not _is_true(given.get(switch, specs[role][switch]["default"]))]


def reporting(given: Mapping[str, Any]) -> list[str]:
    """Return the roles without a switch that change nothing, as nothing is chosen for them to change."""
    return [role for role, choices in CHANGING.items() if given.get(f"{PREFIX}{role}") not in choices]


@remark("NPU_NO_EFFECT")
def remarks(given: Mapping[str, Any], off: Iterable[str], specs: Specs) -> list[str]:
    """Return a sentence on settings without effect: those that only roles in ``off`` have, and those of :data:`NEEDS`."""
    roles_off = set(off)
    effective = {name: option for role, options in specs.items() if role not in roles_off for name, option in options.items()}
    idle: dict[str, list[str]] = {}
    for role, switch in switches(specs).items():
        for name in specs[role].keys() & given.keys() - effective.keys() - ALSO_OFF - {switch}:
            if not _is_default(given[name], specs[role][name]):
                idle.setdefault(name, []).append(switch)
    alike: dict[str, list[str]] = {}
    for name in sorted(idle):
        alike.setdefault(f"because {', '.join(idle[name])} {'is' if len(idle[name]) == 1 else 'are'} false.", []).append(name)
    for name in sorted(NEEDS.keys() & given.keys() & effective.keys()):
        if not given.get(NEEDS[name]) and not _is_default(given[name], effective[name]):
            alike[f"because {NEEDS[name]} is empty."] = [name]
    return [f"{', '.join(found)} {'has' if len(found) == 1 else 'have'} no effect here, {why}" for why, found in alike.items()]


def _is_default(value: Any, option: Mapping[str, Any]) -> bool:
    default = option.get("default")
    if option.get("type") == "bool":
        return _is_true(value) == bool(default)
    return value == default or str(value) == str(default)


def _is_true(value: Any) -> bool:
    return str(value).strip().lower() in TRUE
