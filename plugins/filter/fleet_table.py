# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_table
short_description: Export facts and plans of a fleet as CSV or JSON
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns a table with one row for every NPU and GPU of a fleet, sorted by host.
  - A row describes the device and its CPUs in the plan in force. For a host that was never bound, these are the CPUs that a bind would
    assign.
positional: format
options:
  _input:
    description: The hosts, as for P(npu.affinity.report_html#filter).
    type: list
    elements: dict
    required: true
  format:
    description:
      - The format of the table.
      - Unknown values are empty in CSV and C(null) in JSON. In CSV, an apostrophe precedes text that a spreadsheet would evaluate.
    type: str
    choices: [csv, json]
    default: csv
seealso:
  - plugin: npu.affinity.report_html
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Write the plans of all hosts of the play
  vars:
    host: "{{ {'host': inventory_hostname, 'topology': ansible_facts['npu_affinity_topology'], 'plan': npu_affinity_plan} }}"
  ansible.builtin.copy:
    content: "{{ [host] | npu.affinity.fleet_table('csv') }}"
    dest: "{{ playbook_dir }}/{{ inventory_hostname }}.csv"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description:
    - The table as text.
    - The device is described by C(host), C(kind), C(id), C(card), C(chip), C(phy_id) (the physical id), C(name), C(family), C(pci), C(numa)
      and C(memory_mib).
    - C(plan) is V(in force) or V(planned), and C(strategy) the rule that divided the CPUs.
    - C(pool), C(irq), C(main), C(acl) and C(release) are cpulists. C(mems) are the nearest memory nodes, C(memory_nodes) those that the
      workload may use. C(slice) is the systemd slice.
    - C(local) is the share of the pool's CPUs that are local to the NPU, as in P(npu.affinity.quality#filter).
  type: str
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import export


@filter_errors
def fleet_table(records: Iterable[Mapping[str, Any]], format: str = "csv") -> str:  # pylint: disable=redefined-builtin # the word that users type
    return export.table(records, format)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_table": fleet_table}
