# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that would be ignored in silence: names that nothing reads, and settings of roles that are off."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = "npu_affinity_"
FACTS = frozenset(PREFIX + name for name in ("gather_error", "placement", "plan", "state", "summary", "topology"))
"""What roles and playbooks set."""
TRUE = {"true", "yes", "on", "1", "y", "t"}

Specs = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""The options of each role's argument specs, and of the playbooks: ``{role: {name: option}}``."""


def refusals(names: Iterable[str], specs: Specs) -> list[str]:
    """Return one sentence for each variable that has the prefix of the collection and that nothing reads."""
    known = FACTS | {name for options in specs.values() for name in options}
    bare = {name.removeprefix(PREFIX): name for name in known - FACTS}
    sentences = []
    for name in sorted(name for name in set(names) - known if name.startswith(PREFIX)):
        near = difflib.get_close_matches(name.removeprefix(PREFIX), bare, n=1, cutoff=0.7)
        advice = (
            f"did you mean {bare[near[0]]}?"
            if near
            else f"leave it out, or call a variable of your own something that does not start with {PREFIX}."
        )
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


def remarks(given: Mapping[str, Any], off: Iterable[str], specs: Specs) -> list[str]:
    """Return one sentence for each role in ``off`` of which the user set something, and no role that is on has that setting."""
    roles_off = set(off)
    effective = {name for role, options in specs.items() if role not in roles_off for name in options}
    sentences = []
    for role, switch in switches(specs).items():
        options = specs[role] if role in roles_off else {}
        idle = sorted(
            name
            for name, option in options.items()
            if name in given and name != switch and name not in effective and not _is_default(given[name], option)
        )
        if idle:
            sentences.append(f"{', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect here, because {switch} is false.")
    return sentences


def _is_default(value: Any, option: Mapping[str, Any]) -> bool:
    default = option.get("default")
    if option.get("type") == "bool":
        return (str(value).strip().lower() in TRUE) == bool(default)
    return value == default or str(value) == str(default)
