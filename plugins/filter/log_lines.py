# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: log_lines
short_description: Format a plan as log lines of vLLM-Ascend
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Formats a plan like the log of vLLM-Ascend's worker processes, to compare the two line by line.
  - GPUs have no line.
options:
  _input:
    description: A plan from P(npu.affinity.plan#filter).
    type: dict
    required: true
  rank:
    description:
      - The rank of one worker. Its lines start with C([cpu_bind_mode]) and contain only the NPU of the rank.
      - Make the plan with the NPUs that the workers see (O(npu.affinity.plan#filter:npus)), because ranks count these.
    type: int
  topology:
    description:
      - The fact C(npu_affinity_topology) of the host. With O(rank), the mode is then that of the chip family, which a worker logs even if
        C(npu-smi) printed no affinity.
    type: dict
seealso:
  - plugin: npu.affinity.plan
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show what the workers of this host must log
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan | npu.affinity.log_lines }}"

- name: Show what the second worker of a service on NPUs 2 and 3 must log
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts['npu_affinity_topology'] | npu.affinity.plan(npus=[2, 3], repair=false)
         | npu.affinity.log_lines(rank=1, topology=ansible_facts['npu_affinity_topology']) }}
"""

RETURN = r"""
_value:
  description: The lines without their prefixes.
  type: list
  elements: str
  sample:
    - "The CPU allocation plan is as follows:"
    - "NPU0: main=[2 3 4]  acl=[5]  release=[[6]]"
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._plan import log_lines as _log_lines

log_lines = filter_errors(_log_lines.log_lines)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"log_lines": log_lines}
