#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: archive_info
short_description: Open archives of hosts to plan and compare them without access
version_added: 1.0.0
description:
  - Opens archives of M(npu.affinity.host_archive), sosreports, and tars of C(/sys) and C(/proc). Extracts each into a folder that can be the
    O(npu.affinity.topology_facts#module:root) of M(npu.affinity.topology_facts) and M(npu.affinity.binding_info). It runs on the controller.
  - Does not trust archives. It extracts only regular files, below the folder. It refuses members with an absolute name or with C(..), links
    behind links, sparse files, manifests of another shape, and archives of more than 512 MiB. It also limits the numbers of members and
    headers, the size after decompression, and the time.
  - In sosreports and tars, it finds the output of C(npu-smi) in folder C(commands), C(npu-smi) or below C(sos_commands). The file is named
    like the command, with C(_) for each blank, such as C(npu-smi_info_-m).
options:
  src:
    description: An archive, a folder of archives, or an archive that was unpacked.
    type: path
    required: true
  dest:
    description: Folder in which to create a folder for each archive.
    type: path
    required: true
attributes:
  check_mode:
    description: Opens the archives in check mode as well, because later tasks need them.
    support: full
  diff_mode:
    description: It changes no existing file.
    support: none
  platform:
    description: The operating systems on which it runs.
    platforms: linux
    support: full
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Open what users sent
  npu.affinity.archive_info:
    src: archives
    dest: /tmp/opened
  delegate_to: localhost
  register: opened

- name: Look at the first of them
  npu.affinity.topology_facts:
    root: "{{ opened.archives[0].root }}"
  delegate_to: localhost
"""

RETURN = r"""
archives:
  description: The archives that were opened.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: A name for the host, that of its manifest or of the file.
      type: str
    root:
      description: The folder with its tree.
      type: str
    source:
      description: What made the archive.
      type: str
    time:
      description: When it was made, in UTC, if known.
      type: str
    version:
      description: The version of the collection that made it, or an empty text.
      type: str
    settings:
      description:
        - The settings that the host was planned and compared with. What runs programs, names files of the controller, is no setting, or has
          a template in it is left out.
      type: dict
    refused_settings:
      description: A sentence for each setting that was left out.
      type: list
      elements: str
  sample:
    - name: node001
      root: /tmp/opened/node001
      source: npu.affinity.collect
      time: '2026-11-22T17:30:00Z'
      version: 1.0.0
      settings: {npu_affinity_housekeeping: '2'}
      refused_settings: []
refused:
  description: One sentence for each archive that could not be opened. The module fails if it can open none.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._archive.opening import archives, open_archive

TOLD = ("source", "time", "version", "settings")


def argument_spec() -> dict[str, Any]:
    return {"src": {"type": "path", "required": True}, "dest": {"type": "path", "required": True}}


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    taken: dict[str, str] = {}
    opened, refused = [], []
    try:
        for path in archives(module.params["src"]):
            try:
                found = open_archive(path, module.params["dest"], taken)
            except ValueError as error:
                refused.append(str(error))
                continue
            opened.append(dict({key: found.manifest[key] for key in TOLD}, name=found.name, root=found.folder))
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    if not opened:
        module.fail_json(msg=" ".join(refused))
    module.exit_json(changed=False, archives=opened, refused=refused)


if __name__ == "__main__":
    main()
