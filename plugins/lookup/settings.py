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
      type or choice than the setting takes, and for what Ansible cut off a value of C(-e) that has a blank.
    - C(remarks) has a sentence for every disabled role whose variables are set, and for every limit that has no effect.
    - C(given) has the settings of roles that somebody set, and that say how the host is planned and compared.
    - C(applied) has every setting of the roles that plan and bind, as far as they are on, that is not at its default.
    - Its values are converted to their types.
    - For hosts that are named, C(refused) has these sentences by host, C(lines) has each of them once with its hosts, and C(everywhere)
      says whether all hosts have some.
    - With O(features=true), a dictionary with the settings of role C(plan) and of each feature, named as the variables without
      C(npu_affinity_) and without the name of the feature, such as C(interval) of feature C(irq) for C(npu_affinity_interval), and with
      the same C(remarks) and C(applied).
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
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.lookup import LookupBase

from ansible_collections.npu.affinity.plugins.plugin_utils._report import refused_settings
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import applied, archived, features, limits, names, specs, values


class LookupModule(LookupBase):
    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        of_task = variables or {}
        if kwargs.get("playbooks"):
            return [self._of_playbooks(of_task)]
        if kwargs.get("gather"):
            return [features.gathered_by(self._converted(of_task, features.GATHERING)["plan"])]
        options = specs.settings()
        if kwargs.get("role"):
            return [self._converted(of_task, options[kwargs["role"]].keys(), (kwargs["role"],))[kwargs["role"]]]
        if terms:
            found = {host: self._refusals(of_task["hostvars"][host], options) for host in terms}
            return [refused_settings.fleet({host: refusals for host, refusals in found.items() if refusals}, terms, of_task["groups"])]
        given = self._named(of_task)
        known = self._set(given, options)
        off = [
            role for role, switch in names.switches(options).items() if not self._is_on(given.get(switch, options[role][switch]["default"]))
        ]
        defaults = {name: option.get("default") for of_role in options.values() for name, option in of_role.items()}
        remarks = names.remarks(given, off, options) + limits.remarks(known, off, defaults)
        if kwargs.get("features"):
            return [{**self._converted(of_task, features.names()), "remarks": remarks, "applied": applied.applied(known, off, options)}]
        host = of_task.get("inventory_hostname", "localhost")
        return [
            {
                "refusals": [f"Host {host}: {refusal}" for refusal in self._refusals(of_task, options)],
                "remarks": remarks,
                "given": archived.kept(known, options),
                "applied": applied.applied(known, off, options),
            }
        ]

    def _refusals(self, variables: Mapping[str, Any], options: Mapping[str, specs.Options]) -> list[str]:
        given = self._named(variables)
        found = names.refusals(given, options) + values.refusals(self._set(given, options), options)
        return found + names.cut_off(str(variables.get("_raw_params", "")))

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

    def _converted(self, given: Mapping[str, Any], names: Set[str], roles: Sequence[str] = features.ROLES) -> features.Settings:
        try:
            return features.of_features(self._templated(given, names), roles)
        except ValueError as error:
            raise AnsibleLookupError(f"npu.affinity.settings: {error}") from error

    def _of_playbooks(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found = features.of_playbooks(self._templated(given, specs.of_playbooks().keys()))
        except ValueError as error:
            raise AnsibleLookupError(f"npu.affinity.settings: {error}") from error
        return {**found, "author": found["author"] or _user()}

    def _templated(self, given: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
        templar: Any = self._templar
        return {name: templar.template(given[name]) for name in names & given.keys()}

    def _is_on(self, value: Any) -> bool:
        templar: Any = self._templar
        return bool(boolean(templar.template(value), strict=False))


def _user() -> str:
    """Return the name of the user who runs Ansible, or the number where no name is known."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
