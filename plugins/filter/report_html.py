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
  - Makes one page of any number of hosts, with a table to sort and search and a picture of every host that is drawn when it is opened.
  - The page is self-contained and loads nothing. Its content security policy allows its own style and script and nothing else, and what it
    shows of a host is text and never markup.
  - Machines and plans that several hosts share are held once.
options:
  _input:
    description:
      - The hosts. Each is a dictionary with C(host), its name, and what is known of it.
      - C(topology) is the fact C(npu_affinity_topology), C(plan) what a bind would plan now, and C(refused) the sentence why it would not.
      - C(bound), C(drift), C(checked) and C(remarks) are what M(npu.affinity.binding_info) returned, and C(msg) why it failed.
      - C(unreachable) is why the host did not answer; C(services) and C(workloads) are the settings of these names.
      - C(plans) are other plans to compare with, by their names.
      - C(processes) are processes that use NPUs, each with C(pid), C(name), C(npu) (logic id) and C(memory), MiB by NUMA node.
      - The files that P(npu.affinity.report#role) and the playbook C(npu.affinity.verify) keep have this shape.
    type: list
    elements: dict
    required: true
  title:
    description: What stands above the table.
    type: str
    default: NPU affinity
  generated:
    description: When the hosts were looked at, in words.
    type: str
    default: ""
  earlier:
    description: The same hosts at an earlier time, to compare with. The page says what drift is new, fixed, and still there.
    type: list
    elements: dict
    default: []
  strategies:
    description: Strategies of P(npu.affinity.plan#filter) to plan every host with besides, to compare with.
    type: list
    elements: str
    default: []
  measures:
    description: What the playbook C(npu.affinity.measure) kept of the hosts. The memory of processes by NUMA node is shown.
    type: list
    elements: dict
    default: []
  runs:
    description:
      - Runs for a table of drift over time. Each has its C(name), and the C(records) of its hosts in the shape of the input, whose C(time)
        puts runs in order.
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
    return page.report_html(
        records, str(title), str(generated), earlier, strategies, measures, runs, commands.typed(context.CLIARGS, os.environ)
    )


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"report_html": report_html}
