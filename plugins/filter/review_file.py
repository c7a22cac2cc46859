# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: review_file
short_description: The plans of a fleet as files to review and commit
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Reads the variables that playbook C(plan) leaves with C(npu_affinity_plan_file), and makes one document of all hosts.
  - It is sorted and has no times. A fleet that did not change gives the same texts.
positional: names
options:
  _input:
    description: The variables of hosts by name, as C(hostvars).
    type: dict
    required: true
  names:
    description: The hosts to take.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
---
- name: Show the plans of the fleet to people
  run_once: true
  ansible.builtin.debug:
    msg: "{{ (hostvars | npu.affinity.review_file(ansible_play_hosts_all)).md }}"
"""

RETURN = r"""
_value:
  description: The text for programs (C(json)), with every distinct machine, plan and state once, and the text for people (C(md)).
  type: dict
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._review import file
from ansible_collections.npu.affinity.plugins.plugin_utils._review.markdown import markdown


@filter_errors
def review_file(variables: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    hosts = file.collect(variables, names)
    return {"json": file.text(file.document(hosts)), "md": markdown(hosts)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"review_file": review_file}
