#!/usr/bin/python
# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: irq_affinity
short_description: Bind the interrupts of NPUs to the CPUs of a plan
version_added: 1.0.0
description:
  - Moves the C(sq_send_trigger_irq) interrupt of every NPU to the first CPU of its role irq, together with the driver's workqueues
    C(dev<N>_sq_send_wq) and C(dev<N>_sq_fair_wq) and its kernel thread C(dev<N>_sq_task). Moves every C(cq_update_irq) interrupt to the second.
  - Finds interrupts by PCI function and name at the moment of use, because their numbers change with every load of the driver.
  - Reads the result from the kernel. Interrupts that the kernel manages itself cannot be moved. They are reported, but are not a failure.
  - Uses another CPU of the role, then of the pool, if a CPU is offline or has no free interrupt vectors.
  - Does not change NPUs without CPUs in role irq, such as Ascend 950, or GPUs.
  - On hosts with Ascend 950, moves the kernel threads C(uvb_poll_window) to the CPUs that the plan has for them (C(poll)).
  - Records the original state in C(/etc/npu-affinity/previous.json).
options:
  root:
    description:
      - Root directory of the host's file tree. With any value other than V(/), the module changes only files of that tree.
    type: path
    default: /
  plan:
    description: The plan from filter P(npu.affinity.plan#filter).
    type: dict
    required: true
  wait:
    description: Seconds to wait for interrupts that a loading driver requests late.
    type: int
    default: 0
  timeout:
    description: Not used, because this module runs no commands. It exists for C(module_defaults) of the action group.
    type: int
    default: 30
extends_documentation_fragment:
  - npu.affinity._attributes
author:
  - npu.affinity contributors (@npu-affinity)
"""

EXAMPLES = r"""
---
- name: Bind the interrupts of all NPUs of the plan
  npu.affinity.irq_affinity:
    plan: "{{ npu_affinity_plan }}"

- name: Bind them right after the driver was loaded
  npu.affinity.irq_affinity:
    plan: "{{ npu_affinity_plan }}"
    wait: 60
    timeout: 30

- name: Bind them in the tree of a simulated host
  npu.affinity.irq_affinity:
    root: /srv/simulated/node1
    plan: "{{ npu_affinity_plan }}"
"""

RETURN = r"""
npus:
  description:
    - What was found and done for each NPU of the plan. Where the plan has CPUs for poll threads a last entry has these, with the id
      V(null) and V(host) in the place of the PCI function.
    - Entries have C(name), C(before), C(wanted) and C(after) (cpulists), C(state) and C(text); interrupts that differ in their number only
      are one entry with the numbers in C(irqs).
    - C(state) is V(bound) (was right), V(changed), V(pending) (right, but the interrupt must fire once), V(managed) (the kernel refuses for
      good), V(full) (on another CPU, because the wanted one has no interrupt vectors left), V(stuck) (the interrupt fired and is still
      elsewhere), V(replaced) (a workqueue whose CPUs are isolated; the kernel runs it on others), V(busy) or V(failed).
  returned: always
  type: list
  elements: dict
  sample:
    - id: 0
      pci: "0000:c1:00.0"
      device: 0
      text: ""
      interrupts:
        - {name: sq_send_trigger_irq, irqs: '2753', before: 144-167, wanted: '144', after: '144', state: changed, text: ''}
        - {name: cq_update_irq, irqs: 2754-2769, before: 144-167, wanted: '145', after: '145', state: changed, text: ''}
      workqueues:
        - {name: dev0_sq_send_wq, before: 0-191, wanted: '144', after: '144', state: changed, text: ''}
      threads:
        - {name: dev0_sq_task, before: 0-191, wanted: '144', after: '144', state: changed, text: ''}
unchangeable:
  description: A sentence for everything that is not on its CPU and cannot be, or is not yet, though that is not a failure.
  returned: always
  type: list
  elements: str
  sample: ["NPU 0 (0000:c1:00.0): IRQ 2754-2769 cq_update_irq is placed by the kernel itself and stays on CPUs 144-167"]
failures:
  description: A sentence for everything that could not be bound and should be.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible_collections.npu.affinity.plugins.module_utils._module.exits import AnsibleModule
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._features import register  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.npu.affinity.plugins.module_utils._features.irq import binding
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.step import Interrupts
from ansible_collections.npu.affinity.plugins.module_utils._state.diffs import diffs


def argument_spec() -> dict[str, Any]:
    return {
        "root": {"type": "path", "default": "/"},
        "plan": {"type": "dict", "required": True},
        "wait": {"type": "int", "default": 0},
        "timeout": {"type": "int", "default": 30},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    given = module.params
    try:
        host = Host(given["root"], given["timeout"])
        if given["wait"]:
            binding.await_vectors(host, given["plan"], given["wait"])
        step = Interrupts(host, given["plan"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    try:
        step.look(module.check_mode)
        if not module.check_mode:
            step.complete()
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error), changed=step.changed, **step.result())
    for sentence in step.warnings:
        module.warn(sentence)
    module.exit_json(changed=step.changed, diff=diffs.Diff().add_lines(step.lines()).document(), **step.result())


if __name__ == "__main__":
    main()
