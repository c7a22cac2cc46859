# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What several modules promise alike. Private to the collection."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check_mode and return changed status prediction without modifying the target.
    support: full
  diff_mode:
    description: Returns details on what has changed (or possibly needs changing in check_mode), when in diff mode.
    support: full
  idempotent:
    description: When run twice in a row outside check mode with the same arguments, the second run changes nothing.
    support: full
  platform:
    description: Target OS families that can be operated against.
    support: full
    platforms: linux
"""

    READS = r"""
options: {}
attributes:
  diff_mode:
    support: none
    details:
      - Nothing is changed on the host.
"""

    AUTHOR = r"""
options:
  author:
    description: Author of the change, recorded in the history and the journal of systemd.
    type: str
    default: ''
  reason:
    description: Reason for the change, recorded in the history and the journal of systemd.
    type: str
    default: ''
  run:
    description: The run that the change belongs to, recorded in the history. The default is a run of its own.
    type: dict
    suboptions:
      id:
        description: Id of the run.
        type: str
        required: true
      time:
        description: When it began, in UTC.
        type: str
        required: true
      inventory:
        description: The inventory that it was started with.
        type: str
        default: ''
"""
