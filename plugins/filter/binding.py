# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: binding
short_description: What systemd must have on a host so that a plan is in force
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Turns a plan into slices and drop-ins, by the host's cgroup version, its systemd and its kubelet.
  - The role P(npu.affinity.slices#role) renders the result.
positional: plan
options:
  limiter:
    description: Whether vNPUs have a limiter that runs on the host, in a unit of its own before that of the container.
    type: bool
    default: true
  visible_devices:
    description:
      - Whether the drop-ins of services name their devices, in E(ASCEND_RT_VISIBLE_DEVICES) or E(CUDA_VISIBLE_DEVICES).
      - A drop-in never overrides what another file of the unit sets. P(npu.affinity.remarks#filter) tells where that names other devices.
    type: bool
    default: true
extends_documentation_fragment:
  - npu.affinity._binding
"""

EXAMPLES = r"""
---
- name: Say which way the workloads of a host are bound
  ansible.builtin.debug:
    msg: >-
      {{ (ansible_facts['npu_affinity_topology']
          | npu.affinity.binding(npu_affinity_plan, services=services, bound_by='host', workloads=workloads, vnpus=vnpus, limiter=true,
                                 visible_devices=true)).summary }}
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
  description:
    - C(method) is V(slices), V(services) (cgroup v1, or an old systemd) or V(none), and C(summary) the sentence why.
    - C(parents), C(slices), C(services) and C(housekeeping) are the units with their CPUs and memory nodes.
    - Services have the variables of their drop-ins in C(environment); those that switch in-process binding off are in C(switches), too.
    - C(workloads) are those with a slice of their own, with the slices of their NPUs.
    - C(vnpus) are as P(npu.affinity.vnpus#filter) returns them, with the C(settings) of the unit of their limiter.
    - C(enabled), C(started) and C(expected) are the units that must start at boot, those that must run, and what the kernel must then
      grant, as P(npu.affinity.host_files#module) takes them.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import binding as _binding
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan, Topology


@filter_errors
def binding(
    topology: Topology,
    plan: Plan,
    services: Sequence[Mapping[str, Any]] = (),
    bound_by: str = "host",
    workloads: Sequence[Mapping[str, Any]] = (),
    vnpus: Sequence[Mapping[str, Any]] = (),
    limiter: bool = True,
    visible_devices: bool = True,
) -> dict[str, Any]:
    return _binding.binding(topology, plan, services, bound_by, workloads, vnpus, limiter, visible_devices)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"binding": binding}
