# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: volcano_check
short_description: Explain why Volcano's numa-aware plugin would ignore a manifest
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Checks your manifest, and lists what prevents its pods from getting exclusive CPUs on the right NUMA nodes.
  - Possible causes are a scheduler other than C(volcano), a missing or unknown topology policy, CPUs that are not a whole number, and
    requests that differ from limits.
  - Sends nothing to a cluster.
positional: hosts
options:
  _input:
    description: A Pod, a workload with a pod template such as a Deployment, or a Volcano job.
    type: dict
    required: true
  hosts:
    description:
      - Topologies by name of the node. The filter then requires a node with the static CPU manager and the topology policy of the pods.
      - By default, the filter does not check nodes.
    type: dict
seealso:
  - plugin: npu.affinity.volcano
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Refuse manifests that the numa-aware plugin would pass by
  ansible.builtin.assert:
    that: findings | length == 0
    fail_msg: "{{ findings | join(' ') }}"
  vars:
    findings: "{{ lookup('ansible.builtin.file', 'llm.yml') | from_yaml | npu.affinity.volcano_check }}"

- name: Look at the nodes as well
  ansible.builtin.debug:
    msg: >-
      {{ lookup('ansible.builtin.file', 'llm.yml') | from_yaml
         | npu.affinity.volcano_check(hosts={inventory_hostname: ansible_facts['npu_affinity_topology']}) }}
"""

RETURN = r"""
_value:
  description: A sentence for each problem.
  type: list
  elements: str
  sample:
    - "Deployment llm, container llm: 1500m CPUs are not a whole number, and the kubelet gives CPUs of their own only to whole ones."
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import volcano_check as _volcano_check

volcano_check = filter_errors(_volcano_check.volcano_check)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"volcano_check": volcano_check}
