# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What containers ask for, what of it fits on cards, and that no card is ever given away twice."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import Rules, devices_of, fit, fit_all
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import CHIPS, chip_of, slots
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.requests import admit, parse, request, rounded

SOFT = Rules(soft=True, node_soft=True)


def card(name, **values):
    return {"id": name, "total_memory_mb": 1000, "total_core": 100, "slots": 10, "type": "C", **values}


def ask(cards=1, memory_mb=100, core=10, **values):
    return {"cards": cards, "memory_mb": memory_mb, "core": core, "type": "C", **values}


OBSTACLES = [
    ("ill", card("a", healthy=False, type="other"), Rules(), "CardNotHealth"),
    ("another chip", card("a", type="other", slots=0), Rules(), "CardTypeMismatch"),
    ("not among those to use", card("a", slots=0), Rules(use=["b"]), "CardUuidMismatch"),
    ("among those not to use", card("a"), Rules(nouse=["a"]), "CardUuidMismatch"),
    ("no slot", card("a", used_slots=10, used_memory_mb=1000), Rules(mutex=True), "CardTimeSlicingExhausted"),
    ("used, and to be alone", card("a", used_slots=1, used_memory_mb=1000), Rules(mutex=True), "ExclusiveDeviceAllocateConflict"),
    ("memory", card("a", used_memory_mb=901, used_core=95), SOFT, "CardInsufficientMemory"),
    ("compute", card("a", used_core=91), SOFT, "CardInsufficientCore"),
    ("AI cores", card("a", total_core=8), Rules(), "CardInsufficientCore"),
]


@pytest.mark.parametrize("device, rules, word", [row[1:] for row in OBSTACLES], ids=[row[0] for row in OBSTACLES])
def test_first_obstacle_in_hamis_order_is_reported_and_counted(device, rules, word):
    result = fit([device], ask(), rules)
    assert (result.devices, result.reason, result.reasons) == (None, f"1/1 {word}", {"a": word})


def test_a_whole_card_must_be_unused_and_a_zero_share_not_full():
    assert fit([card("a", used_slots=1)], ask(core=100), SOFT).reason == "1/1 ExclusiveDeviceAllocateConflict"
    assert fit([card("a", used_core=100, used_slots=3)], ask(core=0), SOFT).reason == "1/1 CardComputeUnitsExhausted"
    assert fit([card("a", used_core=99, used_slots=3)], ask(core=0), SOFT).devices == ["a"]
    assert fit([card("a")], ask(core=500), SOFT).taken[0]["core"] == 100


def test_a_soft_request_needs_a_soft_node():
    result = fit([card("a"), card("b")], ask(), Rules(soft=True))
    assert (result.reason, result.reasons) == ("1/2 ModeNotFit", {"a": "ModeNotFit", "b": "ModeNotFit"})


def test_reasons_of_several_cards_are_counted_together():
    cards = [card("a"), card("b", used_core=100), card("c", used_core=95), card("d", healthy=False)]
    result = fit(cards, ask(cards=2), SOFT)
    assert result.reason == "1/4 AllocatedCardsInsufficientRequest, 1/4 CardNotHealth, 2/4 CardInsufficientCore"
    assert result.reasons == {"b": "CardInsufficientCore", "c": "CardInsufficientCore", "d": "CardNotHealth"}


def test_the_last_card_is_first_and_gives_all_memory_by_default():
    result = fit([card("a"), card("b"), card("c", healthy=False)], ask(memory_mb=0), SOFT)
    assert (result.devices, result.taken[0]["memory_mb"]) == (["b"], 1000)


PAIRS = [card(f"die-{number}", index=number) for number in range(6)]


def test_two_dies_or_more_of_910c_come_in_whole_cards():
    rules = Rules(word="Ascend910C")
    assert fit(PAIRS, ask(cards=2, core=0), rules).devices == ["die-5", "die-4"]
    broken = [*PAIRS[:5], {**PAIRS[5], "healthy": False}]
    assert fit(broken, ask(cards=4, core=0), rules).devices == ["die-3", "die-2", "die-1", "die-0"]
    assert fit(broken, ask(cards=6, core=0), rules).reason == "1/6 CardNotHealth, 4/6 AllocatedCardsInsufficientRequest"


def test_several_cards_come_from_the_group_with_most_candidates():
    cards = [card(name, network_id=group, type="Ascend910B3") for name, group in zip("abcde", [0, 1, 1, 1, 0], strict=True)]
    asked = ask(type="Ascend910B3", core=0, cards=2)
    assert fit(cards, asked, Rules()).devices == ["d", "c"]
    assert fit(cards, {**asked, "cards": 4}, Rules()).devices == ["d", "c", "b", "e"]
    assert fit([{**cards[0], "network_id": None}, *cards[1:]], asked, Rules()).devices == ["e", "d"]


WRONG = [
    ([card("a", colour="red")], ask(), "device a has unknown fields colour"),
    ([card("a"), card("a")], ask(), "the same id"),
    ([card("")], ask(), "every device needs an id"),
    ([card("a", used_memory_mb=-1)], ask(), "device a: used_memory_mb must be a whole number that is not negative; got -1"),
    ([card("a")], ask(cards=0), "request: 0 cards are none"),
    ([card("a")], ask(memory_mb="28Gi"), "request: memory_mb must be a whole number"),
    ([card("a")], ["a"], "request: expected a dictionary with cards, memory_mb"),
]


@pytest.mark.parametrize("devices, asked, sentence", WRONG)
def test_what_is_no_device_and_no_request_is_said(devices, asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(devices, asked, SOFT)


@st.composite
def cards_and_requests(draw):
    chip = draw(st.sampled_from(CHIPS))
    names = range(draw(st.integers(1, 6)))
    group = draw(st.sampled_from([lambda number: None, lambda number: number % 2]))
    devices = [
        {
            "id": f"card-{number}",
            "index": number,
            "total_memory_mb": chip.allocatable,
            "used_memory_mb": draw(st.integers(0, chip.allocatable)),
            "total_core": 100,
            "used_core": draw(st.integers(0, 100)),
            "slots": draw(st.integers(0, 12)),
            "used_slots": draw(st.integers(0, 3)),
            "type": chip.word,
            "network_id": group(number),
        }
        for number in names
    ]
    mode = draw(st.sampled_from(["hard", "hami-core"]))
    requests = []
    for _number in range(draw(st.integers(1, 12))):
        count, core = draw(st.sampled_from([1, 2, 4])), draw(st.integers(0, 130)) if mode == "hami-core" else 0
        memory = draw(st.integers(1, chip.capacity)) if mode == "hami-core" or count == 1 else None
        requests.append(request(chip, count, memory, core, mode))
    return devices, requests, Rules(soft=mode == "hami-core", node_soft=True, word=chip.word)


@given(cards_and_requests())
def test_no_accepted_set_of_quotas_exceeds_a_card(drawn):
    devices, requests, rules = drawn
    unchanged = copy.deepcopy((devices, requests))
    results = fit_all(devices, requests, rules)
    assert (devices, requests) == unchanged
    assert results == fit_all(devices, requests, rules)
    for device in devices:
        parts = [part for result in results for part in result.taken if part["id"] == device["id"]]
        if parts:
            assert device["used_memory_mb"] + sum(part["memory_mb"] for part in parts) <= device["total_memory_mb"]
            assert device["used_core"] + sum(part["core"] for part in parts) <= 100
            assert device["used_slots"] + len(parts) <= device["slots"]
    for result, asked in zip(results, requests, strict=True):
        assert (result.devices is None) == (result.reason is not None) == (not result.taken)
        assert result.devices is None or len(set(result.devices)) == asked["cards"]


TOPOLOGY = {
    "npus": [
        {"kind": "npu", "id": 0, "name": "910B3", "memory_mib": 65536},
        {"kind": "npu", "id": 1, "name": "Ascend950DT", "memory_mib": 131072},
        {"kind": "gpu", "id": 0, "name": "L40S", "memory_mib": 46068},
    ]
}


def test_npus_of_a_host_are_devices_where_hami_knows_the_chip():
    (device,) = devices_of(TOPOLOGY, soft=True)
    assert {"id": "npu-0", "type": "Ascend910B3", "total_memory_mb": 65536, "total_core": 100, "slots": 4}.items() <= device.items()
    assert devices_of(TOPOLOGY, count=20)[0]["total_core"] == 20


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_memory_above_a_template_is_rounded_up_to_the_next_one(chip):
    steps = [(template.memory, template.name) for template in chip.templates] + [(chip.allocatable, None)]
    for (memory, name), following in zip(steps, steps[1:], strict=False):
        assert rounded(chip, memory) == (memory, name)
        assert rounded(chip, memory + 1) == following
    assert rounded(chip, chip.capacity) == (chip.allocatable, None)
    with pytest.raises(ValueError, match=f"^huawei.com/{chip.word}-memory {chip.capacity + 1} is invalid$"):
        rounded(chip, chip.capacity + 1)


def test_chips_are_known_by_their_npu_smi_name_and_hamis_word():
    assert chip_of("310P3") is chip_of("Ascend310P")
    with pytest.raises(ValueError, match=r"no templates and resources for 'Ascend950DT'; it knows 910A \(Ascend910A\), .*310P3"):
        chip_of("Ascend950DT")


ADMITTED = [
    ("nothing but a card", ("910B4", 1), {"count": 1, "memory_mb": 32768, "template": None, "core": 0}),
    ("a half", ("910B4", 1, 9000), {"count": 1, "memory_mb": 16384, "template": "vir10_3c_16g", "core": 0}),
    ("soft: as requested", ("910B4", 1, 9000, 35, "hami-core"), {"count": 1, "memory_mb": 9000, "template": None, "core": 35}),
    ("soft: parts of several", ("910B3", 4, 9000, 35, "hami-core"), {"count": 4, "memory_mb": 9000, "template": None, "core": 35}),
    ("whole cards", ("910B2", 8), {"count": 8, "memory_mb": 65536, "template": None, "core": 0}),
    ("one die is a pair", ("Ascend910C", 1), {"count": 2, "memory_mb": 65536, "template": None, "core": 0}),
]


@pytest.mark.parametrize("asked, admitted", [row[1:] for row in ADMITTED], ids=[row[0] for row in ADMITTED])
def test_what_a_request_becomes(asked, admitted):
    assert admit(chip_of(asked[0]), *asked[1:]) == admitted


REFUSED = [
    (("Ascend910C", 7), "Ascend910C device request must be 1 or 2*n, got 7"),
    (("310P3", 1, None, 5), "huawei.com/Ascend310P-core is only supported in hami-core (soft split) mode"),
    (("310P3", 3, 3000), "vNPU not supported for multiple devices"),
    (("910A", 1, 40000), "huawei.com/Ascend910A-memory 40000 is invalid"),
    (("910A", 1, 4000, 10, "soft"), "mode: expected one of hard or hami-core; got 'soft'"),
]


@pytest.mark.parametrize("asked, sentence", REFUSED)
def test_what_is_refused_in_the_words_of_hami(asked, sentence):
    with pytest.raises(ValueError) as error:
        admit(chip_of(asked[0]), *asked[1:])
    assert str(error.value) == sentence


@pytest.mark.parametrize("memory, percent", [(None, 100), (0, 100), ("16384", 0), ("16Ki", 0)])
def test_no_memory_means_all_of_it(memory, percent):
    assert parse(1, memory)["memory_percent"] == percent


DROPPED = [
    ((0,), "count: 0 cards are none"),
    ((True,), "count: expected a whole number"),
    ((1, "28Gi"), "memory: 28Gi is 30064771072, more than HAMi can count .* 16Gi of memory are 16384"),
    ((1, 2**30, None, 100), "memory: 107374182400 MB are more"),
    ((1, "half"), "memory: expected a whole number that is not negative; got 'half'"),
    ((1, 1.5), "memory: expected a whole number"),
    ((1, None, "-20"), "core: expected a whole number that is not negative; got '-20'"),
]


@pytest.mark.parametrize("asked, sentence", DROPPED)
def test_what_is_no_request_is_said(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(*asked)


def test_a_request_turns_container_values_into_card_demands():
    asked = request(chip_of("910B3"), "1", "28672", "20", "hami-core")
    assert asked == {"cards": 1, "memory_mb": 28672, "memory_percent": 0, "core": 20, "type": "Ascend910B3", "template": None}
    assert request(chip_of("910B3"), 1, 20000)["template"] == "vir10_3c_32g"


def test_slots_are_the_nodes_count_or_fit_the_smallest_template():
    assert [slots(65536, (16384, 32768)), slots(21527, (3072,)), slots(65536, (16384,), 20), slots(65536, ())] == [4, 7, 20, 1]
