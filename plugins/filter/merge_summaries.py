# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: merge_summaries
short_description: Merge the summaries of the slices of a job
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Merges the summaries of runs over parts of a fleet, such as the slices of an AWX job, into the summary of a single run. Each run sets
    the custom statistic C(npu_affinity_summary), which AWX stores in the artifacts of the job.
options:
  _input:
    description: The results of filter P(npu.affinity.summary#filter) in each run, in the order in which to list the hosts.
    type: list
    elements: dict
    required: true
seealso:
  - plugin: npu.affinity.summary
    plugin_type: filter
"""

EXAMPLES = r"""
---
- name: Show the state of the fleet from the saved artifacts of each slice
  ansible.builtin.debug:
    msg: "{{ (query('ansible.builtin.file', *files) | map('from_json') | npu.affinity.merge_summaries).lines }}"
  vars:
    files: "{{ query('ansible.builtin.fileglob', 'summaries/*.json') | sort }}"
"""

RETURN = r"""
_value:
  description: The same keys as those of P(npu.affinity.summary#filter).
  type: dict
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._report import summary, summary_text

if TYPE_CHECKING:
    from ansible_collections.npu.affinity.plugins.module_utils._base.documents import Summary


@filter_errors
def merge_summaries(summaries: Iterable[Summary]) -> dict[str, Any]:
    found = summary.merged(summaries)
    return found | {"lines": summary_text.lines(found)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"merge_summaries": merge_summaries}
