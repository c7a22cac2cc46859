#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: write_report
short_description: Write the HTML page of a fleet on the controller
version_added: 1.0.0
description:
  - Writes the page and the tables that the settings of role P(npu.affinity.report#role) name, from the results of the hosts of this run or
    from files of earlier runs. The role uses it.
  - Runs on the controller only.
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
# not run by the tests: it writes into the current folder
- name: Write the page of all hosts of the play
  run_once: true
  npu.affinity.write_report:
"""

RETURN = r"""
page:
  description: Path of the page.
  returned: always
  type: str
  sample: /home/alice/npu-affinity.html
"""
