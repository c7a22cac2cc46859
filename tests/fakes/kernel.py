# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small host: 48 CPUs, NPUs with a mailbox, one SQ and CQ interrupts, a workqueue and a task thread each."""

from __future__ import annotations

import hashlib
import os
import pathlib

from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._base.findings import Findings
from ansible_collections.npu.affinity.plugins.module_utils._features.feature import Choices, Comparing, Wanted
from ansible_collections.npu.affinity.plugins.module_utils._features.tuning.feature import FEATURE as TUNING
from ansible_collections.npu.affinity.plugins.module_utils._features.vnpu.feature import FEATURE as VNPU
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.affinities import predict
from ansible_collections.npu.affinity.plugins.module_utils._features.irq.binding import CQ, SQ, Interrupts
from ansible_collections.npu.affinity.plugins.module_utils._state import previous
from ansible_collections.npu.affinity.plugins.module_utils._state.step import Options, Outcome
from ansible_collections.npu.affinity.plugins.module_utils._state.values import apply

FIRST, SECOND = "0000:c1:00.0", "0000:01:00.0"
FOLDER, REGION = "/usr/local/hami-vnpu-core", "/usr/local/hami-shared-region"
EVERYWHERE = "0-47"
EVERYWHERE_MASK = "ffff,ffffffff"


def npu(number=0, pci=FIRST, pool="24-35", irq="24-25", **more):
    return dict({"id": number, "pci": pci, "pool": pool, "irq": irq}, **more)


PLAN_OF_TWO = {"npus": [npu(), npu(1, SECOND, "0-11", "0-1")]}


class Kernel(Host):
    """A tree in which writes are counted, and refused as a kernel would: ``refuse(path, value)`` returns an errno or None.

    ``refused``: the errno of each path, or part of one, that takes nothing.
    """

    def __init__(self, root):
        os.makedirs(str(root), exist_ok=True)
        super().__init__(str(root))
        self.writes = []
        self.refused = {}
        self.refuse = lambda path, value: None

    def set_attribute(self, path, value):
        numbers = [number for part, number in self.refused.items() if "/%s/" % part.strip("/") in path + "/"]
        number = numbers[0] if numbers else self.refuse(path, value)
        if number:
            raise OSError(number, os.strerror(number))
        self.writes.append((path, value))
        super().set_attribute(path, value)

    def put(self, path, text):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "w") as file:
            file.write(text + "\n")


def add_function(kernel, pci, first_irq, names):
    """Give a PCI function vectors from a number on; the table of interrupts grows by those that have a name."""
    table = kernel.read("/proc/interrupts") or "      CPU0       CPU1"
    for irq, name in enumerate(names, first_irq):
        kernel.put("/sys/bus/pci/devices/%s/msi_irqs/%d" % (pci, irq), "msix")
        if name:
            table += "\n%5d: 0 0   ITS-MSI %d Edge      %s" % (irq, irq, name)
            kernel.put("/proc/irq/%d/smp_affinity_list" % irq, EVERYWHERE)
            kernel.put("/proc/irq/%d/smp_affinity" % irq, EVERYWHERE_MASK)
            kernel.put("/proc/irq/%d/effective_affinity_list" % irq, "0")
    kernel.put("/proc/interrupts", table)


def add_device(kernel, number):
    kernel.put("/sys/devices/virtual/workqueue/dev%d_sq_send_wq/cpumask" % number, EVERYWHERE_MASK)
    status = "Name:\tdev%d_sq_task\nCpus_allowed:\t%s\nCpus_allowed_list:\t%s" % (number, EVERYWHERE_MASK, EVERYWHERE)
    kernel.put("/proc/%d/comm" % (900 + number), "dev%d_sq_task" % number)
    kernel.put("/proc/%d/status" % (900 + number), status)
    kernel.put("/proc/%d/stat" % (900 + number), "%d (dev%d_sq_task) S 2 0 0 0 -1 2129984" % (900 + number, number))


def two_functions(folder, functions=(FIRST, SECOND), devices=(0, 1)):
    """Return a host with the vectors of two functions, from 2752 and from 3008 on, which have these devices."""
    kernel = Kernel(folder)
    kernel.put("/sys/devices/system/cpu/online", EVERYWHERE)
    kernel.put("/proc/interrupts", "      CPU0       CPU1\n    3: 0 0  GICv3 27 Level  arch_timer")
    for number, pci in enumerate(functions):
        device = devices[number]
        add_function(kernel, pci, 2752 + 256 * number, names_of(device))
        add_device(kernel, device)
    return kernel


def names_of(device, cq=16):
    return ["trs-mbox-%d-0" % device, SQ] + [CQ] * cq + [None, None]


def affinity(host, irq):
    return host.read("/proc/irq/%d/smp_affinity_list" % irq)


def texts(host):
    found = {}
    for folder, _folders, files in os.walk(host.root):
        for name in files:
            with open(os.path.join(folder, name)) as file:
                found[os.path.join(folder, name)] = file.read()
    return found


def contents(report):
    return report.changed, report.npus, report.unchangeable, report.warnings, report.failed


def bind(host, plan, check=False, **options):
    """Bind the interrupts of a plan, with ``check`` only predict that, and return the report."""
    values = Interrupts()
    vars(values).update(options)
    if check:
        return predict(host, values, {"plan": plan})
    values.retry()
    apply(host, values, {"plan": plan})
    return values.report()


def tuned(host, **wanted):
    """Set settings of a host as a bind does, without the rest of its transaction."""
    step = TUNING.step(host, {"live": {"tuning": wanted}}, Choices())
    step.look(False)
    step.run()


def sha(content):
    return hashlib.sha256(content).hexdigest()


def split(host, mode="1777", names=None, check=False, **places):
    """Place what soft split needs, files with these contents included, and return the step."""
    files, staged = [], {}
    for name, content in (names or {}).items():
        files.append({"name": name, "sha256": sha(content)})
        staged[sha(content)] = "%s-staged-%s" % (host.root, name)
        pathlib.Path(staged[sha(content)]).write_bytes(content)
    live = {"folder": FOLDER, "shared_region": REGION, "shared_mode": mode, "files": files, **places}
    step = VNPU.step(host, {"live": {"vnpu": live}}, Choices(staged=staged))
    step.look(check)
    if not check:
        step.run()
    return step


def compared(feature, host, wanted, online=()):
    """Compare a host with what a feature wants of it, and return the findings."""
    findings = Findings()
    feature.compare(Comparing(findings, host, {"npus": []}, Wanted(live={feature.name: wanted}), set(online), set(), set()))
    return findings


def drift_of(feature, host, wanted):
    """Return what is expected of each object that differs, what it is, and the cause in a word."""
    drift = compared(feature, host, wanted).drift
    return {finding.object: (finding.expected.state, finding.found[0].state, finding.cause.word) for finding in drift}


def originals(host, feature):
    return {key: entry["original"] for key, entry in previous.recorded(host).get(feature.name, {}).items()}


def restored(restore, host, check=False):
    """Undo a feature by its ``restore``; return the outcome, and what was undone."""
    outcome = Outcome(previous.recorded(host))
    undone = restore(host, outcome, Options())
    undone.look(check)
    if not check:
        undone.run()
    undone.settle(check)
    return outcome, undone
