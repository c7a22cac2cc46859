# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report_html
short_description: Render a fleet as one HTML page
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Makes one page for any number of hosts, with a table to sort and search, and a picture of every host that is drawn when it is opened.
  - The page loads nothing. Its content security policy allows only its own style and script, and data from hosts is always text, never
    markup.
  - Stores machines and plans that several hosts share once.
options:
  _input:
    description:
      - The hosts. Each is a dictionary with the name as C(host), and the data that is known.
      - C(topology) is the fact C(npu_affinity_topology), C(plan) is the plan of a bind now, and C(refused) is the reason against a bind.
      - C(bound), C(drift), C(checked) and C(remarks) are from M(npu.affinity.binding_info), and C(msg) is its error.
      - C(changes) are the changes that a bind would make now.
      - C(unreachable) is the reason why the host did not answer. C(services) and C(workloads) are the settings of these names.
      - C(plans) are other plans to compare with, by their names.
      - C(processes) are processes that use NPUs, each with C(pid), C(name), C(npu) (logic id) and C(memory), MiB by NUMA node.
      - The files of P(npu.affinity.report#role) and the playbook C(npu.affinity.verify) have this shape.
    type: list
    elements: dict
    required: true
  title:
    description: Title of the page.
    type: str
    default: NPU affinity
  generated:
    description: The time of the comparison, as text.
    type: str
    default: ""
  earlier:
    description: The same hosts at an earlier time. The page then shows which drift is new, fixed or unchanged.
    type: list
    elements: dict
    default: []
  strategies:
    description: Further strategies of P(npu.affinity.plan#filter) for every host, for comparison.
    type: list
    elements: str
    default: []
  measures:
    description: Measurements by the playbook C(npu.affinity.measure). The page shows the memory of processes by NUMA node.
    type: list
    elements: dict
    default: []
  runs:
    description:
      - Runs for a table of drift over time. Each has its C(name), and the C(records) of its hosts in the shape of the input. Their C(time)
        determines the order of the runs.
    type: list
    elements: dict
    default: []
seealso:
  - plugin: npu.affinity.plan_svg
    plugin_type: filter
  - module: npu.affinity.binding_info
"""

EXAMPLES = r"""
---
- name: Make a page of one host
  vars:
    host: "{{ {'host': inventory_hostname, 'topology': ansible_facts['npu_affinity_topology'], 'plan': npu_affinity_plan} }}"
  ansible.builtin.copy:
    content: "{{ [host] | npu.affinity.report_html(title='Training site', strategies=['even_split']) }}"
    dest: "{{ playbook_dir }}/report.html"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible import context

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import commands, page


@filter_errors
def report_html(
    records: Iterable[Mapping[str, Any]],
    title: str = "NPU affinity",
    generated: str = "",
    earlier: Iterable[Mapping[str, Any]] = (),
    strategies: Iterable[str] = (),
    measures: Iterable[Mapping[str, Any]] = (),
    runs: Iterable[Mapping[str, Any]] = (),
) -> str:
    others = {"earlier": earlier, "strategies": strategies, "measures": measures}
    return page.report_html(records, str(title), str(generated), runs, commands.typed(context.CLIARGS, os.environ), **others)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"report_html": report_html}
