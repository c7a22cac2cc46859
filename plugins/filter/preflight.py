# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: preflight
short_description: The reasons why a plan must not be applied to a host
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Checks a plan's invariants, the programs that units and udev rules need, and what the user named against the host, before anything is
    touched.
positional: plan
options:
  needs_driver:
    description: The oldest driver with which device share may be switched on, where that is wanted. Empty means any.
    type: str
    default: ''
  pods_stay:
    description:
      - Whether containers stay on the CPUs that the kubelet gave them. A plan that would take some of these is refused then, with the pods
        and the CPUs that they hold. CPUs of the plan in force are not taken.
      - V(false) is for a node that the same bind drains.
    type: bool
    default: true
  confine_holders:
    description: Whether housekeeping may confine processes that use accelerators and run outside their slices.
    type: bool
    default: false
extends_documentation_fragment:
  - npu.affinity._binding
  - npu.affinity._binding.device_share
"""

EXAMPLES = r"""
---
- name: Refuse what is unsafe
  ansible.builtin.assert:
    that: >-
      ansible_facts['npu_affinity_topology']
      | npu.affinity.preflight(npu_affinity_plan, services=services, bound_by='host', workloads=workloads, vnpus=vnpus, device_share=true,
                               needs_driver='25.5', confine_holders=false, pods_stay=true) | length == 0
  vars:
    services:
      - unit: vllm@0.service
        npus: [0]
    workloads:
      - name: llm-a
        npus: [1, 2]
        units: [llm-a.service]
    vnpus:
      - name: a
        npu: 3
        memory_mib: 28672
        core: 20
        unit: infer-a.service
"""

RETURN = r"""
_value:
  description: One sentence for every reason; none when the plan may be applied.
  type: list
  elements: str
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import pods

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology


@filter_errors
def preflight(
    topology: Topology,
    plan: Plan,
    services: Sequence[Mapping[str, Any]] = (),
    bound_by: str = "host",
    workloads: Sequence[Mapping[str, Any]] = (),
    vnpus: Sequence[Mapping[str, Any]] = (),
    needs_driver: str = "",
    device_share: bool | None = None,
    confine_holders: bool = False,
    pods_stay: bool = True,
) -> list[str]:
    refusals = binding.refusals(topology, plan, services, bound_by, workloads, vnpus, device_share)
    refusals += binding.program_refusals(topology)
    refusals += binding.driver_refusals(topology, needs_driver)
    refusals += pods.refusals(topology, plan) if pods_stay else []
    return refusals + binding.holder_refusals(topology, plan, confine_holders)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"preflight": preflight}
