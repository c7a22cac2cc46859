# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one list of settings: the argument specs of the roles, and those of the playbooks (``playbooks/*.meta.yml``); and names of variables
that would be ignored, because nothing reads them, or not as the host is set up."""

from __future__ import annotations

import difflib
import functools
import pathlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import yaml

from ansible_collections.npu.affinity.plugins.module_utils._features.nic.feature import NEAR
from ansible_collections.npu.affinity.plugins.module_utils._features.register import FEATURES
from ansible_collections.npu.affinity.plugins.plugin_utils._codes import remark

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
PLAYBOOKS = ROLES.parent / "playbooks"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PREFIX = "npu_affinity_"
FACTS = frozenset(PREFIX + name for name in ("plan", "state", "summary", "topology"))
"""What roles and playbooks set."""
TRUE = {"true", "yes", "on", "1", "y", "t"}
ALSO_OFF = {PREFIX + name for name in ("kubelet_restart", "kubelet_drain", "kubelet_uncordon")}
"""What a bind reads of a role that is off, to remove what it did before."""
CHANGING = {"nic": (NEAR,), "adopt": ("now", "always")}
"""Values with which a role without a switch changes something."""

_OWN_VARIABLE = f"leave it out, or call a variable of your own something that does not start with {PREFIX}."
NEEDS = {f"{PREFIX}housekeeping_confine_holders": f"{PREFIX}housekeeping", f"{PREFIX}vnpu_limiter": f"{PREFIX}vnpus"}
"""Settings that say how to do what another setting asks for, and that other."""

Option = Mapping[str, Any]
Options = Mapping[str, Option]
"""``{name: option}`` of argument specs."""
Specs = Mapping[str, Options]
"""The options of each role, and of the playbooks."""
Values = Mapping[str, Any]
"""``{name: value}`` of variables."""


@functools.cache
def options() -> dict[str, Options]:
    """Return the options of each role's argument specs: ``{role: {name: option}}``. They are read once in a process and its forks."""
    by_role: dict[str, Options] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        specs = read(path)["argument_specs"]
        by_role[path.parts[-3]] = {name: option for spec in specs.values() for name, option in spec["options"].items()}
    return by_role


@functools.cache
def by_playbook() -> dict[str, Options]:
    """Return what each playbook reads besides the options of roles, its play argument spec: ``{playbook: {name: option}}``."""
    documents = {path.name.partition(".")[0]: read(path)["argument_specs"] for path in sorted(PLAYBOOKS.glob("*.meta.yml"))}
    return {playbook: specs[playbook]["options"] for playbook, specs in documents.items()}


@functools.cache
def of_playbooks() -> Options:
    """Return what all playbooks read besides the options of roles: ``{name: option}``."""
    by_name = flat(by_playbook())
    return {**by_name, "npu_affinity_features": {**by_name["npu_affinity_features"], "choices": list(FEATURES)}}


def readers(name: str) -> Sequence[str] | None:
    """Return the playbooks that read a variable, None for one that all of them read."""
    if name in options()["report"]:
        return ("report", "inspect")
    playbooks = [playbook for playbook, of_playbook in by_playbook().items() if name in of_playbook]
    return None if len(playbooks) in (0, len(by_playbook())) else playbooks


@functools.cache
def settings() -> dict[str, Options]:
    """Return all of it, with the options of playbooks next to those of roles."""
    return options() | {"playbooks": of_playbooks()}


def flat(specs: Specs) -> dict[str, Option]:
    return {name: option for options in specs.values() for name, option in options.items()}


@functools.cache
def by_name() -> Options:
    return flat(settings())


def read(path: pathlib.Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    return document


def refusals(names: Iterable[str]) -> list[str]:
    """Return one sentence for each variable that has the prefix of the collection and that nothing reads."""
    readable = FACTS | by_name().keys()
    bare = {name.removeprefix(PREFIX): name for name in readable - FACTS}
    sentences = []
    for name in sorted(name for name in set(names) - readable if name.startswith(PREFIX)):
        short = name.removeprefix(PREFIX)
        near = difflib.get_close_matches(short, bare, n=1, cutoff=0.7)
        advice = f"did you mean {bare[near[0]]}?" if near else _OWN_VARIABLE
        sentences.append(f"the variable {name} is not a setting of npu.affinity; {advice}")
    return sentences


def cut_off(rest: str) -> list[str]:
    """Return a sentence where values of ``-e`` were cut at a blank; ``rest`` is what Ansible kept of them as ``_raw_params``."""
    if not rest:
        return []
    advice = """write -e "name='two words'", or -e '{"name": "two words"}'."""
    return [f"of an option -e, '{rest}' was not taken, because a value without quotes of its own ends at a blank; {advice}"]


def switches() -> dict[str, str]:
    """Return the variable that switches each role, by role. Role plan only gathers, and is never off in this sense."""
    return {role: switch for role, options in settings().items() if role != "plan" and (switch := f"{PREFIX}{role}_enabled") in options}


def off(given: Values) -> list[str]:
    return [role for role, switch in switches().items() if not _is_true(given.get(switch, by_name()[switch]["default"]))]


def reporting(given: Values) -> list[str]:
    """Return the roles without a switch that change nothing, as nothing is chosen for them to change."""
    return [role for role, choices in CHANGING.items() if given.get(f"{PREFIX}{role}") not in choices]


@remark("NPU_NO_EFFECT")
def remarks(given: Values, off: Container[str]) -> list[str]:
    """Return a sentence on settings without effect: those that only roles in ``off`` have, and those of :data:`NEEDS`."""
    effective = flat({role: options for role, options in settings().items() if role not in off})
    idle: dict[str, list[str]] = {}
    for role, switch in switches().items():
        for name in settings()[role].keys() & given.keys() - effective.keys() - ALSO_OFF - {switch}:
            if not _is_default(given[name], by_name()[name]):
                idle.setdefault(name, []).append(switch)
    alike: dict[str, list[str]] = {}
    for name in sorted(idle):
        alike.setdefault(f"because {', '.join(idle[name])} {'is' if len(idle[name]) == 1 else 'are'} false.", []).append(name)
    for name in sorted(NEEDS.keys() & given.keys() & effective.keys()):
        if not given.get(NEEDS[name]) and not _is_default(given[name], effective[name]):
            alike[f"because {NEEDS[name]} is empty."] = [name]
    return [f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect here, {why}" for why, names in alike.items()]


def _is_default(value: Any, option: Option) -> bool:
    default = option.get("default")
    if option.get("type") == "bool":
        return _is_true(value) == bool(default)
    return value == default or str(value) == str(default)


def _is_true(value: Any) -> bool:
    return str(value).strip().lower() in TRUE
