# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet's packed choice for equal containers: whole NUMA nodes and sockets first, then whole cores."""

from __future__ import annotations

from ansible_collections.npu.affinity.plugins.plugin_utils._kubelet import cpus
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies import Strategy
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.strategies._kubelet import containers

STRATEGY = Strategy(lambda machine, _: containers(machine, "packed", lambda model, free, count, _group: cpus.packed(model, free, count)))
