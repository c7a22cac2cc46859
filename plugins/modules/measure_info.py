#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measure_info
short_description: Count what disturbs the workloads of NPUs for some seconds
version_added: 1.0.0
description:
  - Measures the effect of a bind on the processes of each NPU or group of NPUs.
  - Counts how often their threads are preempted and moved between CPUs, how long they wait for a CPU, how much of their memory is on other
    NUMA nodes, which CPUs handle the interrupts of their NPUs, and how much of the pool's time other tasks use.
  - Run it before and after a bind, under the same load. Playbook C(npu.affinity.measure) does this, and compares the results.
  - Changes nothing. A metric that could not be read has a reason instead of a value.
  - Reads procfs. C(perf) counts moves between CPUs if the kernel has no C(/proc/<pid>/sched).
options:
  plan:
    description:
      - The plan whose pools, memory nodes and IRQ CPUs to use. The default is the plan in force, C(/etc/npu-affinity/plan.json). Before the
        first bind, pass the plan that you intend to bind.
    type: dict
  seconds:
    description: How long to count.
    type: int
    default: 30
  interval:
    description: Seconds between samples of where threads run.
    type: float
    default: 1.0
  processes:
    description:
      - The processes and the NPUs that they belong to. If several elements match a process, the one with its number takes precedence,
        then the one with the innermost unit.
      - The default is the processes in the slices of all NPUs of the plan.
    type: list
    elements: dict
    default: []
    suboptions:
      npus:
        description:
          - Logic ids. Without another key, they select the processes in the slices of these NPUs. An empty list selects those in the slices
            of all NPUs and GPUs of the plan.
        type: list
        elements: int
        default: []
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
        description: Select all processes of the host that have the device of one of the NPUs open.
        type: bool
        default: false
  timeout:
    description: Time limit of a command in seconds. C(perf) gets O(seconds) more.
    type: int
    default: 30
extends_documentation_fragment:
  - npu.affinity._attributes.reads
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
seealso:
  - module: npu.affinity.topology_facts
"""

EXAMPLES = r"""
---
- name: Count for half a minute what disturbs everything in the slices of the NPUs
  npu.affinity.measure_info:

- name: Before the first bind, whatever has the device of an NPU open
  npu.affinity.measure_info:
    plan: "{{ npu_affinity_plan }}"
    seconds: 60
    processes:
      - devices: true
  register: before
"""

RETURN = r"""
seconds: {description: How long the counting took., returned: success, type: float, sample: 30.0}
measured_at: {description: "When it ended, in UTC by the host's clock.", returned: success, type: str, sample: '2026-11-20T19:10:02Z'}
workloads:
  description:
    - An element for the processes of each NPU, or group of NPUs that processes have in common, and for each NPU without processes.
    - Every one of C(metrics) has C(value), C(unit), C(source) and C(missing), which says why there is no value. C(windows) has the values of
      ten parts of the time, and is empty for what is read once.
    - C(involuntary_switches) and C(cpu_migrations) are those of all threads. C(waiting) is the time that runnable threads waited for a CPU.
      C(remote_memory) lies on other NUMA nodes than the plan's. C(interrupts) are those of the NPUs, C(interrupts_on_workers) those of them
      on CPUs of the pool that are not of role irq. C(others_share) is the share of the pool's time in which tasks of others ran; interrupts
      do not count.
  returned: success
  type: list
  elements: dict
  sample:
    - title: NPU 0
      npus: [0]
      pool: 144-167
      processes: [{pid: 4711, name: 'VLLM::Worker', found_by: npu-0.slice}]
      threads: 214
      metrics:
        involuntary_switches: {value: 812.4, unit: per s, source: /proc/<pid>/status, missing: null, windows: [790.3, 851.0]}
        cpu_migrations: {value: 96.0, unit: per s, source: /proc/<pid>/sched, missing: null, windows: []}
        waiting: {value: 41.3, unit: ms per s, source: schedstat, missing: null, windows: []}
        remote_memory: {value: 812.4, unit: MiB, source: /proc/<pid>/numa_maps, missing: null, windows: []}
        interrupts: {value: 5210.3, unit: per s, source: /proc/interrupts, missing: null, windows: []}
        interrupts_on_workers: {value: 0.0, unit: per s, source: /proc/interrupts, missing: null, windows: []}
        others_share: {value: 3.1, unit: '%', source: '/proc/stat, schedstat, sampled', missing: null, windows: []}
      interrupts: {'144': 2604.1, '145': 2606.2}
      memory:
        - {pid: 4711, name: 'VLLM::Worker', npus: [0], wanted: '6', mib: {'0': 812.4, '6': 20480.0}, remote_mib: 812.4}
remarks:
  description: Sentences about requested values that are missing, and about processes that ended meanwhile.
  returned: success
  type: list
  elements: str
  sample: []
"""

import time

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._measure import measure
from ansible_collections.npu.affinity.plugins.module_utils._features.threads.tasks import plan_in_force

ARGUMENTS = {
    "root": {"type": "path", "default": "/"},
    "plan": {"type": "dict"},
    "processes": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "npus": {"type": "list", "elements": "int", "default": []},
            "slice": {"type": "str"},
            "unit": {"type": "str"},
            "pids": {"type": "list", "elements": "int"},
            "devices": {"type": "bool", "default": False},
        },
    },
    "seconds": {"type": "int", "default": 30},
    "interval": {"type": "float", "default": 1.0},
    "timeout": {"type": "int", "default": 30},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    for name, variable in (("seconds", "npu_affinity_measure_seconds"), ("interval", "interval")):
        if params[name] <= 0:
            module.fail_json(msg="%s is %s; it must be more than 0" % (variable, params[name]))
    try:
        host = Host(params["root"], params["timeout"])
        result = measure(host, params["plan"] or plan_in_force(host), params["processes"], params["seconds"], params["interval"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, measured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **result)


if __name__ == "__main__":
    main()
