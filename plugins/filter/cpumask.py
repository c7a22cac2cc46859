# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cpumask
short_description: Format CPUs as a CPU mask of the kernel
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Formats CPUs like C(/proc/irq/<n>/smp_affinity), in groups of 32 bits with eight hexadecimal digits, the highest first, without leading
    empty groups.
options:
  _input:
    description: A cpulist, a CPU number or a list of CPU numbers.
    type: raw
    required: true
seealso:
  - plugin: npu.affinity.cpulist
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show 00000008,00000000
  ansible.builtin.debug:
    msg: "{{ 35 | npu.affinity.cpumask }}"

- name: Show the mask of the CPUs for the interrupts of the first NPU
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan.npus[0].irq | npu.affinity.cpumask }}"
"""

RETURN = r"""
_value: {description: The CPU mask., type: str, sample: "00000008,00000000"}
"""

from ansible_collections.npu.affinity.plugins.module_utils._base.cpulist import expand, to_mask
from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import as_cpulist
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module


@filter_errors
def cpumask(value: object) -> str:
    return str(to_mask(expand(as_cpulist(value))))


FilterModule = filter_module(cpumask)
