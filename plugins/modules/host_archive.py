#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_archive
short_description: Pack what a plan and a comparison read of a host into an archive
version_added: 1.0.0
description:
  - Looks at the host as M(npu.affinity.topology_facts) and M(npu.affinity.binding_info) do, and writes the files that they read, and the
    answers of the commands that they ran, into a compressed tar with a manifest. Playbook C(npu.affinity.inspect) gives the same plan and the
    same comparison from it as on the host.
  - Of each file, only what a plan or a comparison is known to read is kept, because everything else can be a secret. That is, of the
    environment of processes and of units, the variables that name devices or bind CPUs; of command lines, programs, scripts and the options
    of irqbalance and the kubelet on CPUs; and of the kubelet's configuration the settings on CPUs. The text of files that were there before
    the first bind is left out.
options:
  dest:
    description: File on the host to write, readable by its owner only.
    type: path
    required: true
  host:
    description: Name of the host in the inventory, which the manifest records.
    type: str
    required: true
  anonymous:
    description:
      - Whether names of the host, serial numbers, identities of dies and GPUs, and who bound the host are taken out.
      - A name of the host is taken out in any case and also where a hyphen, an underscore, a dot or a capital joins it to other words, in
        contents and in names of files. Other names of services and containers stay.
    type: bool
    default: false
  settings:
    description: Settings of the host's plan, which the manifest records.
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
    description: The C(npu-smi) command. By default it is looked for where Ascend drivers put it.
    type: str
  nvidia_smi:
    description: The C(nvidia-smi) command. By default it is looked for where NVIDIA drivers put it.
    type: str
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 30
attributes:
  check_mode:
    description: In check mode everything is read and no file is written.
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
- name: Pack what a plan reads of this host
  npu.affinity.host_archive:
    dest: /root/{{ inventory_hostname }}.tar.gz
    host: "{{ inventory_hostname }}"

- name: Without names and serial numbers, for a bug report
  npu.affinity.host_archive:
    dest: /root/host.tar.gz
    host: "{{ inventory_hostname }}"
    anonymous: true
"""

RETURN = r"""
files:
  description: How many files and answers of commands the archive has.
  returned: success
  type: int
  sample: 2841
commands:
  description: The commands whose answers it has.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/bin/npu-smi info, /usr/local/bin/npu-smi info -m]
warnings:
  description: Sentences on what could not be read, or is too large.
  returned: when there are some
  type: list
  elements: str
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._apply import runtime
from ansible_collections.npu.affinity.plugins.module_utils._archive.collecting import Request, collect

QUESTIONS = ("device_share", "units", "npu_smi", "nvidia_smi")


def argument_spec() -> dict[str, Any]:
    return {
        "dest": {"type": "path", "required": True},
        "host": {"type": "str", "required": True},
        "anonymous": {"type": "bool", "default": False},
        "settings": {"type": "dict", "default": {}},
        "root": {"type": "path", "default": "/"},
        "device_share": {"type": "bool", "default": False},
        "units": {"type": "list", "elements": "str", "default": []},
        "npu_smi": {"type": "str"},
        "nvidia_smi": {"type": "str"},
        "timeout": {"type": "int", "default": 30},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    request = Request(
        params["host"],
        {name: params[name] for name in QUESTIONS},
        params["settings"],
        params["anonymous"],
        runtime.files_of,
    )
    try:
        archive = collect(params["root"], params["timeout"], request)
        if not module.check_mode:
            archive.write(params["dest"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    for sentence in archive.warnings:
        module.warn(sentence)
    commands = [" ".join(entry["argv"]) for entry in archive.manifest["commands"]]
    module.exit_json(changed=not module.check_mode, files=len(archive.members), commands=commands)


if __name__ == "__main__":
    main()
