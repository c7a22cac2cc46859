# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's distribute-cpus-across-numa for equal containers: equal parts of as few NUMA nodes as can give them.

One that fits a NUMA node gets all of its CPUs there, on the node that leaves all nodes most alike; larger ones are split evenly.
"""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Strategy
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._kubelet import containers

STRATEGY = Strategy(lambda machine, _: containers(machine, "distributed", cpus.distributed))
