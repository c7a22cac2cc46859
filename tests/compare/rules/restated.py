# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of a few lines, restated from their sources.

**The kubelet's** static CPU manager with ``full-pcpus-only``, for one container per card, in the order of their ids:
kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/cpumanager/cpu_assignment.go``, as ``plugin_utils/_kubelet/cpus.py`` restates it for the
collection, where unit tests check it against upstream's tables. *packed* is the default, *distributed* is ``distribute-cpus-across-numa``.
*aligned* is packed with the topology manager's best-effort policy and a device plugin that names the NUMA node of each card: its CPUs come
first.

**What Cores= in Slurm's gres.conf can say**: every card has all cores of its NUMA node.
SchedMD/slurm@284c3b95f08a2dc2478499837b03355e1b9c5c75, ``src/interfaces/gres.c``, ``_check_core_range_matches_sock``, with
``SlurmdParameters=numa_node_as_socket``. No unit test of that function was found in Slurm's ``testsuite``; the unit test here uses the
example of gres.conf(5).

1. ``Cores=`` names all cores of the host or all cores of one socket; a node with another line is drained.
2. All sockets of a node have the same number of cores (``CoresPerSocket`` in slurm.conf).
3. A card without a node of its own has no ``Cores=``, and with it the whole host.
4. Reserved CPUs are whole cores (``CpuSpecList``).

**torch_npu's** default of ``CPU_AFFINITY_CONF``: consecutive CPUs, the same number for each device.
Ascend/pytorch@9e73e708ab9350d203475609f36f8a43f6a0c2ab, ``torch_npu/csrc/core/npu/NPUAffinityController.cpp``, ``getNPUDefaultCores`` and
``checkThreadAffinityConflict``.

1. A device gets as many CPUs as there are online CPUs for each device, rounded down; device *n* starts at *n* times that number.
2. If the process may not use one CPU of one device, nothing is bound on the host. ``force:1`` is not the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.machines import Subject
from tests.compare.rules import Rule

PACKED = PolicyOptions(full_pcpus_only=True)
DISTRIBUTED = PolicyOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)


def kubelet(subject: Subject, options: PolicyOptions, hints: bool = False) -> Mapping[Card, int]:
    if not subject.share:
        raise ValueError(f"{len(subject.cards)} containers, and {subject.machine.usable.bit_count()} CPUs: not a whole core for each")
    shared = subject.machine.usable
    pools = {}
    for card in subject.cards:
        nodes = [card.numa] if hints and card.numa is not None else None
        pools[card] = allocate(subject.units, shared, subject.share, options, nodes=nodes)
        shared &= ~pools[card]
    return pools


def slurm(subject: Subject) -> Mapping[Card, int]:
    machine = subject.machine
    nodes = [node.cpus for node in machine.nodes.values() if node.cpus]
    sizes = {machine.cores(cpus).bit_count() for cpus in nodes}
    if len(sizes) > 1:
        raise ValueError(f"NUMA nodes have {' and '.join(map(str, sorted(sizes)))} cores, and a node of Slurm has one CoresPerSocket")
    reserved = machine.online & ~machine.usable
    if split := machine.whole_cores(machine.cores(reserved)) & machine.usable:
        raise ValueError(f"CpuSpecList takes whole cores, and CPUs {text_of(split)} are threads of reserved ones")
    pools = {card: (subject.near(card) or machine.online) & machine.usable for card in subject.cards}
    if without := [card.name for card, cpus in pools.items() if not cpus]:
        raise ValueError(f"{without[0]}: all cores of its socket are reserved")
    return pools


def blocks(online: int, devices: int) -> list[int]:
    """Return the CPUs of each device as masks, from the number of online CPUs."""
    size = online // devices
    return [((1 << size) - 1) << device * size for device in range(devices)]


def torch_npu(subject: Subject) -> Mapping[Card, int]:
    made = blocks(subject.machine.online.bit_count(), len(subject.cards))
    for number, cpus in enumerate(made):
        if outside := cpus & ~subject.machine.usable:
            raise ValueError(f"device {number}: CPUs {text_of(outside)} are not in the thread's mask; nothing is bound")
    return dict(zip(subject.cards, made, strict=True))


KUBELET = (
    Rule("kubelet, packed", partial(kubelet, options=PACKED)),
    Rule("kubelet, distributed", partial(kubelet, options=DISTRIBUTED)),
    Rule("kubelet, aligned", partial(kubelet, options=PACKED, hints=True)),
)
OTHERS = (Rule("Slurm, Cores= of gres.conf", slurm), Rule("torch_npu, default", torch_npu))
