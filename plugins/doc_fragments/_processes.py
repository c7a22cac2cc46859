# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """How modules are told which processes are meant, and to which NPUs they belong. Private to the collection."""

    DOCUMENTATION = r"""
options:
  processes:
    description:
      - The processes that are meant, and the NPUs that they belong to. A process in several elements belongs to the nearest one, which is
        the one that names its number, then the innermost unit.
      - By default the processes in the slice of every NPU of the plan.
    type: list
    elements: dict
    default: []
    suboptions:
      npus:
        description:
          - Logic ids. Without any further key they mean the processes in the slices of these NPUs, and an empty list those in the slices of
            all NPUs and GPUs of the plan.
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
        description: Whether all processes of the host that have the device of one of the NPUs open are meant, wherever they run.
        type: bool
        default: false
"""
