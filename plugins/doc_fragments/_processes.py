# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options that select processes and the NPUs that they belong to. Private to the collection."""

    DOCUMENTATION = r"""
options:
  processes:
    description:
      - The processes and the NPUs that they belong to. If several elements match a process, the one with its number takes precedence,
        then the one with the innermost unit.
      - The default is the processes in the slices of all NPUs of the plan.
    type: list
    elements: dict
    default: []
    suboptions:
      npus:
        description:
          - Logic ids. Without another key, they select the processes in the slices of these NPUs. An empty list selects those in the slices
            of all NPUs and GPUs of the plan.
        type: list
        elements: int
        default: []
      slice:
        description: A slice in which the processes run.
        type: str
      unit:
        description: A service in which the processes run.
        type: str
      pids:
        description: Numbers of processes.
        type: list
        elements: int
      devices:
        description: Select all processes of the host that have the device of one of the NPUs open.
        type: bool
        default: false
"""
