# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: kubelet_drop_in
short_description: Generate a kubelet drop-in that fits a plan
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Reserves the housekeeping CPUs of the plan and the CPUs for interrupts of its NPUs, as whole cores. The kubelet assigns them to no
    container.
  - Enables the feature gates of alpha options.
  - Fails if settings contradict each other, or if the kubelet of this host would not start with them.
positional: topology, policy, options, topology_policy, reserved
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  policy:
    description: Policy of the CPU manager.
    type: str
    choices: [none, static]
    default: static
  options:
    description: Options of the policies of the CPU manager and the topology manager, such as C(full-pcpus-only).
    type: dict
    default: {}
  topology_policy:
    description: Policy of the topology manager.
    type: str
    choices: [none, best-effort, restricted, single-numa-node]
    default: none
  reserved:
    description: Further CPUs to reserve, as a cpulist, for everything that runs outside Kubernetes.
    type: raw
    default: ""
seealso:
  - module: npu.affinity.host_files
"""

EXAMPLES = r"""
---
- name: Show what the kubelet would have to be told
  ansible.builtin.debug:
    msg: "{{ npu_affinity_plan | npu.affinity.kubelet_drop_in(ansible_facts['npu_affinity_topology'], topology_policy='restricted') }}"
"""

RETURN = r"""
_value:
  description: The text of the drop-in.
  type: str
  sample: "apiVersion: kubelet.config.k8s.io/v1beta1"
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import drop_in

kubelet_drop_in = filter_errors(drop_in.kubelet_drop_in)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"kubelet_drop_in": kubelet_drop_in}
