# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: npu_ids
short_description: The present logic ids of NPUs that settings name
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Settings name NPUs by the numbers of their slices, by PCI addresses or by physical ids. Modules take the logic ids that the plan has
    for them by now, which differ after a card dropped off the bus.
positional: npus
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  npus:
    description: The names, as in C(npu_affinity_services).
    type: list
    elements: raw
    required: true
"""

EXAMPLES = r"""
---
- name: Place the threads of one process
  npu.affinity.process_affinity:
    plan: "{{ npu_affinity_plan }}"
    processes:
      - pids: [4711]
        npus: "{{ npu_affinity_plan | npu.affinity.npu_ids(['0000:c1:00.0']) }}"
"""

RETURN = r"""
_value:
  description: Logic ids, ascending. Lost NPUs have none.
  type: list
  elements: int
  sample: [0]
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils import _entries
from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._documents import Plan


@filter_errors
def npu_ids(plan: Plan, npus: Sequence[Any]) -> list[int]:
    return _entries.present_ids(plan, npus)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"npu_ids": npu_ids}
