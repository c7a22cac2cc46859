#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: say
short_description: Print lines regardless of the callback
version_added: 1.0.0
description:
  - Prints lines as they are, without quotes, and returns them.
  - The lines also appear if the stdout callback hides results of unchanged tasks. A callback that prints JSON shows them only in the result
    of the task.
  - Runs on the controller only.
options:
  msg:
    description: A text, or a list of lines.
    type: raw
    required: true
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Show the plan
  npu.affinity.say:
    msg: "{{ npu_affinity_plan | npu.affinity.log_lines }}"
"""

RETURN = r"""
msg:
  description: What was printed.
  returned: always
  type: raw
  sample: ["4 changed: a2-[01:04]"]
"""
