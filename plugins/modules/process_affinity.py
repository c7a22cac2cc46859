#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: process_affinity
short_description: Place the threads of running NPU processes on the CPUs of their roles
version_added: 0.1.0
description:
  - Puts the threads of NPU processes on the CPUs of role main, those named C(acl_thread) on the CPUs of role acl and those named
    C(release_thread) on the CPUs of role release, as vLLM-Ascend does inside its workers.
  - By default these are the processes in the slices of the plan's NPUs, such as C(npu-0.slice), containers with that
    C(--cgroup-parent) included. O(processes) names others. No other process is touched, and none in a pod of Kubernetes.
  - CPUs are only ever taken from the pools of the plan. A process of several NPUs gets the CPUs of all of them; where it has the device of
    some of them open, C(/dev/davinci<N>), those of these.
  - A thread that ends meanwhile is no failure. One whose cpuset has none of the CPUs is, and is named.
  - Threads that start later have the CPUs of the thread that started them; role P(npu.affinity.threads#role) has a timer for them.
  - Needs root and Python only; C(psutil) is not needed.
options:
  root:
    description:
      - Directory below which the machine's tree lies. With any other value than V(/) that tree is written to, and nothing live is touched.
    type: path
    default: /
  plan:
    description: The plan, as filter P(npu.affinity.plan#filter) returns it. By default the one in force, C(/etc/npu-affinity/plan.json).
    type: dict
  processes:
    description:
      - The processes to place, and the NPUs that they belong to. A process in several elements belongs to the nearest one, which is the one
        that names its number, then the innermost unit.
      - By default the processes in the slice of every NPU of the plan.
    type: list
    elements: dict
    default: []
    suboptions:
      npus:
        description: Logic ids. Without any further key they mean the processes in the slices of these NPUs.
        type: list
        elements: int
        required: true
      slice:
        description: A slice in which the processes run.
        type: str
      unit:
        description: A service in which the processes run.
        type: str
      pids:
        description: Numbers of processes.
        type: list
        elements: int
      devices:
        description: Whether all processes of the host that have the device of one of the NPUs open are meant, wherever they run.
        type: bool
        default: false
  patterns:
    description: Shell patterns of the names of threads, of which the kernel keeps 15 characters. All other threads are main threads.
    type: dict
    suboptions:
      acl:
        description: Threads of role acl. The default is V(['acl_thread*']).
        type: list
        elements: str
      release:
        description: Threads of role release. The default is V(['release_thread*']).
        type: list
        elements: str
      leave:
        description: Threads that are left where they are. The default is V(['uvb_poll_window*']), which polls for the whole host.
        type: list
        elements: str
  state:
    description:
      - V(placed) puts threads on the CPUs of their roles.
      - V(released) lets them run on all online CPUs that their cgroup grants.
    type: str
    choices: [placed, released]
    default: placed
  timeout:
    description: Seconds that each command may take.
    type: int
    default: 30
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
seealso:
  - module: npu.affinity.irq_affinity
"""

EXAMPLES = r"""
---
- name: Place the threads of everything that runs in the slices of the NPUs
  npu.affinity.process_affinity:

- name: Show what would move of one service on two NPUs
  npu.affinity.process_affinity:
    processes:
      - unit: vllm-tp2.service
        npus: [0, 1]
  check_mode: true
  diff: true

- name: Place whatever has the device of NPU 3 open, and two processes by number
  npu.affinity.process_affinity:
    plan: "{{ npu_affinity_plan }}"
    processes:
      - npus: [3]
        devices: true
      - npus: [4]
        pids: [4711, 4712]
    patterns:
      release: [release_thread*, hcclComm_watchd]
      leave: [ping_thread*]

- name: Let them run everywhere again
  npu.affinity.process_affinity:
    state: released
    timeout: 60
"""

RETURN = r"""
processes:
  description: What was found and done for each process.
  returned: always
  type: list
  elements: dict
  contains:
    pid:
      description: Its number.
      type: int
    name:
      description: Its name.
      type: str
    npus:
      description: The logic ids of its NPUs.
      type: list
      elements: int
    found_by:
      description: The slice or service that it runs in, or by what else it was found.
      type: str
    threads:
      description:
        - Its threads, those that fare alike as one entry with their C(names), C(tids) (in the notation of cpulists) and number (C(threads)).
        - C(before), C(wanted) and C(after) are cpulists, C(role) is V(main), V(acl), V(release) or V(leave).
        - C(state) is V(placed) (was right), V(moved), V(left) (by a pattern), V(gone) (it ended meanwhile), V(refused) (by its cpuset) or
          V(failed), with a C(text).
      type: list
      elements: dict
  sample:
    - pid: 4711
      name: VLLM::Worker
      npus: [0]
      found_by: npu-0.slice
      threads:
        - {role: main, threads: 212, tids: '4711-4922', names: [VLLM::Worker, python3], before: 144-167, wanted: 146-165, after: 146-165,
           state: moved, text: ''}
        - {role: acl, threads: 1, tids: '4923', names: [acl_thread], before: 144-167, wanted: '166', after: '166', state: moved, text: ''}
failures:
  description: A sentence for everything that should have been placed and was not.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.npu.affinity.plugins.module_utils import _diffs, _processes
from ansible_collections.npu.affinity.plugins.module_utils._host import Host
from ansible_collections.npu.affinity.plugins.module_utils._tasks import plan_in_force


def argument_spec():
    return {
        "root": {"type": "path", "default": "/"},
        "plan": {"type": "dict"},
        "processes": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "npus": {"type": "list", "elements": "int", "required": True},
                "slice": {"type": "str"},
                "unit": {"type": "str"},
                "pids": {"type": "list", "elements": "int"},
                "devices": {"type": "bool", "default": False},
            },
        },
        "patterns": {
            "type": "dict",
            "options": {role: {"type": "list", "elements": "str"} for role in ("acl", "release", "leave")},
        },
        "state": {"type": "str", "choices": ["placed", "released"], "default": "placed"},
        "timeout": {"type": "int", "default": 30},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    host = Host(params["root"], params["timeout"])
    try:
        plan = params["plan"] or plan_in_force(host)
        released = params["state"] == "released"
        report = _processes.place(host, plan, params["processes"], params["patterns"], module.check_mode, released)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    for sentence in report["warnings"]:
        module.warn(sentence)
    result = {
        "changed": report["changed"],
        "processes": [
            {
                "pid": row["pid"],
                "name": row["name"],
                "npus": row["npus"],
                "found_by": row["found_by"],
                "threads": _processes.grouped(row["threads"]),
            }
            for row in report["processes"]
        ],
        "failures": report["failed"],
        "diff": _diffs.of_threads(report["processes"]),
    }
    if report["failed"]:
        module.fail_json(msg="not every thread could be placed: " + "; ".join(report["failed"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
