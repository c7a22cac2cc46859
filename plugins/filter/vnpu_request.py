# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vnpu_request
short_description: Complete a container's request for an NPU like HAMi's admission
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Rounds memory up to the templates of the chip in hard mode, and keeps it in soft mode. Requests two dies of a 910C instead of one.
    Refuses what HAMi refuses, with its messages.
positional: count, memory, core, mode
options:
  _input:
    description: Name of the chip in C(npu-smi) (V(910B3)) or in HAMi's resources (V(Ascend910B3)).
    type: str
    required: true
  count:
    description: The number of cards, C(huawei.com/<chip>).
    type: raw
    default: 1
  memory:
    description: Memory in MB, C(huawei.com/<chip>-memory). The default is all of the card.
    type: raw
  core:
    description: Compute in percent, C(huawei.com/<chip>-core). Only soft mode has it.
    type: raw
  mode:
    description: V(hard) splits by the templates of the driver, V(hami-core) by a library in the container.
    type: str
    choices: [hard, hami-core]
    default: hard
seealso:
  - plugin: npu.affinity.fit_vnpus
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: How much memory a request for 20000 MB gets in hard mode, and by which template
  ansible.builtin.debug:
    msg: "{{ '910B3' | npu.affinity.vnpu_request(memory=20000) }}"

- name: A share of one card in soft mode
  ansible.builtin.debug:
    msg: "{{ 'Ascend910B3' | npu.affinity.vnpu_request(count=1, memory=28672, core=20, mode='hami-core') }}"
"""

RETURN = r"""
_value:
  description: C(cards), C(memory_mb), C(memory_percent), C(core), C(type) and C(template), as P(npu.affinity.fit_vnpus#filter) takes them.
  type: dict
  sample: {cards: 1, memory_mb: 32768, memory_percent: 0, core: 0, type: Ascend910B3, template: vir10_3c_32g}
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import requests
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import chip_of


@filter_errors
def vnpu_request(
    chip: str, count: int | str = 1, memory: int | str | None = None, core: int | str | None = None, mode: str = requests.HARD
) -> dict[str, Any]:
    return requests.request(chip_of(str(chip)), count, memory, core, mode)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"vnpu_request": vnpu_request}
