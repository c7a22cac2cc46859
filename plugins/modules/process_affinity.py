#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: process_affinity
short_description: Place the threads of running NPU processes on the CPUs of their roles
version_added: 1.0.0
description:
  - Moves the threads of NPU processes to the CPUs of role main, threads named C(acl_thread) to those of role acl, and threads named
    C(release_thread) to those of role release, as vLLM-Ascend does in its workers.
  - By default, it places the processes in the slices of the plan's NPUs, such as C(npu-0.slice), including containers with that
    C(--cgroup-parent). O(processes) adds others. It never changes other processes or pods of Kubernetes.
  - Uses only CPUs in the pools of the plan. A process of several NPUs gets the CPUs of those whose device (C(/dev/davinci<N>)) it has open,
    or of all NPUs if it has none open.
  - Omits CPUs of a role that are offline or that the cgroup of a process does not grant. If none remain, it uses those of role main, then
    those of the pool, and warns.
  - Fails if a process may not use any CPU of the pool, and names the process. A thread that ends meanwhile is not a failure.
  - Threads that start later inherit the CPUs of the thread that started them. Role P(npu.affinity.threads#role) has a timer for them.
  - Requires root and Python, but not C(psutil).
options:
  root:
    description:
      - Root directory of the host's file tree. With any value other than V(/), the module changes only files of that tree.
    type: path
    default: /
  plan:
    description: The plan from filter P(npu.affinity.plan#filter). The default is the plan in force, C(/etc/npu-affinity/plan.json).
    type: dict
  patterns:
    description: Shell patterns for names of threads, which the kernel cuts to 15 characters. All other threads are main threads.
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
      kv:
        description:
          - Threads of role kv, if the plan has CPUs for it. The default is V(['KVCache*', 'ascend-wk-*']).
        type: list
        elements: str
      leave:
        description: Threads that are not moved. The default is V(['uvb_poll_window*']), which polls for the whole host.
        type: list
        elements: str
  state:
    description:
      - V(placed) moves threads to the CPUs of their roles.
      - V(released) lets them run on all online CPUs that their cgroup grants.
    type: str
    choices: [placed, released]
    default: placed
  memory:
    description:
      - V(none) ignores the memory of the processes.
      - V(table) returns the size of their memory on each NUMA node. For this, the kernel walks all page tables, which takes seconds for
        hundreds of GiB.
      - V(migrate) also moves memory from nodes that are not in the plan, with C(migratepages) of numactl. The processes stall meanwhile.
        The file C(/run/npu-affinity/migration.json) shows the progress. If a run is killed, the next one completes it.
    type: str
    choices: [none, table, migrate]
    default: table
  memory_limit:
    description:
      - Limit in MiB of the memory that O(memory=migrate) may move in one run. If more would move, the module changes nothing.
      - On Ascend hosts, about 430 MB/s have been observed.
    type: int
    default: 4096
  timeout:
    description: Time limit of a command in seconds. C(migratepages) gets one second more for every 50 MiB.
    type: int
    default: 30
extends_documentation_fragment:
  - npu.affinity._attributes
  - npu.affinity._processes
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

- name: Move up to 16 GiB of a service's memory to the node of its NPU, too
  npu.affinity.process_affinity:
    processes:
      - unit: vllm@0.service
        npus: [0]
    memory: migrate
    memory_limit: 16384

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
      description: The slice or service that it runs in, or how else it was found.
      type: str
    threads:
      description:
        - Its threads, those in the same state as one entry with their C(names), C(tids) (in the notation of cpulists) and number (C(threads)).
        - C(before), C(wanted) and C(after) are cpulists, C(role) is V(main), V(acl), V(release), V(kv) or V(leave).
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
memory:
  description:
    - How many MiB of each process lie on which NUMA node (C(mib)), and how many of them on other nodes than those of its NPUs
      (C(wanted), C(remote_mib)). Pages that several processes share are counted in each.
    - In check mode, this is the current state, not the expected one.
  returned: with O(memory) other than V(none)
  type: list
  elements: dict
  sample:
    - {pid: 4711, name: 'VLLM::Worker', npus: [0], wanted: '6', mib: {'0': 812.4, '6': 20480.0}, remote_mib: 812.4}
migration:
  description: What was moved, with a step for each process and source node. In check mode what would be moved, without steps.
  returned: with O(memory=migrate)
  type: dict
  sample:
    total_mib: 812.4
    moved_mib: 811.9
    steps:
      - {pid: 4711, source: 0, target: '6', mib: 812.4, left_mib: 0.5, seconds: 1.9}
failures:
  description: A sentence for everything that could not be placed and should be.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs
from ansible_collections.npu.affinity.plugins.module_utils._module.arguments import PATTERNS, PROCESSES
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.memory import Migration, tables
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.placing import place
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.step import result_of
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.tasks import find, groups_of, plan_in_force
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._state.lock import changing


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "plan": {"type": "dict"},
        "processes": PROCESSES,
        "patterns": PATTERNS,
        "state": {"type": "str", "choices": ["placed", "released"], "default": "placed"},
        "memory": {"type": "str", "choices": ["none", "table", "migrate"], "default": "table"},
        "memory_limit": {"type": "int", "default": 4096},
        "timeout": {"type": "int", "default": 30},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    migration, diff = None, diffs.Diff()
    try:
        host = Host(params["root"], params["timeout"])
        with changing(host, "module process_affinity", module.check_mode):
            plan = params["plan"] or plan_in_force(host)
            if params["memory"] == "migrate":
                asked = find(host, plan, groups_of(plan, params["processes"])).processes
                migration = Migration(host, asked, params["timeout"])
                migration.refuse_above(params["memory_limit"])
            report = place(host, plan, params["processes"], params["patterns"], module.check_mode, params["state"] == "released")
        if migration and not module.check_mode:
            migration.carry_out()
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    result = result_of(report, migration, module.check_mode)
    warnings = report.warnings
    if params["memory"] != "none":
        result["memory"], unread = tables(host, report.found)
        warnings = warnings + unread
    if migration:
        diff.add(diffs.MEMORY, diffs.memory(migration, module.check_mode))
        warnings = warnings + migration.warnings
    for sentence in warnings:
        module.warn(sentence)
    result["diff"] = diff.add(diffs.THREADS, diffs.threads(report.processes)).document()
    if result["failures"]:
        module.fail_json(msg="not everything could be placed: " + "; ".join(result["failures"]), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
