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
  - Makes the directory of hami-vnpu-core and the region that all containers share, with their permissions, and says which files are missing.
  - A directory that is there already keeps its permissions; it is refused where containers could not use it. So are the host's own directories,
    such as C(/usr/bin) and C(/run), and links that lead there.
  - Files are identified by their checksums. What someone else placed, such as HAMi's device plugin, is never replaced or removed.
  - Where a library is wanted and no preload file, it writes one that names the library as containers see it. It never writes to C(/etc).
  - M(npu.affinity.unbind) removes what was placed here and leaves the rest.
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
      - Permission bits of O(shared_region). With V(1777), everybody may make files and nobody may remove or replace those of others.
      - The guide of HAMi says V(0777), which containers need that run as different users and replace each other's files.
    type: str
    choices: ['1777', '0777']
    default: '1777'
  files:
    description: The files that O(folder) should have. What is missing is returned and not fetched.
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
  description: Paths of files that were placed here before and are not wanted any more.
  returned: success
  type: list
  elements: str
  sample: []
places:
  description: Where each file of O(files) lies on this machine, below O(root) and with no link on the way.
  returned: success
  type: dict
  sample: {limiter: /usr/local/hami-vnpu-core/limiter}
folders:
  description: The directories that were made, or got other permissions.
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
