# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of one host: its variables, evaluated, checked and converted, with the defaults of the argument specs."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Sequence, Set
from typing import Any, cast

from ansible.errors import AnsibleError

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, mutes, profile, specs, values


class HostSettings:
    """What the variables of a host make of the settings. Every method evaluates only the variables that it needs.

    The settings of the profile replace defaults; variables that somebody set replace those of the profile. Raises ``ValueError`` with a
    sentence for a value of another type, and Ansible's error for one that cannot be evaluated.
    """

    def __init__(self, variables: specs.Values, templar: Any) -> None:
        self.variables = variables
        self.templar = templar

    def value(self, name: str) -> Any:
        """Return one setting by the name of its variable."""
        owner = next((role for role, options in specs.settings().items() if name in options), None)
        if owner is None:
            (why, *_others) = specs.refusals([name]) or [f"{name} is not a setting of npu.affinity."]
            raise ValueError(why)
        if owner == "playbooks":
            return self.of_playbooks()[features.short(owner, name)]
        return self._converted(self._added(self._profile()), {name}, (owner,))[owner][features.short(owner, name)]

    def for_gathering(self) -> dict[str, Any]:
        """Return the options of module topology_facts. Other settings may depend on the topology, and are not evaluated."""
        return features.gathered_by(features.of_features(self._templated(features.GATHERING))["plan"])

    def of_playbooks(self) -> dict[str, Any]:
        """Return the settings that playbooks read besides those of roles, None for one that is not given and has no default."""
        settings = features.of_playbooks(self._templated(specs.of_playbooks().keys()))
        return {**settings, "author": settings["author"] or _user()}

    def of_role(self, role: str) -> dict[str, Any]:
        """Return the settings of one role, without the prefix of their variables and the name of the role."""
        return self._converted(self._added(self._profile()), specs.options()[role].keys(), (role,))[role]

    def of_features(self) -> features.Settings:
        chosen = self._profile()
        added = self._added(chosen)
        overriding = self._templated(chosen.settings.keys() - added.keys())
        mute = self._converted(added, {mutes.SETTING}, ("verify",))["verify"]["mute"]
        settings = {
            **self._converted(added, features.of_planning().keys()),
            **self._judged(added),
            "profile": profile.sentence(chosen, overriding),
            "of_profile": sorted(added),
            "muted": mutes.of_host(mutes.checked(mute), self.variables.get("inventory_hostname", "localhost"))[0],
        }
        return cast("features.Settings", settings)

    def to_archive(self) -> dict[str, Any]:
        """Return the settings that say how the host is planned and compared."""
        given = self._given()
        chosen = profile.NONE if self.refusals() else profile.chosen(self._set(given))
        return features.to_archive(self._set(given | self._added(chosen)))

    def refusals(self) -> list[str]:
        """Return a sentence for every variable that nothing reads, and for every value of another type or choice than its setting takes."""
        given = self._given()
        evaluated = self._set(given)
        sentences = specs.refusals(given) + values.refusals(evaluated, specs.by_name())
        try:
            profile.chosen(evaluated)
        except ValueError as refusal:
            sentences.append(str(refusal))
        return sentences + specs.cut_off(str(self.variables.get("_raw_params", "")))

    def _judged(self, added: dict[str, Any]) -> dict[str, Any]:
        given = self._given()
        of_user = {name: value for name, value in given.items() if name not in added}
        evaluated = self._set(given | added)
        off = specs.off(evaluated)
        idle = [*off, *specs.reporting(evaluated)]
        return {
            "remarks": list(map(coded, specs.remarks(of_user, idle) + values.remarks(evaluated, idle))),
            "applied": features.non_default(evaluated, off),
        }

    def _profile(self) -> profile.Profile:
        return profile.chosen(self._templated({profile.SETTING}))

    def _added(self, chosen: profile.Profile) -> dict[str, Any]:
        """Return the settings of the profile that nobody set."""
        return {name: value for name, value in chosen.settings.items() if self.variables.get(name) is None}

    def _given(self) -> dict[str, Any]:
        result = {}
        for name in self.variables:
            if name.startswith(specs.PREFIX):
                with contextlib.suppress(AnsibleError):  # a value that cannot be known yet
                    result[name] = self.variables[name]
        return result

    def _set(self, given: specs.Values) -> dict[str, Any]:
        """Return the values that somebody set, as far as they can be known before the host was asked anything."""
        evaluated, defaults = {}, _defaults()
        for name, value in given.items():
            if name in defaults and value != defaults[name]:
                with contextlib.suppress(AnsibleError):
                    evaluated[name] = self.templar.template(value)
        return evaluated

    def _converted(self, added: specs.Values, wanted: Set[str], roles: Sequence[str] = features.ROLES) -> dict[str, dict[str, Any]]:
        return features.by_role({**self._templated(wanted), **added}, roles)

    def _templated(self, wanted: Set[str]) -> dict[str, Any]:
        return {name: self.templar.template(self.variables[name]) for name in wanted & self.variables.keys()}


def _defaults() -> dict[str, Any]:
    return {name: option.get("default") for name, option in specs.by_name().items()}


def _user() -> str:
    """Return the name of the user who runs Ansible, or the number where no name is known."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
