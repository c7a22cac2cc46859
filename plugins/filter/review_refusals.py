# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: review_refusals
short_description: Why hosts are not bound by a reviewed file
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Compares what a bind would do to each host with what the files say that P(npu.affinity.review_file#filter) made.
  - A host is refused where it is in no file, where its hardware or the plan in force is not what was compared then, and where its
    settings would give another plan or state. One that has the reviewed plan already is as the file wants it.
positional: names, files
options:
  _input:
    description: The variables of hosts by name, as C(hostvars), each with the facts C(npu_affinity_state) and
      C(npu_affinity_topology). Hosts without them are left out.
    type: dict
    required: true
  names:
    description: The hosts to take.
    type: list
    elements: str
    required: true
  files:
    description: The contents of the files by their paths, null for one that is not there.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Show which hosts moved since the review
  run_once: true
  ansible.builtin.debug:
    msg: "{{ hostvars | npu.affinity.review_refusals(ansible_play_hosts, {'fleet.json': lookup('ansible.builtin.file', 'fleet.json')}) }}"
"""

RETURN = r"""
_value:
  description: A sentence by host, for those that must not be bound.
  type: dict
  sample:
    node07: >-
      npu_affinity_reviewed: the hardware is not what fleet.json was written for: the NPU at 0000:c1:00.0 is not there any more. Write the
      file anew with playbook npu.affinity.plan and npu_affinity_plan_file, have it reviewed, and bind with that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._review import refusals
from ansible_collections.npu.affinity.plugins.plugin_utils._review.entry import review_entry


@filter_errors
def review_refusals(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str], files: Mapping[str, str | None]) -> dict[str, str]:
    hosts = {name: variables[name] for name in names}
    entries = {
        name: review_entry(host["npu_affinity_state"], host["npu_affinity_topology"])
        for name, host in hosts.items()
        if host.get("npu_affinity_state") and not host["npu_affinity_state"]["refusals"]
    }
    return refusals.refusals(entries, files)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"review_refusals": review_refusals}
