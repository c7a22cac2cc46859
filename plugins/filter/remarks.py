# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: remarks
short_description: What a bind would move, and what to look at before it
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Compares a plan with the plan in force, and lists every NPU, service, workload and vNPU that a bind would move, before and after.
  - Says which of them are left where they are because their NPU is lost, and what may keep vNPUs from working.
  - On a node of Kubernetes, says what is wrong with the kubelet's files, and whether it will take the CPUs of pods from the NUMA node of
    their NPUs.
  - The plan must not be one that P(npu.affinity.preflight#filter) refuses.
positional: plan
options:
  visible_devices:
    description:
      - Whether services get the ids of their devices, in E(ASCEND_RT_VISIBLE_DEVICES) or E(CUDA_VISIBLE_DEVICES).
      - A service of which another file names other devices is then a remark.
    type: bool
    default: true
extends_documentation_fragment:
  - npu.affinity._binding
  - npu.affinity._binding.device_share
"""

EXAMPLES = r"""
---
- name: Say what a bind would move
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts['npu_affinity_topology']
         | npu.affinity.remarks(npu_affinity_plan, services=services, bound_by='host', workloads=workloads, vnpus=vnpus, device_share=true,
                                visible_devices=true) }}
  vars:
    services:
      - unit: vllm@0.service
        npus: ["0000:c1:00.0"]
    workloads:
      - name: llm-a
        npus: [1, 2]
    vnpus:
      - name: a
        npu: {phy_id: 3}
        memory_mib: 28672
        core: 20
"""

RETURN = r"""
_value:
  description: Sentences; none on a first bind with nothing to look at.
  type: list
  elements: str
  sample:
    - "A bind moves NPU 3 (PCI 0000:82:00.0) from CPUs 120-143 to CPUs 96-143."
    - "vllm@0.service is left where it is, in npu-0.slice, although NPU 0 (PCI 0000:c1:00.0) cannot be found; name another NPU to move it."
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology


@filter_errors
def remarks(
    topology: Topology,
    plan: Plan,
    services: Sequence[Mapping[str, Any]] = (),
    bound_by: str = "host",
    workloads: Sequence[Mapping[str, Any]] = (),
    vnpus: Sequence[Mapping[str, Any]] = (),
    device_share: bool | None = None,
    visible_devices: bool = True,
) -> list[str]:
    return binding.remarks(topology, plan, services, workloads, vnpus, device_share, visible_devices)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"remarks": remarks}
