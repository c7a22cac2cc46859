# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cpulist
short_description: Format CPUs as a cpulist of the kernel
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Formats CPUs like C(/sys/devices/system/cpu/online), in ascending order with ranges.
  - An empty list or an empty string is the empty set, V('').
options:
  _input:
    description: A cpulist, a CPU number or a list of CPU numbers. Cpulists may have strides such as V(0-31:2/4).
    type: raw
    required: true
seealso:
  - plugin: npu.affinity.cpumask
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show 0-3,8
  ansible.builtin.debug:
    msg: "{{ [8, 0, 1, 2, 3] | npu.affinity.cpulist }}"

- name: Join what two NPUs have
  ansible.builtin.debug:
    msg: "{{ '24-47,0-23' | npu.affinity.cpulist }}"
"""

RETURN = r"""
_value: {description: The cpulist., type: str, sample: "0-3,8"}
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module


@filter_errors
def cpulist(value: object) -> str:
    return as_cpulist(value)


FilterModule = filter_module(cpulist)
