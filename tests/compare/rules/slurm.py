# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``Cores=`` in Slurm's gres.conf can say: every card has all cores of its NUMA node.

Source: SchedMD/slurm@284c3b95f08a2dc2478499837b03355e1b9c5c75, ``src/interfaces/gres.c``, ``_check_core_range_matches_sock``, restated,
with ``SlurmdParameters=numa_node_as_socket``.

1. ``Cores=`` names all cores of the host or all cores of one socket; a node with another line is drained.
2. All sockets of a node have the same number of cores (``CoresPerSocket`` in slurm.conf).
3. A card without a node of its own has no ``Cores=``, and with it the whole host.
4. Reserved CPUs are whole cores (``CpuSpecList``).

No unit test of that function was found in Slurm's ``testsuite``. The unit test here uses the example of gres.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import text_of
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from tests.compare.rules import Rule
from tests.compare.subject import Subject


def divide(subject: Subject) -> Mapping[Card, int]:
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


RULES = (Rule("Slurm, Cores= of gres.conf", divide),)
