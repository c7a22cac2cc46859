# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: settings
short_description: Checked settings of a host with their defaults
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the settings of all features of a host, with their defaults and converted to their types, or the errors in them.
  - The settings of the profile C(npu_affinity_profile) replace defaults. Variables that somebody set replace those of the profile.
  - Compares all variables of a host that start with C(npu_affinity_) with the argument specs of roles and playbooks, by name, type and
    choices.
options:
  _terms:
    description:
      - Names of hosts, to check a whole fleet at once.
      - The default is the host of the task.
  features:
    description:
      - Return the settings of role plan and of all features of the host instead.
      - A value that cannot be evaluated or converted is then an error.
    type: bool
    default: false
  playbooks:
    description: Return the settings of playbooks instead, with their defaults and converted to their types.
    type: bool
    default: false
  role:
    description: Return only the settings of this role, such as V(verify), with their defaults and converted to their types.
    type: str
  gather:
    description:
      - Return the options for gathering the topology of the host instead.
      - The lookup evaluates no other setting. Other settings can therefore depend on the topology.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Refuse settings that nothing reads
  vars:
    refusals: "{{ lookup('npu.affinity.settings').refusals }}"
  ansible.builtin.assert:
    that: refusals | length == 0
    fail_msg: "{{ refusals | join(' ') }}"

- name: Show at which interval the timer checks the interrupts of this host
  ansible.builtin.debug:
    msg: "{{ lookup('npu.affinity.settings', features=true).irq.interval }}"

- name: Refuse a fleet of which no host has settings that can be followed
  vars:
    settings: "{{ lookup('npu.affinity.settings', *ansible_play_hosts_all) }}"
  run_once: true
  ansible.builtin.assert:
    that: not settings.everywhere
    fail_msg: "{{ settings.lines }}"
"""

RETURN = r"""
_raw:
  description:
    - C(refusals) has a sentence for every variable that nothing reads, with the name that was perhaps meant, for every value of another
      type or choice than the setting takes, for a profile that cannot be used, and for what Ansible cut off a value of C(-e) that has a
      blank.
    - C(remarks) has a sentence for every disabled role whose variables are set, and for every limit that has no effect.
    - C(given) has the settings of roles that somebody or the profile set, and that say how the host is planned and compared.
    - C(applied) has every setting of the roles that plan and bind, as far as they are on, that is not at its default.
    - Its values are converted to their types.
    - For hosts that are named, C(refused) has these sentences by host, C(lines) has each of them once with its hosts, and C(everywhere)
      says whether all hosts have some.
    - With O(features=true), a dictionary with the settings of role C(plan) and of each feature, named as the variables without
      C(npu_affinity_) and without the name of the feature, such as C(interval) of feature C(irq) for C(npu_affinity_interval), and with
      the same C(remarks) and C(applied). C(profile) is a sentence with the profile and the settings that replace those of it.
      C(of_profile) has the variables whose values are those of the profile, and C(muted) says until when and why codes are muted.
      P(npu.affinity.desired_state#filter) takes it.
    - With O(role), a dictionary of the settings of that role, named in the same way.
    - With O(playbooks=true), a dictionary of these settings without C(npu_affinity_), such as C(batches), null where one is not given and
      has no default. C(author) is the user of the controller then.
  type: list
  elements: dict
"""

import contextlib
import getpass
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.npu.affinity.plugins.plugin_utils._codes import coded
from ansible_collections.npu.affinity.plugins.plugin_utils._report import refused_settings
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import (
    applied,
    archived,
    features,
    limits,
    mutes,
    names,
    profile,
    specs,
    values,
)


class LookupModule(LookupBase):
    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        try:
            return [self._found(terms, variables or {}, kwargs)]
        except ValueError as error:
            raise AnsibleLookupError(f"npu.affinity.settings: {error}") from error

    def _found(self, terms: Sequence[str], of_task: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if kwargs.get("playbooks"):
            return self._of_playbooks(of_task)
        if kwargs.get("gather"):
            return features.gathered_by(features.of_features(self._templated(of_task, features.GATHERING))["plan"])
        options = specs.settings()
        if terms:
            found = {host: self._refusals(of_task["hostvars"][host], options) for host in terms}
            return refused_settings.fleet({host: refusals for host, refusals in found.items() if refusals}, terms, of_task["groups"])
        given, complete = self._named(of_task), kwargs.get("features") or kwargs.get("role")
        refusals = [] if complete else self._refusals(of_task, options)
        known = self._templated(of_task, {profile.SETTING}) if complete else self._set(given, options)
        chosen = profile.NONE if refusals else profile.chosen(known)
        added = {name: value for name, value in chosen.settings.items() if not self._is_given(name, of_task, options)}
        if kwargs.get("role"):
            role = kwargs["role"]
            return self._converted(of_task, added, options[role].keys(), (role,))[role]
        of_user = {name: value for name, value in given.items() if name not in added}
        given |= added
        known = self._set(given, options)
        off = names.off(known, options)
        idle = [*off, *names.reporting(known)]
        defaults = {name: option.get("default") for of_role in options.values() for name, option in of_role.items()}
        judged = {
            "remarks": list(map(coded, names.remarks(of_user, idle, options) + limits.remarks(known, idle, defaults))),
            "applied": applied.applied(known, off, options),
        }
        if kwargs.get("features"):
            overriding = self._templated(of_task, chosen.settings.keys() - added.keys())
            said = profile.sentence(chosen, overriding)
            mute = self._converted(of_task, added, {mutes.SETTING}, ("verify",))["verify"]["mute"]
            muted = mutes.of_host(mutes.checked(mute), of_task.get("inventory_hostname", "localhost"))[0]
            return {
                **self._converted(of_task, added, features.names()),
                **judged,
                "profile": said,
                "of_profile": sorted(added),
                "muted": muted,
            }
        host = of_task.get("inventory_hostname", "localhost")
        return {
            "refusals": [f"Host {host}: {refusal}" for refusal in refusals],
            "given": archived.kept(known, options),
            **judged,
        }

    def _refusals(self, variables: Mapping[str, Any], options: Mapping[str, specs.Options]) -> list[str]:
        given = self._named(variables)
        known = self._set(given, options)
        found = names.refusals(given, options) + values.refusals(known, options)
        try:
            profile.chosen(known)
        except ValueError as refusal:
            found.append(str(refusal))
        return found + names.cut_off(str(variables.get("_raw_params", "")))

    def _is_given(self, name: str, variables: Mapping[str, Any], options: Mapping[str, specs.Options]) -> bool:
        """Whether somebody set a variable. A task has the defaults of its roles among its variables, and a host does not."""
        if variables.get(name) is None:
            return False
        if all(variables[name] != of_role[name].get("default") for of_role in options.values() if name in of_role):
            return True
        of_hosts = variables.get("hostvars")
        return not of_hosts or name in of_hosts[variables["inventory_hostname"]]

    def _named(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name in variables:
            if name.startswith(names.PREFIX):
                with contextlib.suppress(AnsibleError):  # a value that cannot be known yet
                    found[name] = variables[name]
        return found

    def _set(self, given: Mapping[str, Any], options: Mapping[str, specs.Options]) -> dict[str, Any]:
        """Return the values that somebody set, as far as they can be known before the host was asked anything."""
        defaults = {name: option.get("default") for of_role in options.values() for name, option in of_role.items()}
        templar: Any = self._templar
        found = {}
        for name, value in given.items():
            if name in defaults and value != defaults[name]:
                with contextlib.suppress(AnsibleError):
                    found[name] = templar.template(value)
        return found

    def _converted(
        self, given: Mapping[str, Any], added: Mapping[str, Any], names: Set[str], roles: Sequence[str] = features.ROLES
    ) -> features.Settings:
        return features.of_features({**self._templated(given, names), **added}, roles)

    def _of_playbooks(self, given: Mapping[str, Any]) -> dict[str, Any]:
        found = features.of_playbooks(self._templated(given, specs.of_playbooks().keys()))
        return {**found, "author": found["author"] or _user()}

    def _templated(self, given: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
        templar: Any = self._templar
        return {name: templar.template(given[name]) for name in names & given.keys()}


def _user() -> str:
    """Return the name of the user who runs Ansible, or the number where no name is known."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
