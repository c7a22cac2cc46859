#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vnpu_layout
short_description: Prepare the directories and files for soft split of NPUs
version_added: 1.0.0
description:
  - Creates the directory of hami-vnpu-core and the region that all containers share, with their permissions, and returns the missing files.
  - Does not change the permissions of an existing directory, but refuses one that containers could not use. It also refuses directories of the
    host, such as C(/usr/bin) and C(/run), and links to them.
  - Identifies files by their checksums. It never replaces or removes files that another program placed, such as HAMi's device plugin.
  - If O(files) has a library but no preload file, writes a preload file with the library's path in containers. It never writes to C(/etc).
  - M(npu.affinity.unbind) removes only what this module placed.
options:
  root:
    description: Root directory of the host's file tree.
    type: path
    default: /
  folder:
    description: The directory of hami-vnpu-core.
    type: path
    default: /usr/local/hami-vnpu-core
  shared_region:
    description: The directory in which the containers of all NPUs coordinate.
    type: path
    default: /usr/local/hami-shared-region
  shared_mode:
    description:
      - Permission bits of O(shared_region). With V(1777), all users can create files, but cannot remove or replace files of other users.
      - HAMi's guide uses V(0777). It is required only if containers run as different users and replace each other's files.
    type: str
    choices: ['1777', '0777']
    default: '1777'
  files:
    description: The files that O(folder) should have. The module returns missing files, but does not fetch them.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Path below O(folder), for instance V(libvnpu.so), V(limiter) or V(ld.so.preload).
        type: str
        required: true
      sha256:
        description: SHA-256 of the file in hexadecimal.
        type: str
        required: true
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Directories only, files come from HAMi's device plugin
  npu.affinity.vnpu_layout:

- name: The published layout, in the tree of an image, as open as the guide says
  npu.affinity.vnpu_layout:
    root: /srv/images/node
    folder: /usr/local/hami-vnpu-core
    shared_region: /usr/local/hami-shared-region
    shared_mode: '0777'
    files:
      - name: libvnpu.so
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
      - name: limiter
        sha256: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
  register: layout
"""

RETURN = r"""
missing:
  description: Names of the files to copy, which are missing or have another checksum. Empty in check mode.
  returned: success
  type: list
  elements: str
  sample: [limiter]
files:
  description: Paths of the files that were written; in check mode also of those that would be copied.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/hami-vnpu-core/ld.so.preload]
removed:
  description: Paths of files that this module placed earlier and that O(files) does not contain.
  returned: success
  type: list
  elements: str
  sample: []
places:
  description: Path of each file of O(files) on this machine, below O(root) and without links.
  returned: success
  type: dict
  sample: {limiter: /usr/local/hami-vnpu-core/limiter}
folders:
  description: The directories that were created, or whose permissions changed.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/hami-shared-region]
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._module.arguments import VNPU_LAYOUT
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs.diffs import FILES, Diff, folders
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.layout import apply, layout_of


def argument_spec() -> dict[str, Any]:
    return {"root": {"type": "path", "default": "/"}, **VNPU_LAYOUT}


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        host, layout = Host(module.params["root"]), layout_of(module.params)
        with changing(host, "module vnpu_layout", module.check_mode):
            report = apply(host, layout, check=module.check_mode)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    for sentence in report.warnings:
        module.warn(sentence)
    predicted = ["%s/%s" % (module.params["folder"], name) for name in report.missing] if module.check_mode else []
    module.exit_json(
        changed=report.changed,
        missing=[] if module.check_mode else report.missing,
        files=report.written + predicted,
        removed=report.removed,
        places={name: host.path("%s/%s" % (layout.folder, name)) for name in layout.files},
        folders=sorted(report.folders),
        diff=Diff().add(FILES, [*folders(report.folders), *("- " + path for path in report.removed)]).document(),
    )


if __name__ == "__main__":
    main()
