# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters for parts of NPUs, as a play calls them."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.npu.affinity.plugins.filter.fit_vnpus import FilterModule as FitVnpus
from ansible_collections.npu.affinity.plugins.filter.vnpu_request import FilterModule as VnpuRequest

fit_vnpus = FitVnpus().filters()["fit_vnpus"]
vnpu_request = VnpuRequest().filters()["vnpu_request"]
HOST = {"npus": [{"kind": "npu", "id": number, "name": "910B3", "memory_mib": 65536} for number in (0, 1)]}


def share(core):
    return vnpu_request("910B3", memory=28672, core=core, mode="hami-core")


def test_two_shares_of_one_host_go_on_one_card_until_it_is_full():
    results = fit_vnpus(HOST, [share(20), share(40), share(50), share(60)], soft=True, node_soft=True)
    assert [result["devices"] for result in results] == [["npu-1"], ["npu-1"], ["npu-0"], None]
    assert results[3]["reason"] == "1/2 CardInsufficientCore, 1/2 CardInsufficientMemory"
    assert results[0]["taken"] == [{"id": "npu-1", "memory_mb": 28672, "core": 20, "template": None}]


def test_options_are_a_dictionary_or_named_and_names_win():
    devices = [{"id": "a", "total_memory_mb": 100, "type": "T"}]
    asked = {"memory_mb": 1, "core": 1, "type": "T"}
    assert fit_vnpus(devices, asked, {"soft": True})["reason"] == "1/1 ModeNotFit"
    assert fit_vnpus(devices, asked, {"soft": True}, soft=False)["devices"] == ["a"]


WRONG = [
    (lambda: fit_vnpus([], {"type": "T"}, hard=True), "there is no option hard"),
    (lambda: fit_vnpus([{"id": "a", "size": 1}], {}), "npu.affinity.fit_vnpus: device a has unknown fields size"),
    (lambda: fit_vnpus({"cpus": {}}, {}), "npu.affinity.fit_vnpus: devices: expected a list of devices, or the fact"),
    (lambda: vnpu_request("910B3", memory="28Gi", mode="hami-core"), "npu.affinity.vnpu_request: memory: 28Gi is"),
    (lambda: vnpu_request("H100"), "npu.affinity.vnpu_request: chip: HAMi has no templates"),
]


@pytest.mark.parametrize("call, sentence", WRONG)
def test_mistakes_are_sentences_with_the_name_of_the_filter(call, sentence):
    with pytest.raises(AnsibleFilterError, match=sentence):
        call()
