# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: junit
short_description: The comparison of a host with its plan as JUnit XML
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Turns the result of M(npu.affinity.binding_info) into a report that CI systems read, with a test case for every object compared.
  - A drift is a failure whose type is the word of its likely cause, a host that was never bound is one skipped test case, and a
    comparison that failed is an error.
positional: host
options:
  _input:
    description: What M(npu.affinity.binding_info) returned, or failed with.
    type: dict
    required: true
  host:
    description: The name of the host.
    type: str
    required: true
seealso:
  - module: npu.affinity.binding_info
"""

EXAMPLES = r"""
---
- name: Compare the host with its plan in force
  npu.affinity.binding_info:
  register: result

- name: Keep the report of this host on the controller
  ansible.builtin.copy:
    content: "{{ result | npu.affinity.junit(inventory_hostname) }}"
    dest: "reports/{{ inventory_hostname }}.xml"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The XML document.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import junit as _junit

junit = filter_errors(_junit.junit)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"junit": junit}
