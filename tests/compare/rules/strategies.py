# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""npu.affinity with its defaults, and the three rules of vLLM-Ascend, which are strategies of the same planner.

Source: vllm-project/vllm-ascend@182b75ea, ``vllm_ascend/cpu_binding.py``. With ``repair=False`` a strategy gives what it published; unit
tests check that against plans that the published file made.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.npu.affinity.plugins.plugin_utils._cpusets import mask
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.machine import Card
from ansible_collections.npu.affinity.plugins.plugin_utils._plan.planner import plan
from tests.compare.rules import Rule
from tests.compare.machines import Subject

OURS = "npu.affinity"


def by_plan(subject: Subject, strategy: str, repair: bool) -> Mapping[Card, int]:
    made = plan(subject.topology, strategy=strategy, repair=repair, **subject.shape.options)
    if not made["npus"]:
        raise ValueError(made["warnings"][-1])
    cards = {card.slice: card for card in subject.cards}
    return {cards[entry["slice"]]: mask(entry["pool"]) for entry in made["npus"]}


def ours(subject: Subject) -> Mapping[Card, int]:
    return by_plan(subject, "auto", repair=True)


def _published(strategy: str) -> Rule:
    return Rule(f"vLLM-Ascend, {strategy}", lambda subject: by_plan(subject, strategy, repair=False))


RULES = (Rule(OURS, ours), *map(_published, ("global_slice", "topo_affinity", "cluster")))
