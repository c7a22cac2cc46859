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
    description:
      - Services of systemd that use NPUs, each with its C(unit) and its C(npus).
      - An NPU is named by its logic id (V(0)), its PCI address (V(0000:c1:00.0), which means all chips of the function), or a dictionary
        with its physical id (C(phy_id)), or with C(pci) and C(chip). The same holds for O(workloads) and O(vnpus).
      - A logic id is the number in the name of the slice, that is the id at the time of the plan in force. When a card drops off the bus,
        npu-smi counts on without it, and services stay where they are.
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
      - Groups of NPUs that serve one model, each with its C(name), its C(npus) and, optionally, its C(units).
      - A group gets a slice of its own with the union of the pools.
      - Groups with NPUs in common are refused, unless each of them has C(share=true).
    type: list
    elements: dict
    default: []
  vnpus:
    description:
      - Parts of NPUs for containers that share them, each with its C(name), its C(npu), C(memory_mib), C(core) (percent)
        and, optionally, the C(unit) that starts the container.
      - Each gets a slice inside that of its NPU, with whole cores in proportion to C(core).
    type: list
    elements: dict
    default: []
"""

    DEVICE_SHARE = r"""
options:
  device_share:
    description:
      - Whether the same bind switches device share on for the NPUs of O(vnpus). Without it, vNPUs whose NPUs do not share, or of which that
        is not known, are a remark; with V(false), those that do not share are refused.
    type: bool
"""
