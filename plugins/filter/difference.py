# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: difference
short_description: A plan beside the plan in force
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Shows what every NPU, service, workload and vNPU has now and gets, and which services have to be restarted after a bind.
  - A plan that P(npu.affinity.preflight#filter) refuses is compared, too.
positional: plan
options:
  limiter:
    description: Whether vNPUs have a limiter that runs on the host, in a unit of its own before that of the container.
    type: bool
    default: true
  visible_devices:
    description: Whether services get the ids of their devices, in E(ASCEND_RT_VISIBLE_DEVICES) or E(CUDA_VISIBLE_DEVICES).
    type: bool
    default: true
  slices:
    description: Whether role P(npu.affinity.slices#role) is on. Without it services lose the drop-ins that they have.
    type: bool
    default: true
extends_documentation_fragment:
  - npu.affinity._binding
"""

EXAMPLES = r"""
---
- name: Which NPUs would get other CPUs?
  ansible.builtin.debug:
    msg: "{{ found.npus | selectattr('sentence') | map(attribute='npu') | list if found.in_force else 'This host is not bound.' }}"
  vars:
    found: >-
      {{ ansible_facts['npu_affinity_topology']
         | npu.affinity.difference(npu_affinity_plan, services=services, bound_by='host', workloads=workloads, vnpus=vnpus, limiter=true,
                                   visible_devices=true, slices=true) }}
    services:
      - unit: vllm@0.service
        npus: [0]
    workloads:
      - name: llm-a
        npus: [1, 2]
    vnpus:
      - name: a
        npu: 3
        memory_mib: 28672
        core: 20
"""

RETURN = r"""
_value:
  description:
    - C(in_force) is whether there is a plan in force to compare with. C(npus) has C(npu), C(pci), C(slice) and the pools C(now) and C(then)
      of every NPU of both plans, null where it has none, and the C(sentence) of filter P(npu.affinity.remarks#filter), null where nothing
      differs.
    - C(users) has C(user), C(npus), C(cpus), C(mems), C(slice) and C(now) of services, workloads and vNPUs.
    - C(restart) are the services whose drop-in a bind writes or removes.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._desired import difference as _difference
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

difference = filter_errors(_difference.difference)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"difference": difference}
