# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: volcano
short_description: Objects of Kubernetes for Volcano's numa-aware plugin
version_added: 0.1.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Writes the configuration of Volcano's scheduler with the numa-aware plugin and its weight, a sample Deployment and a sample Volcano
    job with a topology policy, and for every node the C(Numatopology) that the resource exporter would publish.
  - Nothing is sent to a cluster.
positional: cpus, npus, policy, replicas
options:
  _input:
    description: Topologies by name of the node. Hosts without a kubelet are left out.
    type: dict
    required: true
  cpus:
    description: Whole CPUs of a task; the plugin looks at no others.
    type: int
    default: 1
  npus:
    description: NPUs of a task.
    type: int
    default: 0
  policy:
    description: Topology policy of the tasks.
    type: str
    default: single-numa-node
    choices: [none, best-effort, restricted, single-numa-node]
  replicas:
    description: Number of tasks.
    type: int
    default: 1
  name:
    description: Name of the samples.
    type: str
    default: sample
  image:
    description: Image of the samples.
    type: str
    default: ubuntu
  memory:
    description: Memory of a task. Without it a pod would not be Guaranteed.
    type: str
    default: 1Gi
  weight:
    description: Weight of the plugin.
    type: int
    default: 10
  resource:
    description: The resource name of the NPUs. By default that of the product's device plugin.
    type: str
seealso:
  - plugin: npu.affinity.place
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: The objects as files
  ansible.builtin.copy:
    content: "{{ objects[item] | to_nice_yaml }}"
    dest: "{{ item }}.yml"
    mode: "0644"
  loop: [scheduler, deployment, job]
  vars:
    objects: "{{ {inventory_hostname: npu_affinity_topology} | npu.affinity.volcano(cpus=24, npus=1) }}"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The objects.
  type: dict
  contains:
    scheduler:
      description: The ConfigMap of the scheduler.
      type: dict
      sample: {kind: ConfigMap}
    deployment:
      description: A Deployment whose pods are annotated with the policy.
      type: dict
      sample: {kind: Deployment}
    job:
      description: A Volcano job whose task has the policy.
      type: dict
      sample: {kind: Job}
    numatopologies:
      description: One object for every node.
      type: list
      elements: dict
      sample: [{kind: Numatopology}]
"""

import inspect
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.plugin_utils import _volcano


def volcano(*arguments: Any, **options: Any) -> dict[str, Any]:
    try:
        given = inspect.signature(_volcano.objects).bind(*arguments, **options)
        return _volcano.objects(*given.args, **given.kwargs)
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"volcano: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"volcano": volcano}
