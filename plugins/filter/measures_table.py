# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: measures_table
short_description: Format the measurements of a host next to earlier ones
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Shows the metrics of every workload, and with O(before) the earlier values and the change.
  - A change is shown with its 95 % interval, which is computed from the windows of both measurements. If the interval includes no change,
    C(no conclusion) is shown.
  - A metric that could not be read is shown as missing, with the reason. Metrics that were counted in different ways are not compared.
positional: before, label, before_label
options:
  _input:
    description: The result of M(npu.affinity.measure_info).
    type: dict
    required: true
  before:
    description: An earlier result.
    type: dict
  label:
    description: The heading of the input.
    type: str
    default: after
  before_label:
    description: The heading of O(before).
    type: str
    default: before
seealso:
  - module: npu.affinity.measure_info
"""

EXAMPLES = r"""
---
- name: Measure again
  npu.affinity.measure_info:
  register: now

- name: Show what changed
  ansible.builtin.debug:
    msg: "{{ now | npu.affinity.measures_table(then, label='bound', before_label='unbound') }}"
  vars:
    then: "{{ lookup('ansible.builtin.file', 'measures/node1/before.json') | from_json }}"
"""

RETURN = r"""
_value:
  description: The lines of the table.
  type: list
  elements: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import measures_table as _measures_table

measures_table = filter_errors(_measures_table.measures_table)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"measures_table": measures_table}
