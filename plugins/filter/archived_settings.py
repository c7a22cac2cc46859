# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: archived_settings
short_description: The settings of an archive that can be taken
version_added: 1.0.0
author:
  - npu.affinity contributors (@npu-affinity)
description:
  - Takes out of the settings that came with the archive of a host what says how a host is planned and compared. What runs programs, names
    files of the controller, is no setting, or has a template in it is left out.
options:
  _input:
    description: The settings, as M(npu.affinity.archive_info) returns them.
    type: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Which settings can be taken?
  ansible.builtin.debug:
    msg: "{{ opened.archives[0].settings | npu.affinity.archived_settings }}"
"""

RETURN = r"""
_value:
  description: C(settings) has those that can be taken, and C(refused) a sentence for each other one.
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.npu.affinity.plugins.plugin_utils._filter_errors import filter_errors
from ansible_collections.npu.affinity.plugins.plugin_utils._settings import archived, specs


@filter_errors
def archived_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    taken, refused = archived.accepted(settings, specs.options())
    return {"settings": taken, "refused": refused}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"archived_settings": archived_settings}
