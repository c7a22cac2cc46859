# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hosts
short_description: The hosts that a playbook of this collection runs on
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the value for C(hosts) of a play. Without a pattern of the user, this is the group C(npu_hosts) if the inventory has one, and
    otherwise all hosts, with a warning.
  - Refuses an inventory without hosts, a pattern that matches no host, and tags on the command line of a playbook of this collection,
    because such runs would do nothing and succeed.
  - With variable C(npu_affinity_host), it returns this host, and refuses a value that is not the name of exactly one host of the pattern,
    such as a group.
options:
  _terms:
    description: The pattern of the user. The default is the variable C(npu_affinity_hosts), if it is set.
  waiting:
    description: Only the hosts for which the run has something left to do, after role P(npu.affinity.plan#role) has run on all of them.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Plan every host
  hosts: "{{ lookup('npu.affinity.hosts') }}"
  gather_facts: false
  roles:
    - role: npu.affinity.plan

- name: Change those that are not as wanted
  hosts: "{{ query('npu.affinity.hosts', waiting=true) }}"
  gather_facts: false
  roles:
    - role: npu.affinity.slices
"""

RETURN = r"""
_raw:
  description: A pattern of hosts.
  type: list
  elements: str
  sample: [npu_hosts]
"""

import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import filter_loader, lookup_loader, test_loader
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._base.table import count
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, hosts, specs

PLANNING = ("action.plan_host", "action.say", "lookup.settings", "plugin_utils._report.summary")
"""What is loaded here once, in the process that starts the workers, and not again in every worker."""
for name in PLANNING:
    importlib.import_module(f"ansible_collections.npu.affinity.plugins.{name}")
features.of_features({})
features.of_playbooks({})
runtime.digest()
filter_loader.get("default")
test_loader.get("defined")
NOBODY = "!all"
"""A pattern that matches no host, and of which Ansible does not say that it matches none."""
COLLECTION = pathlib.Path(__file__).resolve().parents[2]


class LookupModule(LookupBase):
    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[str]:
        variables = variables or {}
        groups = variables["groups"]
        given = str((terms[0] if terms else self._pattern(variables)) or "")
        wanted = hosts.pattern(given, groups)
        if context.CLIARGS.get("syntax"):
            return [wanted]
        limit = variables.get("ansible_limit")
        one = variables.get("npu_affinity_host")
        if one is not None:
            try:
                wanted = hosts.one_host(one, groups, self._named(wanted, variables))
            except ValueError as error:
                raise AnsibleLookupError(str(error)) from error
        found = hosts.refusal(
            wanted,
            len(groups["all"]),
            self._named(wanted, variables),
            self._named(limit, variables) if limit and "@" not in limit else None,
            variables.get("ansible_inventory_sources") or (),
        )
        playbooks = list(filter(_is_ours, context.CLIARGS.get("args") or ()))
        loader: Any = self._loader
        for playbook in playbooks:
            name = playbook.removesuffix(".yml").rpartition("/")[2].rpartition(".")[2]
            found = found or hosts.unread_refusal(load_extra_vars(loader), name)
        if playbooks:
            tags, skipped = (variables.get(f"ansible_{name}_tags", ()) for name in ("run", "skip"))
            found = found or hosts.tags_refusal(tags, skipped, specs.options())
        if found and "inventory_hostname" in variables:  # in a task
            raise AnsibleLookupError(found)
        if found:  # in a play, where ansible-core prints the lines of the playbook with every exception that it catches
            Display().error(found, wrap_text=False)
            raise SystemExit(1)
        if not given and wanted == "all" and one is None:
            Display().warning(
                f"The inventory has no group {hosts.GROUP}, so all of its hosts are used: "
                f"{count(len(groups['all']), 'host')}. Put the hosts with NPUs "
                "into that group, or name them with -e npu_affinity_hosts=…; to use all hosts, pass -e npu_affinity_hosts=all."
            )
        if kwargs.get("waiting"):
            return [host for host in self._named(wanted, variables) if self._waits(variables["hostvars"][host])] or [NOBODY]
        return [wanted]

    @staticmethod
    def _waits(host: Mapping[str, Any]) -> bool:
        """Whether a bind or a rollback has something to do on a host: change it, fail it, or run the check of its health."""
        known = host.get("__npu_affinity_gathered") or {}
        converged = (known.get("state") or {}).get("converged") and not known.get("refusals")
        return bool(known.get("ready") or known.get("failing") or (converged and host.get("npu_affinity_health")))

    def _pattern(self, variables: Mapping[str, Any]) -> Any:
        templar: Any = self._templar
        return templar.template(variables.get("npu_affinity_hosts", ""))

    def _named(self, pattern: str, variables: Mapping[str, Any]) -> list[str]:
        lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=self._loader, templar=self._templar)
        return list(lookup.run(pattern, variables=variables))


def _is_ours(playbook: str) -> bool:
    """Whether a playbook of the command line is one of this collection. Others that import it may have tags."""
    folder = pathlib.Path(playbook).resolve().parent
    return playbook.startswith("npu.affinity.") or folder in (COLLECTION, COLLECTION / "playbooks")
