#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_archive
short_description: Archive the topology, state and comparison of a host
version_added: 1.0.0
description:
  - Reads the host like M(npu.affinity.topology_facts) and M(npu.affinity.binding_info), and writes what they return, the state in force, and
    the output of C(npu-smi) and C(nvidia-smi) into one JSON document. Playbook C(npu.affinity.inspect) makes the same plan, and shows the
    same comparison, from it as on the host.
  - The archive has no file of the host, and only digests of the files that a bind wrote.
options:
  dest:
    description: File to write on the host. Only its owner can read it.
    type: path
    required: true
  host:
    description: Name of the host in the inventory, which the archive records.
    type: str
    required: true
  anonymous:
    description:
      - Remove names of the host, serial numbers, identities of dies and GPUs, and the authors of binds.
      - Names of the host are removed in upper and lower case, also if a hyphen, an underscore, a dot or a capital joins them to other words.
        Other names of services and containers stay.
    type: bool
    default: false
  settings:
    description: Settings of the host's plan, which the archive records.
    type: dict
    default: {}
  root:
    description: Root directory of the host's file tree.
    type: path
    default: /
  device_share:
    description: As for M(npu.affinity.topology_facts).
    type: bool
    default: false
  units:
    description: As for M(npu.affinity.topology_facts).
    type: list
    elements: str
    default: []
  npu_smi:
    description: The C(npu-smi) command. By default, the module searches where Ascend drivers install it.
    type: str
  nvidia_smi:
    description: The C(nvidia-smi) command. By default, the module searches where NVIDIA drivers install it.
    type: str
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 30
attributes:
  check_mode:
    description: In check mode, the module reads everything and writes no file.
    support: full
  diff_mode:
    description: An archive has no differences to show.
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
- name: Archive this host
  npu.affinity.host_archive:
    dest: /root/{{ inventory_hostname }}.json
    host: "{{ inventory_hostname }}"

- name: Without names and serial numbers, for a bug report
  npu.affinity.host_archive:
    dest: /root/host.json
    host: "{{ inventory_hostname }}"
    anonymous: true
"""

RETURN = r"""
commands:
  description: The commands whose output it has.
  returned: success
  type: list
  elements: str
  sample: [npu-smi info, npu-smi info -m]
warnings: {description: "Sentences on what could not be read, or is too large.", returned: when there are some, type: list, elements: str}
"""


from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import Request, collect, write
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import ARGUMENTS as OF_GATHERING

QUESTIONS = ("device_share", "units", "npu_smi", "nvidia_smi")

ARGUMENTS = {
    "dest": {"type": "path", "required": True},
    "host": {"type": "str", "required": True},
    "anonymous": {"type": "bool", "default": False},
    "settings": {"type": "dict", "default": {}},
    **{name: OF_GATHERING[name] for name in (*QUESTIONS, "root", "timeout")},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    questions: Any = {name: params[name] for name in QUESTIONS}
    request = Request(params["host"], questions, params["settings"], params["anonymous"], runtime.files_of)
    try:
        archive, warnings = collect(params["root"], params["timeout"], request)
        if not module.check_mode:
            write(archive, params["dest"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    for sentence in warnings:
        module.warn(sentence)
    module.exit_json(changed=not module.check_mode, commands=[entry["command"] for entry in archive["tools"]])


if __name__ == "__main__":
    main()
