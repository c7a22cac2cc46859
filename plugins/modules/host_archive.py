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
  - Reads the host like M(npu.affinity.topology_facts) and M(npu.affinity.binding_info), and writes the files that they read, and the output of
    the commands that they run, into a compressed tar with a manifest. Playbook C(npu.affinity.inspect) makes the same plan and the same
    comparison from it as on the host.
  - Keeps only what a plan or comparison reads, because everything else can be secret. From the environment of processes and units, it keeps
    the variables that name devices or bind CPUs. From command lines, it keeps programs, scripts, and the CPU options of irqbalance and the
    kubelet. From the kubelet's configuration, it keeps the CPU settings. It omits the text of files from before the first bind.
options:
  dest:
    description: File to write on the host. Only its owner can read it.
    type: path
    required: true
  host:
    description: Name of the host in the inventory, which the manifest records.
    type: str
    required: true
  anonymous:
    description:
      - Remove names of the host, serial numbers, identities of dies and GPUs, and the authors of binds.
      - Names of the host are removed from contents and file names in upper and lower case, also if a hyphen, an underscore, a dot or a capital
        joins them to other words. Other names of services and containers stay.
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
  description: Number of files and command outputs in the archive.
  returned: success
  type: int
  sample: 2841
commands:
  description: The commands whose output it has.
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
