# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: unbind_host
short_description: Restore the state of a host before the first bind, with its settings
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.unbind) with the settings of the host and of the playbook C(unbind), such as C(npu_affinity_features).
options:
  drained:
    description: Whether the node is drained, which allows the kubelet to restart.
    type: bool
    default: false
seealso:
  - module: npu.affinity.unbind
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Restore the state before the first bind
  npu.affinity.unbind_host:
"""

RETURN = r"""
drain:
  description: Whether the node has to be drained, and this repeated with O(drained). C(npu_affinity_kubelet_restart) allows it.
  returned: success
  type: bool
  sample: false
message:
  description: As RV(npu.affinity.unbind#module:message). The other values that M(npu.affinity.unbind) returns are there, too.
  returned: success
  type: str
  sample: This host is as it was before the first bind.
"""
