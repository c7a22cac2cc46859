# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's static CPU manager with ``full-pcpus-only``, for one container per card, in the order of their ids.

Source: kubernetes/kubernetes@b0d609f0, ``pkg/kubelet/cm/cpumanager/cpu_assignment.go``, as
``plugin_utils/_kubelet/cpus.py`` restates it for the collection. Unit tests check that against upstream's tables.

*packed* is the default, *distributed* is ``distribute-cpus-across-numa``. *aligned* is packed with the topology manager's best-effort
policy and a device plugin that names the NUMA node of each card: its CPUs come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet.cpus import PolicyOptions, allocate
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import Rule
from tests.compare.subject import Subject

PACKED = PolicyOptions(full_pcpus_only=True)
DISTRIBUTED = PolicyOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)


def divide(subject: Subject, options: PolicyOptions, hints: bool = False) -> Mapping[Card, int]:
    if not subject.share:
        raise ValueError(f"{len(subject.cards)} containers, and {subject.machine.usable.bit_count()} CPUs: not a whole core for each")
    shared = subject.machine.usable
    pools = {}
    for card in subject.cards:
        nodes = [card.numa] if hints and card.numa is not None else None
        pools[card] = allocate(subject.units, shared, subject.share, options, nodes=nodes)
        shared &= ~pools[card]
    return pools


RULES = (
    Rule("kubelet, packed", partial(divide, options=PACKED)),
    Rule("kubelet, distributed", partial(divide, options=DISTRIBUTED)),
    Rule("kubelet, aligned", partial(divide, options=PACKED, hints=True)),
)
