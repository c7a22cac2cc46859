# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What filters take that turn a plan into units. Private to the collection."""

    DOCUMENTATION = r"""
options:
  _input:
    description: The fact C(npu_affinity_topology).
    type: dict
    required: true
  plan:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  services:
    description: Services of systemd that use NPUs, each with its C(unit) and the logic ids of its C(npus).
    type: list
    elements: dict
    default: []
  bound_by:
    description:
      - V(host) gives every NPU a slice of its own.
      - V(workers) gives all NPUs one slice, for workers that bind themselves inside it.
    type: str
    choices: [host, workers]
    default: host
  workloads:
    description:
      - Groups of NPUs that serve one model, each with its C(name), the logic ids of its C(npus) and, optionally, its C(units).
      - A group gets a slice of its own with the union of the pools.
    type: list
    elements: dict
    default: []
  vnpus:
    description:
      - Parts of NPUs for containers that share them, each with its C(name), the logic id of its C(npu), C(memory_mib), C(core) (percent)
        and, optionally, the C(unit) that starts the container.
      - Each gets a slice inside that of its NPU, with whole cores in proportion to C(core).
    type: list
    elements: dict
    default: []
"""
