# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vnpus
short_description: Compute the resources of containers that share NPUs without Kubernetes
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Returns the CPUs, slice, variables and mounts of every vNPU for P(npu.affinity.launch#filter).
  - Refuses shares of an NPU that exceed 100 percent or its memory in total.
positional: vnpus, topology
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  vnpus:
    description:
      - The variable C(npu_affinity_vnpus), elements with C(name), the C(npu), C(memory_mib), C(core) in percent and,
        optionally, the C(unit) that starts the container.
      - A hard vNPU has C(template) in place of C(memory_mib) and C(core), and C(name) is optional.
    type: list
    elements: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  folder:
    description: Directory of the library and the preload file on the host.
    type: path
    default: /usr/local/hami-vnpu-core
  shared_region:
    description: The directory of the host that all containers of all NPUs share.
    type: path
    default: /usr/local/hami-shared-region
  limiter:
    description: Whether the limiter runs on the host.
    type: bool
    default: true
seealso:
  - plugin: npu.affinity.launch
    plugin_type: filter
  - plugin: npu.affinity.fit_vnpus
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Say how to start the first of two containers that share NPU 0
  ansible.builtin.debug:
    msg: "{{ shares[0] | npu.affinity.launch('docker', image='vllm-ascend', topology=ansible_facts['npu_affinity_topology']) }}"
  vars:
    shares: >-
      {{ npu_affinity_plan
         | npu.affinity.vnpus(npu_affinity_vnpus, ansible_facts['npu_affinity_topology'], folder='/usr/local/hami-vnpu-core',
                              shared_region='/usr/local/hami-shared-region', limiter=true) }}
    npu_affinity_vnpus:
      - {name: a, npu: 0, memory_mib: 28672, core: 20, unit: infer-a.service}
      - {name: b, npu: 0, memory_mib: 28672, core: 40}
"""

RETURN = r"""
_value:
  description:
    - Each vNPU's C(name), C(npus) (one logic id), C(of) (what its NPU is called), C(memory_mib), C(core), C(unit), C(slice), C(pool) (a
      cpulist), C(mems) and C(memory_nodes) (the nearest memory nodes, and those that may be used).
    - C(environment) are the variables of the container, C(file) the file of the host that holds them for C(--env-file), C(limiter) the
      name of the unit or null, and C(volumes) the mounts of the container.
    - A hard vNPU also has its C(template), its C(vnpu_id) and C(devices), those of its container.
  type: list
  elements: dict
  sample:
    - name: a
      npus: [0]
      of: NPU 0
      memory_mib: 28672
      core: 20
      unit: null
      slice: npu-0-a.slice
      pool: 146-149
      mems: "6"
      memory_nodes: 6-7
      environment: {ASCEND_VISIBLE_DEVICES: "0", NPU_MEM_QUOTA: "28672", NPU_PRIORITY: "20"}
      file: /etc/npu-affinity/vnpu/a.env
      limiter: npu-affinity-limiter-a.service
      volumes: ["/usr/local/hami-vnpu-core:/hami-vnpu-core:ro"]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import vnpus as _vnpus


@filter_errors
def vnpus(
    plan: Plan,
    vnpus: Sequence[Mapping[str, Any]],
    topology: Topology,
    folder: str = "/usr/local/hami-vnpu-core",
    shared_region: str = "/usr/local/hami-shared-region",
    limiter: bool = True,
) -> list[dict[str, Any]]:
    vnpus = _vnpus.with_names(vnpus)
    if reasons := _vnpus.refusals(topology, plan, vnpus):
        raise ValueError(" ".join(reasons))
    return [{**vnpu, "volumes": _vnpus.mounts(vnpu, folder, shared_region)} for vnpu in _vnpus.vnpus(topology, plan, vnpus, limiter)]


FilterModule = filter_module(vnpus)
