# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: collect_host
short_description: Pack a host into an archive, and fetch it
version_added: 1.0.0
description:
  - Runs module M(npu.affinity.host_archive) with the settings of the host, and fetches the archive to C(npu_affinity_archives) on the controller.
  - Only the owner can read the archive. Nothing stays on the host.
  - Does nothing in check mode, and on a host without topology. Role P(npu.affinity.plan#role) gathers it before.
seealso:
  - module: npu.affinity.host_archive
  - module: npu.affinity.archive_info
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Pack the host, and fetch the archive
  npu.affinity.collect_host:
"""

RETURN = r"""
lines:
  description: What was printed.
  returned: success
  type: list
  elements: str
  sample: ['a2-01: /home/alice/archives/a2-01.tar.gz']
archive:
  description: Path of the archive on the controller.
  returned: success
  type: str
  sample: /home/alice/archives/a2-01.tar.gz
"""
