# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: settings
short_description: Settings of a host that would be ignored silently
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Compares the names of all variables of a host that start with C(npu_affinity_) with the argument specs of the roles and with what the
    playbooks read, and their values with the types and choices there.
options:
  _terms:
    description: Nothing. The variables are those of the host.
"""

EXAMPLES = r"""
---
- name: Refuse settings that nothing reads
  vars:
    refusals: "{{ lookup('npu.affinity.settings').refusals }}"
  ansible.builtin.assert:
    that: refusals | length == 0
    fail_msg: "{{ refusals | join(' ') }}"
"""

RETURN = r"""
_raw:
  description:
    - C(refusals) has a sentence for every variable that nothing reads, with the name that was perhaps meant, for every value of another
      type or choice than the setting takes, and for what Ansible cut off a value of C(-e) that has a blank.
    - C(remarks) has a sentence for every role that is off although something of it is set.
    - C(given) has the settings of roles that somebody set, and that say how the host is planned and compared.
  type: list
  elements: dict
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.lookup import LookupBase

from ansible_collections.npu.affinity.plugins.plugin_utils._settings import archived, names, specs, values


class LookupModule(LookupBase):
    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[dict[str, Any]]:
        given = {name: value for name, value in (variables or {}).items() if name.startswith(names.PREFIX)}
        options = specs.settings()
        off = [
            role for role, switch in names.switches(options).items() if not self._is_on(given.get(switch, options[role][switch]["default"]))
        ]
        host = str((variables or {}).get("inventory_hostname", "localhost"))
        known = self._set(given, options)
        refusals = names.refusals(host, given, options) + values.refusals(host, known, options)
        refusals += names.cut_off(host, str((variables or {}).get("_raw_params", "")))
        return [{"refusals": refusals, "remarks": names.remarks(given, off, options), "given": archived.kept(known, options)}]

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

    def _is_on(self, value: Any) -> bool:
        templar: Any = self._templar
        return bool(boolean(templar.template(value), strict=False))
