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
options:
  root:
    description: Root directory of the host's file tree.
    type: path
    default: /
attributes:
  diff_mode:
    support: none
    details:
      - Nothing is changed on the host.
"""

    GATHERING = r"""
options:
  root:
    description:
      - Root directory of the host's file tree, with C(sys), C(proc), C(etc) and so on.
      - With any value other than V(/), the module finds and runs only programs below it.
    type: path
    default: /
  device_share:
    description:
      - Query device share (container share mode) of every chip. This needs one more C(npu-smi) call per card.
    type: bool
    default: false
  npu_smi:
    description:
      - Command to use as C(npu-smi), with blanks between its words, as in V(ssh node npu-smi).
      - By default, the module searches C(/usr/local/Ascend/driver/tools), C(/usr/local/sbin), C(/usr/local/bin) and, if O(root) is V(/),
        E(PATH).
    type: str
  nvidia_smi:
    description:
      - Command to use as C(nvidia-smi), with blanks between its words.
      - By default, on hosts with NVIDIA GPUs, the module searches C(/usr/bin), C(/usr/local/bin), C(/usr/local/nvidia/bin), C(/opt/bin)
        and, if O(root) is V(/), E(PATH).
    type: str
  vnpus:
    description: Query into which hard vNPUs the driver can split NPUs. This is two calls for each kind of chip, and one for the host.
    type: bool
    default: false
  units:
    description:
      - Names of systemd services that should exist. The module returns those without a unit file, and the variables for visible devices
        that the files of the others set.
    type: list
    elements: str
    default: []
  others:
    description: Gather the interrupts of network and storage functions, which a printed plan lists if they are on its CPUs.
    type: bool
    default: false
  timeout:
    description: Time limit of each command in seconds. Calls for an NPU whose controller does not respond can take tens of seconds.
    type: int
    default: 30
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
