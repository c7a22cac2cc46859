# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter.plan import FilterModule as Plan
from ansible_collections.npu.affinity.plugins.filter.workloads import FilterModule as Workloads
from ansible_collections.npu.affinity.plugins.module_utils._host.host import Host
from ansible_collections.npu.affinity.plugins.module_utils._topology.gather import gather
from tests.simulator.generate import generate

plan = Plan().filters()["plan"]
workloads = Workloads().filters()["workloads"]


@pytest.fixture(scope="module")
def eight_gpus(tmp_path_factory):
    tree = tmp_path_factory.mktemp("l40s")
    generate("l40s_384", tree)
    return gather(Host(str(tree)))


def test_the_published_task_of_five_cards_gets_144_and_96_cpus(eight_gpus):
    (task,) = workloads(plan(eight_gpus), [{"name": "llm-a", "npus": [0, 1, 2, 4, 5]}], eight_gpus)
    assert (task["pool"], task["mems"]) == ("0-71,96-143,192-263,288-335", "0-1")
    assert task["cpus_per_node"] == {"0": 144, "1": 96}
    assert task["slice"] == "gpu-llm_a.slice"
    assert [process["pool"] for process in task["processes"]][:2] == ["0-23,192-215", "24-47,216-239"]


def test_a_card_that_is_not_there_is_refused_by_name(eight_gpus):
    with pytest.raises(AnsibleFilterError, match="npu_affinity_workloads: llm-a wants NPU 8, but the plan of this host has NPU 0, 1, 2"):
        workloads(plan(eight_gpus), [{"name": "llm-a", "npus": [8]}], eight_gpus)
