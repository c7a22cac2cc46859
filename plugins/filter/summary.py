# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: summary
short_description: Summarize the result of a playbook for every host
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Reads the variables that a playbook of this collection sets, and determines the state of each host with reasons. The playbooks use it at
    their end.
positional: names, playbook
options:
  _input:
    description: The variables of hosts by name, as C(hostvars).
    type: dict
    required: true
  names:
    description: The hosts to summarize.
    type: list
    elements: str
    required: true
  playbook:
    description: The playbook that ran.
    type: str
    choices: [bind, plan, verify, report, rollback, unbind, measure, collect, inspect]
    required: true
  check:
    description: Whether it ran in check mode.
    type: bool
    default: false
  stopped:
    description: Why the run ended before all hosts were done.
    type: str
    default: ""
  lost:
    description: The hosts that Ansible dropped during the run, such as unreachable ones.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Which hosts have to be looked at?
  ansible.builtin.debug:
    msg: "{{ (hostvars | npu.affinity.summary(ansible_play_hosts_all, 'bind')).states.failed | default([]) }}"
"""

RETURN = r"""
_value:
  description:
    - C(states) has the names of hosts by state, and C(hosts) by host its C(state), C(reasons), C(remarks), the units that wait for a
      C(restart), what binds its workloads (C(method)), and whether the run C(fails) for it.
    - C(codes) of a host are those of its findings and refusals, each with the time and reason of its mute, or empty.
    - For playbook C(plan), a host also has the C(cost) of a bind, with the CPUs of the C(smallest) pool, the number of C(remote) CPUs, the
      memory to move (C(memory_mib)) and the units to C(restart).
    - C(plans) has each distinct plan once, with its hosts. C(next) has the commands to run next, each with its C(purpose). They repeat the
      inventory, C(--limit) and the settings of this run. C(lines) is all of it to read.
  type: dict
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ansible import context

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import commands, summary_text
from ansible_collections.npu.affinity.plugins.plugin_utils._report import summary as _summary
from ansible_collections.npu.affinity.plugins.plugin_utils._report.variables import ReadOnce

STOPPED = "__npu_affinity_stopped"
"""What approve_batch.yml sets."""


@filter_errors
def summary(
    variables: Mapping[str, Mapping[str, Any]],
    names: Iterable[str],
    playbook: str,
    check: bool = False,
    stopped: str = "",
    lost: Collection[str] = (),
) -> dict[str, Any]:
    typed = commands.typed(context.CLIARGS, os.environ)
    hosts = {name: ReadOnce(variables[name]) for name in names}
    why = stopped or next((host[STOPPED] for host in hosts.values() if STOPPED in host), "")
    found = _summary.summary(hosts, playbook, check, why, typed, lost)
    return found | {"lines": summary_text.lines(found)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"summary": summary}
