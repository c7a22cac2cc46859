# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hardware_changes
short_description: How a machine differs from the one that a state was made for
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Compares the hardware that a desired state was made for with that of a host. A state of other hardware must not be applied.
  - Nothing differs for a state that was made without a topology.
positional: topology
options:
  _input:
    description: RV(npu.affinity.desired_state#filter:_value), its key C(hardware).
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology) of the host now.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Refuse a state of other hardware
  ansible.builtin.assert:
    that: changes | length == 0
    fail_msg: "{{ changes | join('; ') }}"
  vars:
    changes: "{{ history.entry.state.hardware | npu.affinity.hardware_changes(ansible_facts['npu_affinity_topology']) }}"
"""

RETURN = r"""
_value:
  description: One sentence for everything that differs.
  type: list
  elements: str
  sample: ["the NPU at 0000:c1:00.0 is not there any more", "the CPUs online were 0-191 and are 0-190"]
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import hardware
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

hardware_changes = filter_errors(hardware.hardware_changes)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"hardware_changes": hardware_changes}
