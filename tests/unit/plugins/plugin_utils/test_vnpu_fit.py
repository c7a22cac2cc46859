# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What containers ask for, what of it fits on cards, and that no card is ever given away twice."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import CHIPS, Rules, admit, chip_of, devices_of, fit, fit_all
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.fit import parse, requested, rounded, slots

HARD, SOFT = Rules(), Rules(soft=True, node_soft=True)


def card(name, **values):
    return {"id": name, "total_memory_mb": 1000, "total_core": 100, "slots": 10, "type": "C", **values}


def ask(cards=1, memory_mb=100, core=10, **values):
    return {"cards": cards, "memory_mb": memory_mb, "core": core, "type": "C", **values}


ILL, USED = {"healthy": False}, {"used_slots": 1, "used_memory_mb": 1000}
DIES = [card(f"die-{number}", index=number) for number in range(6)]
BROKEN = [*DIES[:5], {**DIES[5], **ILL}]
GROUPS = [card(name, network_id=group, type="Ascend910B3") for name, group in zip("abcde", [0, 1, 1, 1, 0], strict=True)]
UNGROUPED = [{**GROUPS[0], "network_id": None}, *GROUPS[1:]]
C910, B910 = Rules(word="Ascend910C"), {"type": "Ascend910B3", "core": 0}
SEVERAL = [card("a"), card("b", used_core=100), card("c", used_core=95), card("d", **ILL)]
# Cards, the request, rules, and the cards that are taken in order, or how often each obstacle was met.
FITS = [
    ("ill", [card("a", **ILL, type="other")], ask(), HARD, "1/1 CardNotHealth"),
    ("another chip", [card("a", type="other", slots=0)], ask(), HARD, "1/1 CardTypeMismatch"),
    ("not among those to use", [card("a", slots=0)], ask(), Rules(use=["b"]), "1/1 CardUuidMismatch"),
    ("among those not to use", [card("a")], ask(), Rules(nouse=["a"]), "1/1 CardUuidMismatch"),
    ("no slot", [card("a", used_slots=10, used_memory_mb=1000)], ask(), Rules(mutex=True), "1/1 CardTimeSlicingExhausted"),
    ("used, and to be alone", [card("a", **USED)], ask(), Rules(mutex=True), "1/1 ExclusiveDeviceAllocateConflict"),
    ("memory", [card("a", used_memory_mb=901, used_core=95)], ask(), SOFT, "1/1 CardInsufficientMemory"),
    ("compute", [card("a", used_core=91)], ask(), SOFT, "1/1 CardInsufficientCore"),
    ("AI cores", [card("a", total_core=8)], ask(), HARD, "1/1 CardInsufficientCore"),
    ("a whole card that is used", [card("a", used_slots=1)], ask(core=100), SOFT, "1/1 ExclusiveDeviceAllocateConflict"),
    ("no share of a full one", [card("a", used_core=100, used_slots=3)], ask(core=0), SOFT, "1/1 CardComputeUnitsExhausted"),
    ("no share of one that is not full", [card("a", used_core=99, used_slots=3)], ask(core=0), SOFT, ["a"]),
    ("a soft request on a hard node", [card("a"), card("b")], ask(), Rules(soft=True), "1/2 ModeNotFit"),
    ("several", SEVERAL, ask(cards=2), SOFT, "1/4 AllocatedCardsInsufficientRequest, 1/4 CardNotHealth, 2/4 CardInsufficientCore"),
    ("the last card first", [card("a"), card("b"), card("c", **ILL)], ask(memory_mb=0), SOFT, ["b"]),
    ("two dies of a card", DIES, ask(cards=2, core=0), C910, ["die-5", "die-4"]),
    ("whole cards", BROKEN, ask(cards=4, core=0), C910, ["die-3", "die-2", "die-1", "die-0"]),
    ("too few of them", BROKEN, ask(cards=6, core=0), C910, "1/6 CardNotHealth, 4/6 AllocatedCardsInsufficientRequest"),
    ("the group with most candidates", GROUPS, ask(cards=2, **B910), HARD, ["d", "c"]),
    ("then others", GROUPS, ask(cards=4, **B910), HARD, ["d", "c", "b", "e"]),
    ("groups of which one is not known", UNGROUPED, ask(cards=2, **B910), HARD, ["e", "d"]),
]


@pytest.mark.parametrize("cards, request_, rules, expected", [row[1:] for row in FITS], ids=[row[0] for row in FITS])
def test_cards_are_taken_or_obstacles_counted_in_hamis_order(cards, request_, rules, expected):
    result = fit(cards, request_, rules)
    assert (result.reason or result.devices) == expected and bool(result.reason) != bool(result.devices)


def test_each_card_has_its_obstacle_or_gives_what_is_asked_for():
    assert fit(SEVERAL, ask(cards=2), SOFT).reasons == {"b": "CardInsufficientCore", "c": "CardInsufficientCore", "d": "CardNotHealth"}
    given_away = fit([card("a")], ask(core=500, memory_mb=0), SOFT).taken[0]
    assert (given_away["core"], given_away["memory_mb"]) == (100, 1000), "all memory by default, and no more than a card"


WRONG = [
    (lambda: fit([card("a", colour="red")], ask(), SOFT), "device a has unknown fields colour"),
    (lambda: fit([card("a"), card("a")], ask(), SOFT), "the same id"),
    (lambda: fit([card("")], ask(), SOFT), "every device needs an id"),
    (lambda: fit([card("a", used_memory_mb=-1)], ask(), SOFT), "device a: used_memory_mb must be a whole number .*; got -1"),
    (lambda: fit([card("a")], ask(cards=0), SOFT), "request: expected 1 or more cards; got 0"),
    (lambda: fit([card("a")], ask(memory_mb="28Gi"), SOFT), "request: memory_mb must be a whole number"),
    (lambda: fit([card("a")], ["a"], SOFT), "request: expected a dictionary with cards, memory_mb"),
    (lambda: admit(chip_of("Ascend910C"), 7), r"^Ascend910C device request must be 1 or 2\*n, got 7$"),
    (lambda: admit(chip_of("310P3"), 1, None, 5), r"^huawei.com/Ascend310P-core is only supported in hami-core \(soft split\) mode$"),
    (lambda: admit(chip_of("310P3"), 3, 3000), "^vNPU not supported for multiple devices$"),
    (lambda: admit(chip_of("910A"), 1, 40000), "^huawei.com/Ascend910A-memory 40000 is invalid$"),
    (lambda: admit(chip_of("910A"), 1, 4000, 10, "soft"), "^mode: expected one of hard or hami-core; got 'soft'$"),
    (lambda: chip_of("Ascend950DT"), r"no templates and resources for 'Ascend950DT'; it knows 910A \(Ascend910A\), .*310P3"),
    (lambda: parse(0), "count: expected 1 or more cards; got 0"),
    (lambda: parse(True), "count: expected a whole number"),
    (lambda: parse(1, "28Gi"), "memory: 28Gi is 30064771072, more than HAMi can count .* 16Gi of memory are 16384"),
    (lambda: parse(1, 2**30, None, 100), "memory: 107374182400 MB are more"),
    (lambda: parse(1, "half"), "memory: expected a whole number that is not negative; got 'half'"),
    (lambda: parse(1, 1.5), "memory: expected a whole number"),
    (lambda: parse(1, None, "-20"), "core: expected a whole number that is not negative; got '-20'"),
]


@pytest.mark.parametrize("call, sentence", WRONG, ids=[sentence[:50] for _call, sentence in WRONG])
def test_what_is_no_device_and_no_request_is_said(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@st.composite
def cards_and_requests(draw):
    chip = draw(st.sampled_from(CHIPS))
    grouped = draw(st.booleans())
    most = {"used_memory_mb": chip.allocatable, "used_core": 100, "slots": 12, "used_slots": 3}
    devices = [
        card(f"card-{number}", index=number, total_memory_mb=chip.allocatable, type=chip.word, network_id=number % 2 if grouped else None)
        | {name: draw(st.integers(0, value)) for name, value in most.items()}
        for number in range(draw(st.integers(1, 6)))
    ]
    mode = draw(st.sampled_from(["hard", "hami-core"]))
    requests = []
    for _number in range(draw(st.integers(1, 12))):
        count, core = draw(st.sampled_from([1, 2, 4])), draw(st.integers(0, 130)) if mode == "hami-core" else 0
        memory = draw(st.integers(1, chip.capacity)) if mode == "hami-core" or count == 1 else None
        requests.append(requested(chip, count, memory, core, mode))
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


def test_npus_of_a_host_are_devices_where_hami_knows_the_chip():
    chips = [("npu", "910B3", 65536), ("npu", "Ascend950DT", 131072), ("gpu", "L40S", 46068)]
    topology = {"npus": [{"kind": kind, "id": id_, "name": name, "memory_mib": memory} for id_, (kind, name, memory) in enumerate(chips)]}
    (device,) = devices_of(topology, soft=True)
    assert {"id": "npu-0", "type": "Ascend910B3", "total_memory_mb": 65536, "total_core": 100, "slots": 4}.items() <= device.items()
    assert devices_of(topology, count=20)[0]["total_core"] == 20
    assert chip_of("310P3") is chip_of("Ascend310P")


TEMPLATES = [
    ("910A", 32768, "vir02 2184, vir04 4369, vir08 8738, vir16 17476, None 32768"),
    ("910B2", 65536, "vir03_1c_8g 8192, vir06_1c_16g 16384, vir12_3c_32g 32768, None 65536"),
    ("910B3", 65536, "vir05_1c_16g 16384, vir10_3c_32g 32768, None 65536"),
    ("910B4-1", 65536, "vir05_1c_16g 16384, vir10_3c_32g 32768, None 65536"),
    ("910B4", 32768, "vir05_1c_8g 8192, vir10_3c_16g 16384, None 32768"),
    ("310P3", 24576, "vir01 3072, vir02 6144, vir04 12288, None 21527"),
    ("Ascend910C", 65536, "vir05_1c_16g 16384, vir10_3c_32g 32768, None 65536"),
]


@pytest.mark.parametrize("name, capacity, templates", TEMPLATES, ids=[row[0] for row in TEMPLATES])
def test_memory_above_a_template_is_rounded_up_to_the_next_one(name, capacity, templates):
    chip, asked, found = chip_of(name), 1, []
    while asked <= chip.allocatable:
        memory, template = rounded(chip, asked)
        assert rounded(chip, memory) == (memory, template)
        found.append(f"{template} {memory}")
        asked = memory + 1
    assert ", ".join(found) == templates and rounded(chip, capacity) == (chip.allocatable, None)
    with pytest.raises(ValueError, match=f"^huawei.com/{chip.word}-memory {capacity + 1} is invalid$"):
        rounded(chip, capacity + 1)


# What a container asks for: chip, cards, memory, compute and mode; cards, memory, template and compute that it gets.
ADMITTED = [
    ("nothing but a card", ("910B4", 1), (1, 32768, None, 0)),
    ("a half", ("910B4", 1, 9000), (1, 16384, "vir10_3c_16g", 0)),
    ("soft: as requested", ("910B4", 1, 9000, 35, "hami-core"), (1, 9000, None, 35)),
    ("soft: parts of several", ("910B3", 4, 9000, 35, "hami-core"), (4, 9000, None, 35)),
    ("whole cards", ("910B2", 8), (8, 65536, None, 0)),
    ("one die is a pair", ("Ascend910C", 1), (2, 65536, None, 0)),
]


@pytest.mark.parametrize("asked, admitted", [row[1:] for row in ADMITTED], ids=[row[0] for row in ADMITTED])
def test_what_a_request_becomes(asked, admitted):
    assert admit(chip_of(asked[0]), *asked[1:]) == dict(zip(("count", "memory_mb", "template", "core"), admitted, strict=True))


def test_a_request_turns_container_values_into_card_demands():
    asked = requested(chip_of("910B3"), "1", "28672", "20", "hami-core")
    assert asked == {"cards": 1, "memory_mb": 28672, "memory_percent": 0, "core": 20, "type": "Ascend910B3", "template": None}
    assert requested(chip_of("910B3"), 1, 20000)["template"] == "vir10_3c_32g"
    assert [parse(1, memory)["memory_percent"] for memory in (None, 0, "16384", "16Ki")] == [100, 100, 0, 0], "no memory means all of it"


def test_slots_are_the_nodes_count_or_fit_the_smallest_template():
    assert [slots(65536, (16384, 32768)), slots(21527, (3072,)), slots(65536, (16384,), 20), slots(65536, ())] == [4, 7, 20, 1]
