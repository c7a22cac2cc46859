# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fit_vnpus
short_description: Find the cards with room for vNPUs
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Predicts the decision of HAMi's scheduler about a request for memory and compute of NPUs, with its rules, order and messages.
  - The shares of compute of a card never exceed 100 percent, and their memory never exceeds its capacity. The same input always has the
    same result.
  - Completes requests of containers like HAMi's admission. In hard mode, it rounds memory up to the templates of the chip. It requests two
    dies of a 910C instead of one, and refuses what HAMi refuses, with its messages.
positional: request, options
options:
  _input:
    description:
      - A list of devices, each with C(id), C(total_memory_mb) and C(type), and if they are not 0, C(used_memory_mb), C(used_core) and
        C(used_slots). C(total_core) is 100, or the number of AI cores in hard mode. C(slots) is the number of containers that may share it.
      - On 910C, C(index) divided by two is the card of a die. C(network_id) identifies groups of cards. C(healthy) is V(true) by default.
      - Or the fact C(npu_affinity_topology), whose NPUs are then unused devices with ids such as V(npu-0).
    type: raw
    required: true
  request:
    description:
      - The request of a container is a dictionary of C(chip), by its name in C(npu-smi) (V(910B3)) or in HAMi's resources (V(Ascend910B3)),
        C(count) (cards, V(1) by default), C(memory) (in MB, all of the card by default), and C(core) (percent of compute, only with
        O(soft=true)).
      - A complete request is a dictionary of C(cards), C(memory_mb) (0 means C(memory_percent) of the card), C(core) and C(type).
      - Or a list of requests, which are fitted one after another.
    type: raw
    required: true
  options:
    description: The options below as a dictionary. Options given by name take precedence.
    type: dict
  soft:
    description: Whether the request is for soft split (HAMi's mode C(hami-core)).
    type: bool
    default: false
  node_soft:
    description: Whether the node does soft split.
    type: bool
    default: false
  mutex:
    description: Use only unused cards.
    type: bool
    default: false
  use:
    description: The ids of the only devices to use. Empty means all.
    type: list
    elements: str
    default: []
  nouse:
    description: The ids of devices not to use.
    type: list
    elements: str
    default: []
  word:
    description: HAMi's word for the chip, such as V(Ascend910C). By default the type of the request.
    type: str
    default: ""
seealso:
  - plugin: npu.affinity.vnpus
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Where do 28 GiB and 20 percent fit on this host, and where 28 GiB and 40 percent more?
  ansible.builtin.debug:
    msg: >-
      {{ ansible_facts['npu_affinity_topology']
         | npu.affinity.fit_vnpus(requests, soft=true, node_soft=true) | map(attribute='devices') }}
  vars:
    requests:
      - {chip: 910B3, memory: 28672, core: 20}
      - {chip: 910B3, memory: 28672, core: 40}

- name: Why does it not fit on a card that others use?
  ansible.builtin.debug:
    msg: >-
      {{ cards | npu.affinity.fit_vnpus({'memory_mb': 1024, 'core': 30, 'type': 'Ascend910B3'},
                                         {'soft': true, 'node_soft': true}, mutex=false, use=['a'], nouse=['b'], word='Ascend910B3') }}
  vars:
    cards:
      - id: a
        type: Ascend910B3
        total_memory_mb: 65536
        used_memory_mb: 32768
        used_core: 80
        slots: 4
        used_slots: 1
"""

RETURN = r"""
_value:
  description:
    - C(devices) are the ids in the order of choice, null where the request does not fit. C(reason) then says why, as
      V(<count>/<devices> <reason>), and C(reasons) has the reason of every device that was passed over.
    - C(taken) says how much of each device is taken, as C(id), C(memory_mb), C(core) and C(template).
    - For a list of requests, a list of such results.
  type: raw
  sample: {devices: [npu-7], reason: null, reasons: {}, taken: [{id: npu-7, memory_mb: 28672, core: 20, template: null}]}
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, cast

from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Topology
from ansible_collections.npu.affinity.plugins.plugin_utils._errors import filter_errors, filter_module
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu import fit
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import HARD, SOFT, Request, chip_of, requested

CONTAINER = {"chip", "core", "count", "memory"}
OPTIONS = {field.name for field in fields(fit.Rules)}


@filter_errors
def fit_vnpus(
    devices: Sequence[fit.Device] | Topology, request: Request | Sequence[Request], options: Mapping[str, Any] | None = None, **others: Any
) -> dict[str, Any] | list[dict[str, Any]]:
    given = {**(options or {}), **others}
    if unknown := sorted(set(given) - OPTIONS):
        raise ValueError(f"there is no option {', '.join(unknown)}; there are {', '.join(sorted(OPTIONS))}")
    rules = fit.Rules(**given)
    cards = fit.devices_of(devices, rules.soft) if isinstance(devices, Mapping) else devices
    if isinstance(request, Mapping):
        return asdict(fit.fit(cards, _complete(request, rules.soft), rules))
    return [asdict(result) for result in fit.fit_all(cards, [_complete(one, rules.soft) for one in request], rules)]


def _complete(request: Mapping[str, Any], soft: bool) -> Request:
    """Return a request of a container as HAMi's admission completes it; another one is complete."""
    if "chip" not in request:
        return cast("Request", request)
    if unknown := sorted(request.keys() - CONTAINER):
        raise ValueError(f"request: {', '.join(unknown)} is not of a request with chip, which has {', '.join(sorted(CONTAINER))}")
    asked = {key: value for key, value in request.items() if key != "chip"}
    return requested(chip_of(str(request["chip"])), mode=SOFT if soft else HARD, **asked)


FilterModule = filter_module(fit_vnpus)
