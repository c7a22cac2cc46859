# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plan_svg
short_description: Draw a plan as SVG
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Draws every CPU of a host in its NUMA node, with the color of its NPU and a mark for its role.
  - The picture loads nothing and follows the light or dark scheme of its viewer. An HTML page can contain several of them.
positional: topology
options:
  _input:
    description: The fact C(npu_affinity_plan).
    type: dict
    required: true
  topology:
    description: The fact C(npu_affinity_topology), for CPUs, NUMA nodes and names.
    type: dict
    required: true
  title:
    description: Title of the picture, such as the name of the host.
    type: str
    default: ""
"""

EXAMPLES = r"""
---
- name: Keep a picture of every plan on the controller
  ansible.builtin.copy:
    content: "{{ npu_affinity_plan | npu.affinity.plan_svg(ansible_facts['npu_affinity_topology'], title=inventory_hostname) }}"
    dest: "{{ playbook_dir }}/{{ inventory_hostname }}.svg"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The picture, one C(svg) element.
  type: str
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import drawing

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Plan, Topology


@filter_errors
def plan_svg(plan: Plan, topology: Topology, title: str = "") -> str:
    return drawing.plan_svg(plan, topology, str(title))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan_svg": plan_svg}
