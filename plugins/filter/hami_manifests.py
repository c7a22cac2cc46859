# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hami_manifests
short_description: Generate HAMi's manifests to share the NPUs of a host
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Generates manifests and values for HAMi's chart and device plugin from the facts of a host. Also generates sample pods, and the
    annotation that HAMi's scheduler will set on each pod.
  - Checks the requests of the pods with HAMi's own rules for the unused node, and refuses what HAMi would refuse.
positional: node, requests
options:
  _input:
    description: The fact C(npu_affinity_topology) of the host.
    type: dict
    required: true
  node:
    description: The name of the node in the cluster.
    type: str
    required: true
  requests:
    description: Sample pods, each with C(name), C(count) (1 by default), C(memory_mib) (all of a card by default) and C(core) in percent.
    type: list
    elements: dict
    default: []
  mode:
    description: V(hami-core) is soft split, V(hard) splits by the templates of the driver.
    type: str
    choices: [hami-core, hard]
    default: hami-core
  namespace:
    description: The namespace of HAMi.
    type: str
    default: kube-system
  image:
    description: The image of the sample pods.
    type: str
    default: IMAGE
  vdevice_count:
    description: How many containers may share a card. With V(0), HAMi divides its memory by the smallest template.
    type: int
    default: 0
  uuids:
    description:
      - HAMi's ids of the NPUs by logic id, as the annotation C(hami.io/node-register-<chip>) of the node has them.
      - Without them, V(npu-<logic id>) stands for each in the expected annotations.
    type: dict
    default: {}
  limiter:
    description:
      - For libraries that need the limiter, its path in containers. The device plugin mounts it at V(/hami-vnpu-core/limiter). The sample
        pods then start it with a C(postStart) hook, as HAMi 2.9.0 does by itself.
      - Empty for libraries that need no limiter, such as those of later device plugins.
    type: str
    default: ''
  services:
    description:
      - Services of the host that hold NPUs, as in C(npu_affinity_services). HAMi is kept off their cards with C(filterDevices).
      - HAMi hides whole cards, so both dies of a card are hidden.
    type: list
    elements: dict
    default: []
  plan:
    description: The plan in which O(services) name NPUs. By default the plan in force of the host.
    type: dict
  scheduler:
    description:
      - The scheduler of the sample pods. With V(volcano), add the result C(volcano) to its plugins. C(hami-core) needs Volcano 1.16.
    type: str
    choices: [hami, volcano]
    default: hami
seealso:
  - plugin: npu.affinity.fit_vnpus
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Save what is to be applied to the cluster
  ansible.builtin.copy:
    content: |
      {% for part in [manifests.node, manifests.node_config, manifests.device_config] + manifests.pods %}
      ---
      {{ part | to_nice_yaml }}
      {%- endfor %}
    dest: "{{ inventory_hostname }}-hami.yaml"
    mode: "0644"
  delegate_to: localhost
  vars:
    manifests: >-
      {{ ansible_facts['npu_affinity_topology']
         | npu.affinity.hami_manifests(inventory_hostname, shares, mode='hami-core', namespace='kube-system', image='vllm-ascend',
                                       vdevice_count=10, uuids={}, limiter='') }}
    shares:
      - {name: infer-a, memory_mib: 28672, core: 20}
      - {name: infer-b, memory_mib: 28672, core: 40}
"""

RETURN = r"""
_value:
  description:
    - C(node) labels the node for the device plugin, and enables or disables soft split there.
    - C(device_config) is the chip's part of HAMi's device configuration. Merge it into the configuration of your HAMi.
    - C(node_config) has the same switch, and the number of containers per card, in the form that the device plugin reads.
    - C(values) are the values of HAMi's chart.
    - C(pods) are sample pods, and C(annotations) are those that HAMi's scheduler will set on each of them.
    - C(warnings) are sentences on what may keep soft split from working there. What cannot work (a driver before 25.5, a chip without
      device share such as 910A, x86_64) is refused.
    - C(plugin_patch) is a JSON patch for the DaemonSet of the device plugin, which does not read C(node_config) by default.
      Apply it with C(kubectl patch --type=json). The plugin reads C(node_config) when it starts; restart its pod after each change.
    - C(volcano) is the plugin C(deviceshare) with its arguments. Pass it to filter P(npu.affinity.volcano#filter) as one of its plugins.
    - C(monitor) is where the device plugin serves metrics of soft split, null without it.
    - C(plugin_calls) is what the device plugin runs when it starts. On cards that share already it changes nothing and cannot fail.
  type: dict
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import hami

hami_manifests = filter_errors(hami.hami_manifests)
FilterModule = filter_module(hami_manifests)
