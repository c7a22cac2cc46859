# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: settings
short_description: Values of settings as the playbooks and roles read them
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the value of each setting, checked and converted to its type. It is the value of the variable, else that of the profile
    C(npu_affinity_profile), else the default.
  - Evaluates only the named setting, so it can be used before the topology is gathered on which other settings depend.
  - For C(npu_affinity_hosts), it returns the pattern for C(hosts) of a play. Without a pattern of the user, this is the group C(npu_hosts)
    if the inventory has one, and otherwise all hosts, with a warning. With variable C(npu_affinity_host), it is this host.
  - For C(npu_affinity_hosts), it also refuses an inventory without hosts, a pattern that matches no host, a value of C(npu_affinity_host)
    that is not the name of exactly one host of the pattern, and tags on the command line of a playbook of this collection, because such
    runs would do nothing and succeed.
options:
  _terms:
    description: Names of variables, such as V(npu_affinity_interval).
    required: true
  waiting:
    description:
      - Return the names of the hosts of C(npu_affinity_hosts) for which the run has something left to do, after it has planned all of them.
    type: bool
    default: false
  answering:
    description: Return the names of the hosts of C(npu_affinity_hosts) that answered when an unbind looked at them.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Plan every host
  hosts: "{{ lookup('npu.affinity.settings', 'npu_affinity_hosts') }}"
  gather_facts: false
  roles:
    - role: npu.affinity.plan

- name: Change those that differ from their desired state
  hosts: "{{ query('npu.affinity.settings', 'npu_affinity_hosts', waiting=true) }}"
  gather_facts: false
  roles:
    - role: npu.affinity.slices

- name: Restore those that answer
  hosts: "{{ query('npu.affinity.settings', 'npu_affinity_hosts', answering=true) }}"
  gather_facts: false
  tasks:
    - name: Restore the state before the first bind
      npu.affinity.unbind:

- name: Show at which interval the timer checks the interrupts of this host
  ansible.builtin.debug:
    msg: "{{ lookup('npu.affinity.settings', 'npu_affinity_interval') }}"
"""

RETURN = r"""
_raw:
  description:
    - The value of each setting, in its type.
    - With O(waiting=true) or O(answering=true), names of hosts, or a pattern that matches none.
  type: list
  elements: raw
  sample: [10min]
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
from ansible_collections.npu.affinity.plugins.plugin_utils._report.record import ARCHIVES
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import features, hosts
from ansible_collections.npu.affinity.plugins.plugin_utils._settings.of_host import HostSettings

PLANNING = ("action.step",)
"""What is loaded here once, in the process that starts the workers, and not again in every worker."""
for name in PLANNING:
    importlib.import_module(f"ansible_collections.npu.affinity.plugins.{name}")
features.of_features({})
features.of_playbooks({})
runtime.digest()
filter_loader.get("default")
test_loader.get("defined")
HOSTS = "npu_affinity_hosts"
NOBODY = "!all"
"""A pattern that matches no host, and of which Ansible does not say that it matches none."""
LISTING = ("listhosts", "listtasks", "listtags")
"""Options that list what would run: no archive becomes a host."""
COLLECTION = pathlib.Path(__file__).resolve().parents[2]


class LookupModule(LookupBase):
    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        of_task = variables or {}
        settings = HostSettings(of_task, self._templar)
        if kwargs.get("waiting") or kwargs.get("answering"):
            is_chosen = self._waits if kwargs.get("waiting") else self._answered
            names = self._named(self._hosts(of_task), of_task)
            if "hostvars" not in of_task:  # --list-hosts, --list-tasks and --syntax-check
                return names
            return [host for host in names if is_chosen(of_task["hostvars"][host])] or [NOBODY]
        try:
            return [self._hosts(of_task) if term == HOSTS else settings.value(term) for term in terms]
        except ValueError as error:
            raise AnsibleLookupError(f"npu.affinity.settings: {error}") from error

    def _hosts(self, variables: Mapping[str, Any]) -> str:
        """Return the pattern of the hosts of a play, if the run may have these."""
        templar: Any = self._templar
        groups, one = variables["groups"], variables.get("npu_affinity_host")
        given = str(templar.template(variables.get(HOSTS, "")) or "")
        wanted = hosts.pattern(given, groups)
        if context.CLIARGS.get("syntax") or (wanted == ARCHIVES and any(map(context.CLIARGS.get, LISTING))):
            return wanted
        if one is not None:
            wanted = hosts.one_host(one, groups, self._named(wanted, variables))
        refusal = (hosts.misspelt(groups) if not given and one is None else "") or self._refusal(wanted, variables)
        if refusal and "inventory_hostname" in variables:  # in a task
            raise ValueError(refusal)
        if refusal:  # in a play, where ansible-core prints the lines of the playbook with every exception that it catches
            Display().error(refusal, wrap_text=False)
            raise SystemExit(1)
        if not given and wanted == "all" and one is None and len(groups["all"]) > 1:
            Display().warning(
                f"The inventory has no group {hosts.GROUP}, so all of its hosts are used: "
                f"{count(len(groups['all']), 'host')}. Put the hosts with NPUs "
                "into that group, or name them with -e npu_affinity_hosts=…; to use all hosts, pass -e npu_affinity_hosts=all."
            )
        return wanted

    def _refusal(self, wanted: str, variables: Mapping[str, Any]) -> str:
        """Return why the run cannot have these hosts, or these variables and tags of the command line."""
        limit = variables.get("ansible_limit")
        refusal = hosts.refusal(
            wanted,
            len(variables["groups"]["all"]),
            self._named(wanted, variables),
            self._named(limit, variables) if limit and "@" not in limit else None,
            variables.get("ansible_inventory_sources") or (),
        )
        ours = COLLECTION, COLLECTION / "playbooks"  # others that import one of these may have tags
        given = context.CLIARGS.get("args") or ()
        playbooks = [name for name in given if name.startswith("npu.affinity.") or pathlib.Path(name).resolve().parent in ours]
        loader: Any = self._loader
        for playbook in playbooks:
            name = playbook.removesuffix(".yml").rpartition("/")[2].rpartition(".")[2]
            refusal = refusal or hosts.unread_refusal(load_extra_vars(loader), name)
        if playbooks:
            tags, skipped = (variables.get(f"ansible_{name}_tags", ()) for name in ("run", "skip"))
            refusal = refusal or hosts.tags_refusal(tags, skipped)
        return refusal

    @staticmethod
    def _waits(host: Mapping[str, Any]) -> bool:
        """Whether a bind or a rollback has something to do on a host: change it, fail it, or run the check of its health."""
        gathered = host.get("__npu_affinity_gathered") or {}
        converged = (gathered.get("state") or {}).get("converged") and not gathered.get("refusals")
        return bool(gathered.get("ready") or gathered.get("failing") or (converged and host.get("npu_affinity_health")))

    @staticmethod
    def _answered(host: Mapping[str, Any]) -> bool:
        return not (host.get("__npu_affinity_reached") or {}).get("lost")

    def _named(self, pattern: str, variables: Mapping[str, Any]) -> list[str]:
        lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=self._loader, templar=self._templar)
        return list(lookup.run(pattern, variables=variables))
