# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: select_npus
short_description: Select the chips of a host for a task by the rule of the product
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Chooses among the free chips of one host like MindCluster's scheduler. It keeps rings of four and eight chips, modules of two dies,
    cards of four and two, and meshes of four whole for larger tasks.
  - Fails if the product does not allow the number (C(size not allowed)), or if the free chips do not fit (C(no fit)).
  - Reserves nothing.
positional: count, family, multi, mode
options:
  _input:
    description:
      - The fact C(npu_affinity_topology) of P(npu.affinity.topology_facts#module). NPUs without processes are free.
      - Or free chip ids, as a list or as text such as C(0-3,6). Set O(family) to their product.
    type: raw
    required: true
  count:
    description: The number of chips of a task.
    type: int
    default: 1
  family:
    description:
      - The product whose rule to use. V(auto) takes it from the topology. If the facts of a host with Ascend 950 fit several products,
        RV(_value.assumed) states the assumption.
      - V(atlas800_9000) is the Atlas 800 (model 9000 or 9010) with rings of 4 chips, V(half_910_x4) its half. 1, 2, 4 or 8 chips. A
        single chip comes from a ring with 1, else 3, 2 or 4 free chips, a pair from a ring with 2, else 4 or 3. Four chips are a whole
        ring.
      - V(a2) is the Atlas 800T A2 or a unit of the 900 A2. 1 to 8 chips, with the lowest ids.
      - V(box16) is the Atlas 200T A2 Box16 with two rings of 8. 1 to 8, 10, 12, 14 or 16 chips, from the smallest ring that fits; more than
        8 take the same positions of both rings.
      - V(a3) is the Atlas 800 A3 or 900 A3 SuperPoD, V(a3_box8) its Box8, with modules of 2 dies. An even number of dies as whole
        modules, or a single die, preferably of a half-free module.
      - V(300I_card) and V(300I_chip) are the Atlas 300I with 4 chips on a card. 1 to 4 chips of one card, or 1 to 64 of the emptiest cards.
      - V(300I_duo_card), V(300I_duo_chip) and V(300I_duo_distributed) are the Atlas 300I Duo with 2 chips on a card. 1 to 2 chips of one
        card, or 1 to 32. Half-used cards come first, but V(300I_duo_distributed) keeps cards whole.
      - V(atlas350_8) and V(atlas350_16) are the Atlas 350 with 8 or 16 processors without links. Any number of chips, with the lowest ids.
      - V(mesh4_8) and V(mesh4) are the Atlas 350 with 8 or 16 processors in meshes of 4. Any number of chips, of the tightest mesh or of
        whole meshes. 5 to 7, 9 to 11 and 13 to 15 chips are not guaranteed to be linked.
      - V(atlas850) is the Atlas 850 in a standard cluster, V(atlas850_superpod) in a SuperPod. 1, 2, 4 or 8 chips; each of several tasks
        in a SuperPod has 8.
      - V(atlas950) is the Atlas 950 SuperPoD. 1 to 8 chips; each of several tasks has 8.
    type: str
    default: auto
    choices:
      - auto
      - 300I_card
      - 300I_chip
      - 300I_duo_card
      - 300I_duo_chip
      - 300I_duo_distributed
      - 300I_pro
      - a2
      - a3
      - a3_box8
      - atlas350_16
      - atlas350_8
      - atlas850
      - atlas850_superpod
      - atlas950
      - atlas800_9000
      - box16
      - card_910_x2
      - half_910_x4
      - mesh4
      - mesh4_8
  multi:
    description:
      - Whether the task is one of several of a distributed job. V(false) is a single job.
      - A single die of an A3 is only given to single jobs. On a Box16, tasks of distributed jobs may have more than eight chips at
        different positions of the two rings.
    type: bool
    default: false
  mode:
    description:
      - How to allocate chips of inference cards, with O(family=auto).
      - V(chip) may cross cards, V(card) stays on one card, V(distributed) keeps cards of the 300I Duo whole for distributed inference.
    type: str
    default: chip
    choices: [chip, card, distributed]
  allocatable:
    description: Number of healthy chips of the host, whether free or not. The score uses it. The default is all of the topology or product.
    type: int
  share:
    description:
      - A part of a chip instead of whole chips, with the keys C(used) (chip to C(core), C(hbm) and C(policy)), C(request)
        (C(core), C(hbm_mb), C(policy)) and C(chip_hbm_mb). The input is then the unused chips.
    type: dict
seealso:
  - plugin: npu.affinity.place
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Which two chips would a job get here?
  ansible.builtin.debug:
    msg: "{{ (ansible_facts['npu_affinity_topology'] | npu.affinity.select_npus(2)).chips }}"

- name: Two of these chips of an Atlas 800 (model 9000)
  ansible.builtin.debug:
    msg: "{{ [1, 2, 3, 5] | npu.affinity.select_npus(2, family='atlas800_9000') }}"

- name: Four chips of a server with Atlas 350 cards that are not linked
  ansible.builtin.debug:
    msg: "{{ [0, 2, 3, 6, 7] | npu.affinity.select_npus(4, family='atlas350_8') }}"

- name: A fifth of a chip, next to other jobs of the same policy
  ansible.builtin.debug:
    msg: "{{ [2, 3] | npu.affinity.select_npus(share=share) }}"
  vars:
    share:
      used: {"1": {core: 30, hbm: 1024, policy: fixed-share}}
      request: {core: 20, hbm_mb: 1024, policy: fixed-share}
      chip_hbm_mb: 32768
"""

RETURN = r"""
_value:
  description: The selection.
  type: dict
  contains:
    family: {description: The rule that was used., type: str, sample: atlas800_9000}
    product: {description: The products of the rule., type: str, sample: Atlas 800 (model 9000)}
    chips:
      description: The chips in the order in which the rule takes them; logic ids when the input is a topology.
      type: list
      elements: int
      sample: [1, 2]
    score:
      description: The score of the host by the product's formula, for comparison with hosts of the same product. 0 where it has none.
      type: int
      sample: 244
    assumed:
      description: The assumption about the product, if the facts of the host leave it open. Otherwise empty.
      type: str
      sample: ""
    reason:
      description: The location of the chips, in words, and whether the product guarantees no affinity for this number.
      type: str
      sample: Chips 1-2 are in ring 0 of Atlas 800 (model 9000).
"""

from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._placement import select

select_npus = filter_errors(select.select_npus)
FilterModule = filter_module(select_npus)
