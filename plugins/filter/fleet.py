# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Collect the topologies and labels of many hosts for placement
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Collects the input of P(npu.affinity.place#filter) for every host from the variables of a play, or from saved facts.
  - Takes the labels from the variable C(npu_affinity_labels) of each host.
  - Returns a host without topology with the reason.
positional: names, saved
options:
  _input:
    description: The variables of hosts by name, as C(hostvars).
    type: dict
    required: true
  names:
    description: The hosts to collect.
    type: list
    elements: str
    required: true
  saved:
    description:
      - JSON texts by file name instead of facts of this run. A text is the fact C(npu_affinity_topology), a file of Ansible's fact cache
        C(jsonfile), or a module's result. The file has the name of the host, with or without C(.json).
    type: dict
seealso:
  - plugin: npu.affinity.place
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Where can a task with two NPUs run?
  ansible.builtin.debug:
    msg: "{{ (hostvars | npu.affinity.fleet(ansible_play_hosts_all) | npu.affinity.place({'npus': 2})).table }}"
"""

RETURN = r"""
_value:
  description: The hosts by name, each with C(topology) and C(labels), or with C(refused).
  type: dict
  sample: {"a2-01": {"topology": {"schema": 1}, "labels": {"switch": "s0", "position": 1}}}
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import fleet as _fleet

fleet = filter_errors(_fleet.fleet)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet": fleet}
