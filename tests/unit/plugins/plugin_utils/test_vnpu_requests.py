# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What containers ask for, and what they get of it."""

from __future__ import annotations

import pytest

from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.chips import CHIPS, chip_of, slots
from ansible_collections.npu.affinity.plugins.plugin_utils._vnpu.requests import admit, parse, request, rounded


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
