# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: check_health
short_description: Run the health check of a host
version_added: 1.0.0
description:
  - Runs the command C(npu_affinity_health) on the host, and fails the host if the command fails.
  - The message of a failure shows the command, its exit status and the last five lines of each stream.
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Check the health of the host
  npu.affinity.check_health:
"""

RETURN = r"""
rc:
  description: Exit status of the command.
  returned: success
  type: int
  sample: 0
stdout:
  description: What the command printed.
  returned: success
  type: str
  sample: ''
"""
